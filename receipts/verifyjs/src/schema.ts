// Receipts of format v1: docs/receipts-spec.md, sections 2 and 3. Every field
// stands here once, in key order.

import { looseText } from "./bytes.ts";
import { canonicalTime } from "./clock.ts";
import { canonical, MAX_INT, Malformed, Scanner, write, type Value } from "./canon.ts";
import { isHash, ZERO, type Hash } from "./hash.ts";
import { equal } from "./bytes.ts";

export const MAX_RECEIPT = 64 << 10;
export const CONTROL = "control";

export interface Open {
  bundle?: string; code?: string; contract?: Hash; dev?: boolean; digest?: Hash; event?: string; event_leaf?: Hash;
  keyset: Hash; mode?: string; not_observed?: string[]; points?: string[]; policy?: string; state: string;
}
export interface Dec { count?: number; dev?: boolean; fault?: string; mode: string; passed: boolean; verdict: string }
export interface Out { effect: string; ref: Hash; spent?: number }
export interface Obs { contract?: Hash; level: number; point: string }
export interface Close { count: number; exit?: number; reason: string; verdicts?: Map<string, number> }
export interface Manifest {
  closed: number; heads?: Hash; losses: number; receipts: number; sessions: number; size: number; tree?: number;
}

/** Receipt is what the verifier reads of a receipt; the schema below is all of it. */
export interface Receipt {
  v: number; type: string; log: string; session: string; seq: number; prev: Hash; epoch: number; mono: number;
  t: string; at: bigint; in?: Hash; x?: Map<string, string>;
  act?: { args?: Map<string, Hash> };
  open?: Open; close?: Close; dec?: Dec; out?: Out; obs?: Obs; man?: Manifest;
}

type Rule = (s: Scanner) => Value;
interface Field { key: string; rule: Rule; required: boolean; zero: boolean }

const bad = (message: string): never => { throw new Malformed(message); };
const need = (key: string, rule: Rule): Field => ({ key, rule, required: true, zero: true });
const may = (key: string, rule: Rule): Field => ({ key, rule, required: false, zero: false });

/** fields reads the members of an object. A zero that could be left out is a second spelling. */
function fields(s: Scanner, list: Field[]): Map<string, Value> {
  const out = new Map<string, Value>();
  s.object();
  for (const f of list) {
    if (!s.tryKey(f.key)) {
      if (f.required) bad(`${f.key}: missing`);
      continue;
    }
    const v = f.rule(s);
    if (!f.zero && (v === 0 || v === false)) bad(`${f.key}: zero is written by leaving it out`);
    out.set(f.key, v);
  }
  s.endObject();
  return out;
}

const MAX_TEXT = 1024, MAX_ENTRIES = 256;

export const isToken = (s: string): boolean => s.length > 0 && s.length <= 256 && /^[!-~]+$/.test(s);

/** isName says whether s may be a log's origin or a key's name. */
export const isName = (s: string): boolean => s.length > 0 && s.length <= 200 && /^[!-*,-~]+$/.test(s);

const value: Rule = (s) => {
  const t = s.string();
  return t.bytes > MAX_TEXT ? bad("text too long") : t.value;
};
const text: Rule = (s) => value(s) || bad("empty text");
const token: Rule = (s) => {
  const t = s.string().value;
  return isToken(t) ? t : bad("not a token");
};
const number = (limit: number): Rule => (s) => {
  const n = s.uint();
  return n > limit ? bad(`above ${limit}`) : n;
};
const count = number(MAX_INT);
const flag: Rule = (s) => s.bool();
const hash: Rule = (s) => {
  const t = s.string().value;
  return isHash(t) && t !== ZERO ? t : bad("not a digest");
};
const time: Rule = (s) => {
  const t = s.string().value;
  const at = canonicalTime(t);
  return at !== undefined && at >= 1_000_000_000n ? t : bad("not a time after 1970");
};
const one = (...list: string[]): Rule => (s) => {
  const t = s.string().value;
  return list.includes(t) ? t : bad("not in the closed list");
};
const list: Rule = (s) => {
  const out: string[] = [];
  s.array();
  while (s.more() && out.length <= MAX_ENTRIES) out.push(text(s) as string);
  s.endArray();
  return out.length === 0 || out.length > MAX_ENTRIES ? bad("empty or long list") : out;
};
const map = (rule: Rule): Rule => (s) => {
  const out = new Map<string, Value>();
  s.object();
  for (let k = s.key(); k !== undefined; k = s.key()) {
    if (out.size === MAX_ENTRIES) bad("long map");
    out.set(k, rule(s));
  }
  s.endObject();
  return out.size === 0 ? bad("empty map") : out;
};
const object = (...list: Field[]): Rule => (s) => fields(s, list);

