package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModelNamesTests: every cell of the tables in docs/threat-model.md is
// proven by a test, and the tests that this page or any other names exist.
func TestThreatModelNamesTests(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "## Credentials visible inside")
	if !found {
		t.Fatal("the page has no table of credentials")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for l := range strings.Lines(table) {
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| credential |") {
			continue
		}
		rows++
		if cells := strings.Split(strings.Trim(strings.TrimSpace(l), "|"), "|"); len(cells) != 5 || !strings.Contains(cells[4], "`Test") {
			t.Errorf("a row without a test: %s", l)
		}
	}
	if rows < 8 {
		t.Errorf("%d rows", rows)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range append(append(pages, below...), filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(Test[A-Z]\w+)(\*?)`).FindAllStringSubmatch(string(b), -1) {
			named++
			ok := have[m[1]]
			if m[2] != "" { // a family of tests
				for name := range have {
					ok = ok || strings.HasPrefix(name, m[1])
				}
			}
			if !ok {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
	if named < 150 {
		t.Errorf("%d tests named", named)
	}
}
