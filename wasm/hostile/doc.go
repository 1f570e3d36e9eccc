// Package hostile is the attack corpus of the WebAssembly host: modules of
// ABI v1 that loop, recurse, grow, lie about addresses and break the binary
// format, each with the fault it must end in. It builds them with a small
// assembler, reads and writes nothing, and must only ever be run by tests.
package hostile
