// The framing of an export: docs/receipts-spec.md, section 10.

import { latin } from "./bytes.ts";
import { MAX_INT, Malformed } from "./canon.ts";
import { isHash, MAX_PATH, type Hash } from "./hash.ts";

const MAX_LINE = 8 << 10, MAX_BODY = 1 << 20;

/** Cut: the file ends inside; what was read so far is a prefix. */
export class Cut extends Error {}

const bad = (message: string): never => { throw new Malformed(message); };

const WITH_BODY = ["keyset", "bundle", "opening", "receipt", "event", "checkpoint", "manifest", "mark"];

/** Frame is one line with its body. Words are bytes, a character each. */
export interface Frame { at: number; word: string; args: string[]; body: Uint8Array }

export class Frames {
  at = 0;

  constructor(private readonly file: Uint8Array, private readonly limit: number) {}

  get ended(): boolean { return this.at >= this.file.length; }

  /** line reads a line without its newline. */
  line(): string {
    const start = this.at, end = this.file.indexOf(0x0a, start);
    const next = end < 0 ? this.file.length : end + 1;
    if (next - start > MAX_LINE || next > this.limit) bad("line or file above the limit"); // RC-45
    this.at = next;
    if (end < 0) throw new Cut("the file ends before its end line");
    return latin(this.file.subarray(start, end));
  }

  next(): Frame {
    const at = this.at;
    const [word, ...args] = this.line().split(" ") as [string, ...string[]];
    if (word === "" || args.includes("")) bad("words are separated by one space");
    return { at, word, args, body: WITH_BODY.includes(word) ? this.body(args) : new Uint8Array(0) };
  }

  /** body reads the body whose length is the last word, and takes that word away. */
  private body(args: string[]): Uint8Array {
    const n = numberOf(args.pop() ?? bad("no length"));
    if (n === 0 || n > MAX_BODY || this.at + n >= this.limit) bad(`body of ${n} bytes`); // RC-45
    const start = this.at, end = start + n;
    this.at = Math.min(end + 1, this.file.length);
    if (end >= this.file.length) throw new Cut("the file ends before its end line");
    if (this.file[end] !== 0x0a) bad("no newline behind a body");
    return this.file.subarray(start, end);
  }
}

/** numberOf reads a number in its only spelling. */
export function numberOf(s: string): number {
  if (!/^(0|[1-9]\d{0,15})$/.test(s)) bad("malformed number");
  const n = Number(s);
  return n > MAX_INT ? bad("number above 2^53-1") : n;
}

export const hashOf = (s: string): Hash => (isHash(s) ? s : bad("malformed digest"));

/** pathOf reads a path. */
export function pathOf(s: string): Hash[] {
  if (s === "-") return [];
  if (s.length > MAX_PATH * 44) bad("path too long"); // RC-45
  return s.split(",").map(hashOf);
}

/** want checks the number of words behind the first. */
export function want(f: Frame, n: number): void {
  if (f.args.length !== n) bad(`${f.word} with ${f.args.length + 1} words`);
}
