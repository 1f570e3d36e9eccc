// SHA-256 digests in their one spelling (43 characters of base64url), and the
// trees of RFC 6962 over them.

import { base64url, unbase64url, utf8 } from "./bytes.ts";
import { sha256 } from "./sha256.ts";

/** Hash is a digest as it stands in receipts and exports. */
export type Hash = string;

export const ZERO: Hash = "A".repeat(43);

/** isHash says whether s is the one spelling of a digest. */
export const isHash = (s: string): boolean => s.length === 43 && unbase64url(s) !== undefined;

const bytesOf = (h: Hash): Uint8Array => unbase64url(h)!;

export const hash = (...parts: Uint8Array[]): Hash => base64url(sha256(...parts));

const LEAF = new Uint8Array([0]);
const NODE = new Uint8Array([1]);

/** leafOf is the RFC 6962 leaf hash, the only hash of a receipt. */
export const leafOf = (payload: Uint8Array): Hash => hash(LEAF, payload);

/** genesis is what the first receipt of a chain follows: it binds log, session and keyset. */
export const genesis = (log: string, session: string, keyset: Hash): Hash =>
  hash(utf8(`gatehouse-genesis/1\n${log}\n${session}\n${keyset}`));

/** MAX_PATH is longer than any path in a tree of 2^53 leaves. */
export const MAX_PATH = 64;

/** split is the largest power of two below n. */
function split(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

const node = (a: Uint8Array, b: Uint8Array): Uint8Array => sha256(NODE, a, b);

/** included says whether leaf is number index of size leaves under root. */
export function included(path: Hash[], index: number, size: number, root: Hash, leaf: Hash): boolean {
  if (index >= size || path.length > MAX_PATH) return false;
  // From the root down, the side on which the leaf is; then hashed from below.
  const right: boolean[] = [];
  for (let lo = 0, hi = size; hi - lo > 1; ) {
    const k = split(hi - lo);
    right.push(index >= lo + k);
    if (index >= lo + k) lo += k;
    else hi = lo + k;
  }
  if (right.length !== path.length) return false;
  let h = bytesOf(leaf);
  for (const p of path) {
    const sibling = bytesOf(p);
    h = right.pop() ? node(sibling, h) : node(h, sibling);
  }
  return base64url(h) === root;
}

/** consistent says whether the tree of size leaves under root begins with that of oldSize under oldRoot. */
export function consistent(path: Hash[], size: number, root: Hash, oldSize: number, oldRoot: Hash): boolean {
  if (oldSize === 0 || oldSize > size || path.length > MAX_PATH) return false;
  const walk = (n: number, lo: number, hi: number): [Uint8Array, Uint8Array] | undefined => {
    if (oldSize === hi) {
      if (lo === 0) return n === 0 ? [bytesOf(oldRoot), bytesOf(oldRoot)] : undefined;
      return n === 1 ? [bytesOf(path[0]!), bytesOf(path[0]!)] : undefined;
    }
    if (n === 0) return undefined;
    const k = split(hi - lo);
    const left = oldSize <= lo + k;
    const below = left ? walk(n - 1, lo, lo + k) : walk(n - 1, lo + k, hi);
    if (!below) return undefined;
    const p = bytesOf(path[n - 1]!);
    return left ? [below[0], node(below[1], p)] : [node(p, below[0]), node(p, below[1])];
  };
  const got = walk(path.length, 0, size);
  return got !== undefined && base64url(got[0]) === oldRoot && base64url(got[1]) === root;
}

/** Tree keeps the leaves of a log to compute the root of any of its sizes. */
export class Tree {
  private readonly leaves: Hash[] = [];

  get size(): number { return this.leaves.length; }

  append(leaf: Hash): void { this.leaves.push(leaf); }

  root(size: number): Hash {
    const walk = (lo: number, hi: number): Uint8Array => {
      if (hi - lo === 1) return bytesOf(this.leaves[lo]!);
      const k = split(hi - lo);
      return node(walk(lo, lo + k), walk(lo + k, hi));
    };
    return base64url(walk(0, size));
  }
}
