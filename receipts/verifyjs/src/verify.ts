// The verifier: reads an export once and judges it, as package receipts does.

import { unbase64url, utf8 } from "./bytes.ts";
import { Chain, type Around } from "./chain.ts";
import { span, SECOND } from "./clock.ts";
import { judge } from "./ending.ts";
import { webcrypto, type Verify } from "./ed25519.ts";
import { Cut, Frames, hashOf, numberOf, pathOf, want, type Frame } from "./frames.ts";
import { consistent, hash, included, leafOf, Tree, type Hash } from "./hash.ts";
import { covers, keyID, Keyset, parseCheckpoint, parseKeyset, sealFault, sealText, Unsupported, Untrusted, type Checkpoint, type Key, type Seal } from "./keys.ts";
import { opens, type Opening } from "./opening.ts";
import { empty, MAX_FINDINGS, rank, ADMITTED, TAMPERED, UNPROVEN, UNSUPPORTED, UNTRUSTED, USAGE, type Class, type Exit, type Finding, type Result } from "./result.ts";
import { Scan } from "./scan.ts";
import { CONTROL, fault, isName, isToken, read, type Manifest, type Receipt } from "./schema.ts";

/** Options say how to read a file. Times are nanoseconds since 1970. */
export interface Options {
  root?: string; // root fingerprint, obtained outside the file
  session?: string; // judge this session's end only
  checkpoint?: Uint8Array; // a checkpoint note that did not come with the file
  maxAge?: bigint; // how old it may be for exit 0; an hour by default
  now: bigint;
  since?: bigint;
  until?: bigint;
  canaries?: Uint8Array[]; // values that must stand nowhere in the file, in no encoding
  maxBytes?: number;
  verify?: Verify; // WebCrypto's by default
}

// Limits on hostile files: RC-45.
const MAX_LEAVES = 1 << 24, MAX_CHAINS = 1 << 20, MAX_PREAMBLE = 1 << 14, MAX_OPENINGS = 64, MAX_GROUP = 1024;
const MAX_BYTES = 2 ** 34;

export interface Head { seq: number; leaf: Hash; closed: boolean }
export interface Mark { index: number; man: Manifest; at: bigint }
interface Loose { at: number; index?: number }

/** STAGES is the order in which frames may stand; a word may repeat its stage unless it is in ONCE. */
const STAGES = new Map([
  ["scope", 1], ["keyset", 2], ["bundle", 3], ["opening", 4], ["seal", 5], ["receipt", 5], ["event", 5], ["hidden", 5],
  ["checkpoint", 6], ["manifest", 7], ["head", 8], ["mark", 9], ["consistency", 10], ["end", 11],
]);
const ONCE = ["keyset", "checkpoint", "manifest", "end"];

const MAX_SILENCE = 30n * SECOND;

const bad = (message: string): never => { throw new Error(message); };

/** verify reads an export and judges it. It throws only where signatures cannot be checked at all. */
export async function verify(file: Uint8Array, o: Options): Promise<Result> {
  const v = new Verifier(file, o, o.verify ?? (await webcrypto()));
  await v.read();
  judge(v);
  return v.res;
}

export class Verifier implements Around {
  readonly res: Result = empty();
  readonly frames: Frames;
  private readonly scan: Scan;
  private readonly classes = new Set<Class>();
  private stage = 0;
  at = 0; // of the frame at hand
  cut = false; // the input ended before the end line
  fatal = false; // the input could not be read to its end

  private origin = "";
  log = false; // the file is about the log from index first
  first = 0;
  readonly scope = new Set<string>(); // sessions, in file order
  ks: Keyset | undefined;
  trusted = false;
  private readonly keys = new Map<string, Key>();
  readonly bundles = new Map<Hash, number>(); // digest to offset; removed when a session.open names it
  readonly events = new Map<Hash, Loose>(); // removed likewise
  private readonly named = new Set<Hash>();
  readonly openings = new Map<string, Opening[]>();
  private opened = 0;

