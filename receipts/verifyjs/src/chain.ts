// One session's receipts as the file shows them.

import { exactTime } from "./clock.ts";
import { genesis, type Hash } from "./hash.ts";
import type { Keyset } from "./keys.ts";
import type { Close, Dec, Receipt } from "./schema.ts";
import { ADMITTED, TAMPERED, type Class, type Exit, type Session } from "./result.ts";

/** Around is what a chain must know of the verifier. */
export interface Around {
  keyset: Keyset;
  late: boolean; // the file is about a log from a later index on
  revoked: boolean; // the seal at hand is by a revoked key
  find(exit: Exit, cls: Class, session: string, index: number, message: string): void;
}

/** Tally counts a chain's receipts as the node does for session.close. */
class Tally {
  count = 0; spent = 0; unknown = 0; losses = 0; strange = 0;
  readonly verdicts = new Map<string, number>();
  readonly pending = new Set<Hash>();

  add(r: Receipt, leaf: Hash): void {
    this.count++;
    if (r.dec && r.type === "decision") {
      const k = bucket(r.dec);
      this.verdicts.set(k, (this.verdicts.get(k) ?? 0) + Math.max(1, r.dec.count ?? 0));
      if (r.dec.passed) this.pending.add(leaf);
    } else if (r.out && r.type === "outcome") {
      this.spent += r.out.spent ?? 0;
      if (r.out.effect === "unknown") this.unknown++;
      if (!this.pending.delete(r.out.ref)) this.strange++;
    } else if (r.type === "loss") {
      this.losses++;
    }
  }
}

function bucket(d: Dec): string {
  if (d.fault !== undefined) return "fault";
  if (d.verdict === "allow") return "allow";
  return d.passed ? "would_block" : "deny";
}

export class Chain {
  readonly tally = new Tally();
  readonly session: Session;
  private leaves: Hash[] = []; // by seq, from base on
  private base = 0;
  private last = 0n;
  private mono = 0;
  private readonly seen = new Set<string>();
  index = 0; // log index of the last receipt
  closed = false;
  broken = false; // a receipt is missing: what follows proves no end
  partial = false; // it began before the file does
  level = -1;
  points: string[] = [];
  notSeen: string[] = [];
  dev = false;
  opened = 0; // log index of session.open + 1, 0 = none
  revoked = 0; // seq+1 of the last receipt under a revoked seal key

  constructor(id: string) {
    this.session = {
      id, receipts: 0, state: "open", spent_nanodollars: 0, unknown_outcomes: 0, unmatched_decisions: 0, losses: 0, head: "",
      from: "", to: "",
    };
  }

  /** next is the seq that must follow. */
  get next(): number { return this.base + this.leaves.length; }

  leaf(seq: number): Hash | undefined { return seq < this.base ? undefined : this.leaves[seq - this.base]; }

  /** add judges the receipt's place in the chain and takes it in. */
  add(v: Around, r: Receipt, index: number, leaf: Hash): void {
    const id = this.session.id;
    const bad = (cls: Class, message: string): void => v.find(TAMPERED, cls, id, index, message);
    const next = this.next;
    if (this.leaves.length === 0) {
      if (r.seq > 0 && v.late) {
        this.base = r.seq;
        this.partial = true;
      } else if (!this.begins(v, r, bad)) {
        this.base = r.seq;
        this.broken = true;
      }
    } else if (r.seq < next) {
      if (this.leaf(r.seq) === leaf) bad("duplicate", `receipt ${r.seq} twice`); // RC-09
      else bad("fork", `two signed receipts with number ${r.seq}`); // RC-14
      return;
    } else if (r.seq > next) { // RC-03, RC-29
      bad("gap", `receipts ${next} to ${r.seq - 1} are missing`);
      this.leaves = [];
      this.base = r.seq;
      this.broken = true;
    } else if (r.prev !== this.leaves[this.leaves.length - 1]) {
      bad("chain", `receipt ${r.seq} does not follow receipt ${r.seq - 1}`);
    }
    if (this.closed) bad("order", `receipt ${r.seq} stands behind session.close`); // RC-12
    if (this.leaves.length > 0 && (r.at < this.last || r.mono < this.mono)) { // RC-27
      v.find(ADMITTED, "time", id, index, `the clock of receipt ${r.seq} runs backwards`);
    }
    this.leaves.push(leaf);
    this.index = index;
    this.last = r.at;
    this.mono = r.mono;
    if (v.revoked) this.revoked = r.seq + 1;
    this.tally.add(r, leaf);
    this.tell(r, index);
    if (r.close && !this.broken && !this.partial) this.checkClose(r.close, bad);
  }

