//go:build linux

package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
)

// deadline bounds every wait; nothing that works comes near it.
const deadline = 20 * time.Second

// marked is a process that can be told from all others on the machine.
type marked struct{ argument string }

func mark(t *testing.T) marked {
	return marked{fmt.Sprintf("1%09d", time.Now().UnixNano()%1e9) + strconv.Itoa(os.Getpid())}
}

// sleeper is the shell command of the marked process.
func (m marked) sleeper() string { return "sleep " + m.argument }

// pids returns the host's ids of the marked processes.
func (m marked) pids(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.HasPrefix(string(b), "sleep\x00"+m.argument) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// await waits until n marked processes run.
func (m marked) await(t *testing.T, n int) []int {
	t.Helper()
	for until := time.Now().Add(deadline); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if pids := m.pids(t); len(pids) == n {
			return pids
		}
	}
	t.Fatalf("%d marked processes, want %d", len(m.pids(t)), n)
	return nil
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	ppid, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return ppid
}

// nothingLeft checks the machine after Close.
func nothingLeft(t *testing.T, m marked, o local.Options) {
	t.Helper()
	if pids := m.pids(t); len(pids) != 0 {
		t.Errorf("processes left: %v", pids)
	}
	entries, err := os.ReadDir(o.Run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("folder left: %s", e.Name())
		}
	}
	if o.Cgroup != "" {
		if leaves, err := filepath.Glob(filepath.Join(o.Cgroup, "session-*")); err != nil || len(leaves) > 0 {
			t.Errorf("cgroups left: %v %v", leaves, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), o.Run) {
		t.Error("mounts left")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestEnds(t *testing.T) {
	cases := map[string]struct {
		agent          string // $SLEEP is the marked process
		timeout        time.Duration
		act            func(t *testing.T, cancel func(), b sandbox.Sandbox, pid int)
		exit           int
		reason, detail string
	}{
		"timeout": {
			agent: "trap '' TERM; $SLEEP", timeout: time.Second,
			exit: 137, reason: sandbox.Timeout,
		},
		"timeout_with_last_words": {
			agent: "trap 'exit 9' TERM; $SLEEP & wait", timeout: time.Second,
			exit: 9, reason: sandbox.Timeout,
		},
		"cancel": {
			agent: "$SLEEP", act: func(_ *testing.T, cancel func(), _ sandbox.Sandbox, _ int) { cancel() },
			exit: 143, reason: sandbox.Cancelled,
		},
		"close": {
			agent: "$SLEEP", act: func(t *testing.T, _ func(), b sandbox.Sandbox, _ int) {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			},
			exit: 137, reason: sandbox.Cancelled,
		},
		"kill_9_agent": {
			agent: "exec $SLEEP", act: func(t *testing.T, _ func(), _ sandbox.Sandbox, pid int) { kill(t, pid) },
			exit: 137, reason: sandbox.Faulted,
		},
		"kill_9_init": {
			agent: "exec $SLEEP", act: func(t *testing.T, _ func(), _ sandbox.Sandbox, pid int) { kill(t, parent(t, pid)) },
			exit: 137, reason: sandbox.Faulted, detail: "init",
		},
		"kill_9_bwrap": {
			agent: "exec $SLEEP", act: func(t *testing.T, _ func(), _ sandbox.Sandbox, pid int) { kill(t, parent(t, parent(t, pid))) },
			exit: 137, reason: sandbox.Faulted, detail: "init",
		},
		"SB-42_daemon": {
			agent: "trap '' TERM HUP; (setsid $SLEEP </dev/null >/dev/null 2>&1 &) & (setsid setsid $SLEEP &) & while [ $(ls /proc | grep -c '^[0-9]') -lt 5 ]; do :; done; exit 4",
			exit:  4, reason: sandbox.Faulted,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, o := provider(t)
			before := descriptors(t)
			m := mark(t)
			b := start(t, p, sandbox.Spec{
				Argv:    []string{"/bin/sh", "-c", strings.ReplaceAll(c.agent, "$SLEEP", m.sleeper())},
				Timeout: c.timeout, Grace: 300 * time.Millisecond,
			}, nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			type ended struct {
				end sandbox.End
				err error
			}
			done := make(chan ended, 1)
			go func() {
				end, err := b.Run(ctx)
				done <- ended{end, err}
			}()
			if c.act != nil {
				c.act(t, cancel, b, m.await(t, 1)[0])
			}
			e := <-done
			if e.err != nil {
				t.Fatal(e.err)
			}
			if e.end.Exit != c.exit || e.end.Reason != c.reason || e.end.Detail != c.detail {
				t.Errorf("got %d %s %q, want %d %s %q", e.end.Exit, e.end.Reason, e.end.Detail, c.exit, c.reason, c.detail)
			}
			if pids := m.pids(t); len(pids) != 0 {
				t.Errorf("alive after Run: %v", pids)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			nothingLeft(t, m, o)
			if after := descriptors(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// TestNodeKilled kills the process that holds a running sandbox.
func TestNodeKilled(t *testing.T) {
	_, o := provider(t)
	m := mark(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNode$")
	cmd.Env = append(os.Environ(), "GATEHOUSE_TEST_NODE="+o.Run, "GATEHOUSE_TEST_AGENT="+m.sleeper(), ordinaryUser+"="+initPath)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	m.await(t, 1)
	kill(t, cmd.Process.Pid)
	m.await(t, 0)
	_ = cmd.Wait() // the sandbox dies with one of the node's threads, its locks go with the last
	if entries, err := os.ReadDir(o.Run); err != nil || len(entries) == 0 {
		t.Fatalf("the killed node's folder is expected to be there: %v", err)
	}
	if _, err := local.New(o); err != nil { // the next node sweeps
		t.Fatal(err)
	}
	nothingLeft(t, m, o)
}

// TestNode is the node that TestNodeKilled kills.
func TestNode(t *testing.T) {
	dir := os.Getenv("GATEHOUSE_TEST_NODE")
	if dir == "" {
		t.Skip("run by TestNodeKilled")
	}
	p, _ := provider(t, func(o *local.Options) { o.Run = dir })
	b := start(t, p, sandbox.Spec{Argv: []string{"/bin/sh", "-c", os.Getenv("GATEHOUSE_TEST_AGENT")}}, nil)
	fmt.Println("started")
	_, _ = b.Run(context.Background())
}

func TestTranscriptIsCapped(t *testing.T) {
	p, _ := provider(t, func(o *local.Options) { o.TranscriptBytes = 10_000 })
	b := start(t, p, sandbox.Spec{Argv: []string{"/bin/sh", "-c", "head -c 3000000 /dev/zero; echo oops >&2; printf end"}}, nil)
	r := finish(t, b) // SB-41
	if r.Exit != 0 || len(r.out) > 10_200 || !strings.Contains(r.out, "more bytes of output were dropped") {
		t.Errorf("exit %d, %d bytes kept, %d dropped", r.Exit, len(r.out), r.Dropped)
	}
	if r.Dropped != 3_000_000+5+3-10_000 || !strings.HasSuffix(r.Final, "end") {
		t.Errorf("dropped %d, final ends %q", r.Dropped, r.Final[max(0, len(r.Final)-10):])
	}
}

// tripwire refuses what holds a canary.
type tripwire struct{ seen []byte }

func (w *tripwire) Write(b []byte) (int, error) {
	if w.seen = append(w.seen, b...); strings.Contains(string(w.seen), "canary") {
		return 0, errors.New("tripped")
	}
	return len(b), nil
}

func TestTripwireEndsTheSession(t *testing.T) {
	m := mark(t)
	r := run(t, sandbox.Spec{Output: io.Writer(new(tripwire))}, nil, "printf can; printf ary; "+m.sleeper())
	if r.Reason != sandbox.Faulted || r.Detail != "output" { // SB-41
		t.Errorf("end %+v", r.End)
	}
}
