package notary_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"gatehouse/enforcers"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// groups returns the durable groups of a node's journal.
func (n *node) groups() (out [][]journal.Record) {
	n.t.Helper()
	for group, err := range n.j.Groups(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		out = append(out, group)
	}
	return out
}

// rewrite is a disk whose journal holds exactly these groups.
func rewrite(t testing.TB, groups [][]journal.Record) *faultfs.FS {
	t.Helper()
	disk := &faultfs.FS{}
	j, err := journal.Open("journal", journal.Options{
		FS: disk, PrivateKey: testKeys().NodeKey().Reveal(), MaxGroup: 4096, SegmentBytes: 64 << 10, ReserveBytes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if _, err := j.Append(slices.Clone(g)...).Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

// story is a log with everything in it: events, sessions in all states, a
// snapshot, a checkpoint.
func story(t testing.TB) *node {
	t.Helper()
	n, _ := fresh(t)
	n.event("one")
	a := n.open("A")
	x := decide(t, a, 1)
	b := n.open("B")
	forwarded(a, x)
	y := decide(t, b, 1)
	decide(t, a, 2)
	if _, err := n.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.event("two")
	forwarded(b, y)
	closeChain(t, b, "completed")
	if err := n.Snapshot(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := n.open("C")
	if _, err := c.Append(context.Background(), receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{From: "admitted", To: "running"}}); err != nil {
		t.Fatal(err)
	}
	decide(t, c, 1)
	if _, err := n.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	closeChain(t, c, "failed")
	return n
}

// The journal cut at every group boundary: what remains is a consistent state,
// its open decisions get outcome unknown once, and its chains verify.
func TestCutAtEveryGroup(t *testing.T) {
	groups := story(t).groups()
	if len(groups) < 15 {
		t.Fatalf("%d groups", len(groups))
	}
	for k := range len(groups) + 1 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			open, pending, leaves := map[string]bool{}, 0, uint64(0)
			for _, g := range groups[:k] {
				for _, r := range g {
					if r.Kind == journal.KindEvent || r.Kind == journal.KindReceipt {
						leaves++
					}
					if r.Kind != journal.KindReceipt {
						continue
					}
					rec, err := receipts.Decode(r.Data)
					if err != nil {
						t.Fatal(err)
					}
					switch rec.Type {
					case receipts.TypeSessionOpen:
						open[rec.Session] = true
					case receipts.TypeSessionClose:
						delete(open, rec.Session)
					case receipts.TypeDecision:
						pending++
					case receipts.TypeOutcome:
						pending--
					}
				}
			}
			c := newClock()
			c.Add(10 * time.Second)
			n := start(t, rewrite(t, groups[:k]), "journal", c)
			began := uint64(pending)
			if k == 0 {
				began = 2 // the keys
			}
			if n.Size() != leaves+began {
				t.Fatalf("log size %d, want %d and %d written at start", n.Size(), leaves, began)
			}
			for _, s := range n.Sessions() {
				if !open[s.Session] || s.Pending != 0 {
					t.Fatalf("session %+v", s)
				}
				delete(open, s.Session)
			}
			if len(open) > 0 {
				t.Fatalf("sessions forgotten: %v", open)
			}
			exit, class := receipts.ExitComplete, receipts.ClassComplete
			if pending > 0 || k > 0 && strings.Contains(fmt.Sprint(unknowns(n)), "unknown") {
				exit, class = receipts.ExitAdmitted, receipts.ClassUnmatched
			}
			r := n.verify(n.export(notary.Filter{Events: true}), receipts.Options{Checkpoint: n.Head()})
			want(t, r, exit, class)
			// A second restart has nothing left to say.
			size := n.Size()
			n = n.again()
			if n.Size() != size {
				t.Fatalf("a second start wrote %d receipts", n.Size()-size)
			}
			for _, s := range n.Sessions() {
				c, err := n.Resume(s.Session)
				if err != nil {
					t.Fatal(err)
				}
				forwarded(c, decide(t, c, 50))
				closeChain(t, c, "lost")
			}
			want(t, n.verify(n.export(notary.Filter{Events: true}), receipts.Options{Checkpoint: n.Head()}), exit, class)
		})
	}
}

