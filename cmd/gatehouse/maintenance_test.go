package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// sleeper is a bundle whose agent sleeps for so many seconds.
func sleeper(seconds string) string {
	return `apiVersion: gatehouse/v1
kind: Bundle
name: sleeper
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: ["1"], fork: false}}
session:
  agent: {command: {argv: [/bin/sleep, "` + seconds + `"]}}
  task: "run {{ facts.run_id }}"
  timeout: 5m
`
}

// controlOf returns the control chain's receipts in a stopped node's journal.
func (n *liveNode) controlOf() (out []*receipts.Receipt) {
	n.t.Helper()
	j, err := journal.Open(n.path("state", "journal"), journal.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	defer j.Close()
	for group, err := range j.Groups(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt {
				continue
			}
			if r, err := receipts.Decode(rec.Data); err == nil && r.Session == receipts.ControlSession {
				out = append(out, r)
			}
		}
	}
	return out
}

// sessions lists every session that the node's view shows.
func (n *liveNode) sessions() []view.Session {
	n.t.Helper()
	all, err := pages[view.Session](n.t.Context(), n.client, "/v1/sessions", nil, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// TestBackup takes a backup under load and makes a node from it.
func TestBackup(t *testing.T) {
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	ids := n.deliver(failure(1), quiet(2))
	n.settled(ids...)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for run := 100; ; run++ {
			select {
			case <-stop:
				return
			default:
				n.deliver(quiet(run))
			}
		}
	}()
	dir := n.path("copy")
	n.gatehouse(exitOK, "backup", dir)
	close(stop)
	<-done
	if out := n.gatehouse(exitFailed, "backup", dir); !strings.Contains(out, "exists") {
		t.Errorf("a backup over a backup: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "keys", "root.key")); err == nil {
		t.Error("the root key is in the backup")
	}
	sent := len(n.sessions())
	n.stop()

	// A node does not run on a backup: its log went on elsewhere.
	config, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write("gatehouse.yaml", string(config)+"state: copy\n")
	if out := n.gatehouse(exitFailed, "serve"); !strings.Contains(out, "is a backup") {
		t.Errorf("serve on a backup: %s", out)
	}
	// Nor is one restored over a node.
	n.write("gatehouse.yaml", string(config))
	if out := n.gatehouse(exitFailed, "backup", "restore", dir); !strings.Contains(out, "exists") {
		t.Errorf("restore over a node: %s", out)
	}

	oldRoot := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	stateCopied(n.path("lost"), n.path("state"))
	if err := os.Rename(n.path("state"), n.path("lost")); err != nil {
		t.Fatal(err)
	}
	out := n.gatehouse(exitOK, "backup", "restore", dir)
	for _, want := range []string{"new shard", "test.gatehouse.example/node-1/shard-2", oldRoot, "sleeper"} {
		if !strings.Contains(out, want) {
			t.Errorf("restore says nothing of %q:\n%s", want, out)
		}
	}
	root := strings.TrimSpace(n.gatehouse(exitOK, "receipts", "root"))
	if root == oldRoot {
		t.Error("the new shard has the old root")
	}
	n.start()
	again := n.deliver(failure(3))
	n.settled(again...)
	n.gatehouse(exitOK, "rebuild", "--check")
	n.gatehouse(exitOK, "receipts", "export", "-f", n.path("all.gh"))
	n.gatehouse(exitOK, "receipts", "export", "--session", n.sessions()[0].ID, "-f", n.path("one.gh"))
	n.gatehouse(int(receipts.ExitComplete), "receipts", "verify", n.path("one.gh"), "--root", root)
	n.stop()
	b, err := os.ReadFile(n.path("all.gh"))
	if err != nil {
		t.Fatal(err)
	}
	res := receipts.Verify(bytes.NewReader(b), receipts.Options{Root: root})
	if res.Exit != receipts.ExitUnproven && res.Exit != receipts.ExitAdmitted {
		t.Errorf("exit %d %s: %+v", res.Exit, res.Class, res.FirstBad)
	}
	var said bool
	var mode receipts.Mode
	for _, r := range n.controlOf() {
		said = said || r.Loss != nil && r.Loss.Cause == "restored" && r.Loss.First > 0 && !r.Loss.Head.IsZero()
		if r.Change != nil && r.Change.By == "restore" {
			mode = r.Change.To
		}
	}
	if !said || mode != receipts.Shadow {
		t.Errorf("the new log says restored: %v, bundle in mode %q", said, mode)
	}
	// The old shard lies beside it, as it was.
	old, err := readShard(n.path("state", "archive", "test.gatehouse.example_node-1"))
	if err != nil || old.root != oldRoot || old.size == 0 {
		t.Errorf("archive %+v, %v (%d sessions were sent)", old, err, sent)
	}
}

// TestRestoreRefusesDamage flips one bit of a backup.
func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	n.settled(n.deliver(quiet(1), quiet(2))...)
	n.gatehouse(exitOK, "backup", n.path("copy"))
	n.stop()
	stateCopied(n.path("lost"), n.path("state"))
	if err := os.Rename(n.path("state"), n.path("lost")); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(n.path("copy", "journal", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("workflow_run"))] ^= 1
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := n.gatehouse(exitFailed, "backup", "restore", n.path("copy")); !strings.Contains(out, "does not verify") {
		t.Errorf("restored from damage: %s", out)
	}
	if _, err := os.Stat(n.path("state", "keys")); err == nil {
		t.Error("keys were made for a backup that does not verify")
	}
}

// TestDrain: a node that is drained lets its session end by itself and loses no
// delivery; past the timeout the session is lost, and that is said.
func TestDrain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		sleep, timeout string
		exit           int
		reason         string
	}{
		"in_time": {"2", "2m", exitOK, "no_effect"},
		"late":    {"120", "200ms", exitNegative, "lost"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := newLiveNode(t, "", sleeper(c.sleep))
			n.start()
			n.deliver(failure(1))
			n.until("running", func() bool {
				all := n.sessions()
				return len(all) == 1 && all[0].State == "running"
			})
			n.gatehouse(c.exit, "drain", "--timeout", c.timeout)
			n.ended()
			if _, err := n.send(quiet(2)); err == nil {
				t.Error("a drained node still takes deliveries")
			}
			n.start()
			var all []view.Session
			// The view is late: it folds the stream after the node is ready.
			n.until("showing its session ended", func() bool { all = n.sessions(); return len(all) == 1 && all[0].State == "ended" })
			if all[0].State != "ended" || all[0].Reason != c.reason {
				t.Errorf("session %s %s, want ended %s", all[0].State, all[0].Reason, c.reason)
			}
			n.stop()
		})
	}
}

