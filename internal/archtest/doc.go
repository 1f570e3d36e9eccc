// Package archtest keeps the import rule of docs/architecture.md as data and
// proves it on the real import graph. It reads `go list` output and source
// files; it writes nothing and is imported by nothing.
package archtest