  /** begins judges the first receipt; false means that the beginning is missing. */
  private begins(v: Around, r: Receipt, bad: (cls: Class, message: string) => void): boolean {
    if (r.seq !== 0) { // RC-03
      bad("gap", `receipts 0 to ${r.seq - 1} are missing`);
      return false;
    }
    const ks = v.keyset;
    const good = r.open
      ? ks.knows(r.open.keyset) && r.prev === genesis(r.log, r.session, r.open.keyset)
      : [ks.digest, ...ks.was].some((d) => r.prev === genesis(r.log, r.session, d));
    if (!good) bad("splice", "the first receipt does not belong to this log, session and keyset"); // RC-13
    return true;
  }

  private checkClose(l: Close, bad: (cls: Class, message: string) => void): void {
    const t = this.tally;
    if (l.count !== t.count) {
      bad("gap", `session.close counts ${l.count} receipts, the chain has ${t.count}`);
    } else {
      const said = l.verdicts ?? new Map<string, number>();
      const keys = [...said.keys(), ...t.verdicts.keys()];
      if (keys.some((k) => (said.get(k) ?? 0) !== (t.verdicts.get(k) ?? 0))) {
        bad("chain", "session.close counts other verdicts than the chain has");
      }
    }
  }

  /** tell takes from a receipt what the report says of the session. */
  private tell(r: Receipt, index: number): void {
    const s = this.session, { open: o, dec, close: l } = r;
    if (this.leaves.length === 1) s.from = exactTime(r.at);
    s.to = exactTime(r.at);
    if (o) {
      this.opened = index + 1;
      Object.assign(s, {
        bundle: o.bundle, mode: o.mode, policy: o.policy, event: o.event, code: o.code,
        state: o.state === "refused" ? "refused" : s.state,
      });
      this.points = o.points ?? [];
      this.notSeen = o.not_observed ?? [];
      this.dev ||= o.dev ?? false;
    } else if (r.obs) {
      this.seen.add(r.obs.point);
    }
    if (dec && r.obs) {
      this.dev ||= dec.dev ?? false;
      if (this.level < 0 || r.obs.level < this.level) this.level = r.obs.level;
    }
    if (l) {
      this.closed = true;
      s.reason = l.reason;
      if (l.exit !== undefined) s.exit_code = l.exit;
      if (s.state === "open") s.state = "closed";
    }
  }

  /** finish completes the summary. */
  finish(): void {
    const s = this.session, t = this.tally;
    s.receipts = t.count;
    if (t.verdicts.size > 0) s.verdicts = Object.fromEntries([...t.verdicts].sort(([a], [b]) => (a < b ? -1 : 1)));
    s.spent_nanodollars = t.spent;
    s.unknown_outcomes = t.unknown;
    s.losses = t.losses;
    s.unmatched_decisions = t.pending.size;
    s.head = this.leaves[this.leaves.length - 1] ?? "";
  }

  /** reported splits the expected points into those that reported and the others. */
  reported(): { yes: string[]; no: string[] } {
    return { yes: this.points.filter((p) => this.seen.has(p)), no: this.points.filter((p) => !this.seen.has(p)) };
  }
}
