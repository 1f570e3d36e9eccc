//go:build linux

package local_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
)

// BenchmarkStart measures from nothing to the agent's first instruction and its
// exit, beside the same program under bare bubblewrap.
func BenchmarkStart(b *testing.B) {
	p, err := local.New(local.Options{Run: filepath.Join(b.TempDir(), "run"), InitPath: initPath})
	if err != nil {
		b.Fatal(err)
	}
	d := openDoor(b, func(target string, c net.Conn) {
		if target != "gatehouse-dns:53" {
			refuse(target, c)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		answerDNS(c)
	})
	bench := func(door, probe bool) func(*testing.B) {
		return func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				s := sandbox.Spec{Session: fmt.Sprintf("b-%d", i), Argv: []string{"/bin/true"}, Unlimited: true}
				var exit net.Listener
				if door {
					exit = d
				}
				box, err := p.Start(b.Context(), s, exit)
				if err != nil {
					b.Fatal(err)
				}
				if probe {
					if _, err := box.Probe(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				end, err := box.Run(context.Background())
				if err != nil || end.Exit != 0 {
					b.Fatalf("%+v %v", end, err)
				}
				b.StopTimer()
				if err := box.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		}
	}
	b.Run("bare_bwrap", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--as-pid-1", "--new-session",
				"--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
				"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true")
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 610000, Gid: 610000}}
			}
			cmd.Dir = "/"
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v %s", err, out)
			}
		}
	})
	b.Run("closed", bench(false, false))
	b.Run("door", bench(true, false))
	b.Run("door_and_probe", bench(true, true))
}