  private seal: Seal | undefined;
  private quality: "sealed" | "foreign" | "unsealed" = "unsealed";
  private lastPos = -1;
  private prev: Seal | undefined;
  next = 0;
  private leaves = 0;
  tree: Tree | undefined; // of all leaves, when the file is about the log from 0
  revoked = false; // the seal at hand is by a revoked key
  readonly chains = new Map<string, Chain>(); // by first receipt in the file
  private open = 0;
  private beat: bigint | undefined;
  unproved = 0; // leaves in log scope under a revoked key: highest index + 1
  readonly shown: number[] = []; // log indices of the receipts, in log scope
  readonly hidden: number[] = [];

  cp: Checkpoint | undefined;
  man: Mark | undefined;
  readonly heads = new Map<string, Head>();
  readonly marks: Mark[] = [];
  readonly older: { size: number; root: Hash }[] = [];
  outside: Checkpoint | undefined;

  constructor(file: Uint8Array, readonly o: Options, private readonly verify: Verify) {
    this.frames = new Frames(file, o.maxBytes ?? MAX_BYTES);
    this.scan = new Scan(o.canaries ?? []);
  }

  get late(): boolean { return this.first > 0; }
  get keyset(): Keyset { return this.ks!; } // there is one before any leaf

  find(exit: Exit, cls: Class, session: string, index: number, message: string): void {
    const f: Finding = { exit, class: cls, offset: this.at, message };
    if (session !== "") f.session = session;
    if (index >= 0) f.index = index;
    this.record(f);
  }

  record(f: Finding): void {
    const r = this.res;
    this.classes.add(f.class);
    if (!r.first_bad || rank(f) > rank(r.first_bad)) r.first_bad = f;
    r.findings ??= [];
    if (r.findings.length < MAX_FINDINGS) r.findings.push(f);
    else r.more = (r.more ?? 0) + 1;
  }

  has(c: Class): boolean { return this.classes.has(c); }

  /** read walks the frames. */
  async read(): Promise<void> {
    if (this.frames.ended) { // RC-07
      this.cut = true;
      return this.find(UNPROVEN, "empty", "", -1, "the file is empty");
    }
    try {
      this.version();
    } catch (e) {
      this.fatal = true;
      if (e instanceof Unsupported) return this.find(UNSUPPORTED, "unsupported", "", -1, e.message);
      return this.find(USAGE, "unreadable", "", -1, `not an export: ${(e as Error).message}`);
    }
    while (!this.fatal) {
      let f: Frame | undefined;
      try {
        f = this.frames.next();
        this.at = f.at;
        if (await this.frame(f)) {
          if (!this.frames.ended) {
            this.fatal = true;
            this.find(USAGE, "unreadable", "", -1, "something follows the end line");
          }
          return;
        }
      } catch (e) {
        if (!f) this.at = this.frames.at;
        if (e instanceof Cut) { // RC-04
          this.cut = true;
          return this.find(UNPROVEN, "truncation", "", -1, e.message);
        }
        this.fatal = true;
        if (e instanceof Unsupported) this.find(UNSUPPORTED, "unsupported", "", -1, e.message);
        else this.find(USAGE, "unreadable", "", -1, (e as Error).message);
      }
    }
  }

  private version(): void {
    const words = this.frames.line().split(" ");
    const [version, origin] = words;
    if (words.length !== 2 || version === "" || origin === "") bad("its first line is not that of an export");
    if (version !== "gatehouse-export/1") {
      if (version!.startsWith("gatehouse-export/")) throw new Unsupported(version!.slice(0, 40));
      bad("its first line is not that of an export");
    }
    if (!isName(origin!)) bad("malformed origin");
    this.origin = this.res.authenticity.origin = origin!;
  }

