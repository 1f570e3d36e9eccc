//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/api"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// twoNodes is two nodes that share NATS servers and one consumer, and what was
// delivered to them.
type twoNodes struct {
	t     *testing.T
	nodes []*liveNode
	keys  []*notary.Keys
	run   int
	want  map[string]string // event -> how it must be judged, once
}

func newTwoNodes(t *testing.T) *twoNodes {
	t.Helper()
	return newTwoNodesOn(t, nodeDir(t), nodeDir(t))
}

func newTwoNodesOn(t *testing.T, dirs ...string) *twoNodes {
	t.Helper()
	const quietAgent = `apiVersion: gatehouse/v1
kind: Bundle
name: work
mode: shadow
accepts: outsider
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session: {agent: {command: {argv: [/bin/sh, -c, "echo done > /gatehouse/out/result.md"]}}, task: go}
`
	nats := newNATS(t)
	shared := fmt.Sprintf("nats: {url: %q, creds: %q}\n", "nats://"+nats.addr, nats.node)
	w := &twoNodes{t: t, keys: make([]*notary.Keys, 2), want: map[string]string{}}
	for i := range 2 {
		peer := fmt.Sprintf("nodes: [{keyset: peer.note, root: %q}]\n", "${PEER}")
		w.nodes = append(w.nodes, newNamedNode(t, dirs[i], fmt.Sprintf("node-%d", i+1), shared+peer, quietAgent))
	}
	for i, n := range w.nodes {
		var err error
		if w.keys[i], err = notary.LoadKeys(n.path("state", "keys")); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range w.nodes {
		other := w.keys[1-i]
		n.write("peer.note", string(other.Note()))
		b, err := os.ReadFile(n.path("gatehouse.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		n.write("gatehouse.yaml", string(bytes.Replace(b, []byte("${PEER}"), []byte(other.RootFingerprint()), 1)))
		n.start()
	}
	return w
}

// deliver sends one delivery to a node, every other one of a kind that starts a
// session.
func (w *twoNodes) deliver(node int) {
	w.t.Helper()
	w.run++
	p, want := quiet(w.run), "refused no_match"
	if w.run%2 == 1 {
		p, want = failure(w.run), "admitted "
	}
	w.want[w.nodes[node].deliver(p)[0]] = want
}

// settled waits until each of these nodes sees the whole of both.
func (w *twoNodes) settled(nodes ...int) {
	w.t.Helper()
	for _, i := range nodes {
		w.nodes[i].settled(slices.Collect(maps.Keys(w.want))...)
	}
}

// TestTwoNodes is M-27: two nodes share NATS servers and one consumer. Whoever
// takes an event from the stream, it is judged once, on one node, whichever node
// it came to; and each node's log verifies by itself.
func TestTwoNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("short: nats-server and two nodes")
	}
	w := newTwoNodes(t)
	for run := range 12 {
		w.deliver(run % 4 / 2)
	}
	w.settled(0, 1)
	// Each node's archive and what the other one sealed are all there is.
	for _, n := range w.nodes {
		var got api.Checked
		if err := json.Unmarshal([]byte(n.gatehouse(exitOK, "rebuild", "--check", "-o", "json")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Others == 0 || got.Others >= got.Messages || got.Events != len(w.want) {
			t.Errorf("%+v", got)
		}
	}
	w.verify()
}

// TestTamperTwoNodes stops one of two nodes for a while, with events of the
// shared consumer in its hands (RC-42): the other one goes on, and when the
// first wakes up nothing is judged twice, no log forks and none has a gap.
func TestTamperTwoNodes(t *testing.T) {
	t.Run("RC-42_paused_beside_another", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: nats-server and two nodes")
		}
		w := newTwoNodes(t)
		for run := range 8 {
			w.deliver(run % 2)
		}
		paused := w.nodes[0].cmd.Process // in the middle of its work
		if err := paused.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = paused.Signal(syscall.SIGCONT) })
		for range 6 {
			w.deliver(1)
		}
		if err := paused.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for run := range 4 {
			w.deliver(run % 2)
		}
		w.settled(0, 1)
		w.verify()
	})
}

