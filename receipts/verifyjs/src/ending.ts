// What is proven about the end, once the input has ended.

import type { Chain } from "./chain.ts";
import { exactTime, SECOND, span, stamp } from "./clock.ts";
import type { Hash } from "./hash.ts";
import type { Checkpoint } from "./keys.ts";
import { fill } from "./report.ts";
import { ADMITTED, COMPLETE, TAMPERED, UNPROVEN, UNTRUSTED, type Finding } from "./result.ts";
import type { Head, Mark, Verifier } from "./verify.ts";

/** Anchor is what fixes the end of the log for this file. */
interface Anchor {
  ok: boolean;
  size: number; // log size up to which the end is fixed
  at: bigint; // when the log had at most that size
  outside: boolean; // by the outside checkpoint
  fresh: boolean; // which is younger than maxAge
}

const HOUR = 3600n * SECOND;

/** judge draws the conclusions. */
export function judge(v: Verifier): void {
  const r = v.res;
  v.at = v.frames.at;
  for (const c of v.chains.values()) c.finish();
  if (v.ks && !v.fatal) {
    if (!v.cut) loose(v);
    for (const c of v.chains.values()) admits(v, c);
    end(v);
    period(v);
  }
  fill(v);
  r.exit = r.first_bad?.exit ?? COMPLETE;
  r.class = r.first_bad?.class ?? "complete";
  r.integrity.state = r.exit === TAMPERED ? "no" : r.integrity.receipts === 0 ? "unknown" : "yes";
}

/** loose finds what nothing in the file refers to: bytes that are bound to no signature. */
function loose(v: Verifier): void {
  const found: Finding[] = [];
  for (const offset of v.bundles.values()) {
    found.push({ exit: TAMPERED, class: "splice", offset, message: "a bundle that no session.open names" });
  }
  for (const e of v.events.values()) {
    found.push({ exit: TAMPERED, class: "splice", index: e.index!, offset: e.at, message: "an event that no session.open names" });
  }
  for (const o of [...v.openings.values()].flat()) {
    if (o.done) continue; // RC-32
    found.push({ exit: TAMPERED, class: "redaction", session: o.session, offset: o.at, message: `the opening of ${JSON.stringify(o.label)} opens nothing` });
  }
  for (const f of found.sort((a, b) => a.offset - b.offset)) v.record(f);
}

/** admits asks a chain what it says against itself. */
function admits(v: Verifier, c: Chain): void {
  const id = c.session.id, t = c.tally;
  if (c.revoked > 0 && !covered(v, c)) {
    v.find(UNTRUSTED, "key", id, c.index, "sealed by a revoked key and covered by no checkpoint");
  }
  if (t.losses > 0) v.find(ADMITTED, "loss", id, c.index, `${t.losses} loss receipts: the node says that receipts are missing`);
  if (c.broken) return;
  if (t.strange > 0 && !c.partial) v.find(ADMITTED, "unmatched", id, c.index, `${t.strange} outcomes answer no decision`);
  if (t.unknown > 0) v.find(ADMITTED, "unmatched", id, c.index, `${t.unknown} outcomes are unknown`);
  if (c.closed && t.pending.size > 0) v.find(ADMITTED, "unmatched", id, c.index, `${t.pending.size} decisions have no outcome`);
}

/** covered: a checkpoint by a key that is not revoked covers all that a revoked seal key sealed. */
function covered(v: Verifier, c: Chain): boolean {
  if (v.log && v.first === 0) return v.cp !== undefined && v.tree !== undefined && v.unproved <= v.cp.size;
  const h = v.heads.get(c.session.id);
  return h !== undefined && c.revoked <= h.seq + 1;
}

