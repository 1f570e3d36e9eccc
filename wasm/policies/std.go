//go:build !wasip1

package policies

import _ "embed"

// Std is the built-in module: guest, compiled from this package to WebAssembly
// (wasip1, reactor). SHA256SUMS names its digest; `make policies` rebuilds
// both and `make policies-check` proves that a rebuild gives the same bytes.
//
//go:embed std.wasm
var Std []byte
