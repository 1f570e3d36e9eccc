// Signed notes of C2SP, keysets and checkpoints: docs/receipts-spec.md,
// sections 6 and 7.

import { base64, equal, hex, latin, text, unbase64, unlatin, utf8 } from "./bytes.ts";
import { MAX_INT, Malformed } from "./canon.ts";
import { SECOND } from "./clock.ts";
import type { Verify } from "./ed25519.ts";
import { hash, isHash, ZERO, type Hash } from "./hash.ts";
import { isName } from "./schema.ts";
import { sha256 } from "./sha256.ts";

/** Unsupported: newer than this verifier (exit 6). */
export class Unsupported extends Error {}

/** Untrusted: no key that may signed it (exit 4). */
export class Untrusted extends Error {}

const bad = (message: string): never => { throw new Malformed(message); };

const MAX_NOTE = 1 << 20, MAX_KEYS = 1000;
const PLAIN = 0x01, COSIGNATURE = 0x04; // C2SP signature types

export interface Key {
  purpose: string; name: string; public: Uint8Array; from: number; until: number; revoked: boolean;
}

const described = (name: string, type: number, pub: Uint8Array): Uint8Array =>
  sha256(utf8(name), new Uint8Array([0x0a, type]), pub);

const keyHash = (name: string, type: number, pub: Uint8Array): string => hex(described(name, type, pub)).slice(0, 8);

export const fingerprint = (k: { name: string; public: Uint8Array }): string => hex(described(k.name, PLAIN, k.public));
export const keyID = (k: { name: string; public: Uint8Array }): string => `${k.name}+${keyHash(k.name, PLAIN, k.public)}`;

function vkey(k: { name: string; public: Uint8Array }): string {
  const data = new Uint8Array(33);
  data[0] = PLAIN;
  data.set(k.public, 1);
  return `${keyID(k)}+${base64(data)}`;
}

function parseVKey(s: string): { name: string; public: Uint8Array } {
  const at = s.indexOf("+"), then = s.indexOf("+", at + 1);
  const raw = at < 0 || then < 0 ? undefined : unbase64(s.slice(then + 1), true);
  if (!raw || raw.length !== 33 || raw[0] !== PLAIN) return bad("malformed verifier key");
  const k = { name: s.slice(0, at), public: raw.slice(1) };
  return isName(k.name) && vkey(k) === s ? k : bad("verifier key is not in its only spelling");
}

/** covers says whether k may sign the leaves first to first+count-1. */
export const covers = (k: Key, first: number, count: number): boolean =>
  count > 0 && first >= k.from && (k.until === 0 || first + count <= k.until);

// Notes.

interface Signature { name: string; hash: string; base64: string }
interface Note { text: string; sigs: Signature[]; unknown: number }
type Check = (message: Uint8Array, sig: Uint8Array) => Promise<boolean>;

/** openNote checks the signatures that known has a Check for; those of others are counted. */
async function openNote(b: Uint8Array, known: (name: string, hash: string) => Check | undefined): Promise<Note> {
  let s: string;
  try {
    s = text(b);
  } catch {
    return bad("malformed note");
  }
  const split = s.lastIndexOf("\n\n");
  if (/[\x00-\x09\x0b-\x1f]/.test(s) || split < 0 || !s.endsWith("\n") || split + 2 === s.length) bad("malformed note");
  const note: Note = { text: s.slice(0, split + 1), sigs: [], unknown: 0 };
  const message = utf8(note.text);
  const lines = s.slice(split + 2, -1).split("\n");
  if (lines.length > 100) bad("malformed note");
  const seen = new Set<string>(), strangers = new Set<string>();
  for (const line of lines) {
    const m = /^\u2014 ([^ ]+) (.+)$/su.exec(line);
    const raw = m && unbase64(m[2]!, false);
    if (!raw || raw.length < 5 || /[\p{White_Space}+]/u.test(m[1]!)) return bad("malformed note");
    const sig = { name: m[1]!, hash: hex(raw.subarray(0, 4)), base64: m[2]! };
    const check = known(sig.name, sig.hash);
    if (!check) {
      if (!strangers.has(line)) note.unknown++;
      strangers.add(line);
      continue;
    }
    const id = `${sig.name} ${sig.hash}`;
    if (seen.has(id)) continue;
    seen.add(id);
    if (!(await check(message, raw.subarray(4)))) bad(`wrong signature of ${sig.name}`);
    note.sigs.push(sig);
  }
  if (note.sigs.length === 0) throw new Untrusted("signed by no key of the keyset");
  return note;
}

