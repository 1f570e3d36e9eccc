package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// TestOCISession is one hard session in podman's container, through the whole
// path: container, door, gate, upstream, fake.
func TestOCISession(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a container")
	}
	if _, err := exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
		t.Skip("NOT TESTED on this machine: the oci provider needs podman and root")
	}
	w, dir := clientWorld(t)
	for name, change := range map[string][2]string{
		"gatehouse.yaml": {"sandbox: {", "providers: {local: {}, oci: {}}\nsandbox: {"},
		"bundle.yaml":    {"session:\n", "session:\n  provider: oci\n"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), strings.Replace(string(b), change[0], change[1], 1))
	}
	out, export, res := runExported(t, dir, "hard", "curl -sS https://api.good.test/v1/status; curl -sS https://evil.test/ || echo refused; id -u")
	for _, want := range []string{"hello from outside", "refused", "1000\n", " no_effect (hard)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if w.api.Requests() != 1 || w.evil.Accepts() != 0 {
		t.Errorf("%d requests, %d connections to the refused host", w.api.Requests(), w.evil.Accepts())
	}
	if res.Exit != receipts.ExitComplete || !strings.Contains(string(export), `"provider":"oci"`) {
		t.Errorf("receipts: %s\n%s", res.Verdict(), export)
	}
}
