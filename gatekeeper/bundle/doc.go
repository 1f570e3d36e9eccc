// Package bundle is the capability bundle: what one unattended session may do,
// when it may start, and what it may be told. It reads YAML, facts and local
// set files and writes canonical bytes, a digest and the compiled policy that
// enforcers judge by. It must never see text while it matches, resolve a name,
// or call one bundle no wider than another without comparing every field.
//
// The file's reference is docs/bundles.md; DESIGN.md section 6 decides.
package bundle