func unknowns(n *node) (out []string) {
	for _, s := range []string{"A", "B", "C"} {
		out = append(out, types(n.chainOf(s))...)
	}
	return out
}

// A start from a snapshot and a fold of everything give the same state.
func TestSnapshotEqualsFold(t *testing.T) {
	n := story(t)
	for i := range uint64(300) { // more than one chunk of the tree
		c, err := n.Resume("A")
		if err != nil {
			t.Fatal(err)
		}
		forwarded(c, decide(t, c, 100+i))
		if i == 200 {
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := n.Checkpoint(t.Context()); err != nil { // what is covered may be trimmed
		t.Fatal(err)
	}
	n.event("behind the last outcome")
	var without [][]journal.Record
	for _, g := range n.groups() {
		var kept []journal.Record
		for _, r := range g {
			if r.Kind == journal.KindSnapshot { // the same positions, and nothing to start from
				r.Kind = journal.KindPrivate
			}
			kept = append(kept, r)
		}
		without = append(without, kept)
	}
	if pos, ok := n.j.Snapshot("notary"); !ok || n.Needed() == 0 || n.Needed() > pos {
		t.Fatalf("snapshot at %d %v, needed from %d", pos, ok, n.Needed())
	}
	quick := n.again()
	full := start(t, rewrite(t, without), "journal", n.clock)
	if d := cmp.Diff(full.Sessions(), quick.Sessions()); d != "" {
		t.Fatal(d)
	}
	if full.Size() != quick.Size() || !bytes.Equal(full.Head(), quick.Head()) || full.Needed() != 0 || quick.Needed() == 0 {
		t.Fatalf("size %d and %d, needed %d and %d", full.Size(), quick.Size(), full.Needed(), quick.Needed())
	}
	for _, n := range []*node{full, quick} {
		c, err := n.Resume("A")
		if err != nil {
			t.Fatal(err)
		}
		closeChain(t, c, "completed")
		want(t, n.verify(n.export(notary.Filter{Events: true}), receipts.Options{Checkpoint: n.Head()}), receipts.ExitAdmitted, receipts.ClassUnmatched)
	}
	a, b := full.chainOf("A"), quick.chainOf("A")
	if d := cmp.Diff(a[len(a)-1].Close, b[len(b)-1].Close); d != "" {
		t.Fatal(d)
	}

	t.Run("trimmed", func(t *testing.T) {
		quick := quick.again()
		if err := quick.j.Trim(quick.Needed()); err != nil {
			t.Fatal(err)
		}
		if quick.groups()[0][0].Pos == 1 {
			t.Fatal("nothing was trimmed")
		}
		quick = quick.again()
		c := quick.open("D")
		closeChain(t, c, "no_effect")
		want(t, quick.verify(quick.export(notary.Filter{Sessions: []string{"D"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	})
}

// The whole journal can be rewritten by whoever owns the disk; what then does
// not fit the keys, the chains or the seals refuses to start.
func TestRefusesAnotherLog(t *testing.T) {
	groups := story(t).groups()
	copyOf := func() [][]journal.Record {
		out := make([][]journal.Record, len(groups))
		for i, g := range groups {
			for _, r := range g {
				r.Data = bytes.Clone(r.Data)
				out[i] = append(out[i], r)
			}
		}
		return out
	}
	find := func(gs [][]journal.Record, kind journal.Kind, contains string) (int, int) {
		for i, g := range gs {
			for k, r := range g {
				if r.Kind == kind && bytes.Contains(r.Data, []byte(contains)) {
					return i, k
				}
			}
		}
		t.Fatalf("no record of kind %d with %q", kind, contains)
		return 0, 0
	}
	cases := map[string]struct {
		damage func(gs [][]journal.Record) [][]journal.Record
		code   problem.Code
	}{
		"RC-01_payload": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindReceipt, "packages.example.com")
			gs[i][k].Data = bytes.Replace(gs[i][k].Data, []byte("packages"), []byte("packagez"), 1)
			return gs
		}, problem.LogInconsistent},
		"an event": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindEvent, "one")
			gs[i][k].Data = []byte(`{"id":"two"}`)
			return gs
		}, problem.LogInconsistent},
		"RC-03_group_removed": {func(gs [][]journal.Record) [][]journal.Record {
			i, _ := find(gs, journal.KindReceipt, `"type":"outcome"`)
			return append(gs[:i:i], gs[i+1:]...)
		}, problem.LogInconsistent},
		"RC-08_groups_swapped": {func(gs [][]journal.Record) [][]journal.Record {
			i, _ := find(gs, journal.KindReceipt, `"type":"outcome"`)
			gs[i], gs[i-1] = gs[i-1], gs[i]
			return gs
		}, problem.LogInconsistent},
		"a seal is missing": {func(gs [][]journal.Record) [][]journal.Record {
			gs[2] = gs[2][:len(gs[2])-1]
			return gs
		}, problem.LogInconsistent},
		"a commitment key is missing": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindReceipt, `"type":"session.open"`)
			gs[i] = append(gs[i][:k-1:k-1], gs[i][k:]...)
			return gs
		}, problem.LogInconsistent},
		"another checkpoint": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindCheckpoint, "")
			last := gs[i][k].Data
			for i := range gs {
				for k := range gs[i] {
					if gs[i][k].Kind == journal.KindCheckpoint {
						gs[i][k].Data = bytes.Replace(last, []byte("\n"), []byte("x\n"), 1)
					}
				}
			}
			return gs
		}, problem.LogInconsistent},
		"the state of the snapshot is gone": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindSnapshot, "")
			gs[i] = gs[i][k:]
			return gs
		}, problem.LogInconsistent},
		"the state of the snapshot is another": {func(gs [][]journal.Record) [][]journal.Record {
			i, k := find(gs, journal.KindSnapshot, "")
			gs[i][k-1].Data = []byte("garbage")
			return gs
		}, problem.LogInconsistent},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			gs := copyOf()
			if !strings.Contains(name, "snapshot") { // else the start does not read it
				for i := range gs {
					for k := range gs[i] {
						if gs[i][k].Kind == journal.KindSnapshot {
							gs[i][k].Kind = journal.KindPrivate
						}
					}
				}
			}
			if _, err := tryStart(t, rewrite(t, c.damage(gs)), "journal", newClock()); problem.CodeOf(err) != c.code {
				t.Fatalf("start: %v, want %s", err, c.code)
			}
		})
	}
	t.Run("RC-10_other_keys", func(t *testing.T) {
		other, err := notary.NewKeys(origin)
		if err != nil {
			t.Fatal(err)
		}
		n := notary.New(notary.Options{Node: "node-1", Keys: other})
		j, err := journal.Open("journal", journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: rewrite(t, groups)})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close() //nolint:errcheck // the start is what counts
		if err := n.Start(t.Context(), j); problem.CodeOf(err) != problem.KeysInvalid {
			t.Fatalf("start with other keys: %v", err)
		}
	})
}

