//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestTwoNodes is M-27: two nodes share NATS servers and one consumer. Whoever
// takes an event from the stream, it is judged once, on one node, whichever node
// it came to; and each node's log verifies by itself.
func TestTwoNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("short: nats-server and two nodes")
	}
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
	var nodes []*liveNode
	for i := range 2 {
		peer := fmt.Sprintf("nodes: [{keyset: peer.note, root: %q}]\n", "${PEER}")
		nodes = append(nodes, newNamedNode(t, nodeDir(t), fmt.Sprintf("node-%d", i+1), shared+peer, quietAgent))
	}
	keys := make([]*notary.Keys, 2)
	for i, n := range nodes {
		var err error
		if keys[i], err = notary.LoadKeys(n.path("state", "keys")); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range nodes {
		other := keys[1-i]
		n.write("peer.note", string(other.Note()))
		b, err := os.ReadFile(n.path("gatehouse.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		n.write("gatehouse.yaml", string(bytes.Replace(b, []byte("${PEER}"), []byte(other.RootFingerprint()), 1)))
		n.start()
	}

	var all, starts []string
	for run := range 12 {
		p := quiet(run + 1)
		if run%2 == 0 {
			p = failure(run + 1)
		}
		id := nodes[run%4/2].deliver(p)[0]
		if all = append(all, id); run%2 == 0 {
			starts = append(starts, id)
		}
	}
	for _, n := range nodes { // each sees the whole of both
		n.settled(all...)
	}
	for _, n := range nodes {
		n.stop()
	}

	judged := map[string][]string{} // event -> node and state
	for i, n := range nodes {
		log := notary.New(notary.Options{Node: fmt.Sprintf("node-%d", i+1), Keys: keys[i]})
		j, err := journal.Open(n.path("state", "journal"), journal.Options{Seal: log.Seal, PrivateKey: keys[i].NodeKey().Reveal()})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if err := log.Start(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		for group, err := range j.Groups(0) {
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range group {
				if rec.Kind != journal.KindReceipt {
					continue
				}
				r, err := receipts.Decode(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				if r.Type == receipts.TypeSessionOpen {
					judged[r.Open.Event] = append(judged[r.Open.Event], fmt.Sprintf("node-%d %s %s", i+1, r.Open.State, r.Open.Code))
				}
			}
		}
		var file bytes.Buffer
		if err := log.Export(t.Context(), &file, notary.Filter{}); err != nil {
			t.Fatal(err)
		}
		if res := receipts.Verify(&file, receipts.Options{Root: keys[i].RootFingerprint(), Checkpoint: log.Head()}); res.Exit != receipts.ExitComplete {
			t.Errorf("node-%d: exit %d %s: %+v", i+1, res.Exit, res.Class, res.FirstBad)
		}
	}
	want := map[string]string{}
	for _, id := range all {
		want[id] = "refused no_match"
	}
	for _, id := range starts {
		want[id] = "admitted "
	}
	for id, says := range want {
		if got := judged[id]; len(got) != 1 || got[0][len("node-1 "):] != says {
			t.Errorf("event %s was judged %q, want once %q", id, got, says)
		}
	}
	if len(judged) != len(all) {
		t.Errorf("%d events judged, %d delivered: %v", len(judged), len(all), judged)
	}
}
