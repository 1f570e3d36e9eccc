//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
)

// fleet is how many sessions TestBenchFleet has at a time.
const fleet = 50

// TestBenchFleet starts fifty sessions at once, each with a door and its probe
// done, beside fifty of bare bubblewrap, and prints how many started a second
// and what one holds in memory while its agent sleeps: the proportional share
// of all its processes.
func TestBenchFleet(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("BENCH SKIPS fleet: reading the memory of other users' processes needs root")
	}
	bareRate, bareMemory := bareFleet(t)
	rate, memory := ourFleet(t)
	for _, l := range []map[string]any{
		{"name": "sandbox.fleet50_starts/bare_bwrap", "ours": rate, "base": bareRate, "ratio": rate / bareRate, "unit": "per_s"},
		{"name": "sandbox.fleet50_memory/bare_bwrap", "ours": memory, "base": bareMemory, "ratio": memory / bareMemory, "unit": "KiB"},
	} {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(b))
	}
}

func ourFleet(t *testing.T) (perSecond, kib float64) {
	t.Helper()
	p, err := local.New(local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initPath})
	if err != nil {
		t.Fatal(err)
	}
	boxes := make([]sandbox.Sandbox, fleet)
	var ready, ended sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		ended.Wait()
		for _, b := range boxes {
			if b != nil {
				_ = b.Close()
			}
		}
	}()
	began := time.Now()
	for i := range fleet {
		door := openDoor(t, refuse)
		ready.Go(func() {
			b, err := p.Start(t.Context(), sandbox.Spec{Session: fmt.Sprintf("fleet-%d", i), Argv: []string{"/bin/sleep", "1000"}, Unlimited: true}, door)
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			boxes[i] = b
			if _, err := b.Probe(t.Context()); err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			ended.Go(func() { _, _ = b.Run(ctx) })
		})
	}
	ready.Wait()
	took := time.Since(began)
	if t.Failed() {
		t.FailNow()
	}
	sleeping(t, fleet)
	return fleet / took.Seconds(), share(t) / fleet
}

func bareFleet(t *testing.T) (perSecond, kib float64) {
	t.Helper()
	var ran sync.WaitGroup
	var cmds []*exec.Cmd
	defer func() {
		for _, c := range cmds {
			_ = c.Process.Kill()
		}
		ran.Wait()
	}()
	began := time.Now()
	for range fleet {
		cmd := exec.Command("bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--as-pid-1", "--new-session",
			"--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 610000, Gid: 610000}}
		cmd.Dir = "/"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
		ran.Go(func() { _ = cmd.Wait() })
	}
	sleeping(t, fleet)
	return fleet / time.Since(began).Seconds(), share(t) / fleet
}

// sleeping waits until so many of this process's descendants are the agent.
func sleeping(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		found := 0
		for _, pid := range descendants() {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(b) == "/bin/sleep\x001000\x00" {
				found++
			}
		}
		if found == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d agents sleep", found, n)
		}
	}
}

// descendants are all processes below this one.
func descendants() []int {
	parent := map[int]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(fields) > 1 {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	var out []int
	for pid := range parent {
		for up, deep := parent[pid], 0; up > 1 && deep < 32; up, deep = parent[up], deep+1 {
			if up == os.Getpid() {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// share sums the proportional memory of all descendants, in KiB.
func share(t *testing.T) (sum float64) {
	t.Helper()
	for _, pid := range descendants() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // gone
		}
		for l := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(l, "Pss:"); ok {
				n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
