package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTouches: SB-05, M-03. A bundle's mount must not show a session what the
// node keeps from it.
func TestTouches(t *testing.T) {
	dir, err := filepath.EvalSymlinks(tempDir(t))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"project/state/keys", "project/src", "elsewhere", "statement"} {
		if err := os.MkdirAll(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("project/main.key"), "secret")
	for link, to := range map[string]string{"link": "project", "elsewhere/key": "../project/main.key"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	private := touches([]string{at("project/state"), at("elsewhere/key")})
	for path, want := range map[string]bool{
		"project": true, "project/state": true, "project/state/keys": true, "project/main.key": true, "link": true, "link/state/keys": true, ".": true,
		"project/src": false, "statement": false, "elsewhere": false, "missing": false,
	} {
		t.Run(path, func(t *testing.T) {
			if got := private(at(path)); got != want {
				t.Errorf("got %v", got)
			}
		})
	}
}
