package verifyjs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/receipts/verifyjs"
)

// TestPageInABrowser opens the page from disk in Chromium, gives it an export and
// roots, and looks at what it says; its policy lets it fetch nothing.
func TestPageInABrowser(t *testing.T) {
	for _, path := range []string{"../../.tools/e2e/node_modules/playwright-core/package.json", "/usr/bin/chromium"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("SKIPPED: NO BROWSER TO OPEN THE PAGE IN (make setup brings %s)", path)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("SKIPPED: NO NODE TO DRIVE A BROWSER")
	}
	page := filepath.Join(t.TempDir(), "verify.html") // alone, as it is handed out
	if err := os.WriteFile(page, verifyjs.Page, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "browser.mjs", page, "../testdata/vectors/exports/closed_session.export",
		"d5342cb57bd62f6ec24002167e24aaf9a7d3157fc78379524405a8ae6f7f3915")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var got struct {
		Verdicts, Lines, Errors []string
		Opened                  int
		Fetched                 bool
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{"complete (exit 0, complete)", "KEY NOT TRUSTED (exit 4, key)", "KEY NOT TRUSTED (exit 4, key)"}
	if d := cmp.Diff(want, got.Verdicts); d != "" {
		t.Error(d)
	}
	for i, l := range []string{"integrity:    ", "authenticity: ", "completeness: ", "observation:  "} {
		if i >= len(got.Lines) || !strings.HasPrefix(got.Lines[i], l) {
			t.Errorf("line %d is not %q: %q", i, l, got.Lines)
		}
	}
	if len(got.Errors) > 0 || got.Opened != 1 || got.Fetched {
		t.Errorf("errors %q, %d requests, fetched %t", got.Errors, got.Opened, got.Fetched)
	}
}
