package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/config"
)

// TestExamineApps compares an App with a configuration that needs a few
// permissions, through the real API client.
func TestExamineApps(t *testing.T) {
	w := newGitHub(t)
	dir := tempDir(t)
	w.configure(dir, gitOfShop, "operations: [scm.comment]\n")
	if err := os.Mkdir(filepath.Join(dir, "bundles"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "bundle.yaml"), filepath.Join(dir, "bundles", "git.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "app.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(filepath.Join(dir, "gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	up, err := newUpstream(cfg, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	const check = "app of github-main"
	for name, c := range map[string]struct {
		permissions string
		want        []finding
	}{
		"as_needed": {`{"metadata":"read","contents":"write","issues":"write","pull_requests":"write"}`,
			[]finding{{check, levelOK, "it has the 4 permissions that bundles and endpoints need", ""}}},
		"too_little": {`{"metadata":"read","contents":"read","issues":"write"}`,
			[]finding{{check, levelFail, "it lacks contents: write, pull_requests: write", "grant them on the App's page, and accept them where it is installed"}}},
		"too_much": {`{"metadata":"read","contents":"write","issues":"write","pull_requests":"write","administration":"write","secrets":"read"}`,
			[]finding{{check, levelWarn, "it has more than anything here needs: administration: write, secrets: read", "take them away on the App's page"}}},
		"too_high": {`{"metadata":"read","contents":"write","issues":"admin","pull_requests":"write"}`,
			[]finding{{check, levelWarn, "it has more than anything here needs: issues: admin", "take them away on the App's page"}}},
		"unheard_of": {`{"metadata":"read","contents":"write","issues":"write","pull_requests":"write","models":"read","codespaces":{"all":true}}`,
			[]finding{{check, levelWarn, "it has more than anything here needs: codespaces: {\"all\":true}, models: read", "take them away on the App's page"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w.mu.Lock()
			w.rest["GET /app"] = func(rw http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(rw, `{"id":4711,"permissions":%s}`, c.permissions)
			}
			w.mu.Unlock()
			if diff := cmp.Diff(c.want, examineApps(t.Context(), cfg, up)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