// TestTamperTwoNodesDisk fills the disk of one of two nodes (RC-43): the other
// one takes its deliveries and judges them, and when there is space again nothing
// was judged twice, no log forks and none has a gap.
func TestTamperTwoNodesDisk(t *testing.T) {
	t.Run("RC-43_disk_full_beside_another", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: nats-server and two nodes")
		}
		w := newTwoNodesOn(t, smallDisk(t), nodeDir(t))
		for run := range 4 {
			w.deliver(run % 2)
		}
		w.settled(0, 1)
		full := w.nodes[0]
		free := full.fill()
		// The journal has some space of its own that it had allocated.
		refusals := 0
		for run := 1000; refusals < 3 && run < 100_000; run++ {
			p := padded(quiet(run), 128<<10)
			a, err := full.send(p)
			switch {
			case err != nil:
				t.Fatal(err)
			case a.Status == http.StatusOK:
				w.want[a.ID] = "refused no_match"
			case a.Status == http.StatusServiceUnavailable:
				refusals++
			case a.Status == http.StatusTooManyRequests:
				time.Sleep(20 * time.Millisecond) // the endpoint's rate
			default:
				t.Fatalf("answered %d %s", a.Status, a.Code)
			}
		}
		if refusals < 3 {
			t.Fatal("the disk never filled")
		}
		for range 6 {
			w.deliver(1)
		}
		w.nodes[1].until("the other node takes what comes to it", func() bool { s := w.nodes[1].status(); return s.Ready })
		free()
		full.until("ready again", func() bool { return full.status().Ready })
		for run := range 4 {
			w.deliver(run % 2)
		}
		w.settled(0, 1)
		w.verify()
	})
}

// verify stops the nodes and reads their journals.
func (w *twoNodes) verify() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.stop()
	}
	judged := map[string][]string{} // event -> node and state
	for i, n := range w.nodes {
		log := notary.New(notary.Options{Node: fmt.Sprintf("node-%d", i+1), Keys: w.keys[i]})
		j, err := journal.Open(n.path("state", "journal"), journal.Options{Seal: log.Seal, PrivateKey: w.keys[i].NodeKey().Reveal()})
		if err != nil {
			w.t.Fatal(err)
		}
		defer j.Close()
		if err := log.Start(w.t.Context(), j); err != nil {
			w.t.Fatal(err)
		}
		for group, err := range j.Groups(0) {
			if err != nil {
				w.t.Fatal(err)
			}
			for _, rec := range group {
				if rec.Kind != journal.KindReceipt {
					continue
				}
				r, err := receipts.Decode(rec.Data)
				if err != nil {
					w.t.Fatal(err)
				}
				if r.Type == receipts.TypeSessionOpen {
					judged[r.Open.Event] = append(judged[r.Open.Event], fmt.Sprintf("node-%d %s %s", i+1, r.Open.State, r.Open.Code))
				}
			}
		}
		var file bytes.Buffer
		if err := log.Export(w.t.Context(), &file, notary.Filter{}); err != nil {
			w.t.Fatal(err)
		}
		if res := receipts.Verify(&file, receipts.Options{Root: w.keys[i].RootFingerprint(), Checkpoint: log.Head()}); res.Exit != receipts.ExitComplete {
			w.t.Errorf("node-%d: exit %d %s: %+v", i+1, res.Exit, res.Class, res.FirstBad)
		}
	}
	for id, says := range w.want {
		if got := judged[id]; len(got) != 1 || got[0][len("node-1 "):] != says {
			w.t.Errorf("event %s was judged %q, want once %q", id, got, says)
		}
	}
	if len(judged) != len(w.want) {
		w.t.Errorf("%d events judged, %d delivered: %v", len(judged), len(w.want), judged)
	}
}
