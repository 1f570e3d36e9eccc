package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// remoteBundle runs on the other machine; %s is its mode, and its name's end.
const remoteBundle = `apiVersion: gatehouse/v1
kind: Bundle
name: remote-%[1]s
mode: %[1]s
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: %[2]s, repository.id: ["1"], fork: false}}
session:
  provider: remote
  agent: {command: {argv: [/bin/bash, -c, "curl -sS http://listed.test/ && curl -sS http://unlisted.test/ -o /dev/null -w '%%{http_code}\n'; echo out > /gatehouse/out/o"]}}
  task: "run {{ facts.run_id }}"
  timeout: 1m
egress: [{host: listed.test}]
`

// TestRemoteProvider carries events to sessions on another machine: the built
// gatehouse-remote over the real sandbox, reached over TLS by the node's own
// checked exit, with the session's door joined through the shim. In shadow it
// just runs, at level 2; in hard it is refused until the provider has a
// conformance report that holds, and again when the report is gone.
func TestRemoteProvider(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the whole matrix on another machine")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT TESTED on this machine: no curl")
	}
	world, listed := listedWorld(t)
	dir := nodeDir(t)
	machine := newOtherMachine(t, dir, world)
	config := machine.config(world)
	n := newLiveNodeOn(t, dir, config, fmt.Sprintf(remoteBundle, "shadow", "failure"), fmt.Sprintf(remoteBundle, "hard", "timed_out"))
	n.args = []string{"--dev"}
	n.start()

	session := func(p post) (s view.Session) {
		t.Helper()
		ids := n.deliver(p)
		n.settled(ids...)
		n.until("a session of the event", func() bool {
			var all struct{ Items []view.Session }
			if n.client.Get(t.Context(), "/v1/sessions", nil, &all) != nil {
				return false
			}
			for _, x := range all.Items {
				if x.Event == ids[0] {
					s = x
					return true
				}
			}
			return false
		})
		return s
	}
	verified := func(s view.Session, want string) {
		t.Helper()
		if s.State != "ended" || s.Reason != "completed" || s.Provider != "remote" || s.Level != 2 {
			t.Errorf("%s: %s %s at %s, level %d; want ended completed at remote, level 2", s.Bundle, s.State, s.Reason, s.Provider, s.Level)
		}
		if out := n.gatehouse(0, "session", "logs", s.ID); !strings.Contains(out, "listed") || !strings.Contains(out, want) {
			t.Errorf("the agent printed:\n%s\nwant %q in it", out, want)
		}
		file := n.path("export-" + s.ID)
		n.gatehouse(0, "receipts", "export", "--session", s.ID, "-f", file)
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := notary.LoadKeys(n.path("state", "keys"))
		if err != nil {
			t.Fatal(err)
		}
		if res := receipts.Verify(bytes.NewReader(raw), receipts.Options{Root: keys.RootFingerprint()}); res.Exit != receipts.ExitComplete {
			t.Errorf("receipts: %s", res.Verdict())
		}
	}
	t.Run("shadow", func(t *testing.T) {
		before := listed.Requests()
		verified(session(failure(1)), "502") // passed, and nobody outside has that name
		if listed.Requests() == before {
			t.Error("the fake saw no request: the answer came from elsewhere")
		}
	})
	t.Run("hard_without_a_report", func(t *testing.T) {
		if s := session(workflowRun(2, "timed_out")); s.State != "refused" || s.Reason != string(problem.ProviderCapabilityMissing) {
			t.Errorf("%s %s", s.State, s.Reason)
		}
	})
	n.stop()
	if os.Geteuid() != 0 {
		// RM-01: without root the shim is the agents' own user, and no report holds.
		if out := n.gatehouse(3, "conformance", "run", "--provider", "remote"); !strings.Contains(out, "RM-01") {
			t.Errorf("%s", out)
		}
		return
	}
	if out := n.gatehouse(0, "conformance", "run", "--provider", "remote"); !strings.Contains(out, "signed until") {
		t.Fatalf("no report:\n%s", out)
	}
	n.start()
	t.Run("hard", func(t *testing.T) { verified(session(workflowRun(3, "timed_out")), "403") })
	t.Run("hard_when_the_report_is_gone", func(t *testing.T) {
		if err := os.Remove(n.path("state", "conformance", "remote.json")); err != nil {
			t.Fatal(err)
		}
		if s := session(workflowRun(4, "timed_out")); s.State != "refused" || s.Reason != string(problem.ProviderCapabilityMissing) {
			t.Errorf("%s %s", s.State, s.Reason)
		}
	})
	n.stop()
	machine.Stop()
	machine.Empty(0)
}
