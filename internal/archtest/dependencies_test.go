package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	required = regexp.MustCompile(`(?m)^(?:require |\t)([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`)
	sole     = regexp.MustCompile(`only ([\w/-]+) imports (?:it|them)\b`)
	modules  = regexp.MustCompile(`[a-z0-9.-]+\.[a-z]+/[\w./-]+`)
)

// TestDependencies: each direct module of go.mod stands in DEPENDENCIES.md, and
// where a line says that only one room imports it, no other does.
func TestDependencies(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page := read("DEPENDENCIES.md")
	direct := required.FindAllStringSubmatch(read("go.mod"), -1)
	if len(direct) < 30 {
		t.Fatalf("%d direct modules", len(direct))
	}
	for _, m := range direct {
		// Those of tests stand without their host.
		_, short, _ := strings.Cut(m[1], "/")
		if _, name, more := strings.Cut(short, "/"); !strings.Contains(page, m[1]) && !strings.Contains(page, short) && (!more || !strings.Contains(page, " and "+name)) {
			t.Errorf("DEPENDENCIES.md does not name %s", m[1])
		}
	}
	claims := 0
	packages := list(t)
	for row := range strings.Lines(page) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		claim := sole.FindStringSubmatch(cells[2])
		if claim == nil {
			continue
		}
		claims++
		for _, mod := range modules.FindAllString(cells[1], -1) {
			for _, p := range packages {
				from := strings.TrimPrefix(p.ImportPath, module+"/")
				for _, imp := range p.Imports {
					if (imp == mod || strings.HasPrefix(imp, mod+"/")) && from != claim[1] && !strings.HasPrefix(from, claim[1]+"/") {
						t.Errorf("DEPENDENCIES.md says that only %s imports %s; %s does", claim[1], mod, from)
					}
				}
			}
		}
	}
	if claims < 10 {
		t.Errorf("%d claims found", claims)
	}
}