const mode = one("shadow", "hard");

const RECEIPT: Field[] = [
  may("act", object(
    may("args", map(hash)), may("authority", flag), may("blind", flag), may("connection", token), may("host", token),
    need("id", token),
    need("kind", one("net.connect", "http.request", "dns.query", "git.fetch", "git.push", "model.call", "operation.call",
      "telemetry.emit", "session.spawn")),
    may("method", token), may("name", token), may("port", number(65535)), may("repository", token), may("scheme", token),
    may("units", map(count)))),
  may("beat", object(may("head", hash), need("open", count), need("size", count))),
  may("change", object(
    may("approvers", count), need("bundle", token), may("by", text), may("digest", hash), may("enforcer", token),
    may("from", mode), may("old", hash), need("result", one("applied", "waiting", "rejected", "rolled_back", "paused")),
    may("single", flag), may("to", mode), need("via", one("config", "cli", "api", "ui")))),
  may("close", object(
    need("count", count), { key: "exit", rule: number(255), required: false, zero: true }, may("out", map(hash)),
    need("reason", one("completed", "no_effect", "failed", "timeout", "cancelled", "revoked", "lost", "refused", "receipt_flood")),
    may("spent", count), may("unknown", count), may("verdicts", map(count)))),
  may("cred", object(
    need("delivery", one("mediated", "placeholder", "absent", "raw")), may("expires", time), may("host", token),
    need("name", token), need("result", one("issued", "revoked", "pending")), may("scope", map(value)))),
  may("dec", object(
    may("by", token), may("count", count), may("dev", flag), may("dur_us", count), may("fault", token), may("fuel", count),
    may("gen", count), may("held", count), need("mode", mode), may("module", hash), need("passed", flag),
    may("policy", hash), may("reason", token), may("rule", token), need("verdict", one("allow", "deny", "abstain")))),
  may("disc", object(need("by", text), may("classes", list), may("digest", hash), need("what", text))),
  need("epoch", count),
  may("in", hash),
  may("key", object(
    need("from", count), need("id", token), need("public", hash), need("purpose", one("seal", "checkpoint", "root")),
    may("until", count))),
  need("log", token),
  may("loss", object(need("cause", token), need("count", count), need("first", count), may("head", hash))),
  may("man", object(
    need("closed", count), may("heads", hash), need("losses", count), need("receipts", count), need("sessions", count),
    need("size", count), may("tree", count))),
  need("mono", count),
  may("obs", object(
    may("build", hash), may("contract", hash), need("kind", token), need("level", number(3)),
    need("mediation", one("sole", "partial", "unknown")), need("point", token))),
  may("open", object(
    may("bundle", token), may("code", token), may("contract", hash), may("deliveries", list), may("dev", flag),
    may("digest", hash), may("event", text), may("event_leaf", hash), may("facts", map(value)), may("floor", token),
    may("floor_at", text), need("keyset", hash), may("mode", mode), may("modules", map(hash)), may("not_observed", list),
    may("parent", token), may("points", list), may("policy", one("credential_free", "required", "compatibility")),
    may("provider", token), may("sets", map(hash)), need("state", one("admitted", "refused")), may("text", text),
    may("unlimited", flag))),
  may("out", object(
    may("address", token), may("code", token), may("down", count),
    need("effect", one("forwarded", "not_forwarded", "unknown")), need("ref", hash), may("spent", count),
    may("status", number(999)), may("up", count))),
  need("prev", hash),
  may("red", map(count)),
  need("seq", count),
  need("session", token),
  may("state", object(
    may("evidence", hash), may("from", token), need("level", number(3)), may("reason", token), need("to", token))),
  need("t", time),
  need("type", (s) => {
    const t = s.string().value;
    return BODIES.has(t) ? t : bad("not in the closed list");
  }),
  need("v", number(1)),
  may("x", map(value)),
];

