// The JSON profile of docs/receipts-spec.md, section 1. What Scanner accepts is
// exactly what write writes: no value has a second spelling.

import { looseText, text, utf8 } from "./bytes.ts";

export const MAX_INT = Number.MAX_SAFE_INTEGER;
const MAX_DEPTH = 16;

/** Malformed is what a reader throws at bytes that it does not accept. */
export class Malformed extends Error {}

const fail = (message: string): never => { throw new Malformed(message); };

const QUOTE = 0x22, BACKSLASH = 0x5c, COMMA = 0x2c, COLON = 0x3a, MINUS = 0x2d;
const OPEN = 0x7b, CLOSE = 0x7d, LIST = 0x5b, UNLIST = 0x5d;

interface Level { object: boolean; keyed: boolean; count: number; last: string }

/** Scanner reads one canonical value, steered by a schema that asks for its keys in order. */
export class Scanner {
  private pos = 0;
  private readonly levels: Level[] = [{ object: false, keyed: false, count: 0, last: "" }];

  constructor(private readonly src: Uint8Array) {}

  private get level(): Level { return this.levels[this.levels.length - 1]!; }

  /** peek returns the next byte; 0, which is nowhere valid, at the end. */
  private peek(): number { return this.src[this.pos] ?? 0; }

  private expect(c: number): void {
    if (this.peek() !== c) fail(`${String.fromCharCode(c)} expected at byte ${this.pos}`);
    this.pos++;
  }

  private value(): void {
    const l = this.level;
    if (l.object) {
      if (!l.keyed) fail("value without key");
      l.keyed = false;
    } else if (this.levels.length === 1) {
      if (l.count > 0) fail("second value");
    } else if (l.count > 0) {
      this.expect(COMMA);
    }
    l.count++;
  }

  private begin(c: number, object: boolean): void {
    this.value();
    if (this.levels.length > MAX_DEPTH) fail("nested too deep");
    this.expect(c);
    this.levels.push({ object, keyed: false, count: 0, last: "" });
  }

  private finish(c: number, object: boolean): void {
    const l = this.level;
    if (this.levels.length === 1 || l.object !== object || l.keyed) fail("end not expected");
    this.expect(c);
    this.levels.pop();
  }

  object(): void { this.begin(OPEN, true); }
  endObject(): void { this.finish(CLOSE, true); } // a member that was not asked for is no end
  array(): void { this.begin(LIST, false); }
  endArray(): void { this.finish(UNLIST, false); }

  /** more says whether the array has another element. */
  more(): boolean { return this.peek() !== UNLIST && this.peek() !== 0; }

  /** end checks that nothing follows the value. */
  end(): void {
    if (this.levels.length !== 1 || this.level.count !== 1 || this.pos !== this.src.length) fail("end of document expected");
  }

  /** tryKey takes the next member's key if it is this one. */
  tryKey(key: string): boolean {
    const l = this.level, { src } = this;
    let p = this.pos;
    if (l.count > 0 && src[p++] !== COMMA) return false;
    if (src[p] !== QUOTE || src[p + key.length + 1] !== QUOTE || src[p + key.length + 2] !== COLON) return false;
    for (let i = 0; i < key.length; i++) if (src[p + 1 + i] !== key.charCodeAt(i)) return false;
    this.pos = p + key.length + 3;
    l.count++;
    l.keyed = true;
    return true;
  }

  /** key takes the next member's key where keys are data; undefined at the end. Keys rise. */
  key(): string | undefined {
    if (this.peek() === CLOSE) return undefined;
    const l = this.level;
    if (l.count > 0) this.expect(COMMA);
    this.expect(QUOTE);
    let k = "";
    for (let c = this.peek(); c !== QUOTE; c = this.peek()) {
      if (c < 0x20 || c > 0x7e || c === BACKSLASH || k.length === 256) fail("malformed key");
      k += String.fromCharCode(c);
      this.pos++;
    }
    this.pos++;
    this.expect(COLON);
    if (k === "" || (l.count > 0 && k <= l.last)) fail("keys rise");
    l.last = k;
    l.count++;
    l.keyed = true;
    return k;
  }

