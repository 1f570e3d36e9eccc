// Bytes and their spellings.

const encoder = new TextEncoder();
// A byte order mark is a character like any other; it is never taken away.
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });

export const utf8 = (s: string): Uint8Array => encoder.encode(s);

/** text decodes UTF-8 and throws where it is none. */
export const text = (b: Uint8Array): string => strict.decode(b);

/** looseText decodes UTF-8 with U+FFFD where it is none. */
export const looseText = (b: Uint8Array): string => lenient.decode(b);

/** latin gives every byte a character, so that no byte is lost or joined. */
export function latin(b: Uint8Array): string {
  let s = "";
  for (let i = 0; i < b.length; i += 8192) s += String.fromCharCode(...b.subarray(i, i + 8192));
  return s;
}

export function unlatin(s: string): Uint8Array {
  const b = new Uint8Array(s.length);
  for (let i = 0; i < s.length; i++) b[i] = s.charCodeAt(i);
  return b;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export const hex = (b: Uint8Array): string => Array.from(b, (c) => c.toString(16).padStart(2, "0")).join("");

const COMMON = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const STD = COMMON + "+/";
const URL_SAFE = COMMON + "-_";
const table = (alphabet: string): Int8Array => {
  const t = new Int8Array(256).fill(-1);
  for (let i = 0; i < 64; i++) t[alphabet.charCodeAt(i)] = i;
  return t;
};
const STD_TABLE = table(STD);
const URL_TABLE = table(URL_SAFE);

function encode64(b: Uint8Array, alphabet: string): string {
  let s = "";
  for (let i = 0; i < b.length; i += 3) {
    const n = (b[i]! << 16) | ((b[i + 1] ?? 0) << 8) | (b[i + 2] ?? 0);
    s += alphabet[n >> 18]! + alphabet[(n >> 12) & 63]!;
    if (i + 1 < b.length) s += alphabet[(n >> 6) & 63]!;
    if (i + 2 < b.length) s += alphabet[n & 63]!;
  }
  return s;
}

/** decode64 returns undefined for what is no base64; exact refuses spare bits that are not zero. */
function decode64(s: string, t: Int8Array, exact: boolean): Uint8Array | undefined {
  if (s.length % 4 === 1) return undefined;
  const out = new Uint8Array(Math.floor((s.length * 6) / 8));
  let bits = 0, held = 0, at = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    const v = c < 256 ? t[c]! : -1;
    if (v < 0) return undefined;
    held = ((held << 6) | v) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out[at++] = (held >> bits) & 0xff;
    }
  }
  return exact && (held & ((1 << bits) - 1)) !== 0 ? undefined : out;
}

/** base64 is the standard encoding with padding. */
export const base64 = (b: Uint8Array): string => {
  const s = encode64(b, STD);
  return s + "=".repeat((4 - (s.length % 4)) % 4);
};

/** unbase64 reads the standard encoding with padding; exact admits one spelling only. */
export function unbase64(s: string, exact: boolean): Uint8Array | undefined {
  if (s.length % 4 !== 0) return undefined;
  return decode64(s.replace(/={1,2}$/, ""), STD_TABLE, exact);
}

/** base64url is the URL encoding without padding. */
export const base64url = (b: Uint8Array): string => encode64(b, URL_SAFE);

/** unbase64url reads exactly what base64url writes. */
export const unbase64url = (s: string): Uint8Array | undefined => decode64(s, URL_TABLE, true);
