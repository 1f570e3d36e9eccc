package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/internal/outside"
	"gatehouse/internal/view"
)

// cutWithin is ten times what is promised: after an end of any kind access is
// dead within a second.
const cutWithin = 10 * time.Second

// endMarker is a number that no other process sleeps for, not even one of this
// test run twice at a time.
var endMarker = fmt.Sprintf("27.%07d", os.Getpid())

// ending is one way in which a session ends.
type ending struct {
	name, conclusion string
	end              func(e *ends, session string, agent int)
	reason           string
}

// itself reports whether it is the agent's own end, or its time's.
func (c ending) itself() bool { return c.reason == "no_effect" || c.reason == "timeout" }

// What the delivery says decides which agent comes: one that stays, one that
// goes when it is told to, and the same under a short timeout.
const stays, goes, late, early = "failure", "neutral", "timed_out", "skipped"

// dismiss tells an agent that goes to go: it is not asked when it is ready.
func dismiss(e *ends, _ string, agent int) {
	if err := syscall.Kill(agent, syscall.SIGUSR1); err != nil {
		e.t.Error(err)
	}
}

// endings are those of a provider. Never do three in a row fail: that pauses
// the bundle.
func endings(provider string) []ending {
	kill := func(e *ends, session string, _ int) { e.gatehouse(0, "session", "kill", session) }
	agent := func(e *ends, _ string, agent int) { e.kill9(agent) }
	initd := func(e *ends, _ string, agent int) { e.kill9(parentOf(e.t, agent)) }
	// Who started PID 1: bubblewrap, or podman's monitor.
	above := func(e *ends, _ string, agent int) { e.kill9(parentOf(e.t, parentOf(e.t, agent))) }
	node := func(e *ends, _ string, _ int) { e.kill() }
	wait := func(*ends, string, int) {}
	all := []ending{
		{"timeout", late, wait, "timeout"},
		{"cancel", stays, kill, "cancelled"},
		{"kill_9_agent", stays, agent, "failed"},
		{"kill_9_init", stays, initd, "failed"},
		{"completion", goes, dismiss, "no_effect"},
	}
	switch provider {
	case "local":
		all = append(all, ending{"kill_9_bwrap", stays, above, "failed"})
	case "oci":
		all = append(all,
			ending{"kill_9_conmon", stays, above, "failed"},
			ending{"kill_9_podman", stays, func(e *ends, session string, _ int) { e.kill9(e.child(e.cmd.Process.Pid, "gatehouse-"+session)) }, "failed"})
	case "remote":
		all = append(all,
			ending{"kill_9_bwrap", stays, above, "failed"},
			ending{"kill_9_shim", stays, func(e *ends, _ string, _ int) { e.kill9(e.child(e.machine.Cmd.Process.Pid, "shim")) }, "failed"},
			ending{"kill_9_gatehouse-remote", stays, func(e *ends, _ string, _ int) { e.machine.Kill() }, "lost"})
	}
	return append(all, ending{"kill_9_gatehouse", stays, node, "lost"})
}

// TestEndsCutAccess ends a session of each provider in every way while its
// agent reads a stream from outside: the stream is cut, no process is alive,
// nothing is left.
func TestEndsCutAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("short: many sandboxes and nodes")
	}
	for _, provider := range []string{"local", "oci", "remote"} {
		t.Run(provider, func(t *testing.T) {
			e := newEnds(t, provider)
			e.start()
			for i, c := range endings(provider) {
				t.Run(c.name, func(t *testing.T) {
					e.t = t
					defer func() { e.t = e.top }()
					e.run(100+i, c)
				})
			}
		})
	}
}

