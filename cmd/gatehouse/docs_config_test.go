package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/config"
)

var (
	indented = regexp.MustCompile(`(?m)(?:^    .*\n|^\n)+`)
	fenced   = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	topKey   = regexp.MustCompile(`(?m)^([a-z_]+):`)
)

// configurations returns the blocks of a page that are YAML, by their first key.
func configurations(page string) (blocks []string) {
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	for _, b := range indented.FindAllString(fenced.ReplaceAllString(page, "\n"), -1) {
		for part := range strings.SplitSeq(strings.Trim(b, "\n"), "\n\n") {
			blocks = append(blocks, strings.ReplaceAll("\n"+part, "\n    ", "\n")[1:]+"\n")
		}
	}
	return slices.DeleteFunc(blocks, func(b string) bool { return !topKey.MatchString(b[:strings.IndexByte(b, '\n')+1]) })
}

func keysOf(block string) (keys []string) {
	for _, m := range topKey.FindAllStringSubmatch(block, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// TestDocsConfiguration: every piece of configuration, and of a bundle, that a
// page shows is read as it stands.
func TestDocsConfiguration(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ofBundle := []string{"egress", "git", "models", "session", "telemetry", "credentials"}
	configs, bundles := 0, 0
	for _, path := range append(pages, below...) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks := configurations(string(b))
		for _, block := range blocks {
			key := keysOf(block)[0]
			// "[...]" stands for the secrets of another line.
			block = strings.ReplaceAll(block, "secrets: [...]", `secrets: ["${env:X}"]`)
			switch {
			case slices.Contains([]string{"steps", "remote"}, key):
				continue // a CI system's job; what git prints
			case slices.Contains(ofBundle, key):
				bundles++
				whole := "apiVersion: gatehouse/v1\nkind: Bundle\nname: docs\naccepts: member\nmatch: [{source: github, kinds: [workflow_run.completed]}]\n" + block
				if !strings.Contains(block, "session:") {
					whole += "session: {agent: codex, task: go}\n"
				} else if !strings.Contains(block, "task:") {
					whole = strings.Replace(whole, "session:\n", "session:\n  task: go\n", 1)
				}
				if _, err := bundle.Parse([]byte(whole)); err != nil {
					t.Errorf("%s: %v\n%s", path, err, block)
				}
			default:
				configs++
				whole := block
				for _, other := range blocks { // what a block refers to stands in another one of the page
					k := keysOf(other)
					if (k[0] == "connections" || k[0] == "repositories") && !slices.ContainsFunc(k, func(k string) bool { return slices.Contains(keysOf(whole), k) }) {
						whole += other
					}
				}
				file := filepath.Join(tempDir(t), "gatehouse.yaml")
				write(t, file, whole)
				if _, err := config.Check(file); err != nil {
					t.Errorf("%s: %v\n%s", path, err, block)
				}
			}
		}
	}
	if configs < 20 || bundles < 8 {
		t.Errorf("%d pieces of configuration and %d of bundles", configs, bundles)
	}
}