  /** string returns a text and its length in bytes. */
  string(): { value: string; bytes: number } {
    this.value();
    this.expect(QUOTE);
    const raw: number[] = [];
    let ascii = true;
    for (;;) {
      if (this.pos >= this.src.length) fail("unfinished string");
      let c = this.src[this.pos++]!;
      if (c === QUOTE) break;
      if (c === BACKSLASH) {
        c = this.src[this.pos++] ?? 0;
        if (c !== QUOTE && c !== BACKSLASH) fail("escape that is not needed");
      }
      if (c < 0x20 || c === 0x7f) fail("control character");
      ascii = ascii && c < 0x80;
      raw.push(c);
    }
    const b = Uint8Array.from(raw);
    return { value: ascii ? looseText(b) : unicode(b), bytes: b.length };
  }

  uint(): number {
    this.value();
    return this.digits();
  }

  int(): number {
    this.value();
    if (this.peek() !== MINUS) return this.digits();
    this.pos++;
    const n = this.digits();
    return n === 0 ? fail("negative zero") : -n;
  }

  private digits(): number {
    const start = this.pos;
    let n = 0;
    for (let c = this.peek(); c >= 0x30 && c <= 0x39; c = this.peek()) {
      // Beyond 2^53 a sum may round, but never back to what is allowed.
      n = n * 10 + (c - 0x30);
      if (n > MAX_INT) fail("above 2^53-1");
      this.pos++;
    }
    if (this.pos === start) fail("integer expected");
    if (this.src[start] === 0x30 && this.pos > start + 1) fail("leading zero");
    return n;
  }

  bool(): boolean {
    this.value();
    for (const word of ["true", "false"]) {
      if ([...word].every((c, i) => this.src[this.pos + i] === c.charCodeAt(0))) {
        this.pos += word.length;
        return word === "true";
      }
    }
    return fail("true or false expected");
  }

  /** skip reads one value of any kind. */
  skip(): void {
    const l = this.level;
    let c = this.peek();
    if (c === COMMA && !l.object && l.count > 0) c = this.src[this.pos + 1] ?? 0;
    switch (c) {
      case OPEN:
        this.object();
        while (this.key() !== undefined) this.skip();
        return this.endObject();
      case LIST:
        this.array();
        while (this.more()) this.skip();
        return this.endArray();
      case QUOTE:
        return void this.string();
      case 0x74: case 0x66:
        return void this.bool();
      default:
        return void this.int();
    }
  }
}

/** unicode decodes a text of the profile. */
function unicode(b: Uint8Array): string {
  let s: string;
  try {
    s = text(b);
  } catch {
    return fail("invalid UTF-8");
  }
  for (const char of s) {
    const c = char.codePointAt(0)!;
    if ((c >= 0x80 && c <= 0x9f) || (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) === 0xfffe) fail("control character or noncharacter");
  }
  if (s.normalize("NFC") !== s || !streamSafe(s)) fail("not in normalization form C");
  return s;
}

/** streamSafe: at most 30 combining characters in a row (UAX 15, Stream-Safe Text Format). */
function streamSafe(s: string): boolean {
  const d = s.normalize("NFD");
  if (!/\p{M}{31}/u.test(d)) return true;
  let run = 0;
  for (const c of d) {
    run = combines(c) ? run + 1 : 0;
    if (run > 30) return false;
  }
  return true;
}

/** combines says whether c has a combining class: then normalization moves it behind a lower one. */
const combines = (c: string): boolean =>
  ("\u0345" + c).normalize("NFD")[0] !== "\u0345" || (c !== "\u0334" && (c + "\u0334").normalize("NFD")[0] === "\u0334");

/** canonical says whether b is one value of the profile, whatever its schema. */
export function canonical(b: Uint8Array): boolean {
  try {
    const s = new Scanner(b);
    s.skip();
    s.end();
    return true;
  } catch {
    return false;
  }
}

/** Value is what write writes; maps keep the order of their members. */
export type Value = string | number | boolean | Value[] | Map<string, Value>;

/** write returns the canonical bytes of a value. */
export function write(v: Value): Uint8Array {
  const out = (v: Value): string => {
    if (typeof v === "string") return `"${v.replace(/["\\]/g, "\\$&")}"`;
    if (v instanceof Map) return `{${[...v].map(([k, x]) => `"${k}":${out(x)}`).join(",")}}`;
    if (Array.isArray(v)) return `[${v.map(out).join(",")}]`;
    return String(v);
  };
  return utf8(out(v));
}
