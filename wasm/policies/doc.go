// Package policies is the built-in enforcers (egress, git, spend): it reads a
// compiled policy once and canonical actions after that, and writes verdicts.
// It must never do I/O, keep anything from one action to the next, or allocate
// while it judges: the same source runs natively in tests and, compiled to
// WebAssembly as std.wasm, in every session.
//
// Hosts are matched as internal/authority does: "*.pkg.test" is one label
// before pkg.test, "**.pkg.test" one or more, neither is pkg.test itself, and a
// wildcard never matches a label that begins "xn--".
package policies
