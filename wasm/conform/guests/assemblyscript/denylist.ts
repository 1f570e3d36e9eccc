// The denylist enforcer in AssemblyScript, on its garbage-collected strings:
// denies the hosts of params.hosts and what lies below them, abstains from the
// rest.
//
// asc denylist.ts -o denylist.wasm -O --use abort=

let input = new ArrayBuffer(1 << 16);
let output = new ArrayBuffer(0);
let hosts: string[] = [];

export function gatehouse_abi_v1(): i32 {
  return 0;
}

export function gatehouse_alloc(n: i32): usize {
  return n <= input.byteLength ? changetype<usize>(input) : 0;
}

export function gatehouse_configure(p: usize, n: i32): i32 {
  const message = String.UTF8.decodeUnsafe(p, n);
  const abi = member(message, "abi");
  if (abi.length == 0) return 1;
  if (abi != "1") return 2;
  hosts = [];
  const list = member(member(message, "params"), "hosts");
  for (let i = 1; i < list.length && list.charCodeAt(i) == QUOTE; ) {
    const end = afterString(list, i);
    if (end < 0) return 1;
    hosts.push(unescape(list.substring(i, end)));
    i = end + 1; // the comma or the bracket
  }
  return hosts.length > 0 ? 0 : 1;
}

export function gatehouse_decide(p: usize, n: i32): u64 {
  const action = member(String.UTF8.decodeUnsafe(p, n), "action");
  if (action.length == 0) return 0;
  const name = hostOf(action);
  for (let i = 0; i < hosts.length; i++) {
    if (name == hosts[i] || name.endsWith("." + hosts[i])) {
      return answer('{"reason":"host_denied","rule":"denylist","verdict":"deny"}');
    }
  }
  return answer('{"reason":"not_listed","rule":"denylist","verdict":"abstain"}');
}

export function gatehouse_describe(): u64 {
  return answer(
    '{"actions":["dns.query","git.fetch","git.push","http.request","model.call","net.connect","operation.call","session.spawn","telemetry.emit"],' +
      '"name":"denylist","rules":["denylist"],"version":"1"}',
  );
}

const QUOTE = 0x22, BACKSLASH = 0x5c, COMMA = 0x2c;

function answer(s: string): u64 {
  output = String.UTF8.encode(s);
  return (<u64>changetype<usize>(output) << 32) | <u64>output.byteLength;
}

function hostOf(action: string): string {
  const query = member(action, "dns_query");
  if (query.length > 0) return unescape(member(query, "name"));
  const bodies = ["http_request", "net_connect", "git_fetch", "git_push", "model_call", "telemetry_emit"];
  for (let i = 0; i < bodies.length; i++) {
    const body = member(action, bodies[i]);
    if (body.length > 0) return unescape(member(member(body, "to"), "host"));
  }
  return "";
}

// member returns the value of a key in an object, "" when there is none.
function member(s: string, key: string): string {
  let i = 1;
  while (i < s.length && s.charCodeAt(i) == QUOTE) {
    const colon = afterString(s, i);
    if (colon < 0) return "";
    const end = afterValue(s, colon + 1);
    if (end < 0) return "";
    if (s.substring(i + 1, colon - 1) == key) return s.substring(colon + 1, end);
    i = end < s.length && s.charCodeAt(end) == COMMA ? end + 1 : end;
  }
  return "";
}

function afterString(s: string, i: i32): i32 {
  for (i++; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c == BACKSLASH) i++;
    else if (c == QUOTE) return i + 1;
  }
  return -1;
}

function afterValue(s: string, i: i32): i32 {
  let depth = 0;
  while (i >= 0 && i < s.length) {
    const c = s.charCodeAt(i);
    if (c == QUOTE) {
      i = afterString(s, i);
    } else if (c == 0x7b || c == 0x5b) {
      depth++;
      i++;
      continue;
    } else if (c == 0x7d || c == 0x5d) {
      if (depth == 0) return i;
      depth--;
      i++;
    } else if (c == COMMA && depth == 0) {
      return i;
    } else {
      i++;
      continue;
    }
    if (depth == 0) return i;
  }
  return -1;
}

// unescape reads a string value: quote and backslash are the only escapes.
function unescape(s: string): string {
  let out = "";
  for (let i = 1; i < s.length - 1; i++) {
    if (s.charCodeAt(i) == BACKSLASH) i++;
    out += s.charAt(i);
  }
  return out;
}