/** onlySpelling says whether b is the one spelling of the note: no line repeated, foreign or spelled otherwise. */
function onlySpelling(b: Uint8Array, n: Note): boolean {
  if (n.unknown > 0) return false;
  let s = n.text + "\n";
  for (const sig of n.sigs) {
    const raw = unbase64(sig.base64, true);
    if (!raw) return false;
    s += `\u2014 ${sig.name} ${base64(raw)}\n`;
  }
  return equal(utf8(s), b);
}

// Keysets.

const KEYSET = "gatehouse-keyset/1";

export class Keyset {
  origin = "";
  serial = 0;
  root: { name: string; public: Uint8Array } = { name: "", public: new Uint8Array(0) };
  readonly was: Hash[] = [];
  readonly keys: Key[] = [];

  get digest(): Hash { return hash(utf8(this.text())); }
  get rootFingerprint(): string { return fingerprint(this.root); }

  knows(d: Hash): boolean { return d === this.digest || this.was.includes(d); }

  text(): string {
    let s = `${KEYSET}\norigin ${this.origin}\nserial ${this.serial}\nroot ${vkey(this.root)}\n`;
    for (const w of this.was) s += `was ${w}\n`;
    for (const k of this.keys) {
      s += `key ${k.purpose} ${vkey(k)} ${k.from} ${k.until === 0 ? "-" : k.until}${k.revoked ? " revoked" : ""}\n`;
    }
    return s;
  }

  /** check enforces the rules that hold whoever signed. */
  check(): void {
    if (!isName(this.origin) || this.root.public.length !== 32) bad("malformed origin or root");
    if (this.keys.length > MAX_KEYS || this.was.length > MAX_KEYS || this.serial !== this.was.length + 1) bad("serial");
    const seen = new Set([hex(this.root.public)]);
    const end = new Map<string, number>(), open = new Set<string>();
    for (const k of this.keys) {
      if (k.purpose !== "seal" && k.purpose !== "checkpoint") bad("key of unknown purpose");
      if (k.purpose === "checkpoint" && k.name !== this.origin) bad("the name of a checkpoint key is the origin");
      const id = hex(k.public);
      if (seen.has(id)) bad(`key ${keyID(k)} stands twice`); // RC-11
      seen.add(id);
      if (open.has(k.purpose) || k.from < (end.get(k.purpose) ?? 0) || (k.until !== 0 && k.until < k.from)) bad("intervals overlap");
      if (k.revoked && k.until === 0) bad(`key ${keyID(k)} is revoked without an index`);
      if (k.until === 0) open.add(k.purpose);
      end.set(k.purpose, k.until);
    }
  }
}

function index(s: string): number {
  const n = /^\d{1,17}$/.test(s) ? Number(s) : NaN;
  return n <= MAX_INT ? n : bad("malformed index");
}

function parseKeysetText(s: string): Keyset {
  const lines = s.split("\n");
  if (lines[0] !== KEYSET) {
    if (lines[0]!.startsWith("gatehouse-keyset/")) throw new Unsupported(`keyset: ${lines[0]!.slice(0, 40)}`);
    bad("not a keyset");
  }
  const ks = new Keyset();
  for (const line of lines.slice(1)) {
    const w = line.split(" ");
    if (w[0] === "origin" && w.length === 2) ks.origin = w[1]!;
    else if (w[0] === "serial" && w.length === 2) ks.serial = index(w[1]!);
    else if (w[0] === "root" && w.length === 2) ks.root = parseVKey(w[1]!);
    else if (w[0] === "was" && w.length === 2 && isHash(w[1]!)) ks.was.push(w[1]!);
    else if (w[0] === "key" && (w.length === 5 || (w.length === 6 && w[5] === "revoked"))) {
      const until = w[4] === "-" ? 0 : index(w[4]!) || bad("an interval that ends at 0");
      ks.keys.push({ purpose: w[1]!, ...parseVKey(w[2]!), from: index(w[3]!), until, revoked: w.length === 6 });
    } else bad("unexpected line");
  }
  return ks;
}

