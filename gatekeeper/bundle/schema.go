package bundle

import _ "embed"

// schema is generated from the structs in bundle.go and their comments;
// TestSchema keeps it true.
//
//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the bundle file, for
// editors. Parse is stricter: it also judges what fields mean together.
func Schema() []byte { return append([]byte(nil), schema...) }