// RC-33: whatever is secret stands in no receipt, no seal, no checkpoint and no
// export, in no encoding.
func TestCanary(t *testing.T) {
	t.Run("RC-33_canary", func(t *testing.T) {
		n, disk := fresh(t)
		const token, body, query = "ghs_canaryToken0123456789abcdef", "body-canary-4711-secret", "query-canary-0815-secret"
		c := n.open("S1")
		c.Guard(secret.FromString(token))
		a, d := get(t, c, 1, "/p/"+token)
		a.HTTP.Query, a.HTTP.Body.Bytes = query, []byte(body)
		d.Reason, d.Rule = "because_"+token, "dlp says: "+body // an enforcer that talks
		leaf, err := c.Recorder(doorObs).Decision(t.Context(), a, d, true)
		if err != nil {
			t.Fatal(err)
		}
		c.Recorder(doorObs).Outcome(leaf, enforcers.Outcome{Effect: enforcers.Forwarded, Code: token, Status: 4242})
		o, _ := get(t, c, 2, "/")
		o.Kind, o.HTTP = enforcers.OperationCall, nil
		o.Operation = &enforcers.Operation{Name: "scm.comment", Args: []byte(`{"text":"` + body + `"}`)}
		if _, err := c.Recorder(doorObs).Decision(t.Context(), o, d, true); err != nil {
			t.Fatal(err)
		}
		closeChain(t, c, "completed")
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		canaries := [][]byte{[]byte(token), []byte(body), []byte(query)}
		r := n.verify(n.export(notary.Filter{}), receipts.Options{Canaries: canaries, Checkpoint: n.Head()})
		want(t, r, receipts.ExitAdmitted, receipts.ClassUnmatched)
		scan := receipts.NewRedactor(canaries...)
		for _, name := range disk.Names("") {
			if scan.Found(disk.Bytes(name)) {
				t.Errorf("%s holds a canary", name)
			}
		}
		rs := n.chainOf("S1")
		if red := rs[1].Red; red["secret"] == 0 || red["text"] == 0 || rs[1].Dec.Verdict != receipts.Allow {
			t.Fatalf("redactions %v of %+v", red, rs[1].Dec)
		}
		if rs[1].Act.Args["path"] != c.Commit("path", []byte("/p/"+token)) || rs[1].Act.Args["body"] != c.Commit("body", []byte(body)) {
			t.Fatal("the commitments are not those of the values")
		}
		if rs[1].Act.Args["path"] == sum([]byte("/p/"+token)) {
			t.Fatal("a plain hash")
		}
	})
}

