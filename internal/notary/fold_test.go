package notary

import (
	"bytes"
	"context"
	"testing"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// forger writes a log by hand with the node's own keys: what a bug or a thief of
// the seal key could write.
type forger struct {
	t    *testing.T
	n    *Notary
	j    *journal.Journal
	disk *faultfs.FS
	size uint64
	prev receipts.Hash
}

func newForger(t *testing.T, keys *Keys) *forger {
	t.Helper()
	f := &forger{t: t, n: New(Options{Node: "n", Keys: keys}), disk: &faultfs.FS{}}
	var err error
	f.j, err = journal.Open("journal", journal.Options{PrivateKey: keys.NodeKey().Reveal(), FS: f.disk, ReserveBytes: -1, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.j.Close() })
	return f
}

// group seals and writes records as one group.
func (f *forger) group(recs ...journal.Record) {
	f.t.Helper()
	var leaves []receipts.Hash
	for _, r := range recs {
		if r.Kind == journal.KindReceipt || r.Kind == journal.KindEvent {
			leaves = append(leaves, receipts.Leaf(r.Data))
		}
	}
	s, err := receipts.SealGroup(f.n.o.Keys.seal, f.n.sealID, f.n.origin, f.size, f.prev, leaves)
	if err != nil {
		f.t.Fatal(err)
	}
	f.size, f.prev = f.size+uint64(len(leaves)), s.Hash()
	f.raw(append(recs, journal.Record{Kind: journal.KindSeal, Subject: "gatehouse.v1.log.n", Data: s.Encode()})...)
}

func (f *forger) raw(recs ...journal.Record) {
	f.t.Helper()
	if _, err := f.j.Append(recs...).Wait(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *forger) key(session string) journal.Record {
	return journal.Record{Kind: journal.KindPrivate, Subject: "notary.key." + session, Data: make([]byte, 32)}
}

// receipt is a heartbeat, or a session.open when seq is 0.
func (f *forger) receipt(session string, seq uint64, prev receipts.Hash, change func(*receipts.Receipt)) journal.Record {
	f.t.Helper()
	r := receipts.Receipt{
		V: 1, Log: f.n.origin, Session: session, Seq: seq, Prev: prev, Epoch: 1, T: time.Unix(1e9, 0),
		Type: receipts.TypeSessionState, State: &receipts.State{To: "running"},
	}
	if seq == 0 {
		r.Type, r.State = receipts.TypeSessionOpen, nil
		r.Open = &receipts.Open{State: "admitted", Keyset: f.n.keyset}
		r.Obs = &receipts.Obs{Point: "p", Kind: "k", Mediation: "sole"}
	}
	if change != nil {
		change(&r)
	}
	b, err := r.Encode()
	if err != nil {
		f.t.Fatal(err)
	}
	return journal.Record{Kind: journal.KindReceipt, Subject: "gatehouse.v1.sessions." + session, Data: b}
}

func TestFoldRefuses(t *testing.T) {
	keys, err := NewKeys("gatehouse.example/fold")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		write func(f *forger, first journal.Record, leaf receipts.Hash)
		code  problem.Code // "" = starts
	}{
		"nothing wrong": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.group(f.receipt("S", 1, leaf, nil))
		}, ""},
		"wrong prev": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.group(f.receipt("S", 1, receipts.Hash{9}, nil))
		}, problem.LogInconsistent},
		"wrong seq": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.group(f.receipt("S", 2, leaf, nil))
		}, problem.LogInconsistent},
		"another log": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.group(f.receipt("S", 1, leaf, func(r *receipts.Receipt) { r.Log = "gatehouse.example/other" }))
		}, problem.LogInconsistent},
		"another session's subject": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			r := f.receipt("S", 1, leaf, nil)
			r.Subject = "gatehouse.v1.sessions.T"
			f.group(r)
		}, problem.LogInconsistent},
		"another genesis": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.group(f.key("T"), f.receipt("T", 0, receipts.Genesis(f.n.origin, "S", f.n.keyset), nil))
		}, problem.LogInconsistent},
		"opened twice": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.group(f.key("S"), f.receipt("S", 0, receipts.Genesis(f.n.origin, "S", f.n.keyset), func(r *receipts.Receipt) { r.Mono = 5 }))
		}, problem.LogInconsistent},
		"never opened": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.group(f.receipt("T", 1, leaf, nil))
		}, problem.LogInconsistent},
		"RC-12_after_close": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			end := f.receipt("S", 1, leaf, func(r *receipts.Receipt) {
				r.Type, r.State, r.Close = receipts.TypeSessionClose, nil, &receipts.Close{Reason: "completed", Count: 2}
			})
			f.group(end)
			f.group(f.receipt("S", 2, receipts.Leaf(end.Data), nil))
		}, problem.LogInconsistent},
		"RC-22_not_canonical": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			r := f.receipt("S", 1, leaf, nil)
			r.Data = append(r.Data, ' ')
			f.group(r)
		}, problem.LogInconsistent},
		"a commitment key of the wrong size": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.raw(journal.Record{Kind: journal.KindPrivate, Subject: "notary.key.T", Data: []byte("short")})
		}, problem.LogInconsistent},
		"two seals in a group": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			s, err := receipts.SealGroup(f.n.o.Keys.seal, f.n.sealID, f.n.origin, f.size, f.prev, []receipts.Hash{leaf})
			if err != nil {
				f.t.Fatal(err)
			}
			f.group(f.receipt("S", 1, leaf, nil), journal.Record{Kind: journal.KindSeal, Data: s.Encode()})
		}, problem.LogInconsistent},
		"RC-14_another_previous_seal": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.prev = receipts.Hash{7}
			f.group(f.receipt("S", 1, leaf, nil))
		}, problem.LogInconsistent},
		"RC-20_index_skipped": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.size++
			f.group(f.receipt("S", 1, leaf, nil))
		}, problem.LogInconsistent},
		"RC-21_another_origin": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			f.n.origin = "gatehouse.example/other"
			f.group(f.receipt("S", 1, leaf, func(r *receipts.Receipt) { r.Log = keys.Origin() }))
		}, problem.LogInconsistent},
		"RC-10_another_seal_key": {func(f *forger, _ journal.Record, leaf receipts.Hash) {
			other, err := NewKeys("gatehouse.example/fold")
			if err != nil {
				f.t.Fatal(err)
			}
			f.n.o.Keys = other
			f.group(f.receipt("S", 1, leaf, nil))
		}, problem.KeysInvalid},
		"a checkpoint of another tree": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.checkpoint(keys, 1, receipts.Hash{1})
		}, problem.LogInconsistent},
		"RC-16_a_checkpoint_of_a_larger_log": {func(f *forger, _ journal.Record, _ receipts.Hash) {
			f.checkpoint(keys, 99, receipts.Hash{1})
		}, problem.LogInconsistent},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newForger(t, keys)
			first := f.receipt("S", 0, receipts.Genesis(f.n.origin, "S", f.n.keyset), nil)
			f.group(f.key("S"), first)
			c.write(f, first, receipts.Leaf(first.Data))
			if err := f.j.Close(); err != nil {
				t.Fatal(err)
			}
			n := New(Options{Node: "n", Keys: keys})
			j, err := journal.Open("journal", journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: f.disk, ReserveBytes: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close() //nolint:errcheck // the start is what counts
			err = n.Start(t.Context(), j)
			if c.code == "" && err == nil {
				return
			}
			if err == nil || problem.CodeOf(err) != c.code {
				t.Fatalf("start: %v, want %q", err, c.code)
			}
		})
	}
}

