package git_test

import (
	"fmt"
	"strings"
	"testing"

	"gatehouse/enforcers/git"
	"gatehouse/gatekeeper/sandbox/quarantine"
)

func TestReconcile(t *testing.T) {
	a, b, zero := strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("0", 40)
	line := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	refs := func(lines ...string) string {
		out := line("# service=git-upload-pack\n") + "0000"
		for i, l := range lines {
			if i == 0 {
				l += "\x00multi_ack agent=git/2.39.5"
			}
			out += line(l + "\n")
		}
		return out + "0000"
	}
	moved := []quarantine.Command{{Ref: "refs/heads/x", Old: a, New: b}}
	for name, c := range map[string]struct {
		refs     string
		commands []quarantine.Command
		want     string // "" = cannot be said
	}{
		"landed":               {refs(b + " refs/heads/x"), moved, git.Landed},
		"as_before":            {refs(a + " refs/heads/x"), moved, git.NotLanded},
		"somebody_else":        {refs(strings.Repeat("c", 40) + " refs/heads/x"), moved, git.Unclear},
		"gone":                 {refs(a + " refs/heads/y"), moved, git.Unclear},
		"created":              {refs(b + " refs/heads/x"), []quarantine.Command{{Ref: "refs/heads/x", Old: zero, New: b}}, git.Landed},
		"not_created":          {refs(b + " refs/heads/y"), []quarantine.Command{{Ref: "refs/heads/x", Old: zero, New: b}}, git.NotLanded},
		"deleted":              {refs(b + " refs/heads/y"), []quarantine.Command{{Ref: "refs/heads/x", Old: a, New: zero}}, git.Landed},
		"half":                 {refs(b+" refs/heads/x", a+" refs/heads/y"), []quarantine.Command{{Ref: "refs/heads/x", Old: a, New: b}, {Ref: "refs/heads/y", Old: a, New: b}}, git.Unclear},
		"cut_short":            {strings.TrimSuffix(refs(a+" refs/heads/x"), "0000"), moved, ""},
		"not_an_advertisement": {"hello", moved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := git.Reconcile(strings.NewReader(c.refs), c.commands)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}
