// The page: takes a file and a fingerprint, shows the report. It is also the
// module that verify.mjs runs, where there is no document, and that the node's own
// pages verify with.

import { utf8 } from "./bytes.ts";
import { givenTime, SECOND } from "./clock.ts";
import { happened, lines, report, verdict } from "./report.ts";
import type { Result } from "./result.ts";
import { verify, type Options } from "./verify.ts";
import { webcrypto } from "./ed25519.ts";

export { givenTime, happened, lines, report, verdict, verify, webcrypto };

// A browser holds the whole file in memory.
const MAX_FILE = 2 ** 30;

const find = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** moment reads a time field; an empty one is none. */
function moment(id: string): bigint | undefined {
  const s = find<HTMLInputElement>(id).value.trim();
  if (s === "") return undefined;
  const t = givenTime(s);
  if (t === undefined) throw new Error(`"${s}" is no RFC 3339 time such as 2026-11-14T10:00:00Z`);
  return t;
}

const bytesOf = async (id: string): Promise<Uint8Array | undefined> => {
  const f = find<HTMLInputElement>(id).files?.[0];
  if (!f) return undefined;
  if (f.size > MAX_FILE) throw new Error("the file is over 1 GiB: use gatehouse-verify");
  return new Uint8Array(await f.arrayBuffer());
};

async function judge(): Promise<Result> {
  const file = await bytesOf("file");
  if (!file) throw new Error("choose an export file first");
  const root = find<HTMLInputElement>("root").value.trim().toLowerCase();
  if (root !== "" && !/^[0-9a-f]{64}$/.test(root)) throw new Error("a fingerprint has 64 hex digits");
  const minutes = Number(find<HTMLInputElement>("max-age").value);
  if (!(minutes > 0)) throw new Error("the age must be above 0");
  const now = BigInt(Date.now()) * 1_000_000n, maxAge = BigInt(Math.round(minutes * 60)) * SECOND;
  const session = find<HTMLInputElement>("session").value.trim();
  const checkpoint = await bytesOf("checkpoint"), since = moment("since"), until = moment("until");
  const canaries = find<HTMLTextAreaElement>("canaries").value.split("\n").filter((s) => s !== "").map(utf8);
  const o: Options = { root, session, now, maxAge, canaries };
  if (checkpoint) o.checkpoint = checkpoint;
  if (since !== undefined) o.since = since;
  if (until !== undefined) o.until = until;
  return verify(file, o);
}

function start(): void {
  const out = find("out"), status = find("verdict"), details = find("report"), json = find("json"), button = find<HTMLButtonElement>("go");
  find<HTMLFormElement>("form").addEventListener("submit", (e) => {
    e.preventDefault();
    out.hidden = false;
    out.className = "";
    status.textContent = "Reading\u2026";
    details.textContent = json.textContent = "";
    button.disabled = true;
    judge().then((r) => {
      out.className = `exit-${r.exit}`;
      status.textContent = verdict(r);
      details.textContent = report(r).split("\n").slice(2).join("\n");
      json.textContent = JSON.stringify(r, null, 2);
    }, (err: unknown) => {
      out.className = "exit-2";
      status.textContent = `Nothing was judged: ${err instanceof Error ? err.message : String(err)}`;
    }).finally(() => {
      button.disabled = false;
      status.focus();
    });
  });
}

// Beside another page's form the script is what it exports, and nothing more.
if (typeof document !== "undefined" && document.getElementById("form") !== null) start();