  /** frame judges one frame and says whether it is the end. It throws where the file cannot be read on. */
  private async frame(f: Frame): Promise<boolean> {
    const { word } = f, stage = STAGES.get(word) ?? bad(`unexpected line ${JSON.stringify(word.slice(0, 40))}`), was = this.stage;
    if (stage < was || (stage === was && ONCE.includes(word))) bad(`${word} out of place`);
    if ((stage >= 2 && was < 1) || (stage > 2 && !this.ks)) bad(`${word} before the scope and the keyset`);
    if (stage >= 7 && stage <= 10 && was < stage - 1 && was < 6) bad(`${word} without a checkpoint`);
    if (stage >= 8 && stage <= 10 && was < 7) bad(`${word} without a manifest`);
    if (was === 6 && stage !== 7) bad("a checkpoint without its manifest");
    this.stage = stage;
    switch (word) {
      case "scope": this.onScope(f); break;
      case "keyset": await this.onKeyset(f); break;
      case "bundle": this.onBundle(f); break;
      case "opening": this.onOpening(f); break;
      case "seal": await this.onSeal(f); break;
      case "checkpoint": await this.onCheckpoint(f); break;
      case "manifest": this.onManifest(f); break;
      case "head": this.onHead(f); break;
      case "mark": this.onMark(f); break;
      case "consistency": this.onOlder(f); break;
      case "end": this.onEnd(f); return true;
      default: this.onLeaf(f, word);
    }
    return false;
  }

  private onScope(f: Frame): void {
    want(f, 2);
    const [kind, arg] = f.args as [string, string];
    if (kind === "log" && !this.log && this.scope.size === 0) {
      this.log = true;
      this.first = this.next = numberOf(arg);
      if (this.first === 0) this.tree = new Tree();
    } else if (kind === "session" && !this.log && isToken(arg) && !this.scope.has(arg) && this.scope.size < MAX_PREAMBLE) {
      this.scope.add(arg);
    } else bad("malformed scope");
  }

  private async onKeyset(f: Frame): Promise<void> {
    want(f, 0);
    let ks: Keyset;
    try {
      ks = await parseKeyset(f.body, this.verify);
    } catch (e) {
      if (e instanceof Unsupported) throw e;
      this.fatal = true; // nothing in the file can be judged without its keys
      return this.find(TAMPERED, "key", "", -1, `keyset: ${(e as Error).message}`);
    }
    const root = ks.rootFingerprint;
    this.trusted = this.o.root === root;
    if (!this.trusted) {
      this.find(UNTRUSTED, "key", "", -1, "keyset: key not trusted: " + (this.o.root ? `its root is ${root}` : "no root fingerprint given"));
    }
    if (ks.origin !== this.origin) { // RC-21
      this.find(TAMPERED, "splice", "", -1, `keyset of ${ks.origin} in a file of ${this.origin}`);
    }
    this.ks = ks;
    for (const k of ks.keys) if (k.purpose === "seal") this.keys.set(keyID(k), k);
    Object.assign(this.res.authenticity, { root, pinned: this.trusted, keyset: ks.serial });
    await this.readOutside(ks);
  }

  /** readOutside reads the checkpoint that did not come with the file. */
  private async readOutside(ks: Keyset): Promise<void> {
    if (!this.o.checkpoint) return;
    try {
      const cp = await parseCheckpoint(this.o.checkpoint, ks, this.verify);
      // Whoever stole a revoked key can sign any tree of any size with any time.
      if (cp.key.revoked) this.find(UNTRUSTED, "key", "", -1, `the outside checkpoint is by the revoked key ${keyID(cp.key)}`);
      else this.outside = cp;
    } catch (e) {
      const message = `outside checkpoint: ${(e as Error).message}`;
      if (e instanceof Untrusted) return this.find(UNTRUSTED, "key", "", -1, message);
      this.fatal = true;
      this.find(USAGE, "usage", "", -1, message);
    }
  }

  private look(b: Uint8Array, index: number): void {
    if (this.scan.found(b)) this.find(TAMPERED, "redaction", "", index, "a value that must not be in the file is in it"); // RC-33
  }

  private onBundle(f: Frame): void {
    want(f, 0);
    this.look(f.body, -1);
    const d = hash(f.body);
    if (this.bundles.has(d)) this.find(TAMPERED, "duplicate", "", -1, "the same bundle twice");
    if (this.bundles.size >= MAX_PREAMBLE) bad("too many bundles");
    this.bundles.set(d, f.at);
  }

  private onOpening(f: Frame): void {
    want(f, 4);
    const [session, seq, label, key] = f.args as [string, string, string, string];
    const o: Opening = { session, seq: numberOf(seq), label, key: unbase64url(hashOf(key))!, value: f.body, at: f.at, done: false };
    const place = `${session} ${o.seq}`, list = this.openings.get(place) ?? [];
    if (++this.opened > MAX_PREAMBLE || list.length >= MAX_OPENINGS) bad("too many openings");
    this.openings.set(place, [...list, o]);
  }

