package config

import (
	"bytes"
	"encoding/json"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// YAML returns the configuration as YAML. Secrets appear as the references
// they were written as, because a reference names a secret and is not one.
func (c Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// Schema returns the JSON Schema (2020-12) of the file, made from the struct
// that reads it, so that an editor and the decoder agree.
func Schema() ([]byte, error) {
	r := jsonschema.Reflector{FieldNameTag: "yaml", ExpandedStruct: true, RequiredFromJSONSchemaTags: true}
	s := r.Reflect(&Config{})
	s.ID = ""
	s.Title = "gatehouse.yaml"
	return json.MarshalIndent(s, "", "  ")
}

// JSONSchema says that a secret is a reference.
func (Secret) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: reference.String(), Description: "a reference: ${env:NAME}, ${file:PATH} or ${secret:NAME}"}
}

// JSONSchema says how a duration is written.
func (Duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Examples: []any{"90d", "36h", "15m"}}
}

// JSONSchema says how a range of uids is written.
func (UIDRange) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^\d+-\d+$`, Examples: []any{"610000-610999"}}
}
