package conform_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"gatehouse/wasm"
	"gatehouse/wasm/conform"
	"gatehouse/wasm/policies"
)

func schema(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	b, err := os.ReadFile("../schema/" + name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func validate(s *jsonschema.Resolved, b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	return s.Validate(v)
}

// TestSchemas holds the schema files to the vectors and to what the built-in
// enforcers really answer.
func TestSchemas(t *testing.T) {
	configure, decide, answer := schema(t, "configure"), schema(t, "decide"), schema(t, "answer")
	description, vectors := schema(t, "description"), schema(t, "vectors")
	for _, name := range []string{"egress", "git", "spend", "denylist", "dlp"} {
		t.Run(name, func(t *testing.T) {
			file, err := conform.Vectors.ReadFile("vectors/" + name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(vectors, file); err != nil {
				t.Errorf("the file: %v", err)
			}
			s, err := conform.Parse(file)
			if err != nil {
				t.Fatal(err)
			}
			message := wasm.Configure(s.Policies["matrix"], s.Params)
			if err := validate(configure, message); err != nil {
				t.Errorf("configure message: %v", err)
			}
			for _, v := range s.Vectors {
				if err := validate(decide, []byte(`{"abi":1,"action":`+string(v.Action)+`}`)); err != nil {
					t.Errorf("%s: %v", v.Name, err)
				}
			}
		})
	}
	for _, name := range policies.Names() {
		j, status := policies.Configure([]byte(`{"abi":1,"bundle":{},"params":{"enforcer":"` + name + `"}}`))
		if status != policies.OK {
			t.Fatal(status)
		}
		if err := validate(description, j.Describe()); err != nil {
			t.Errorf("description of %s: %v", name, err)
		}
		a := j.Decide([]byte(`{"abi":1,"action":{"at":"","connection":"","id":"","kind":"x","seq":0,"session":""}}`))
		if err := validate(answer, a.JSON); err != nil {
			t.Errorf("answer of %s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		schema *jsonschema.Resolved
		bad    string
	}{
		"answer_extra_key":      {answer, `{"reason":"","rule":"r","verdict":"deny","x":1}`},
		"answer_obligation":     {answer, `{"obligations":[{}],"reason":"","rule":"r","verdict":"deny"}`},
		"answer_verdict":        {answer, `{"reason":"","rule":"r","verdict":"permit"}`},
		"policy_section":        {configure, `{"abi":1,"bundle":{"mode":"hard"},"params":{}}`},
		"action_without_a_body": {decide, `{"abi":1,"action":{"at":"2026-11-29T12:00:00Z","connection":"","id":"","kind":"dns.query","seq":0,"session":""}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := validate(c.schema, []byte(c.bad)); err == nil || strings.Contains(err.Error(), "unmarshal") {
				t.Errorf("accepted: %v", err)
			}
		})
	}
}