  private async onSeal(f: Frame): Promise<void> {
    want(f, 6);
    const [id, first, count, root, prev, sig] = f.args as [string, string, string, string, string, string];
    const raw = sig.length === 86 ? unbase64url(sig) : undefined;
    const s: Seal = {
      keyID: id, first: numberOf(first), count: numberOf(count), root: hashOf(root), prev: hashOf(prev),
      sig: raw ?? bad("malformed signature"),
    };
    if (s.count > MAX_GROUP) bad(`group of ${s.count} leaves`);
    await this.judgeSeal(s);
  }

  /** judgeSeal checks a seal's signature and its place behind the previous seal. */
  private async judgeSeal(s: Seal): Promise<void> {
    this.res.integrity.seals++;
    this.seal = s;
    this.lastPos = -1;
    this.revoked = false;
    this.quality = "unsealed";
    const say = (exit: Exit, cls: Class, message: string): void => this.find(exit, cls, "", s.first, message);
    const k = this.keys.get(s.keyID), wrong = sealFault(s), signed = sealText(this.origin, s);
    if (wrong !== undefined) return say(TAMPERED, "seal", wrong); // RC-20
    if (!k) { // RC-10
      this.quality = "foreign";
      return say(UNTRUSTED, "key", `sealed by ${s.keyID}, which is not in the keyset`);
    }
    if (!(await this.verify(k.public, signed, s.sig))) return say(TAMPERED, "seal", "the seal's signature is wrong"); // RC-20, RC-21
    if (!covers(k, s.first, s.count)) { // RC-11
      this.quality = "foreign";
      return say(UNTRUSTED, "key", `sealed by ${s.keyID} outside its interval`);
    }
    this.quality = "sealed";
    this.revoked = k.revoked;
    const p = this.prev;
    if (p) {
      const was = hash(sealText(this.origin, p));
      if (s.first === p.first && hash(signed) === was) say(TAMPERED, "duplicate", "the same seal twice"); // RC-09
      else if (s.first === p.first + p.count && s.prev !== was) say(TAMPERED, "fork", "a signed seal that does not follow the signed seal before it"); // RC-14
      else if (s.first < p.first + p.count && s.first + s.count > p.first) say(TAMPERED, "fork", "two signed seals over the same log index");
      else if (s.first < p.first) say(TAMPERED, "order", "seals out of order"); // RC-08
    }
    this.prev = s;
  }

  /** onLeaf judges one leaf: its place, its bytes against the seal, and then what it says. */
  private onLeaf(f: Frame, word: string): void {
    want(f, word === "hidden" ? 3 : 2);
    const s = this.seal ?? bad(`${word} before any seal`);
    if (++this.leaves > MAX_LEAVES) bad("too many leaves");
    const pos = numberOf(f.args[0]!), path = pathOf(f.args[1]!), index = s.first + pos;
    const say = (cls: Class, message: string): void => this.find(TAMPERED, cls, "", index, message);
    if (pos >= s.count) return say("seal", "a leaf outside its group");
    if (pos === this.lastPos) return say("duplicate", "the same leaf twice"); // RC-09
    if (pos < this.lastPos) say("order", "leaves out of order"); // RC-08
    this.lastPos = pos;

    if (word !== "hidden") this.look(f.body, index);
    const leaf = word === "hidden" ? hashOf(f.args[2]!) : leafOf(f.body);
    const n = this.res.integrity;
    if (word === "receipt") n.receipts++;
    else if (word === "event") n.events++;
    else n.hidden++;
    if (n.receipts + n.events + n.hidden === 1) n.first = index;
    n.last = index;
    if (this.quality === "unsealed") return; // one finding for the seal says it for all its leaves
    if (!included(path, pos, s.count, s.root, leaf)) return say("payload", "the bytes are not the sealed ones"); // RC-01, RC-02
    if (word === "receipt") n.matching++;
    if (this.quality === "foreign") return;
    this.inLog(index, leaf);
    if (word === "receipt") {
      if (this.log) this.shown.push(index);
      this.onReceipt(f.body, index, leaf);
    } else if (word === "event") {
      this.onEvent(f.body, index, leaf);
    } else {
      this.hidden.push(index);
      if (!this.log) say("splice", "a hidden leaf in a file of single sessions");
    }
  }

