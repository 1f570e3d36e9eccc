package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/outside"
	"gatehouse/internal/view"
)

// cutWithin is ten times what is promised: after an end of any kind access is
// dead within a second.
const cutWithin = 10 * time.Second

// endMarker is a number that no other process sleeps for.
const endMarker = "27.1828182"

// TestEndsCutAccess ends a session in every way while its agent reads a stream
// from outside: the stream is cut, no process is alive, nothing is left.
func TestEndsCutAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("short: seven sandboxes and two nodes")
	}
	e := newEnds(t)
	e.start()
	cases := []struct {
		name, conclusion, script string
		end                      func(agent int)
		state, reason            string
	}{
		{"timeout", "timed_out", "sleep " + endMarker, nil, "ended", "timeout"},
		{"cancel", "failure", "sleep " + endMarker, func(int) { e.gatehouse(0, "session", "kill", e.session()) }, "ended", "cancelled"},
		{"kill_9_agent", "failure", "sleep " + endMarker, func(agent int) { e.kill9(agent) }, "ended", "failed"},
		{"kill_9_init", "failure", "sleep " + endMarker, func(agent int) { e.kill9(parentOf(t, agent)) }, "ended", "failed"},
		{"completion", "failure", "sleep 1; exit 0", nil, "ended", "no_effect"}, // and no third failure in a row
		{"kill_9_bwrap", "failure", "sleep " + endMarker, func(agent int) { e.kill9(parentOf(t, parentOf(t, agent))) }, "ended", "failed"},
		{"kill_9_gatehouse", "failure", "sleep " + endMarker, func(int) { e.kill() }, "ended", "lost"},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e.t = t
			defer func() { e.t = e.top }()
			e.write("script", c.script)
			event := e.deliver(workflowRun(100+i, c.conclusion))[0]
			e.eventually("the agent reads the stream", patience, func() bool { return e.open.Load() > 0 })
			agent := e.agent()
			began := time.Now()
			if c.end != nil {
				c.end(agent)
			} else {
				e.eventually("the agent is gone", patience, func() bool { return syscall.Kill(agent, 0) != nil })
				began = time.Now()
			}
			e.eventually("the stream is cut", cutWithin, func() bool { return e.open.Load() == 0 })
			e.eventually("every process is dead", cutWithin, func() bool { return len(e.processes()) == 0 })
			t.Logf("cut and dead after %s", time.Since(began).Round(time.Millisecond))
			if e.cmd == nil { // the node is gone: its end is written by the next one
				e.start()
			}
			e.settled(event)
			var s view.Session
			e.until("ended as "+c.reason, func() bool {
				return e.client.Get(t.Context(), "/v1/sessions/"+url.PathEscape(e.sessionOf(event)), nil, &s) == nil && s.State == c.state
			})
			if s.Reason != c.reason {
				t.Errorf("the session ended %s, want %s", s.Reason, c.reason)
			}
			e.nothingLeft(s.ID)
			if e.open.Load() != 0 {
				t.Error("a stream came back")
			}
		})
	}
}

// ends is a node whose sessions read an endless stream.
type ends struct {
	*liveNode
	top  testing.TB
	open atomic.Int64 // streams that the outside is serving
}

func newEnds(t *testing.T) *ends {
	e := &ends{top: t}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	_, err = world.HTTP("stream.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.open.Add(1)
		defer e.open.Add(-1)
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
	tools := filepath.Join(dir, "script")
	bundle := func(name, conclusion, timeout string) string {
		return fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: %s
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: %s, repository.id: ["1"], fork: false}}
session:
  agent:
    command:
      argv: [/bin/bash, -c, "exec 3<>/dev/tcp/stream.test/80; printf 'GET / HTTP/1.1\\r\\nHost: stream.test\\r\\n\\r\\n' >&3; (trap '' TERM; cat <&3 >/dev/null; sleep %s) & . /opt/script", agent-%s]
  task: "run {{ facts.run_id }}"
  timeout: %s
  mounts: [{source: %s, path: /opt/script}]
egress:
  - {host: stream.test, ports: [80], schemes: [http], methods: [GET]}
`, name, conclusion, endMarker, endMarker, timeout, tools)
	}
	if err := os.WriteFile(tools, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e.liveNode = newLiveNodeOn(t, dir, worldConfig(world), bundle("ends", "failure", "5m"), bundle("late", "timed_out", "3s"))
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

// session is the one that runs.
func (e *ends) session() string {
	e.t.Helper()
	var list struct{ Items []view.Session }
	if err := e.client.Get(e.t.Context(), "/v1/sessions", url.Values{"state": {"running"}}, &list); err != nil || len(list.Items) != 1 {
		e.t.Fatalf("%d sessions run: %v", len(list.Items), err)
	}
	return list.Items[0].ID
}

func (e *ends) sessionOf(event string) string {
	e.t.Helper()
	var found struct{ Sessions []struct{ ID string } }
	if err := e.client.Get(e.t.Context(), "/v1/events/"+url.PathEscape(event), nil, &found); err != nil || len(found.Sessions) != 1 {
		e.t.Fatalf("%d sessions of %s: %v", len(found.Sessions), event, err)
	}
	return found.Sessions[0].ID
}

// nothingLeft: no mount, no folder of the sandbox, no door.
func (e *ends) nothingLeft(session string) {
	e.t.Helper()
	e.eventually("the sandbox's folder is gone", cutWithin, func() bool {
		_, err := os.Stat(e.path("state", "run", session))
		return os.IsNotExist(err)
	})
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
}