/** anchor relates the outside checkpoint, the enclosed one and the leaves. */
function anchor(v: Verifier): Anchor {
  const a: Anchor = { ok: false, size: 0, at: 0n, outside: false, fresh: false };
  const { cp, outside: out, tree } = v;
  if (cp && treeAgrees(v, cp, "the enclosed checkpoint")) Object.assign(a, { ok: true, size: cp.size, at: cp.at });
  if (!out) return a;
  let reached = false;
  if (tree && tree.size >= out.size) {
    reached = treeAgrees(v, out, "the outside checkpoint");
  } else if (!cp || out.size > cp.size) {
    // RC-16: the file ends before what the reader has seen
  } else if (out.size === cp.size) {
    reached = out.root === cp.root;
    if (!reached) v.find(TAMPERED, "fork", "", -1, `two checkpoints of size ${cp.size} with different roots`); // RC-14
  } else {
    reached = continues(v, out);
  }
  if (!reached || hides(v, out)) return a;
  if (!a.ok) Object.assign(a, { ok: true, size: out.size });
  a.outside = true;
  a.at = out.at;
  const age = v.o.now - out.at;
  if (age < -300n * SECOND) v.find(UNPROVEN, "time", "", -1, `the outside checkpoint is ${span(-age)} in the future`);
  else a.fresh = age <= (v.o.maxAge ?? HOUR);
  return a;
}

/** treeAgrees compares a checkpoint with the leaves, where the file holds the log from its beginning. */
function treeAgrees(v: Verifier, cp: Checkpoint, name: string): boolean {
  if (!v.tree) return !v.log || v.first > 0;
  if (v.tree.size < cp.size) {
    if (v.next < cp.size) { // else leaves are missing inside; said where they are missing
      v.find(UNPROVEN, "truncation", "", v.next, `${name} covers ${cp.size} leaves, the file has ${v.tree.size}`);
    }
    return false;
  }
  if (v.tree.root(cp.size) !== cp.root) { // RC-06, RC-16
    v.find(TAMPERED, "fork", "", -1, `the first ${cp.size} leaves are not those of ${name}`);
    return false;
  }
  return true;
}

/** continues: the enclosed checkpoint is proven to continue the outside one. */
function continues(v: Verifier, out: Checkpoint): boolean {
  const o = v.older.find((o) => o.size === out.size);
  if (o && o.root !== out.root) { // RC-17
    v.find(TAMPERED, "fork", "", -1, `the log had another tree of size ${out.size} than the outside checkpoint says`);
    return false;
  }
  return o !== undefined;
}

/** hides: the outside checkpoint covers hidden leaves that the manifest does not account for. */
const hides = (v: Verifier, out: Checkpoint): boolean => {
  const size = v.man?.man.size; // without a manifest, judgeHidden speaks of them all
  return size !== undefined && v.hidden.some((i) => i >= size && i < out.size);
};

/** end decides how much is proven about the end. */
function end(v: Verifier): void {
  const c = v.res.completeness, man = v.man?.man;
  c.state = "unproven";
  const a = anchor(v);
  if (a.ok) {
    c.outside = a.outside;
    c.as_of = exactTime(a.at);
  }
  if (man) c.opened = man.sessions;
  const opened = [...v.chains.values()].map((c) => c.opened).filter((i) => i > 0);
  c.in_file = opened.length;
  const hidden = v.res.integrity.hidden;
  if (v.log && v.first === 0 && man && man.size <= v.next && hidden === 0 && man.sessions > opened.filter((i) => i <= man.size).length) { // RC-05
    v.find(TAMPERED, "session_missing", "", -1, `the log opened ${man.sessions} sessions, the file has ${c.in_file}`);
  }
  judgeHidden(v);
  const whole = v.log && v.tree !== undefined && hidden === 0;
  if (whole && !v.o.session) {
    if (v.res.integrity.receipts === 0) empty(v);
    else proven(v, a, true);
    return;
  }
  if (man && man.size + 1 < a.size) a.size = man.size; // heads are those of the manifest, which was made a little earlier
  sessionEnds(v, a, whole);
}

/**
 * judgeHidden holds the leaves that stand by their hash alone to the manifest's
 * count of receipts: in place of an event that is privacy, in place of a
 * receipt it is a way to leave a session out without a gap (RC-05).
 */
function judgeHidden(v: Verifier): void {
  const hidden = v.res.integrity.hidden, man = v.man?.man;
  if (!v.log || hidden === 0) return;
  if (man && v.first === 0 && man.size <= v.next) {
    const shown = v.shown.filter((i) => i < man.size).length;
    if (shown < man.receipts) {
      v.find(TAMPERED, "session_missing", "", -1, `the log had ${man.receipts} receipts at index ${man.size}, the file shows ${shown} and hides the others`);
    }
  } else if (!v.o.session) {
    v.find(UNPROVEN, "end_unproven", "", -1, `${hidden} leaves stand by their hash alone, and nothing says that none of them is a receipt`);
  }
}

