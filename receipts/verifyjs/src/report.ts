// The report in words and lists.

import { stamp, givenTime } from "./clock.ts";
import { CONTROL } from "./schema.ts";
import { MAX_SESSIONS, TAMPERED, UNSUPPORTED, USAGE, type Finding, type Result, type Session } from "./result.ts";
import type { Verifier } from "./verify.ts";

/** fill states in the result what was observed and what is not shown. */
export function fill(v: Verifier): void {
  const r = v.res, o = r.observation;
  const expected = new Set<string>(), reported = new Set<string>(), missing = new Set<string>(), notSeen = new Set<string>();
  let dev = false;
  for (const c of v.chains.values()) {
    const { yes, no } = c.reported();
    for (const p of c.points) expected.add(p);
    for (const p of yes) reported.add(p);
    for (const p of no) missing.add(p); // RC-31
    for (const p of c.notSeen) notSeen.add(p);
    if (c.level >= 0 && (o.level < 0 || c.level < o.level)) o.level = c.level;
    dev ||= c.dev;
    r.sessions ??= [];
    if (r.sessions.length < MAX_SESSIONS) r.sessions.push(c.session);
  }
  o.expected = sorted(expected);
  o.reported = sorted(reported);
  o.missing = sorted(missing);
  o.not_observed = sorted(notSeen);
  r.authenticity.state = !v.ks ? "unknown" : v.trusted && !v.has("key") ? "yes" : "no";
  r.does_not_show = notShown(r, dev);
}

/** sorted orders by bytes, as Go does. */
const sorted = (set: Set<string>): string[] => {
  const key = (s: string): string => Array.from(s, (c) => c.codePointAt(0)!.toString(16).padStart(6, "0")).join("");
  return [...set].sort((a, b) => (key(a) < key(b) ? -1 : 1));
};

function notShown(r: Result, dev: boolean): string[] {
  const out: string[] = [], { integrity, completeness: end, observation } = r;
  if (dev) out.push("what real upstreams would have done: development substitutions were in force");
  if (end.state === "as_of") out.push(`what happened after ${seconds(end.as_of!)}`);
  else if (end.state === "unknown") out.push("anything: the file could not be read");
  else if (end.state !== "closed" && end.state !== "current") out.push("whether more happened than the file holds");
  if (end.opened !== undefined && end.opened > end.in_file) {
    out.push(`the other ${end.opened - end.in_file} of the ${end.opened} sessions that the log opened`);
  }
  if (integrity.hidden > 0) out.push(`what ${integrity.hidden} leaves say that stand by their hash alone`);
  const paths = observation.not_observed;
  if (paths.length > 0) out.push("what went by the paths that the record names as not observed: " + quoteAll(paths));
  out.push(
    "that the agent's work is right, or what an allowed host did with what it received",
    "what was said in requests and answers: the record keeps no bodies, only keyed commitments",
    "true time: times are the node's own clock",
    "sessions that ran beside Gatehouse, and text that a session read later through the door",
  );
  return out;
}

const seconds = (s: string): string => stamp(givenTime(s) ?? 0n);

/** verdict is the report's first line. */
export function verdict(r: Result): string {
  const words = [
    "complete", "TAMPERED", "UNREADABLE", "VALID PREFIX, END UNPROVEN", "KEY NOT TRUSTED",
    "complete, with admitted losses or open outcomes", "UNSUPPORTED",
  ];
  return `${words[r.exit]} (exit ${r.exit}, ${r.class})`;
}

/** lines are the four that every report begins with. */
export const lines = (r: Result): string[] => [
  "integrity:    " + integrityLine(r),
  "authenticity: " + authenticityLine(r),
  "completeness: " + completenessLine(r),
  "observation:  " + observationLine(r),
];

function integrityLine(r: Result): string {
  const n = r.integrity, bad = r.first_bad;
  let s = `${n.matching} of ${n.receipts} receipts are the sealed ones`;
  if (n.receipts > 0) s += ` (${plural(n.seals, "seal")}, log indices ${n.first} to ${n.last})`;
  if (bad && r.exit === TAMPERED) return `BROKEN: ${bad.message}${place(bad)}; ${s}`;
  if (bad && (r.exit === USAGE || r.exit === UNSUPPORTED)) return `not judged: ${bad.message}${place(bad)}`;
  return n.receipts === 0 ? "no receipts" : s + ", every chain unbroken";
}

const place = (f: Finding): string => (f.index === undefined ? "" : ` at log index ${f.index}`);

function authenticityLine(r: Result): string {
  const a = r.authenticity;
  if (a.state === "unknown") return "not established: no keyset was read";
  if (a.state === "yes") return `keys of ${a.origin}, keyset ${a.keyset}, signed by the root you gave`;
  if (!a.pinned) return `NOT ESTABLISHED: the file is signed by root ${a.root}, which you have not confirmed with --root`;
  const f = r.findings?.find((f) => f.class === "key");
  return "NOT ESTABLISHED" + (f ? `: ${f.message}${place(f)}` : "");
}

