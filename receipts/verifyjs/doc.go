// Package verifyjs holds verify.html: the second verifier of Gatehouse receipts,
// in TypeScript, as one page that works from disk. It shares no code with package
// receipts and reads the same docs/receipts-spec.md. Page is the page's bytes;
// the package itself reads nothing and must never reach the network.
//
// src/ is plain TypeScript in the order of the specification: sha256, bytes,
// hash (sections 1 and 4), canon and schema (1 to 3), keys (5 to 7), opening and
// scan (9), frames (10), chain, verify, ending and report (11). Signatures are
// WebCrypto's Ed25519. page.ts is the form; page.html and page.css are its shell,
// whose policy names the script and the style by digest and forbids everything
// else.
//
// build bundles them by esbuild as a Go library: its version and its bytes are
// fixed by go.sum, so `make verifyjs` gives the same page everywhere and
// `make verifyjs-check` fails when the page checked in is another. verify.mjs
// runs the page's own script under Node for the tests and for auditors without a
// browser. Types are checked by `npx -p typescript tsc -p receipts/verifyjs`.
//
// What it does not do: files above 1 GiB (a page holds the file in memory), and
// names of findings in the same words as package receipts (classes are the same).
package verifyjs

import _ "embed"

// Page is verify.html.
//
//go:embed verify.html
var Page []byte
