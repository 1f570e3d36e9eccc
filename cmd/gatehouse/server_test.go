//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServerToLiveOn runs the commands by which docs/operations.md puts a node on
// a server, less those of systemd, in folders of its own.
func TestServerToLiveOn(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A server to live on\n")
	section, _, _ = strings.Cut(section, "\n|")
	dir := tempDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"bin", "units", "lib"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// gatehouse stands for both programs: it plays gatehouse-init's part.
	there := strings.NewReplacer("bin/gatehouse bin/gatehouse-init ", binary+" ", "/usr/local/bin/", at("bin/"),
		"/etc/systemd/system/", at("units/"), "/etc/gatehouse", at("etc"), "/var/lib/gatehouse", at("lib/gatehouse"))
	ran := 0
	for line := range strings.Lines(section) {
		command := strings.HasPrefix(line, "    ")
		line = strings.TrimSpace(line)
		switch {
		case !command, strings.HasPrefix(line, "make "), strings.HasPrefix(line, "systemctl "), strings.Contains(line, "--as-service"):
			continue
		}
		cmd := exec.CommandContext(t.Context(), "/bin/bash", "-euc", there.Replace(line))
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "PATH="+at("bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		ran++
	}
	if ran < 6 {
		t.Fatalf("%d commands ran", ran)
	}
	// What the unit starts finds its keys in the state folder that systemd keeps.
	cmd := exec.CommandContext(t.Context(), at("bin/gatehouse"), "-c", at("etc/gatehouse.yaml"), "key", "list")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "checkpoint") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(at("lib/gatehouse/keys")); err != nil || len(left) == 0 {
		t.Errorf("no keys in the state folder: %v", err)
	}
	if unit := deployed(t, "systemd", "gatehouse.service"); !strings.Contains(unit, "ExecStart=/usr/local/bin/gatehouse -c /etc/gatehouse/gatehouse.yaml serve") {
		t.Error("the unit starts something else")
	}
}
