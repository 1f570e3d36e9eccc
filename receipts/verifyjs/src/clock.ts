// Times as nanoseconds since 1970, and their spellings.

/** SECOND in nanoseconds. */
export const SECOND = 1_000_000_000n;

const CANONICAL = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{9})Z$/;

/** canonicalTime reads a time as it stands in a receipt; undefined if it is none. */
export function canonicalTime(s: string): bigint | undefined {
  const m = CANONICAL.exec(s);
  if (!m) return undefined;
  const ms = Date.UTC(+m[1]!, +m[2]! - 1, +m[3]!, +m[4]!, +m[5]!, +m[6]!);
  if (Number(m[1]) < 1970 || new Date(ms).toISOString().slice(0, 19) !== s.slice(0, 19)) return undefined;
  return BigInt(ms) * 1_000_000n + BigInt(m[7]!);
}

/** givenTime reads an RFC 3339 time that a person typed; undefined if it is none. */
export function givenTime(s: string): bigint | undefined {
  const m = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)$/.exec(s);
  if (!m) return undefined;
  const ms = Date.parse(`${m[1]}T${m[2]}${m[4]}`);
  return Number.isNaN(ms) ? undefined : BigInt(ms) * 1_000_000n + BigInt((m[3] ?? "").padEnd(9, "0"));
}

/** exactTime writes a time with the decimals that it has. */
export function exactTime(ns: bigint): string {
  const frac = (ns % SECOND).toString().padStart(9, "0").replace(/0+$/, "");
  return stamp(ns).replace("Z", frac === "" ? "Z" : `.${frac}Z`);
}

/** stamp writes a time in whole seconds. */
export const stamp = (ns: bigint): string => new Date(Number(ns / 1_000_000n)).toISOString().replace(/\.\d+Z$/, "Z");

/** span writes a duration in whole seconds: 1h2m3s. */
export function span(ns: bigint): string {
  const s = Number((ns + SECOND / 2n) / SECOND);
  const h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60);
  return (h > 0 ? `${h}h` : "") + (h > 0 || m > 0 ? `${m}m` : "") + `${s % 60}s`;
}
