// Package meter gives WebAssembly modules an instruction budget. It reads a
// module and writes another that computes the same, but pays from an exported
// counter at every function entry and loop header, counts its call depth, and
// exports its mutable globals, so that a host can stop it at the same
// instruction on every machine and put it back as it was.
//
// It refuses statically what cannot be bounded that way (growing tables,
// threads, SIMD, tail calls, exceptions, more than one memory) and what would
// let a module reach what the rewriter adds. It must never run or compile
// anything, and must hold for arbitrary bytes.
//
// The price of an instruction is 1, with the exceptions in cost.go. A loop
// header pays for the whole static body of its loop, whatever the iteration
// skips: the count is an upper bound on the instructions run, monotone and
// deterministic, not their number.
//
// Straighten makes a module of Go's compiler quicker before it is embedded.
package meter