// RC-41: power cuts at any moment of a busy log. What a caller was told is
// durable is in the chains of the next start, and everything verifies.
func TestTamperPowerCut(t *testing.T) {
	t.Run("RC-41_power_cut", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			disk := &faultfs.FS{}
			c := newClock()
			n, err := tryStart(t, disk, "journal", c)
			if err != nil {
				rt.Fatal(err)
			}
			told := map[receipts.Hash]bool{}
			sessions := 0
			for range rapid.IntRange(1, 3).Draw(rt, "lives") {
				for range rapid.IntRange(0, 12).Draw(rt, "steps") {
					open := n.Sessions()
					switch op := rapid.IntRange(0, 6).Draw(rt, "op"); {
					case op == 0 || len(open) == 0:
						sessions++
						n.open(fmt.Sprintf("S%d", sessions))
					case op == 1:
						if _, err := n.Checkpoint(t.Context()); err != nil {
							rt.Fatal(err)
						}
					case op == 2:
						if err := n.Snapshot(t.Context()); err != nil {
							rt.Fatal(err)
						}
					default:
						ch, err := n.Resume(rapid.SampledFrom(open).Draw(rt, "session").Session)
						if err != nil {
							rt.Fatal(err)
						}
						a, d := get(t, ch, 1, "/x")
						durable := rapid.Bool().Draw(rt, "durable")
						leaf, err := ch.Recorder(doorObs).Decision(t.Context(), a, d, durable)
						if err != nil {
							rt.Fatal(err)
						}
						if told[leaf] = durable; rapid.Bool().Draw(rt, "outcome") {
							forwarded(ch, leaf)
						}
						if op == 3 {
							closeChain(t, ch, "completed")
						}
					}
				}
				after := disk.Crash(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "crash"), 1)))
				_ = n.j.Close()
				disk = after
				if n, err = tryStart(t, disk, "journal", c); err != nil {
					rt.Fatal(err)
				}
				there := map[receipts.Hash]bool{}
				for _, g := range n.groups() {
					for _, r := range g {
						there[receipts.Leaf(r.Data)] = true
					}
				}
				for leaf, durable := range told {
					if durable && !there[leaf] {
						rt.Fatalf("a durable decision is gone")
					}
				}
				r := n.verify(n.export(notary.Filter{}), receipts.Options{Checkpoint: n.Head()})
				if r.Exit != receipts.ExitComplete && r.Class != receipts.ClassUnmatched {
					rt.Fatalf("exit %d %s: %+v", r.Exit, r.Class, r.Findings)
				}
			}
			_ = n.j.Close()
		})
	})
}
