package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocNamesEveryFile: the map in doc.go has each file once, and no other.
func TestDocNamesEveryFile(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var named, have []string
	for line := range strings.Lines(string(b)) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			const column = 20 // where the names begin
			named = append(named, strings.Fields(line[min(column, len(line)):])...)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f, ".go"); name != "doc" && !strings.HasSuffix(name, "_test") {
			have = append(have, name)
		}
	}
	slices.Sort(named)
	slices.Sort(have)
	for _, name := range have {
		if !slices.Contains(named, name) {
			t.Errorf("doc.go does not name %s.go", name)
		}
	}
	for i, name := range named {
		if !slices.Contains(have, name) || i > 0 && named[i-1] == name {
			t.Errorf("doc.go names %s, which is no file or stands there already", name)
		}
	}
}