/** BODIES are the bodies that a receipt of a type has, no more, no less. */
const BODIES = new Map<string, string>([
  ["session.open", "open"], ["session.state", "state"], ["session.close", "close"], ["decision", "act dec"],
  ["outcome", "out"], ["progress", "out"], ["heartbeat", "beat"], ["manifest", "man"], ["loss", "loss"],
  ["policy.change", "change"], ["mode.change", "change"], ["bundle.apply", "change"], ["approval", "change"],
  ["credential.issue", "cred"], ["credential.revoke", "cred"],
  ["key.add", "key"], ["key.retire", "key"], ["key.revoke", "key"], ["export", "disc"], ["reveal", "disc"],
]);
const ALL_BODIES = ["act", "beat", "change", "close", "cred", "dec", "disc", "key", "loss", "man", "open", "out", "state"];

/** rules holds a receipt to what its fields say of each other. */
function rules(r: Receipt, m: Map<string, Value>): void {
  if (r.v !== 1) bad("another version");
  if (ALL_BODIES.filter((b) => m.has(b)).join(" ") !== BODIES.get(r.type)) bad("not the bodies of its type");
  if (!isName(r.log)) bad("malformed log");
  if (r.epoch !== 1) bad("v1 knows only epoch 1");
  if (r.session !== CONTROL && (r.type === "session.open") !== (r.seq === 0)) bad("a chain begins with session.open and has one");
  if (r.obs?.level === 3 && !r.obs.contract) bad("level 3 without the contract it rests on"); // RC-30
  if (r.in && r.type !== "decision") bad("in belongs to a decision");
  for (const k of r.x?.keys() ?? []) {
    if (k.startsWith("!") || k.indexOf(".") <= 0) bad("extension without prefix"); // RC-23
  }
  const { open, dec, man } = r;
  if (open && ((open.state === "refused") !== (open.code !== undefined) || !r.obs)) bad("refusal without code, or no observation");
  if (dec) {
    if (!r.obs) bad("no observation");
    const allow = dec.verdict === "allow";
    if ((allow && !dec.passed) || (!allow && dec.passed && dec.mode === "hard")) bad("verdict, mode and passed contradict each other");
  }
  if (man && (man.tree === undefined) !== (man.heads === undefined)) bad("heads without their number");
}

const plain = (v: Value): unknown => {
  if (!(v instanceof Map)) return v;
  const out = Object.create(null) as Record<string, unknown>;
  for (const [k, x] of v) out[k] = x;
  return out;
};

/** read returns the receipt that b is; it throws Malformed at anything else. */
export function read(b: Uint8Array): Receipt {
  if (b.length > MAX_RECEIPT) bad(`${b.length} bytes`); // RC-45
  const s = new Scanner(b);
  const m = fields(s, RECEIPT);
  s.end();
  const r = Object.create(null) as Record<string, unknown>;
  for (const [k, v] of m) r[k] = k === "x" ? v : plain(v);
  r["at"] = canonicalTime(r["t"] as string);
  rules(r as unknown as Receipt, m);
  if (!equal(write(m), b)) bad("writing it again gives other bytes"); // RC-22
  return r as unknown as Receipt;
}

/** Fault says why sealed bytes are no receipt. */
export type Fault = "unsupported" | "schema" | "canonical";

/** fault classifies bytes that read has refused. */
export function fault(b: Uint8Array): Fault {
  if (newer(b)) return "unsupported";
  return b.length > MAX_RECEIPT || canonical(b) ? "schema" : "canonical";
}

/** newer: the bytes claim another version or type, or carry a critical extension (RC-23, RC-24). */
function newer(b: Uint8Array): boolean {
  if (b.length > MAX_RECEIPT) return false;
  let doc: unknown;
  try {
    doc = JSON.parse(looseText(b));
  } catch {
    return false;
  }
  if (typeof doc !== "object" || doc === null || Array.isArray(doc)) return false;
  let v: unknown, type: unknown, x: unknown;
  for (const [key, is] of Object.entries(doc)) {
    const k = key.toLowerCase();
    if (is === null) continue;
    if (k === "v") v = is;
    if (k === "type") type = is;
    if (k === "x") x = is;
  }
  if (type !== undefined && typeof type !== "string") return false;
  if (v !== undefined && typeof v !== "number" && !/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(String(v))) return false;
  if (x !== undefined && (typeof x !== "object" || Array.isArray(x))) return false;
  if (x && Object.keys(x).some((k) => k.startsWith("!"))) return true;
  if (v !== undefined && Number.isInteger(Number(v)) && Number(v) !== 1) return true;
  return typeof type === "string" && type !== "" && !BODIES.has(type);
}
