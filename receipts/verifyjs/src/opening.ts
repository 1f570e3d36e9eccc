// Disclosed commitments: docs/receipts-spec.md, section 9.

import { base64url } from "./bytes.ts";
import { hmac } from "./sha256.ts";
import type { Receipt } from "./schema.ts";

export interface Opening {
  session: string; seq: number; label: string; key: Uint8Array; value: Uint8Array;
  at: number; // byte in the file
  done: boolean; // it opens something
}

/** opens says whether the opening matches a commitment of r: RC-32. */
export function opens(o: Opening, r: Receipt): boolean {
  if (r.session !== o.session || r.seq !== o.seq) return false;
  const wanted = o.label === "in" ? r.in : r.act?.args?.get(o.label);
  return wanted !== undefined && base64url(hmac(o.key, o.value)) === wanted;
}
