package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkOf    = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	commandOf = regexp.MustCompile("(?m)^    (?:.*[|] |)(?:bin/)?gatehouse ([^|;&\n]*)|`gatehouse ([^`\n]*)`")
	flagOf    = regexp.MustCompile(`^--([a-z-]+)`)
)

// TestDocsHoldTogether: each page is in docs/README.md, each decision in
// docs/adr/README.md, each link between pages leads to a file, and each command
// they print is one, with its flags.
func TestDocsHoldTogether(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range append(pages, "../../README.md", "../../docs/sources/README.md", "../../docs/adr/README.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
		for _, m := range linkOf.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		for _, m := range commandOf.FindAllStringSubmatch(string(b), -1) {
			line, _, _ := strings.Cut(m[1]+m[2], " #")
			line, _, _ = strings.Cut(line, " -- ")
			words := strings.Fields(line)
			if len(words) >= 2 && words[0] == "-c" {
				words = words[2:]
			}
			if len(words) == 0 || !regexp.MustCompile(`^[a-z]`).MatchString(words[0]) {
				continue
			}
			c := &cli{out: io.Discard}
			cmd, _, err := c.root().Find(words)
			if err != nil || !cmd.HasParent() {
				t.Errorf("%s: gatehouse %s is no command: %v", page, line, err)
				continue
			}
			commands++
			for _, w := range words {
				f := flagOf.FindStringSubmatch(strings.Trim(w, "[]"))
				if f != nil && cmd.Flag(f[1]) == nil && f[1] != "help" {
					t.Errorf("%s: gatehouse %s has no --%s", page, cmd.CommandPath(), f[1])
				}
			}
		}
	}
	decisions, err := os.ReadFile("../../docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("../../docs/adr/0*.md")
	if err != nil || len(records) == 0 {
		t.Fatal(records, err)
	}
	for _, page := range records {
		if !strings.Contains(string(decisions), "("+filepath.Base(page)+")") {
			t.Errorf("docs/adr/README.md does not name %s", filepath.Base(page))
		}
	}
	if commands < 100 {
		t.Errorf("only %d commands found", commands)
	}
}
