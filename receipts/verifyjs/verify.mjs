// Runs the script of verify.html, byte for byte, under Node >= 20:
//
//     node verify.mjs FILE --root FINGERPRINT [--checkpoint FILE] [--max-age SECONDS]
//                     [--session ID] [--since T] [--until T] [-o json]
//
// prints the report and exits as gatehouse-verify does. With --jobs it reads
// one JSON job a line from standard input and answers each with one line; the
// tests of package receipts judge every case with both verifiers that way.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import vm from "node:vm";

const page = readFileSync(new URL("verify.html", import.meta.url), "utf8");
const script = page.slice(page.indexOf("<script>") + "<script>".length, page.lastIndexOf("</script>"));
vm.runInThisContext(script, { filename: "verify.html" });
const { gatehouse } = globalThis;

const bytes = (s) => new Uint8Array(Buffer.from(s, "base64"));

/** time reads RFC 3339, or says that there is none. */
function time(s) {
  if (s === undefined) return undefined;
  const t = gatehouse.givenTime(s);
  if (t === undefined) throw new Error(`${JSON.stringify(s)} is no RFC 3339 time`);
  return t;
}

const seconds = (n) => (n === undefined ? undefined : BigInt(n) * 1_000_000_000n);

/** defined drops what was not given. */
const defined = (o) => Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined));

/**
 * answer judges one job: a file, options, and optionally flips [offset, xor],
 * each of which asks for the verdict of the file with that one byte changed.
 */
async function answer(job, verify) {
  const file = bytes(job.file ?? "");
  const o = defined({
    root: job.root, session: job.session, checkpoint: job.checkpoint === undefined ? undefined : bytes(job.checkpoint),
    maxAge: seconds(job.max_age_seconds), now: time(job.now), since: time(job.since), until: time(job.until),
    canaries: job.canaries?.map(bytes), maxBytes: job.max_bytes, verify,
  });
  if (job.flips) {
    const flips = [];
    for (const [at, by] of job.flips) {
      file[at] ^= by;
      const r = await gatehouse.verify(file, o);
      flips.push([r.exit, r.class]);
      file[at] ^= by;
    }
    return { flips };
  }
  const result = await gatehouse.verify(file, o);
  return { result, verdict: gatehouse.verdict(result), lines: gatehouse.lines(result), happened: gatehouse.happened(result) };
}

/** remembering asks each question about a signature once. */
async function remembering() {
  const real = await gatehouse.webcrypto(), known = new Map();
  return async (...args) => {
    const key = args.map((b) => Buffer.from(b).toString("base64")).join(" ");
    if (!known.has(key)) known.set(key, await real(...args));
    return known.get(key);
  };
}

async function jobs() {
  const verify = await remembering();
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line), verify)) + "\n");
  }
}

/** options reads the command line. */
function options(args) {
  const o = {};
  for (let i = 0; i < args.length; i++) {
    const name = /^--?(root|checkpoint|max-age|session|since|until|o)$/.exec(args[i])?.[1];
    if (name !== undefined && i + 1 < args.length) o[name] = args[++i];
    else if (name === undefined && !args[i].startsWith("-") && o.file === undefined) o.file = args[i];
    else throw new Error(`unexpected ${JSON.stringify(args[i])}`);
  }
  if (o.file === undefined) throw new Error("no FILE given");
  if (o.o !== undefined && o.o !== "json" && o.o !== "text") throw new Error(`unknown output format ${JSON.stringify(o.o)}`);
  const age = o["max-age"] === undefined ? undefined : Number(o["max-age"]);
  if (age !== undefined && !(Number.isSafeInteger(age) && age > 0)) throw new Error("--max-age is a number of seconds above 0");
  return { ...o, age };
}

async function main() {
  if (process.argv[2] === "--jobs") return jobs();
  const o = options(process.argv.slice(2));
  const result = await gatehouse.verify(new Uint8Array(readFileSync(o.file)), defined({
    root: o.root, session: o.session, checkpoint: o.checkpoint === undefined ? undefined : new Uint8Array(readFileSync(o.checkpoint)),
    maxAge: seconds(o.age), now: BigInt(Date.now()) * 1_000_000n, since: time(o.since), until: time(o.until),
  }));
  process.stdout.write(o.o === "json" ? JSON.stringify(result, null, 2) + "\n" : gatehouse.report(result));
  process.exitCode = result.exit;
}

main().catch((e) => {
  process.stderr.write(`verify.mjs: ${e.message}\n`);
  process.exit(2); // standard input may still be open
});
