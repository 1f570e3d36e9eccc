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
// proven by a test, and the tests that the page names exist.
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
	for _, m := range regexp.MustCompile("`(Test\\w+)").FindAllStringSubmatch(string(page), -1) {
		if !have[m[1]] {
			t.Errorf("%s is named and does not exist", m[1])
		}
	}
}