/** parseKeyset reads a keyset that holds in itself; whether its root is the pinned one is the caller's question. */
export async function parseKeyset(b: Uint8Array, verify: Verify): Promise<Keyset> {
  const all = latin(b), at = all.indexOf("\n\n");
  if (b.length > MAX_NOTE || at < 0) bad("not a signed note");
  const ks = parseKeysetText(all.slice(0, at));
  ks.check();
  const root = keyHash(ks.root.name, PLAIN, ks.root.public);
  const n = await openNote(b, (name, hash) =>
    name === ks.root.name && hash === root ? (m, sig) => verify(ks.root.public, m, sig) : undefined);
  return n.text === ks.text() && onlySpelling(b, n) ? ks : bad("not in its only spelling");
}

// Checkpoints.

export interface Checkpoint { size: number; root: Hash; at: bigint; key: Key; exact: boolean }

/**
 * parseCheckpoint checks both signatures of a checkpoint by a key of ks that is
 * good for its last leaf. exact says that the note has no second spelling.
 */
export async function parseCheckpoint(b: Uint8Array, ks: Keyset, verify: Verify): Promise<Checkpoint> {
  if (b.length > MAX_NOTE) bad("too long");
  const seconds = new Map<string, number>(); // by id of the key that cosigned
  const n = await openNote(b, (name, hash) => {
    for (const k of ks.keys) {
      if (k.purpose !== "checkpoint" || k.name !== name) continue;
      if (hash === keyHash(name, PLAIN, k.public)) return (m, sig) => verify(k.public, m, sig);
      if (hash === keyHash(name, COSIGNATURE, k.public)) return (m, sig) => cosigned(k, m, sig, verify, seconds);
    }
    return undefined;
  });
  const lines = n.text.split("\n");
  if (lines.length !== 4) bad("three lines expected");
  const size = index(lines[1]!), root = unbase64(lines[2]!, true);
  if (!isName(lines[0]!) || size === 0 || String(size) !== lines[1] || !root || root.length !== 32) return bad("malformed checkpoint");
  if (lines[0] !== ks.origin) bad(`origin ${lines[0]} in a log of ${ks.origin}`);
  for (const key of ks.keys) {
    const at = seconds.get(keyID(key));
    if (key.purpose !== "checkpoint" || !at) continue;
    const plain = keyHash(key.name, PLAIN, key.public);
    if (!n.sigs.some((s) => s.name === key.name && s.hash === plain)) continue;
    if (!covers(key, size - 1, 1)) throw new Untrusted(`${keyID(key)} is not good for index ${size - 1}`);
    const exact = onlySpelling(b, n);
    return { size, root: unpadded(lines[2]!), at: BigInt(at) * SECOND, key, exact };
  }
  throw new Untrusted("both signatures of one checkpoint key expected");
}

const unpadded = (s: string): Hash => s.replaceAll("+", "-").replaceAll("/", "_").replace("=", "");

async function cosigned(k: Key, message: Uint8Array, sig: Uint8Array, verify: Verify, seconds: Map<string, number>): Promise<boolean> {
  if (sig.length !== 72) return false;
  const at = new DataView(sig.buffer, sig.byteOffset).getBigUint64(0);
  if (at > 1n << 40n) return false;
  const head = utf8(`cosignature/v1\ntime ${at}\n`);
  const signed = new Uint8Array(head.length + message.length);
  signed.set(head);
  signed.set(message, head.length);
  if (!(await verify(k.public, signed, sig.subarray(8)))) return false;
  seconds.set(keyID(k), Number(at));
  return true;
}

// Seals.

const MAX_GROUP = 1024;

export interface Seal { keyID: string; first: number; count: number; root: Hash; prev: Hash; sig: Uint8Array }

export const sealText = (origin: string, s: Seal): Uint8Array =>
  unlatin(`gatehouse-seal/1\n${origin}\n${s.keyID}\n${s.first}\n${s.count}\n${s.root}\n${s.prev}\n`);

/** sealFault says what is wrong with a seal whatever its signature says. */
export function sealFault(s: Seal): string | undefined {
  const id = /^([^+]*)\+[0-9a-f]{8}$/.exec(s.keyID);
  if (!id || !isName(id[1]!)) return "malformed key id";
  if (s.count < 1 || s.count > MAX_GROUP) return `group of ${s.count} leaves`; // RC-20, RC-45
  if (s.first + s.count > MAX_INT) return "log index above 2^53-1";
  if ((s.first === 0) !== (s.prev === ZERO)) return "only the first seal of a log has no previous seal";
  return undefined;
}