// run has one session, ends it, and returns how long the stream outlived the
// end, and the session.
func (e *ends) run(number int, c ending) time.Duration {
	e.t.Helper()
	event := e.deliver(workflowRun(number, c.conclusion))[0]
	e.eventually("the agent reads the stream", patience, func() bool { return e.open.Load() > 0 })
	agent := e.agent()
	session := e.sessionOf(event)
	gone := e.goneAt(agent)
	began := time.Now()
	c.end(e, session, agent)
	if c.itself() {
		select {
		case began = <-gone:
		case <-time.After(patience):
			e.t.Fatal("the agent does not end")
		}
	}
	e.eventually("the stream is cut", cutWithin, func() bool { return e.open.Load() == 0 })
	e.eventually("every process is dead", cutWithin, func() bool { return len(e.processes()) == 0 })
	e.t.Logf("cut and dead after %s", time.Since(began).Round(time.Millisecond))
	cut := *e.cut.Load()
	if e.cmd == nil { // the node is gone: its end is written by the next one
		e.start()
	}
	if e.machine.Machine != nil && e.machine.Cmd == nil {
		e.machine.Start()
	}
	e.settled(event)
	var s view.Session
	e.until("ended as "+c.reason, func() bool {
		return e.client.Get(e.t.Context(), "/v1/sessions/"+url.PathEscape(session), nil, &s) == nil && s.State == "ended"
	})
	if s.Reason != c.reason || s.Provider != e.provider {
		e.t.Errorf("the session of %s ended %s, want %s of %s", s.Provider, s.Reason, c.reason, e.provider)
	}
	e.nothingLeft(session)
	if e.open.Load() != 0 {
		e.t.Error("a stream came back")
	}
	if c.reason == "timeout" { // which is over when the time is, not when the agent is
		began = e.runningSince(session).Add(lateAfter)
	}
	return cut.Sub(began)
}

