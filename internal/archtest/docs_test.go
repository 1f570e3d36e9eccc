package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// builders stand in another line than the room they are in: they make what it
// embeds.
var builders = map[string]bool{"receipts/verifyjs/build": true}

var group = regexp.MustCompile(`(\S*/)\{([^}]*)\}`)

// expand writes a/{b c} as a/b a/c.
func expand(s string) string {
	m := group.FindStringSubmatch(s)
	var out []string
	for _, name := range strings.Fields(m[2]) {
		out = append(out, m[1]+name)
	}
	return strings.Join(out, " ")
}

// The table of docs/architecture.md names the lines in the same order, each room
// in the line that it has here, and no other room.
func TestTableInDocs(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	rooms, at := map[string]int{}, 0
	for _, l := range strings.Split(string(b), "\n") {
		words := strings.Fields(group.ReplaceAllStringFunc(l, expand))
		if !strings.HasPrefix(l, "    ") || len(words) < 2 || at == len(layers) || words[0] != layers[at].name {
			continue
		}
		for _, room := range words[1:] {
			rooms[room] = at
		}
		at++
	}
	if at != len(layers) {
		t.Fatalf("docs/architecture.md has %d of %d lines; the next would be %q", at, len(layers), layers[at].name)
	}
	used := map[string]bool{}
	for i, l := range layers {
		for _, p := range l.packages {
			p = strings.TrimSuffix(p, "/*")
			if builders[p] {
				continue
			}
			room := p
			for room != "." {
				if _, ok := rooms[room]; ok {
					break
				}
				room = filepath.Dir(room)
			}
			if got, ok := rooms[room]; !ok || got != i {
				t.Errorf("%s is in line %s; docs/architecture.md says otherwise", p, l.name)
			}
			used[room] = true
		}
	}
	for room := range rooms {
		if !used[room] {
			t.Errorf("docs/architecture.md names %s, which is no room", room)
		}
	}
}
