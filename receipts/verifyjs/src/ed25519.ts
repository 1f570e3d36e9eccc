// Signatures, by WebCrypto.

import { unlatin } from "./bytes.ts";

/** Verify says whether sig is the Ed25519 signature of message under a public key. */
export type Verify = (pub: Uint8Array, message: Uint8Array, sig: Uint8Array) => Promise<boolean>;

/** Unavailable: this engine cannot check signatures, so that nothing can be judged. */
export class Unavailable extends Error {}

const plain = (b: Uint8Array): ArrayBuffer => b.slice().buffer as ArrayBuffer;

async function check(pub: Uint8Array, message: Uint8Array, sig: Uint8Array): Promise<boolean> {
  const key = await crypto.subtle.importKey("raw", plain(pub), "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", key, plain(sig), plain(message));
}

const unhex = (s: string): Uint8Array => unlatin(s.replace(/../g, (x) => String.fromCharCode(parseInt(x, 16))));

/**
 * webcrypto returns a Verify that has first accepted the first vector of RFC
 * 8032 and refused a change of it. Without that, an engine that knows no
 * Ed25519 would look like a file with wrong signatures.
 */
export async function webcrypto(): Promise<Verify> {
  const pub = unhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  const sig = unhex("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b");
  try {
    const good = await check(pub, new Uint8Array(0), sig), bad = await check(pub, new Uint8Array(1), sig);
    if (!good || bad) throw new Error("it answers wrongly");
  } catch (e) {
    throw new Unavailable(`this browser cannot check Ed25519 signatures (${String(e)}): use a newer one, or gatehouse-verify`);
  }
  return async (p, m, s) => {
    try {
      return await check(p, m, s);
    } catch {
      return false; // bytes that are no point of the curve
    }
  };
}
