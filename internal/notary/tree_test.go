package notary

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/receipts"
)

// The tree over a journal agrees with one that keeps every hash, for roots and
// proofs of every kind, in chunks that are in memory and chunks that are not.
func TestTreeAgainstFull(t *testing.T) {
	keys, err := NewKeys("gatehouse.example/tree")
	if err != nil {
		t.Fatal(err)
	}
	n := New(Options{Node: "n", Keys: keys})
	j, err := journal.Open("journal", journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: &faultfs.FS{}, SegmentBytes: 64 << 10, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // a test
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	const leaves = 5*chunkLeaves + 77
	var last journal.Ticket
	for i := range leaves {
		last = j.Append(journal.Record{Kind: journal.KindEvent, Subject: "e", Data: binary.BigEndian.AppendUint64(nil, uint64(i))})
	}
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	full := &receipts.Tree{}
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		g, err := openGroup(group)
		if err != nil {
			t.Fatal(err)
		}
		full.Append(g.leaves...)
	}
	if full.Size() != n.Size() {
		t.Fatalf("%d leaves, want %d", n.Size(), full.Size())
	}
	v := n.tree.view(j)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(1, full.Size()).Draw(t, "size")
		index := rapid.Uint64Range(0, size-1).Draw(t, "index")
		root, err := v.root(size)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := full.Root(size); err != nil || root != want {
			t.Fatalf("root of %d differs: %v", size, err)
		}
		p, err := v.proof(index, size)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := v.hash(0, int64(index))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(size, root, receipts.Hash(leaf)); err != nil {
			t.Fatal(err)
		}
		old := index + 1
		oldRoot, err := v.root(old)
		if err != nil {
			t.Fatal(err)
		}
		path, err := v.consistency(old, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := receipts.CheckConsistency(path, size, root, old, oldRoot); err != nil {
			t.Fatal(err)
		}
	})
	for _, x := range []int64{tlog.StoredHashIndex(0, leaves+100), tlog.StoredHashIndex(12, 0), tlog.StoredHashIndex(3, leaves)} {
		if _, err := v.ReadHashes([]int64{x}); err == nil {
			t.Errorf("the tree has a hash %d of leaves it does not have", x)
		}
	}
}

// The type that Encode puts into a header is the payload's, whatever the payload
// holds.
func TestTypeOf(t *testing.T) {
	var h receipts.Hash
	h[0] = 1
	obs := &receipts.Obs{Point: "p", Kind: "k", Mediation: "sole"}
	for name, r := range map[string]receipts.Receipt{
		"facts named type": {Type: receipts.TypeSessionOpen, Obs: obs, Open: &receipts.Open{
			State: "admitted", Keyset: h, Facts: map[string]string{"t": "x", "type": `outcome","type":"loss`}, Text: `,"type":"loss"`}},
		"extension": {Type: receipts.TypeHeartbeat, Beat: &receipts.Heartbeat{}, Seq: 1,
			X: map[string]string{"a.type": `,"type":"loss"`, "z.z": "y"}},
		"scope": {Type: receipts.TypeCredentialIssue, Seq: 1, Cred: &receipts.Credential{
			Name: "c", Delivery: "mediated", Result: "issued", Scope: map[string]string{"type": "loss"}}},
		"argument": {Type: receipts.TypeDecision, Seq: 1, Obs: obs,
			Act: &receipts.Act{ID: "a", Kind: "dns.query", Units: map[string]uint64{"type": 1}},
			Dec: &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Hard}},
	} {
		r.V, r.Log, r.Session, r.Epoch, r.Prev, r.T = 1, "o", "s", 1, h, time.Unix(1, 0)
		b, err := r.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := typeOf(b); got != string(r.Type) {
			t.Errorf("%s: type %q, want %q in %s", name, got, r.Type, b)
		}
	}
	for _, b := range []string{"", "{}", `{"a":1,"type":"x`} {
		if got := typeOf([]byte(b)); got != "" {
			t.Errorf("type of %q is %q", b, got)
		}
	}
}

// What was sealed does not keep its chain, which holds a key, in memory.
func TestSealKeepsNoChain(t *testing.T) {
	keys, err := NewKeys("gatehouse.example/seal")
	if err != nil {
		t.Fatal(err)
	}
	n := New(Options{Node: "n", Keys: keys})
	j, err := journal.Open("journal", journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: &faultfs.FS{}, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // a test
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Open(t.Context(), "S1", receipts.Open{State: "admitted"}, receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Mediation: "sole"}); err != nil {
		t.Fatal(err)
	}
	if held := n.flights[:cap(n.flights)]; len(held) == 0 || slices.ContainsFunc(held, func(f *flight) bool { return f != nil }) {
		t.Errorf("after a group: %v", held)
	}
}
