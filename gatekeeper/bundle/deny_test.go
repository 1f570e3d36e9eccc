package bundle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/bundle"
)

// TestDenyPaths: what a push must not change where the bundle lists nothing, also
// through the canonical form.
func TestDenyPaths(t *testing.T) {
	for name, c := range map[string]struct {
		push string
		want []string
	}{
		"left_out": {`{refs: ["refs/heads/x"]}`, []string{".github/CODEOWNERS", ".github/workflows/**", ".gitmodules", "CODEOWNERS", "docs/CODEOWNERS"}},
		"empty":    {`{refs: ["refs/heads/x"], deny_paths: []}`, []string{".github/CODEOWNERS", ".github/workflows/**", ".gitmodules", "CODEOWNERS", "docs/CODEOWNERS"}},
		"written":  {`{refs: ["refs/heads/x"], deny_paths: [b, a]}`, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bundle.Parse([]byte(minimal + "git: {repository: acme/shop, push: " + c.push + "}\n"))
			if err != nil {
				t.Fatal(err)
			}
			again, err := bundle.Parse(b.Canonical())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []*bundle.Bundle{b, again} {
				if diff := cmp.Diff(c.want, b.Git.Push.DenyPaths); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}