  /** inLog accounts for a leaf where the file is about the whole log. */
  private inLog(index: number, leaf: Hash): void {
    if (!this.log) return;
    if (index < this.first) this.find(TAMPERED, "order", "", index, "a leaf before the part of the log that the file is about");
    if (index > this.next) { // RC-03, RC-05
      this.find(TAMPERED, "gap", "", this.next, `log indices ${this.next} to ${index - 1} are missing`);
      this.tree = undefined; // nothing is proven about a root any more
    }
    this.next = Math.max(this.next, index + 1);
    if (this.revoked) this.unproved = index + 1;
    if (this.tree?.size === index) this.tree.append(leaf);
  }

  private onEvent(b: Uint8Array, index: number, leaf: Hash): void {
    if (receiptOf(b)) { // a receipt that calls itself an event would leave its chain unseen
      this.find(TAMPERED, "splice", "", index, "a receipt that is passed off as an event");
    } else if (!this.log && !this.named.has(leaf)) {
      this.events.set(leaf, { at: this.at, index });
    }
  }

  private onReceipt(b: Uint8Array, index: number, leaf: Hash): void {
    const r = receiptOf(b);
    if (!r) {
      const why = fault(b); // RC-22, RC-23, RC-24, RC-30
      return this.find(why === "unsupported" ? UNSUPPORTED : TAMPERED, why, "", index, `receipt: ${why}`);
    }
    if (r.log !== this.origin) return this.find(TAMPERED, "splice", r.session, index, `a receipt of log ${r.log}`); // RC-13
    if (!this.log && !this.scope.has(r.session)) { // RC-13
      return this.find(TAMPERED, "splice", r.session, index, "a receipt of a session that the file is not about");
    }
    let c = this.chains.get(r.session);
    if (!c) {
      if (this.chains.size >= MAX_CHAINS) {
        this.fatal = true;
        return this.find(USAGE, "unreadable", "", index, `more than ${MAX_CHAINS} sessions`);
      }
      c = new Chain(r.session);
      this.chains.set(r.session, c);
    }
    c.add(this, r, index, leaf);
    this.silence(r, index);
    for (const o of this.openings.get(`${r.session} ${r.seq}`) ?? []) o.done ||= opens(o, r);
    if (r.open) {
      if (r.open.digest) this.bundles.delete(r.open.digest);
      if (r.open.event_leaf) {
        this.named.add(r.open.event_leaf);
        this.events.delete(r.open.event_leaf);
      }
    }
  }

  /** silence watches the control chain in a file of the whole log. */
  private silence(r: Receipt, index: number): void {
    if (!this.log) return;
    if (this.open > 0 && this.beat !== undefined && r.at - this.beat > MAX_SILENCE) { // RC-28
      this.find(ADMITTED, "gap", "", index, `no heartbeat for ${span(r.at - this.beat)} while sessions were open`);
      this.beat = r.at; // one finding a silence
    }
    if (r.session === CONTROL) this.beat = r.at;
    else if (r.type === "session.open") {
      if (++this.open === 1 && (this.beat === undefined || r.at > this.beat)) this.beat = r.at;
    } else if (r.type === "session.close") this.open--;
  }

  // The frames behind the leaves: what the log says about its own end.

  private async onCheckpoint(f: Frame): Promise<void> {
    want(f, 0);
    try {
      const cp = await parseCheckpoint(f.body, this.keyset, this.verify);
      if (!cp.exact) this.find(TAMPERED, "seal", "", -1, "the checkpoint is not in its only spelling");
      else if (cp.key.revoked) this.find(UNTRUSTED, "key", "", -1, `the checkpoint is by the revoked key ${keyID(cp.key)}`);
      else this.cp = cp;
    } catch (e) {
      const message = `checkpoint: ${(e as Error).message}`;
      if (e instanceof Untrusted) this.find(UNTRUSTED, "key", "", -1, message);
      else this.find(TAMPERED, "seal", "", -1, message);
    }
  }

