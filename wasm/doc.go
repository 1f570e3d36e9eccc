// Package wasm runs enforcers as WebAssembly modules. It reads a module and a
// configure message, then canonical actions, and writes verdicts or faults. A
// module reaches nothing: no file, no socket, no clock, no randomness, no other
// instance, and never the mode it is judged under.
//
// It must never turn a failure into a verdict: whatever goes wrong is an
// *enforcers.Fault with a code of this package, which the gate counts as a
// deny in hard mode.
package wasm