func (f *forger) checkpoint(keys *Keys, size uint64, root receipts.Hash) {
	f.t.Helper()
	note, err := receipts.SignCheckpoint(keys.checkpoint, receipts.Checkpoint{Origin: f.n.origin, Size: size, Root: root, Time: time.Unix(1e9, 0)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.raw(journal.Record{Kind: journal.KindCheckpoint, Subject: "gatehouse.v1.log.n", Data: note})
}

// A manifest states the sessions that are open and those that were closed since
// the one before, and nothing that came after its own size.
func TestStatedHeads(t *testing.T) {
	keys, err := NewKeys("gatehouse.example/heads")
	if err != nil {
		t.Fatal(err)
	}
	disk := &faultfs.FS{}
	begin := func() (*Notary, *journal.Journal) {
		n := New(Options{Node: "n", Keys: keys})
		j, err := journal.Open("journal", journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: disk, ReserveBytes: -1, SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		return n, j
	}
	heads := func(n *Notary) (out string) {
		e, err := n.checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range e.heads {
			out += h.Session
			if h.Closed {
				out += "!"
			}
		}
		if int(e.doc.Tree) != len(e.heads) {
			t.Fatalf("%d heads, the manifest says %d", len(e.heads), e.doc.Tree)
		}
		return out
	}
	n, j := begin()
	obs := receipts.Obs{Point: "p", Kind: "k", Mediation: "sole"}
	open := func(s string) *Chain {
		c, err := n.Open(t.Context(), s, receipts.Open{State: "admitted"}, obs)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := open("A")
	if got := heads(n); got != "A" {
		t.Fatalf("heads %q, want A", got)
	}
	if _, err := a.Close(t.Context(), receipts.Close{Reason: "completed"}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	n, j = begin() // closed before the restart, and no manifest has said so
	if got := heads(n); got != "A!" {
		t.Fatalf("heads %q, want A closed", got)
	}
	if got := heads(n); got != "" {
		t.Fatalf("heads %q, want none", got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	n, j = begin()
	defer j.Close() //nolint:errcheck // a test
	if got := heads(n); got != "" {
		t.Fatalf("heads %q after a restart, want none", got)
	}
	// Closed between the moment a manifest speaks of and its own leaf.
	n.heads["B"] = headAt{receipts.Head{Session: "B", Closed: true}, 100}
	n.stated(100)
	if _, ok := n.heads["B"]; !ok {
		t.Fatal("a head was dropped that no manifest has stated")
	}
	n.stated(101)
	if _, ok := n.heads["B"]; ok {
		t.Fatal("a head was kept that a manifest has stated")
	}

	// A snapshot leaves out a chain whose session.open has no place yet.
	n.chains["C"] = n.chain("C", "gatehouse.v1.sessions.C")
	s, err := n.capture(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Chains) != 1 {
		t.Fatalf("%d chains in the snapshot", len(s.Chains))
	}
	if _, err := decodeState([]byte("not a state")); err == nil {
		t.Fatal("decoded garbage")
	}
	if bytes.Equal(n.Head(), nil) {
		t.Fatal("no head")
	}
}
