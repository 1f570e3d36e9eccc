// Package policies is the built-in enforcers (egress, git, spend): it reads a
// compiled policy once and canonical actions after that, and writes verdicts.
// It must never do I/O, keep anything from one action to the next, or allocate
// while it judges: the same source runs natively in tests and, compiled to
// WebAssembly as std.wasm, in every session.
//
// Grammar of the patterns it matches:
//
//	host   api.good.test     that name only
//	       *.pkg.test        one label before pkg.test, not pkg.test itself
//	       **.pkg.test       one or more labels before pkg.test
//	path   *                 any run of characters except "/"
//	       **/               zero or more whole segments
//	       /**  (at the end) everything below, not the folder itself
//
// A wildcard never matches a label that begins "xn--": an internationalised
// name is listed in full or not at all.
package policies