/** sessionEnds: single chains are in question, each with its own end; whole says that the file holds all leaves of the log. */
function sessionEnds(v: Verifier, a: Anchor, whole: boolean): void {
  const targets = v.o.session ? [v.o.session] : v.log ? [...v.chains.keys()] : [...v.scope];
  if (v.chains.size === 0) return empty(v);
  // Where leaves are hidden, that all chains in sight are closed says nothing
  // about those that are not.
  let closed = !v.log || !!v.o.session || v.res.integrity.hidden === 0, stated = true;
  for (const id of targets) {
    const c = v.chains.get(id);
    if (!c) { // RC-05; what the file did not promise is no tampering
      v.find(v.scope.has(id) ? TAMPERED : UNPROVEN, "session_missing", id, -1, "no receipts of the session");
      closed = stated = false;
      continue;
    }
    const h = v.heads.get(id);
    const agrees = h !== undefined && headAgrees(v, c, h);
    if (c.closed && !c.broken) continue;
    closed = false;
    stated &&= agrees || whole;
  }
  if (closed) v.res.completeness.state = "closed";
  else proven(v, a, stated);
}

/** headAgrees compares a chain with its proven head. */
function headAgrees(v: Verifier, c: Chain, h: Head): boolean {
  const leaf: Hash | undefined = c.leaf(h.seq), id = c.session.id;
  if (leaf === undefined) {
    if (h.seq >= c.next) { // RC-04; else missing inside, said where it is missing
      v.find(UNPROVEN, "truncation", id, -1, `the log knows receipt ${h.seq} of the session, the file ends with ${c.next - 1}`);
    }
    return false;
  }
  if (leaf !== h.leaf || h.closed !== (c.closed && h.seq + 1 === c.next)) { // RC-14
    v.find(TAMPERED, "fork", id, -1, `receipt ${h.seq} is not the one that the log's manifest states`);
    return false;
  }
  return true;
}

/** proven sets the end from the anchor; stated says that the anchor speaks of everything in question. */
function proven(v: Verifier, a: Anchor, stated: boolean): void {
  const c = v.res.completeness;
  if (v.cut || v.has("truncation")) {
    c.state = "cut";
  } else if (!a.ok || !stated) {
    v.find(UNPROVEN, "end_unproven", "", -1, "nothing in or outside the file says that this is the end");
  } else {
    c.state = a.fresh ? "current" : "as_of";
    c.through = a.size;
    if (!a.fresh) v.find(UNPROVEN, "end_as_of", "", -1, `the end is proven as of ${stamp(a.at)} and not since`); // RC-47
  }
}

function empty(v: Verifier): void {
  v.res.completeness.state = "empty";
  v.find(UNPROVEN, "empty", "", -1, "the file holds no receipts");
  for (const id of [...v.heads.keys()].sort()) {
    v.find(UNPROVEN, "session_missing", id, -1, "the log knows the session, the file has none of its receipts");
  }
}

/** period compares the sessions that the log opened in the asked period with those in the file. */
function period(v: Verifier): void {
  const { since, until } = v.o;
  if ((since === undefined && until === undefined) || !v.man) return;
  const marks = [...v.marks, v.man];
  const from = since === undefined ? undefined : marks.filter((m) => m.at <= since).pop();
  const to: Mark = (until === undefined ? undefined : marks.find((m) => m.at >= until)) ?? v.man;
  const before = from?.man ?? { sessions: 0, size: 0 };
  v.res.period = {
    asked: [since === undefined ? null : exactTime(since), until === undefined ? null : exactTime(until)],
    found: [from ? exactTime(from.at) : "0001-01-01T00:00:00Z", exactTime(to.at)],
    opened: Math.max(0, to.man.sessions - before.sessions),
    in_file: [...v.chains.values()].filter((c) => c.opened > before.size && c.opened <= to.man.size && c.opened > 0).length,
  };
}
