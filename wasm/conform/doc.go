// Package conform holds the golden vectors that every enforcer of ABI v1 must
// pass and the runner that checks them: built-ins native and in WebAssembly,
// guests of the SDKs, and an operator's own module. It reads vector files and
// asks enforcers; it must never judge anything itself.
package conform