// TestRebuild loses the NATS store and makes it again: streams and views are the
// same, and no event starts anything a second time.
func TestRebuild(t *testing.T) {
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	ids := n.deliver(failure(1), quiet(2), quiet(3))
	n.settled(ids...)
	before := n.sessions()
	if out := n.gatehouse(exitFailed, "rebuild"); !strings.Contains(out, "in use") {
		t.Errorf("rebuild beside a running node: %s", out)
	}
	n.gatehouse(exitOK, "rebuild", "--check")
	n.stop()
	n.gatehouse(exitOK, "rebuild")
	n.start()
	n.settled(ids...)
	n.settled(n.deliver(quiet(4))...) // behind every event that came again
	n.gatehouse(exitOK, "rebuild", "--check")
	if after := n.sessions(); len(after) != len(before)+1 {
		t.Errorf("%d sessions before, %d after one more delivery", len(before), len(after))
	}
	n.stop()
}

// TestForeignStream: somebody else wrote to the node's subjects. The node stops,
// says so in its control chain, once, and is well after a rebuild.
func TestForeignStream(t *testing.T) {
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	n.settled(n.deliver(quiet(1))...)
	n.stop()
	other := tempDir(t) // another node of the same name, with another log
	keys, err := notary.NewKeys("mallory.example/node-1")
	if err != nil {
		t.Fatal(err)
	}
	foreign := notary.New(notary.Options{Node: "node-1", Keys: keys})
	j, err := journal.Open(filepath.Join(other, "journal"), journal.Options{Seal: foreign.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.path("state", "nats")); err != nil {
		t.Fatal(err)
	}
	b, err := bus.Open(t.Context(), bus.Options{Node: "node-1", Dir: n.path("state", "nats")})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(filepath.Join(other, "journal"), journal.Options{PrivateKey: keys.NodeKey().Reveal()}); err != nil {
		t.Fatal(err)
	}
	pumped := make(chan error, 1)
	go func() { pumped <- b.Pump(t.Context(), j, encode) }()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-pumped; err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out := n.gatehouse(exitFailed, "serve"); !strings.Contains(out, "stream_fenced") && !strings.Contains(out, "holds what this node's journal does not") {
			t.Errorf("serve beside a foreign log: %s", out)
		}
	}
	losses := 0
	for _, r := range n.controlOf() {
		if r.Loss != nil {
			losses++
		}
	}
	if losses != 1 {
		t.Errorf("%d losses stated, want 1", losses)
	}
	n.gatehouse(exitOK, "rebuild")
	n.start()
	n.settled(n.deliver(quiet(2))...)
	n.gatehouse(exitOK, "rebuild", "--check")
	n.stop()
}
