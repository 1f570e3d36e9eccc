//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// reload adds an auditor's user to the running server.
func (s *natsProcess) reload(user string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "auditors.conf"), []byte("AUDITORS: [\n"+user+"\n]\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// TestBundleAuditor is an auditor of one of two bundles of a live node: sessions
// from before, sessions to come, over a restart, each receipt once and in order,
// none of the other bundle; and the other requests refused (RC-46).
func TestBundleAuditor(t *testing.T) {
	if testing.Short() {
		t.Skip("short: nats-server and a node")
	}
	t.Parallel()
	const agent = `apiVersion: gatehouse/v1
kind: Bundle
name: %s
mode: shadow
accepts: outsider
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: %s}}]
session: {agent: {command: {argv: [/bin/sh, -c, "echo done > /gatehouse/out/result.md"]}}, task: go}
`
	server := newNATS(t)
	n := newNamedNode(t, nodeDir(t), "node-1", fmt.Sprintf("nats: {url: %q, creds: %q}\n", "nats://"+server.addr, server.node),
		fmt.Sprintf(agent, "work", "failure"), fmt.Sprintf(agent, "other", "success"))
	n.start()
	n.settled(n.deliver(failure(1), quiet(2))...)
	seed := n.path("bea.seed")
	out := n.gatehouse(exitOK, "auditor", "add", "bea", "--bundle", "work", "-f", seed)
	_, user, ok := strings.Cut(out, "reload the server:\n")
	if !ok || !strings.Contains(out, "consumer next GATEHOUSE_AUDIT auditor_bea") {
		t.Fatal(out)
	}
	user, _, _ = strings.Cut(strings.TrimSpace(user), "\n")
	server.reload(user)

	var nc *nats.Conn
	opt, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 64)
	n.until("the auditor's user is there", func() bool {
		nc, err = nats.Connect("nats://"+server.addr, opt, nats.CustomInboxPrefix("_INBOX_bea"),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		return err == nil
	})
	t.Cleanup(nc.Close)
	js, err := jetstream.NewWithAPIPrefix(nc, bus.AuditorAPI)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.Consumer(t.Context(), bus.Audit, "auditor_bea")
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]uint64{} // session -> sequence that comes next
	closed := 0
	read := func(sessions int) {
		t.Helper()
		n.until(fmt.Sprintf("%d sessions read", sessions), func() bool {
			batch, err := consumer.Fetch(64, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				return false
			}
			for m := range batch.Messages() {
				r, err := receipts.Decode(m.Data())
				if err != nil {
					t.Fatal(err)
				}
				if want := "gatehouse.v1.audit.work.node-1." + r.Session; m.Subject() != want || r.Seq != next[r.Session] {
					t.Fatalf("receipt %d on %s, want %d on %s", r.Seq, m.Subject(), next[r.Session], want)
				}
				if r.Type == receipts.TypeSessionOpen && r.Open.Bundle != "work" {
					t.Fatalf("a session of %s", r.Open.Bundle)
				}
				if m.Headers().Get(receipts.HeaderSeal) == "" || m.Headers().Get(receipts.HeaderID) != receipts.Leaf(m.Data()).String() {
					t.Fatalf("headers %v", m.Headers())
				}
				if next[r.Session]++; r.Type == receipts.TypeSessionClose {
					closed++
				}
			}
			return closed >= sessions
		})
	}
	read(1)
	n.settled(n.deliver(failure(3), quiet(4))...)
	read(2)
	n.stop()
	n.start()
	n.settled(n.deliver(quiet(5), failure(6))...)
	read(3)
	if closed != 3 || len(next) != 3 {
		t.Errorf("%d sessions closed, %d read", closed, len(next))
	}

	t.Run("RC-46_may_not", func(t *testing.T) {
		for _, s := range []string{
			"gatehouse.v1.audit.work.node-1.x", bus.AuditorAPI + ".CONSUMER.MSG.NEXT.GATEHOUSE_SESSIONS.auditor_bea",
			"$JS.API.STREAM.DELETE.GATEHOUSE_AUDIT", "$JS.API.STREAM.PURGE.GATEHOUSE_AUDIT", "$JS.API.CONSUMER.CREATE.GATEHOUSE_AUDIT.mine",
		} {
			if err := nc.PublishRequest(s, "_INBOX_bea.x", nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-refused:
			case <-time.After(patience):
				t.Errorf("%s was not refused", s)
			}
		}
	})
	if out := n.gatehouse(exitOK, "auditor", "list", "-o", "ndjson"); strings.TrimSpace(out) != `{"name":"bea","bundle":"work"}` {
		t.Error(out)
	}
	n.gatehouse(exitOK, "auditor", "rm", "bea")
	n.stop()
}
