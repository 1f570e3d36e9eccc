package wasm

import (
	"crypto/sha256"
	"maps"
	"slices"

	"gatehouse/wasm/meter"
)

// Inspection is what can be told of a module without running it.
type Inspection struct {
	Digest  [32]byte // SHA-256 of the module as supplied
	Bytes   int      // of the module
	Metered int      // bytes after metering, 0 when refused
	Meter   string   // version of the rewriter
	Profile string   // "core" (no imports) or "wasip1-inert"
	Imports []string
	Exports []string // functions
	Globals int      // mutable ones, which the host puts back
	Refused string   // why the module would be load_rejected, "" if it would not
}

// Inspect checks a module as Load does, short of compiling it.
func Inspect(module []byte) Inspection {
	i := Inspection{Digest: sha256.Sum256(module), Bytes: len(module), Meter: meter.Version, Profile: "core"}
	limits, err := Limits{}.settle()
	if err != nil {
		i.Refused = err.Error()
		return i
	}
	m, err := admit(module, limits)
	if err != nil {
		i.Refused = err.Error()
	}
	if m == nil {
		return i
	}
	i.Metered, i.Globals = len(m.Wasm), len(m.Globals)
	i.Exports = slices.Sorted(maps.Keys(m.Funcs))
	for _, imp := range m.Imports {
		i.Imports, i.Profile = append(i.Imports, imp.Module+"."+imp.Name), "wasip1-inert"
	}
	return i
}