  /** manifest checks one manifest leaf against the enclosed checkpoint. */
  private manifest(b: Uint8Array, index: number, path: Hash[]): Receipt | undefined {
    const cp = this.cp!;
    if (!included(path, index, cp.size, cp.root, leafOf(b))) {
      this.find(TAMPERED, "seal", "", index, "a manifest that is not in the checkpoint's tree");
      return undefined;
    }
    const r = receiptOf(b);
    if (!r) {
      const newer = fault(b) === "unsupported";
      this.find(newer ? UNSUPPORTED : TAMPERED, newer ? "unsupported" : "schema", "", index, "not a manifest");
    } else if (!r.man || r.log !== this.origin || r.man.size > index) {
      this.find(TAMPERED, "splice", "", index, "not a manifest of this log and place");
    } else return r;
    return undefined;
  }

  private onManifest(f: Frame): void {
    want(f, 1);
    const path = pathOf(f.args[0]!);
    this.look(f.body, -1);
    if (!this.cp) return; // the checkpoint's finding covers it
    const r = this.manifest(f.body, this.cp.size - 1, path);
    if (!r) return;
    this.man = { index: this.cp.size - 1, man: r.man!, at: r.at };
    // The manifest is itself the head of the control chain.
    if (r.session === CONTROL) this.heads.set(CONTROL, { seq: r.seq, leaf: leafOf(f.body), closed: false });
  }

  private onHead(f: Frame): void {
    want(f, 6);
    const [session, seq, leaf, state, index, path] = f.args as [string, string, string, string, string, string];
    const h: Head = { seq: numberOf(seq), leaf: hashOf(leaf), closed: state === "c" };
    if (state !== "o" && state !== "c") bad("malformed head");
    const i = numberOf(index), p = pathOf(path);
    if (this.heads.size >= MAX_PREAMBLE) bad("too many heads");
    const say = (cls: Class, message: string): void => this.find(TAMPERED, cls, session, -1, message);
    if (this.heads.has(session)) return say("duplicate", "the same head twice"); // the control chain's head is the manifest
    if (!this.man) return; // the manifest's finding covers it
    const { tree = 0, heads = "" } = this.man.man;
    const line = leafOf(utf8(`gatehouse-head/1 ${session} ${h.seq} ${h.leaf} ${state}`));
    if (!included(p, i, tree, heads, line)) say("seal", "a head that is not in the manifest");
    else if (!this.log && !this.scope.has(session)) say("splice", "the head of a session that the file is not about");
    else this.heads.set(session, h);
  }

  private onMark(f: Frame): void {
    want(f, 2);
    const index = numberOf(f.args[0]!), path = pathOf(f.args[1]!);
    if (this.marks.length >= MAX_PREAMBLE) bad("too many marks");
    this.look(f.body, index);
    const r = this.cp && this.manifest(f.body, index, path);
    if (!r) return;
    const last = this.marks[this.marks.length - 1];
    if ((last && last.index >= index) || index + 1 >= this.cp!.size) this.find(TAMPERED, "order", "", index, "marks out of order");
    else this.marks.push({ index, man: r.man!, at: r.at });
  }

  private onOlder(f: Frame): void {
    want(f, 3);
    const size = numberOf(f.args[0]!), root = hashOf(f.args[1]!), path = pathOf(f.args[2]!);
    if (this.older.length >= MAX_PREAMBLE) bad("too many older trees");
    if (!this.cp) return;
    const last = this.older[this.older.length - 1];
    if (!consistent(path, this.cp.size, this.cp.root, size, root)) { // RC-17
      this.find(TAMPERED, "rollback", "", -1, `the checkpoint does not continue the tree of size ${size}`);
    } else if (last && last.size >= size) {
      this.find(TAMPERED, "order", "", -1, "older trees out of order");
    } else this.older.push({ size, root });
  }

  private onEnd(f: Frame): void {
    want(f, 1);
    const n = numberOf(f.args[0]!), has = this.res.integrity.receipts;
    if (n !== has) this.find(UNPROVEN, "truncation", "", -1, `the end line counts ${n} receipts, the file has ${has}`); // RC-04
  }
}

function receiptOf(b: Uint8Array): Receipt | undefined {
  try {
    return read(b);
  } catch {
    return undefined;
  }
}
