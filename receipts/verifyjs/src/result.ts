// What a verifier says: docs/receipts-spec.md, section 11. The names are those
// of `gatehouse-verify -o json`.

export type Exit = 0 | 1 | 2 | 3 | 4 | 5 | 6;

export const COMPLETE = 0, TAMPERED = 1, USAGE = 2, UNPROVEN = 3, UNTRUSTED = 4, ADMITTED = 5, UNSUPPORTED = 6;

export type Class =
  | "complete" | "payload" | "chain" | "splice" | "order" | "duplicate" | "gap" | "session_missing" | "fork" | "rollback"
  | "seal" | "canonical" | "schema" | "redaction" | "unreadable" | "usage" | "empty" | "truncation" | "end_unproven"
  | "end_as_of" | "time" | "key" | "loss" | "unmatched" | "unsupported";

export interface Finding { exit: Exit; class: Class; session?: string; index?: number; offset: number; message: string }

export interface Session {
  id: string; receipts: number; state: string; bundle?: string; mode?: string; policy?: string; event?: string; code?: string;
  reason?: string; exit_code?: number; verdicts?: Record<string, number>; spent_nanodollars: number; unknown_outcomes: number;
  unmatched_decisions: number; losses: number; head: string; from: string; to: string;
}

export interface Result {
  exit: Exit; class: Class; first_bad?: Finding; findings?: Finding[]; more?: number;
  integrity: {
    state: "yes" | "no" | "unknown"; receipts: number; matching: number; events: number; hidden: number; seals: number;
    first: number; last: number;
  };
  authenticity: { state: "yes" | "no" | "unknown"; origin: string; root: string; pinned: boolean; keyset: number };
  completeness: {
    state: "closed" | "current" | "as_of" | "unproven" | "cut" | "empty" | "unknown"; through: number; as_of?: string;
    outside: boolean; opened?: number; in_file: number;
  };
  observation: { level: number; expected: string[]; reported: string[]; missing: string[]; not_observed: string[] };
  sessions?: Session[];
  period?: { asked: [string | null, string | null]; found: [string, string]; opened: number; in_file: number };
  does_not_show: string[];
}

export const MAX_FINDINGS = 100, MAX_SESSIONS = 1000;

/**
 * rank orders findings: the strongest statement that they support wins, and
 * among equals the first. A gap is the weakest sign of tampering: whatever is
 * removed, moved or replaced leaves one too.
 */
export function rank(f: Finding): number {
  if (f.exit === TAMPERED) return f.class === "gap" ? 6 : 7;
  return { [USAGE]: 5, [UNSUPPORTED]: 4, [UNTRUSTED]: 3, [UNPROVEN]: 2, [ADMITTED]: 1 }[f.exit as number] ?? 0;
}

/** empty is a result that nothing has been found for yet. */
export const empty = (): Result => ({
  exit: COMPLETE, class: "complete",
  integrity: { state: "unknown", receipts: 0, matching: 0, events: 0, hidden: 0, seals: 0, first: 0, last: 0 },
  authenticity: { state: "unknown", origin: "", root: "", pinned: false, keyset: 0 },
  completeness: { state: "unknown", through: 0, outside: false, in_file: 0 },
  observation: { level: -1, expected: [], reported: [], missing: [], not_observed: [] },
  does_not_show: [],
});