// goneAt says when a process has ended.
func (e *ends) goneAt(pid int) <-chan time.Time {
	e.t.Helper()
	at := make(chan time.Time, 1)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		e.t.Fatalf("pidfd of the agent: %v", err)
	}
	go func() {
		defer unix.Close(fd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

// runningSince is when the agent's time began, by the session's own chain.
func (e *ends) runningSince(session string) time.Time {
	e.t.Helper()
	var chain struct{ Items []view.Receipt }
	if err := e.client.Get(e.t.Context(), "/v1/sessions/"+url.PathEscape(session)+"/receipts", nil, &chain); err != nil {
		e.t.Fatal(err)
	}
	states := 0
	for _, r := range chain.Items {
		if r.Type == "session.state" {
			if states++; states == 2 { // preparing, running
				return r.Time
			}
		}
	}
	e.t.Fatal("the session never ran")
	return time.Time{}
}

// ends is a node whose sessions read an endless stream.
type ends struct {
	*liveNode
	provider string
	machine  otherMachine // of the provider remote
	top      testing.TB
	open     atomic.Int64              // streams that the outside is serving
	cut      atomic.Pointer[time.Time] // when the last of them ended
}

// lateAfter is the timeout of the bundle that is for it.
const lateAfter = 6 * time.Second

func newEnds(t testing.TB, provider string) *ends {
	t.Helper()
	if provider == "oci" {
		if _, err := exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
			t.Skip("NOT TESTED on this machine: the oci provider needs podman and root")
		}
	}
	e := &ends{top: t, provider: provider}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	_, err = world.HTTP("stream.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.open.Add(1)
		defer func() {
			now := time.Now()
			e.cut.Store(&now)
			e.open.Add(-1)
		}()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			_, err := w.Write(bytes.Repeat([]byte("x"), 512))
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	dir := nodeDir(t)
	config, mode := worldConfig(world), "hard"
	switch provider {
	case "oci":
		config += "providers: {local: {}, oci: {}}\n"
		t.Cleanup(func() { forgetPodman(t, dir) })
	case "remote":
		e.machine = newOtherMachine(t, dir, world)
		config = e.machine.config(world)
		mode = "shadow" // hard mode asks for a conformance report; what is cut is the same
	}
	bundle := func(name, conclusion string, timeout time.Duration) string {
		return fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: %[1]s
mode: %[2]s
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: %[3]s, repository.id: ["1"], fork: false}}
session:
  provider: %[4]s
  agent:
    command:
      argv: [/bin/bash, -c, "trap 'exit 0' USR1; exec 3<>/dev/tcp/stream.test/80; printf 'GET / HTTP/1.1\\r\\nHost: stream.test\\r\\n\\r\\n' >&3; (trap '' TERM; cat <&3 >/dev/null; sleep %[5]s) & if [ $GATEHOUSE_TASK = neutral ] || [ $GATEHOUSE_TASK = skipped ]; then while :; do sleep 0.05; done; fi; sleep %[5]s; exit 3", agent-%[5]s]
  task: "{{ facts.conclusion }}"
  timeout: %[6]s
egress:
  - {host: stream.test, ports: [80], schemes: [http], methods: [GET]}
`, name, mode, conclusion, provider, endMarker, timeout)
	}
	e.liveNode = newLiveNodeOn(t, dir, config, bundle("ends", "["+stays+", "+goes+"]", 5*time.Minute), bundle("late", "["+late+", "+early+"]", lateAfter))
	e.args = []string{"--dev"}
	return e
}

// eventually polls for at most d; d is a safety net, not a measurement.
func (e *ends) eventually(what string, d time.Duration, ok func() bool) {
	e.t.Helper()
	for until := time.Now().Add(d); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			e.t.Fatalf("not in %s: %s; %d streams, processes %v", d, what, e.open.Load(), e.processes())
		}
	}
}

// agent returns the process that became the agent.
func (e *ends) agent() int {
	e.t.Helper()
	found := 0
	e.eventually("the agent runs", patience, func() bool {
		for pid, args := range e.processes() {
			// Its children are copies of it or other programs; its parent is PID 1.
			if strings.HasPrefix(args, "/bin/bash -c ") && strings.HasSuffix(args, " agent-"+endMarker) && !strings.HasPrefix(e.processes()[parentOf(e.t, pid)], "/bin/bash") {
				found = pid
			}
		}
		return found != 0
	})
	return found
}

// processes are those that have the marker in their arguments.
func (e *ends) processes() map[int]string {
	out := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(endMarker)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			out[pid] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

func parentOf(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

func (e *ends) kill9(pid int) {
	e.t.Helper()
	if pid <= 1 {
		e.t.Fatalf("no such process: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		e.t.Fatal(err)
	}
}

// sessionOf is the session of an event.
func (e *ends) sessionOf(event string) (id string) {
	e.t.Helper()
	e.until("a session of the event", func() bool {
		var found struct{ Sessions []struct{ ID string } }
		if err := e.client.Get(e.t.Context(), "/v1/events/"+url.PathEscape(event), nil, &found); err != nil || len(found.Sessions) != 1 {
			return false
		}
		id = found.Sessions[0].ID
		return true
	})
	return id
}

// child is a process that parent started, with a word in its arguments.
func (e *ends) child(parent int, word string) int {
	e.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if line, rerr := os.ReadFile(path); err == nil && rerr == nil && bytes.Contains(line, []byte(word)) && parentOf(e.t, pid) == parent {
			return pid
		}
	}
	e.t.Fatalf("process %d has no child that says %q", parent, word)
	return 0
}

// nothingLeft: no mount, no folder of the sandbox, no door.
func (e *ends) nothingLeft(session string) {
	e.t.Helper()
	for _, run := range []string{"state/run", "state/run-oci/run", "machine/run", "machine/doors"} {
		e.eventually("the sandbox's folder is gone", cutWithin, func() bool {
			_, err := os.Stat(e.path(run, session))
			return os.IsNotExist(err)
		})
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		e.t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(e.dir)) {
		e.t.Error("a mount is left")
	}
	if _, err := os.Lstat(e.path("state", "sessions", session, "door.sock")); !os.IsNotExist(err) {
		e.t.Errorf("the door is left: %v", err)
	}
	if e.provider == "oci" {
		for _, args := range all(e.t) {
			if strings.Contains(args, "gatehouse-"+session) {
				e.t.Errorf("podman left %q", args)
			}
		}
	}
}

// all are the arguments of every process.
func all(t testing.TB) (args []string) {
	t.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil {
			args = append(args, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return args
}

// forgetPodman removes what podman keeps below /run of a node that is over.
func forgetPodman(t testing.TB, dir string) {
	t.Helper()
	owners, _ := filepath.Glob("/run/gatehouse-podman/*/.gatehouse")
	for _, path := range owners {
		if owner, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(owner), dir+"/") {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Error(err)
			}
		}
	}
}
