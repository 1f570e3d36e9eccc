// The denylist enforcer in C: denies the hosts of params.hosts and what lies
// below them, abstains from the rest. No library, no allocation.
//
// clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o denylist.wasm denylist.c

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define EXPORT(name) __attribute__((export_name(#name)))

static u8 input[1 << 16];
static u8 hosts[1 << 12]; // unescaped, each ended by a zero
static u32 hosts_size;

typedef struct {
  const u8 *p, *end; // [p, end), p == 0 when absent
} span;

// after_string returns what follows the string whose opening quote is at p.
static const u8 *after_string(const u8 *p, const u8 *end) {
  for (p++; p < end; p++) {
    if (*p == '\\') p++;
    else if (*p == '"') return p + 1;
  }
  return 0;
}

// after_value returns what follows the value at p.
static const u8 *after_value(const u8 *p, const u8 *end) {
  u32 depth = 0;
  while (p && p < end) {
    if (*p == '"') {
      p = after_string(p, end);
    } else if (*p == '{' || *p == '[') {
      depth++;
      p++;
      continue;
    } else if (*p == '}' || *p == ']') {
      if (depth == 0) return p;
      depth--;
      p++;
    } else if (*p == ',' && depth == 0) {
      return p;
    } else {
      p++;
      continue;
    }
    if (depth == 0) return p;
  }
  return 0;
}

// member returns the value of a key in the object at s.
static span member(span s, const char *key) {
  span none = {0, 0};
  const u8 *p = s.p;
  if (!p || p >= s.end || *p != '{') return none;
  for (p++; p < s.end && *p == '"';) {
    const u8 *name = p + 1, *q = after_string(p, s.end);
    if (!q || q >= s.end || *q != ':') return none;
    const u8 *value = q + 1, *next = after_value(value, s.end);
    if (!next) return none;
    u32 i = 0;
    while (key[i] && name + i < q - 1 && (u8)key[i] == name[i]) i++;
    if (!key[i] && name + i == q - 1) {
      span found = {value, next};
      return found;
    }
    if (next < s.end && *next == ',') next++;
    p = next;
  }
  return none;
}

// unescape writes the string value s to dst and returns its length, ~0 when it
// does not fit or is no string.
static u32 unescape(span s, u8 *dst, u32 size) {
  if (!s.p || s.end - s.p < 2 || *s.p != '"') return ~0u;
  u32 n = 0;
  for (const u8 *p = s.p + 1; p < s.end - 1; p++) {
    if (*p == '\\') p++;
    if (n == size) return ~0u;
    dst[n++] = *p;
  }
  return n;
}

EXPORT(gatehouse_abi_v1) u32 abi(void) { return 0; }

EXPORT(gatehouse_alloc) void *alloc(u32 n) { return n <= sizeof input ? input : 0; }

EXPORT(gatehouse_configure) u32 configure(const u8 *p, u32 n) {
  span message = {p, p + n}, version = member(message, "abi");
  if (!version.p) return 1;
  if (version.end - version.p != 1 || *version.p != '1') return 2;
  span list = member(member(message, "params"), "hosts");
  if (!list.p || *list.p != '[') return 1;
  hosts_size = 0;
  for (const u8 *q = list.p + 1; q < list.end && *q == '"';) {
    span host = {q, after_string(q, list.end)};
    if (!host.end) return 1;
    u32 len = unescape(host, hosts + hosts_size, sizeof hosts - hosts_size - 1);
    if (len == ~0u) return 1;
    hosts_size += len;
    hosts[hosts_size++] = 0;
    q = host.end;
    if (q < list.end && *q == ',') q++;
  }
  return hosts_size ? 0 : 1;
}

// host_of finds the name an action concerns.
static span host_of(span action) {
  static const char *const bodies[] = {"http_request", "net_connect", "git_fetch", "git_push", "model_call", "telemetry_emit"};
  span query = member(action, "dns_query");
  if (query.p) return member(query, "name");
  for (u32 i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    span body = member(action, bodies[i]);
    if (body.p) return member(member(body, "to"), "host");
  }
  span none = {0, 0};
  return none;
}

static u64 answer(const char *s) {
  u32 n = 0;
  while (s[n]) n++;
  return (u64)(u32)s << 32 | n;
}

EXPORT(gatehouse_decide) u64 decide(const u8 *p, u32 n) {
  static u8 name[1 << 16];
  span message = {p, p + n}, action = member(message, "action");
  if (!action.p) return 0;
  u32 len = unescape(host_of(action), name, sizeof name);
  for (u32 at = 0; len != ~0u && at < hosts_size;) {
    u32 size = 0, i = 0;
    while (hosts[at + size]) size++;
    while (i < size && i < len && hosts[at + size - 1 - i] == name[len - 1 - i]) i++;
    if (i == size && (len == size || name[len - size - 1] == '.'))
      return answer("{\"reason\":\"host_denied\",\"rule\":\"denylist\",\"verdict\":\"deny\"}");
    at += size + 1;
  }
  return answer("{\"reason\":\"not_listed\",\"rule\":\"denylist\",\"verdict\":\"abstain\"}");
}

EXPORT(gatehouse_describe) u64 describe(void) {
  return answer("{\"actions\":[\"dns.query\",\"git.fetch\",\"git.push\",\"http.request\",\"model.call\",\"net.connect\",\"operation.call\",\"session.spawn\",\"telemetry.emit\"],"
                "\"name\":\"denylist\",\"rules\":[\"denylist\"],\"version\":\"1\"}");
}
