//go:build linux

package local_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
)

// TestMountedSockets is SB-16: a socket or a pipe of the host in a folder that a
// bundle mounts is a way out past the door, read-only or not. The probe finds
// it; without it the same folder passes.
func TestMountedSockets(t *testing.T) {
	cases := map[string]struct {
		plant func(t *testing.T, dir string)
		leaks bool
	}{
		"SB-16_nothing": {func(*testing.T, string) {}, false},
		"SB-16_socket": {func(t *testing.T, dir string) {
			l, err := net.Listen("unix", filepath.Join(dir, "deep", "docker.sock"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			if err := os.Chmod(filepath.Join(dir, "deep", "docker.sock"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, true},
		"SB-16_pipe": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "pipe")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "mounted-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Mkdir(filepath.Join(dir, "deep"), 0o755); err != nil {
				t.Fatal(err)
			}
			open(t, dir)
			c.plant(t, dir)
			d := openDoor(t, refuse)
			report := probe(t, sandbox.Spec{Witness: d, Mounts: []sandbox.Mount{{Source: dir, Path: "/opt/tools"}}}, d)
			met := false
			for _, k := range report.Cases {
				if k.ID != "SB-16" || !strings.Contains(k.Name, "mounted") {
					continue
				}
				met = true
				if (k.Outcome == sandbox.Failed) != c.leaks {
					t.Errorf("%s: %s", k.Outcome, k.Evidence)
				}
				if c.leaks && !strings.Contains(k.Evidence, "/opt/tools") {
					t.Errorf("the place is not named: %s", k.Evidence)
				}
			}
			if !met {
				t.Error("the case did not run")
			}
		})
	}
}
