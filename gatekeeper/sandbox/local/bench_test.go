//go:build linux

package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
)

// TestBenchStart measures from nothing to the agent's first instruction and its
// exit, in turns with the same program under bare bubblewrap, and prints the
// medians. The goal of DESIGN.md section 14 is a difference of at most 150 ms
// with the probe done.
func TestBenchStart(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	p, err := local.New(local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initPath})
	if err != nil {
		t.Fatal(err)
	}
	door := openDoor(t, func(target string, c net.Conn) {
		if target != "gatehouse-dns:53" {
			refuse(target, c)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		answerDNS(c)
	})
	n := 0
	ours := func(exit net.Listener, probe bool) time.Duration {
		n++
		began := time.Now()
		b, err := p.Start(t.Context(), sandbox.Spec{Session: fmt.Sprintf("b-%d", n), Argv: []string{"/bin/true"}, Unlimited: true}, exit)
		if err != nil {
			t.Fatal(err)
		}
		if probe {
			if _, err := b.Probe(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		end, err := b.Run(context.Background())
		if err != nil || end.Exit != 0 {
			t.Fatalf("%+v %v", end, err)
		}
		took := time.Since(began)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		return took
	}
	const rounds = 25
	cases := []struct {
		name  string
		exit  net.Listener
		probe bool
	}{{"sandbox.start_closed/bare_bwrap", nil, false}, {"sandbox.start_door/bare_bwrap", door, false}, {"sandbox.start_door_probe/bare_bwrap", door, true}}
	took := make([][]time.Duration, len(cases))
	var bare []time.Duration
	for range rounds {
		bare = append(bare, bareBwrap(t))
		for i, c := range cases {
			took[i] = append(took[i], ours(c.exit, c.probe))
		}
	}
	for i, c := range cases {
		o, b := median(took[i]), median(bare)
		line, err := json.Marshal(map[string]any{"name": c.name, "ours": o, "base": b, "ratio": o / b, "unit": "ms"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

func bareBwrap(t *testing.T) time.Duration {
	cmd := exec.Command("bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--as-pid-1", "--new-session",
		"--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 610000, Gid: 610000}}
	}
	cmd.Dir = "/"
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return time.Since(began)
}
