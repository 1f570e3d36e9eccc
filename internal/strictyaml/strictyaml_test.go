package strictyaml

import (
	"strings"
	"testing"

	"gatehouse/internal/problem"
)

type doc struct {
	Name   string            `yaml:"name"`
	Listen inner             `yaml:"listen"`
	Items  []inner           `yaml:"items"`
	Named  map[string]inner  `yaml:"named"`
	Free   map[string]string `yaml:"free"`
}

type inner struct {
	Hooks    string `yaml:"hooks"`
	Operator string `yaml:"operator"`
}

func TestDecode(t *testing.T) {
	cases := map[string]struct{ src, msg, hint string }{
		"good":            {src: "name: a\nlisten: {hooks: x}\nfree: {anything: goes}\n"},
		"empty":           {src: "{}"},
		"unknown_top":     {"nmae: a", `line 1: unknown key "nmae" at the top level`, `did you mean "name"?`},
		"unknown_nested":  {"name: a\nlisten:\n  hoks: x", `line 3: unknown key "hoks" in listen`, `did you mean "hooks"?`},
		"unknown_in_list": {"items:\n  - {operatr: x}", `line 2: unknown key "operatr" in items[0]`, `did you mean "operator"?`},
		"unknown_in_map":  {"named: {a: {zzz: x}}", `unknown key "zzz" in named.a`, "known keys: hooks, operator"},
		"duplicate":       {"name: a\nname: b", "already defined", ""},
		"two_documents":   {"name: a\n---\nname: b", "a second document", "keep one document"},
		"anchor":          {"name: &a x", "anchors and aliases are not read", ""},
		"alias_bomb":      {"name: a\nfree: &a {x: y}\nlisten: *a", "anchors and aliases", ""},
		"wrong_type":      {"name: [1]", "line 1", ""},
		"not_yaml":        {"a: b: c", "mapping values are not allowed", ""},
		"huge":            {"name: " + strings.Repeat("a", MaxBytes), "larger than", "split"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var d doc
			err := Decode("f.yaml", []byte(c.src), &d)
			if c.msg == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("code %s", problem.CodeOf(err))
			}
			if !strings.HasPrefix(err.Error(), "f.yaml: ") || !strings.Contains(err.Error(), c.msg) {
				t.Errorf("message %q lacks %q", err, c.msg)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("message spans lines: %q", err)
			}
			if !strings.Contains(problem.HintOf(err), c.hint) {
				t.Errorf("hint %q lacks %q", problem.HintOf(err), c.hint)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("name: a\nlisten: {hooks: x}")
	f.Add("items: [{operator: [}")
	f.Fuzz(func(t *testing.T, src string) {
		var d doc
		if err := Decode("f.yaml", []byte(src), &d); err != nil && problem.CodeOf(err) != problem.ConfigInvalid {
			t.Fatalf("code %s for %q", problem.CodeOf(err), src)
		}
	})
}
