package receipts_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func spec(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/receipts-spec.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSpecFields: the specification lists the fields that receipts have, no
// more and no fewer.
func TestSpecFields(t *testing.T) {
	listed := map[string]bool{}
	_, tables, _ := strings.Cut(spec(t), "\n### Common\n")
	tables, _, _ = strings.Cut(tables, "\n## 4 ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\|").FindAllStringSubmatch(tables, -1) {
		listed[m[1]] = true
	}
	written := map[string]bool{}
	maps := map[string]bool{"red": true, "x": true, "open.facts": true, "open.modules": true, "open.sets": true,
		"close.verdicts": true, "close.out": true, "act.args": true, "act.units": true, "cred.scope": true}
	var walk func(v map[string]any, path string)
	walk = func(v map[string]any, path string) {
		for k, e := range v {
			name := path + k
			if o, ok := e.(map[string]any); ok && !maps[name] {
				walk(o, name+".")
				continue
			}
			written[name] = true
		}
	}
	for _, r := range oneOfEach() {
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		walk(v, "")
	}
	for name := range written {
		if !listed[name] {
			t.Errorf("the specification does not list %s", name)
		}
	}
	for name := range listed {
		if !written[name] {
			t.Errorf("the specification lists %s, which no receipt has", name)
		}
	}
}

// TestSpecCases: every case id of the table has a subtest here, and the reverse.
func TestSpecCases(t *testing.T) {
	_, table, _ := strings.Cut(spec(t), "\n## 12 Cases\n")
	_, table, _ = strings.Cut(table, "|---|---|\n")
	id := regexp.MustCompile(`RC-\d\d`)
	listed := map[string]bool{}
	for _, m := range id.FindAllString(table, -1) {
		listed[m] = true
	}
	tested := map[string]bool{}
	for _, f := range []string{"tamper_test.go", "tamper_keyed_test.go"} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(RC-\d\d)_`).FindAllStringSubmatch(string(b), -1) {
			tested[m[1]] = true
		}
	}
	for c := range listed {
		if !tested[c] {
			t.Errorf("%s stands in the specification and in no test", c)
		}
	}
	for c := range tested {
		if !listed[c] {
			t.Errorf("%s is tested and not in the specification", c)
		}
	}
}

// TestSpecClasses: the exits table names the classes that the verifier gives.
func TestSpecClasses(t *testing.T) {
	_, table, _ := strings.Cut(spec(t), "| exit | meaning | classes |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	b, err := os.ReadFile("result.go")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, m := range regexp.MustCompile(`Class = "([a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
		defined[m[1]] = true
	}
	for c := range defined {
		if !listed[c] {
			t.Errorf("class %s is not in the specification", c)
		}
	}
	for c := range listed {
		if !defined[c] {
			t.Errorf("class %s is only in the specification", c)
		}
	}
}