function completenessLine(r: Result): string {
  const c = r.completeness, p = r.period;
  const words = {
    closed: "every session in the file has ended and the file holds its end",
    current: `proven through log size ${c.through} by the checkpoint you gave, of ${seconds(c.as_of ?? "")}`,
    as_of: `proven through log size ${c.through} as of ${seconds(c.as_of ?? "")}; END SINCE THEN UNPROVEN`,
    cut: "THE END IS CUT OFF",
    empty: "NO RECEIPTS: this proves nothing",
    unproven: "END UNPROVEN: an intact beginning, and nothing that says it is all",
    unknown: "not judged",
  };
  let s = words[c.state];
  if (c.opened !== undefined) s += `; ${c.in_file} of ${plural(c.opened, "session")} that the log opened by then`;
  if (p) s += `; in the period asked for ${plural(p.opened, "session")} opened, ${p.in_file} in the file`;
  return s;
}

const LEVELS = [
  "told by the agent itself",
  "seen by a wrapper that the agent could go around",
  "seen outside the sandbox, other ways out not shown closed",
  "seen outside the sandbox, as the only way out that a probe found",
];

function observationLine(r: Result): string {
  const o = r.observation;
  let s = `${o.reported.length} of ${o.expected.length} expected points reported`;
  if (o.missing.length > 0) s += ` (silent: ${quoteAll(o.missing)})`;
  s += o.level < 0 ? "; no decision was observed" : `; lowest level L${o.level}, ${LEVELS[o.level]}`;
  if (o.not_observed.length > 0) s += `; not observed: ${quoteAll(o.not_observed)}`;
  return s;
}

/** happened tells each session in a sentence; names that people or programs chose are quoted. */
export const happened = (r: Result): string[] => (r.sessions ?? []).map(sentence);

function sentence(s: Session): string {
  if (s.id === CONTROL) return `The node's control chain: ${plural(s.receipts, "receipt")} from ${seconds(s.from)} to ${seconds(s.to)}.`;
  let out = `Session ${s.id}`;
  if (s.event) out += `, for event ${quote(s.event)},`;
  if (s.state === "refused") return `${out} was refused at ${seconds(s.from)}: ${s.code}.`;
  out += ` was admitted at ${seconds(s.from)}`;
  if (s.bundle) out += ` under bundle ${quote(s.bundle)} (${s.mode ?? ""}${s.policy ? `, ${s.policy}` : ""})`;
  const n = (k: string): number => s.verdicts?.[k] ?? 0;
  const total = Object.values(s.verdicts ?? {}).reduce((a, b) => a + b, 0);
  out += `. ${plural(total, "decision")}: ${n("allow")} allowed, ${n("deny")} denied, ${n("would_block")} would have been blocked and passed, ${n("fault")} enforcer faults.`;
  if (s.spent_nanodollars > 0) out += ` Spent ${dollars(s.spent_nanodollars)} USD.`;
  const open = s.unknown_outcomes + s.unmatched_decisions;
  if (open > 0) out += ` The outcome of ${plural(open, "decision")} is not known.`;
  if (s.state !== "closed") return out + ` The file does not hold its end; the last receipt is of ${seconds(s.to)}.`;
  return out + ` It ended ${s.reason} at ${seconds(s.to)}${s.exit_code === undefined ? "" : `, exit code ${s.exit_code}`}.`;
}

/** dollars writes nanodollars. */
function dollars(n: number): string {
  const frac = String(n % 1e9).padStart(9, "0").replace(/0{1,7}$/, "");
  return `${Math.floor(n / 1e9)}.${frac}`;
}

/** quote writes a text in printable ASCII, as Go's strconv.QuoteToASCII does. */
function quote(s: string): string {
  let out = '"';
  for (const char of s) {
    const c = char.codePointAt(0)!;
    if (char === '"' || char === "\\") out += "\\" + char;
    else if (c >= 0x20 && c < 0x7f) out += char;
    else if (c < 0x80) out += `\\x${c.toString(16).padStart(2, "0")}`;
    else out += c < 0x10000 ? `\\u${c.toString(16).padStart(4, "0")}` : `\\U${c.toString(16).padStart(8, "0")}`;
  }
  return out + '"';
}

const quoteAll = (list: string[]): string => list.map(quote).join(", ");

const plural = (n: number, noun: string): string => (n === 1 ? `1 ${noun}` : `${n} ${noun}s`);

/** report is the whole text. */
export function report(r: Result): string {
  const out = [verdict(r), "", ...lines(r)];
  if (r.first_bad) {
    out.push("", "Findings");
    for (const f of r.findings ?? []) {
      const session = f.session === undefined ? "" : `, session ${quote(f.session)}`;
      out.push(`  ${f.exit} ${f.class}: ${f.message}${place(f)}${session} (byte ${f.offset})`);
    }
    if (r.more) out.push(`  and ${r.more} more`);
  }
  const told = happened(r);
  if (told.length > 0) out.push("", "What happened, by these receipts", ...told.map((s) => `  ${s}`));
  out.push("", "What this does not show", ...r.does_not_show.map((s) => `  - ${s}`));
  return out.join("\n") + "\n";
}
