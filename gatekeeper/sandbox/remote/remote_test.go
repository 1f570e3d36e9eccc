//go:build linux

package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/sandboxtest"
)

// TestConformance holds the remote provider to the contract that the local one
// is held to, with the real sandbox on the other side.
func TestConformance(t *testing.T) {
	p, _ := newMachine(t).node(t)
	suite := &sandboxtest.Suite{Provider: p, Base: sandbox.Spec{Unlimited: true}, Dir: t.TempDir(), Quick: testing.Short()}
	shims := 0
	for _, c := range suite.Run(t.Context()) {
		t.Run(c.ID+"_"+strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			// Without root the shim is the agents' own user, and that must be found.
			want := true
			if c.ID == "RM-01" {
				shims++
			}
			if c.ID == "RM-01" || strings.HasPrefix(c.Evidence, "RM-01 ") {
				want = os.Geteuid() == 0
			}
			if passed := c.Outcome == sandbox.Passed || c.Outcome == sandbox.Absent; passed != want {
				t.Errorf("%s: %s", c.Outcome, c.Evidence)
			}
		})
	}
	if shims != 1 {
		t.Errorf("RM-01 was judged %d times", shims)
	}
}

func bash(script string) []string { return []string{"/bin/bash", "-c", script} }

const connect = `exec 9<>/dev/tcp/93.184.216.34/443 && echo ping >&9 && head -n 2 <&9`

// TestSession is one whole session: probe, the door through the shim, output,
// final message, artifacts, and nothing left on either side.
func TestSession(t *testing.T) {
	m := newMachine(t)
	p, o := m.node(t)
	d := openDoor(t)
	b := start(t, p, sandbox.Spec{Argv: bash(connect + "; echo done > /gatehouse/out/note; mkdir /gatehouse/out/d; echo done > /gatehouse/out/d/copy; echo last words"), Witness: d}, d)
	report, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Cases {
		if c.Outcome == sandbox.Failed && (c.ID != "RM-01" || os.Geteuid() == 0) {
			t.Errorf("%s %s: %s", c.ID, c.Name, c.Evidence)
		}
	}
	proven := report.Proven()
	for _, c := range []sandbox.Capability{sandbox.NetworkClosed, sandbox.DoorOnly, sandbox.FilesystemPrivate, sandbox.Unprivileged, sandbox.SyscallsFiltered, sandbox.VsockClosed, sandbox.Supervised} {
		if !proven[c] {
			t.Errorf("%s is not proven", c)
		}
	}
	end, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if end.Reason != sandbox.Completed || end.Exit != 0 || !strings.Contains(end.Final, "last words") {
		t.Errorf("%+v", end)
	}
	out, err := os.ReadFile(end.Transcript)
	if want := "hello from 93.184.216.34:443\nping\nlast words\n"; err != nil || string(out) != want {
		t.Errorf("transcript %q, %v, want %q", out, err, want)
	}
	if len(end.Artifacts) != 2 || end.Artifacts["note"] != end.Artifacts["d/copy"] || filepath.Dir(end.Transcript) != o.Transcripts {
		t.Errorf("%+v", end)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	m.empty(t)
}

// empty checks that the machine keeps nothing.
func (m *machine) empty(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"doors", "artifacts", "transcripts"} {
		found, err := os.ReadDir(filepath.Join(m.dir, dir))
		if err != nil || len(found) != 0 {
			t.Errorf("left in %s: %v %v", dir, found, err)
		}
	}
	sessions, err := filepath.Glob(filepath.Join(m.dir, "run", "s-*"))
	if err != nil || len(sessions) != 0 {
		t.Errorf("left in run: %v %v", sessions, err)
	}
}

// running starts an agent that holds a connection to its door.
func running(t *testing.T, m *machine) (b sandbox.Sandbox, d *door, ended chan sandbox.End, cancel context.CancelFunc) {
	t.Helper()
	p, _ := m.node(t)
	d = openDoor(t)
	b = start(t, p, sandbox.Spec{Argv: bash("trap '' TERM; exec 9<>/dev/tcp/93.184.216.34/443; while :; do sleep 1; done"), Grace: 100 * time.Millisecond}, d)
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan sandbox.End, 1)
	go func() {
		e, err := b.Run(ctx)
		if err != nil {
			t.Errorf("run: %v", err)
		}
		ended <- e
	}()
	t.Cleanup(cancel)
	await(t, "the agent holds a connection", func() bool { return d.held() > 0 })
	return b, d, ended, cancel
}

func wait(t *testing.T, ended chan sandbox.End) sandbox.End {
	t.Helper()
	select {
	case e := <-ended:
		return e
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
		return sandbox.End{}
	}
}

// TestEnds ends sessions from every side. In each, what the agent holds at its
// door is cut, and the machine keeps nothing.
func TestEnds(t *testing.T) {
	cases := map[string]struct {
		how    func(t *testing.T, m *machine, b sandbox.Sandbox, d *door, cancel context.CancelFunc)
		reason string
	}{
		"cancel": {func(_ *testing.T, _ *machine, _ sandbox.Sandbox, _ *door, cancel context.CancelFunc) { cancel() }, sandbox.Cancelled},
		"close":  {func(_ *testing.T, _ *machine, b sandbox.Sandbox, _ *door, _ context.CancelFunc) { _ = b.Close() }, sandbox.Cancelled},
		"the_machine_dies": {func(_ *testing.T, m *machine, _ sandbox.Sandbox, _ *door, _ context.CancelFunc) {
			m.http.CloseClientConnections()
		}, sandbox.Lost},
		"the_machine_stops": {func(t *testing.T, m *machine, _ sandbox.Sandbox, _ *door, _ context.CancelFunc) {
			// What is left of it may not be asked any more.
			m.http.Listener.Close()
			m.http.CloseClientConnections()
		}, sandbox.Lost},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			b, d, ended, cancel := running(t, m)
			c.how(t, m, b, d, cancel)
			if e := wait(t, ended); e.Reason != c.reason {
				t.Errorf("%+v, want %s", e, c.reason)
			}
			await(t, "the door is empty", func() bool { return d.held() == 0 })
			_ = b.Close()
			await(t, "the machine ends the session by itself", func() bool {
				left, err := os.ReadDir(filepath.Join(m.dir, "doors"))
				return err == nil && (len(left) == 0 || name == "the_machine_stops")
			})
		})
	}
}
