// Values that must stand nowhere in a file, in none of the usual encodings:
// docs/receipts-spec.md, section 9.

import { base64, base64url, hex, latin, unlatin } from "./bytes.ts";

const MIN_SECRET = 8;

export class Scan {
  private readonly patterns: string[];

  constructor(values: Uint8Array[]) {
    this.patterns = values.filter((v) => v.length >= MIN_SECRET).flatMap(encodings).filter((p) => p.length >= MIN_SECRET);
  }

  found(b: Uint8Array): boolean {
    if (this.patterns.length === 0) return false;
    const s = latin(b);
    return this.patterns.some((p) => s.includes(p));
  }
}

const reversed = (s: string): string => [...s].reverse().join("");
const inJSON = (s: string): string => s.replaceAll("\\", "\\\\").replaceAll('"', '\\"');

/** aligned is what depends on v alone in the base64 form of "skip bytes, then v, then anything". */
function aligned(encode: (b: Uint8Array) => string, v: Uint8Array, skip: number): string {
  const b = new Uint8Array(skip + v.length);
  b.set(v, skip);
  const s = encode(b).replace(/=+$/, "");
  return s.slice(Math.floor((skip * 8 + 5) / 6), b.length % 3 === 0 ? s.length : s.length - 1);
}

/** percent writes every byte that keep does not match as %XX. */
const percent = (s: string, keep: RegExp, upper = true): string =>
  [...s].map((c) => {
    if (keep.test(c)) return c;
    const h = c.charCodeAt(0).toString(16).padStart(2, "0");
    return "%" + (upper ? h.toUpperCase() : h);
  }).join("");

function encodings(v: Uint8Array): string[] {
  const s = latin(v), half = Math.floor(v.length / 2);
  const plain = half >= 2 * MIN_SECRET ? [s, s.slice(0, half), s.slice(half)] : [s];
  const out = plain.flatMap((p) => [p, reversed(p)]).flatMap((p) => [p, inJSON(p)]);
  const lower = hex(unlatin(s));
  out.push(lower, lower.toUpperCase());
  for (const encode of [base64, base64url]) for (const skip of [0, 1, 2]) out.push(aligned(encode, v, skip));
  const query = percent(s, /[A-Za-z0-9\-_.~ ]/);
  out.push(percent(s, /$^/, false), percent(s, /$^/), query.replaceAll(" ", "+"), query.replaceAll(" ", "%20"));
  out.push(percent(s, /[A-Za-z0-9\-_.~$&+=:@]/));
  return out;
}
