package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/internal/blob"
	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// kept is a node's record, streams and gatekeeper over one folder.
type kept struct {
	t      *testing.T
	dir    string
	keys   *notary.Keys
	blobs  *blob.Store
	n      *notary.Notary
	j      *journal.Journal
	bus    *bus.Bus
	pumped chan error
	run    int
}

func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{t: t, dir: tempDir(t)}
	var err error
	if k.keys, err = notary.NewKeys("test.gatehouse.example/node-1"); err != nil {
		t.Fatal(err)
	}
	if k.blobs, err = blob.Open(filepath.Join(k.dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	k.start()
	t.Cleanup(func() { k.stop() })
	return k
}

func (k *kept) start() {
	k.t.Helper()
	k.n = notary.New(notary.Options{Node: "node-1", Keys: k.keys})
	var err error
	k.j, err = journal.Open(filepath.Join(k.dir, "journal"), journal.Options{Seal: k.n.Seal, PrivateKey: k.keys.NodeKey().Reveal(), SegmentBytes: 32 << 10})
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.n.Start(k.t.Context(), k.j); err != nil {
		k.t.Fatal(err)
	}
	if k.bus, err = bus.Open(k.t.Context(), bus.Options{Node: "node-1", Dir: filepath.Join(k.dir, "nats"), Log: slog.New(slog.DiscardHandler)}); err != nil {
		k.t.Fatal(err)
	}
	k.pumped = make(chan error, 1)
	go func() { k.pumped <- k.bus.Pump(context.WithoutCancel(k.t.Context()), k.j, encode) }()
}

func (k *kept) stop() {
	k.t.Helper()
	if k.j == nil {
		return
	}
	if err := k.j.Close(); err != nil {
		k.t.Error(err)
	}
	if err := <-k.pumped; err != nil {
		k.t.Error(err)
	}
	if err := k.bus.Close(); err != nil {
		k.t.Error(err)
	}
	k.j = nil
}

// apply starts a gatekeeper over a journal with buckets that know nothing, and
// has it apply the bundle again: what it answers is what the journal told it.
func (k *kept) apply(j gatekeeper.Journal) gatekeeper.Applied {
	k.t.Helper()
	gk, err := gatekeeper.New(gatekeeper.Options{
		Node: "node-1", Dir: tempDir(k.t), Journal: j, Notary: chains{k.n}, Blobs: k.blobs, Bundles: &memoryKV{}, Unlimited: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		k.t.Fatal(err)
	}
	defer gk.Close()
	if err := gk.Start(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	done, err := gk.Apply(k.t.Context(), []gatekeeper.File{{Name: "sleeper.yaml", Source: []byte(sleeper("0"))}}, "config", "config")
	if err != nil || len(done) != 1 {
		k.t.Fatal(done, err)
	}
	return done[0]
}

// work opens and closes sessions until the journal has so many segments more.
func (k *kept) work(segments int) {
	k.t.Helper()
	for want := len(k.segments()) + segments; len(k.segments()) < want; {
		for range 50 {
			k.run++
			c, err := k.n.Open(k.t.Context(), fmt.Sprintf("s%d", k.run), receipts.Open{State: "refused", Code: "no_match", Event: fmt.Sprint("e", k.run), EventLeaf: receipts.Leaf([]byte(fmt.Sprint(k.run)))},
				receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
			if err != nil {
				k.t.Fatal(err)
			}
			if _, err := c.Close(k.t.Context(), receipts.Close{Reason: "refused"}); err != nil {
				k.t.Fatal(err)
			}
		}
	}
}

func (k *kept) segments() []string {
	k.t.Helper()
	names, err := filepath.Glob(filepath.Join(k.dir, "journal", "*.seg"))
	if err != nil {
		k.t.Fatal(err)
	}
	return names
}

// age makes every segment look as if it was last written so long ago.
func (k *kept) age(d time.Duration) {
	k.t.Helper()
	at := time.Now().Add(-d)
	for _, name := range k.segments() {
		if err := os.Chtimes(name, at, at); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *kept) stored() {
	k.t.Helper()
	for end := time.Now().Add(patience); k.bus.Status().Stored+1 < k.j.Next(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			k.t.Fatalf("never on the streams: %+v", k.bus.Status())
		}
	}
}

func (k *kept) retention() *retention {
	return &retention{journal: k.j, notary: k.n, bus: k.bus, blobs: k.blobs, log: slog.New(slog.DiscardHandler)}
}

func (k *kept) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kept) seal() {
	k.t.Helper()
	_, err := k.n.Checkpoint(k.t.Context())
	k.must(err)
	k.must(k.n.Snapshot(k.t.Context()))
}

const retainWeek = 7 * 24 * time.Hour

// TestRetention lets old segments go, twice, and starts on what is left: the log
// goes on, the gatekeeper knows its bundles, and the archive still equals the
// streams and the views.
func TestRetention(t *testing.T) {
	k := newKept(t)
	ctx := t.Context()
	if a := k.apply(carried{k.j}); a.Result != gatekeeper.ResultApplied {
		t.Fatalf("first apply: %+v", a)
	}
	var left uint64
	for round := range 2 {
		k.work(4)
		k.seal()
		k.work(2)
		k.stored()
		k.age(30 * 24 * time.Hour)
		needed := k.n.Needed()
		got, err := k.retention().trim(ctx, time.Now().Add(-retainWeek))
		k.must(err)
		if got <= left || got > needed {
			t.Fatalf("round %d: trimmed to %d from %d, with a snapshot of %d", round, got, left, needed)
		}
		left = got
		if again, err := k.retention().trim(ctx, time.Now().Add(-retainWeek)); err != nil || again != 0 {
			t.Errorf("round %d: trimmed again to %d, %v", round, again, err)
		}
		k.stop()
		k.start()
		// Over the bare journal the bundle would be a new one: the test can fail.
		if round == 0 {
			if known := (carried{k.j}); !carries(t, known) {
				t.Error("the bundle is not carried")
			}
		}
		if a := k.apply(carried{k.j}); a.Result != gatekeeper.ResultUnchanged {
			t.Errorf("round %d: after a trim the bundle is %+v", round, a)
		}
		k.stored()
	}
	live := view.New(k.bus, view.Options{Keyset: k.keys.Keyset()})
	viewing, stop := context.WithCancel(ctx)
	viewed := make(chan error, 1)
	go func() { viewed <- live.Run(viewing) }()
	n := &node{bus: k.bus, journal: k.j, keys: k.keys}
	got, err := n.check(ctx, live)
	k.must(err)
	stop()
	<-viewed
	if len(got.Differences) > 0 || got.First <= 1 || got.Sessions != k.run {
		t.Errorf("check: %+v, want %d sessions and no difference", got, k.run)
	}
}

// carries reports whether the carried journal begins with a bundle's receipt that
// the bare one does not have.
func carries(t *testing.T, c carried) bool {
	t.Helper()
	count := func(j gatekeeper.Journal) (n int) {
		for group, err := range j.Groups(0) {
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range group {
				if lasting(rec) {
					n++
				}
			}
		}
		return n
	}
	return count(c.Journal) == 0 && count(c) == 1
}

// TestRetentionWaits: a segment stays while one of the conditions does not hold.
func TestRetentionWaits(t *testing.T) {
	for name, prepare := range map[string]func(*kept, *retention){
		"too_young":   func(k *kept, _ *retention) { k.seal(); k.stored(); k.age(retainWeek / 2) },
		"no_snapshot": func(k *kept, _ *retention) { k.stored(); k.age(30 * 24 * time.Hour) },
		"not_acked":   func(k *kept, r *retention) { k.seal(); k.age(30 * 24 * time.Hour); k.unknown(r) },
		"all_of_them": func(k *kept, _ *retention) { k.seal(); k.stored(); k.age(30 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKept(t)
			k.work(3)
			r := k.retention()
			prepare(k, r)
			before := len(k.segments())
			got, err := r.trim(t.Context(), time.Now().Add(-retainWeek))
			k.must(err)
			if gone := len(k.segments()) < before; gone != (name == "all_of_them") || gone != (got > 0) {
				t.Errorf("trimmed to %d, %d of %d segments left", got, len(k.segments()), before)
			}
		})
	}
}

// unknown gives the retention streams of which nothing is known to be stored.
func (k *kept) unknown(r *retention) {
	k.t.Helper()
	var err error
	if r.bus, err = bus.Open(k.t.Context(), bus.Options{Node: "node-1", Dir: tempDir(k.t), Log: slog.New(slog.DiscardHandler)}); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = r.bus.Close() })
}

// TestPeersSeal: what another node's log sealed is that node's; what only says so
// is nobody's, and a check names it.
func TestPeersSeal(t *testing.T) {
	k := newKept(t)
	c, err := k.n.Open(t.Context(), "s", receipts.Open{State: "refused", Code: "no_match"}, receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	k.must(err)
	_, err = c.Close(t.Context(), receipts.Close{Reason: "refused"})
	k.must(err)
	_, err = k.n.Checkpoint(t.Context())
	k.must(err)
	k.stored()
	stranger, err := notary.NewKeys("test.gatehouse.example/node-1")
	k.must(err)
	others, err := notary.NewKeys("test.gatehouse.example/node-2")
	k.must(err)
	theirs := peers{k.keys.Origin(): k.keys.Keyset(), others.Origin(): others.Keyset()}
	types := map[string]bool{}
	for _, stream := range recordStreams {
		for m, err := range k.bus.Read(t.Context(), stream, "", 0) {
			k.must(err)
			typ := m.Header[receipts.HeaderType]
			types[typ] = true
			if !theirs.sealed(m) {
				t.Errorf("%s on %s is not theirs", typ, m.Subject)
			}
			for name, p := range map[string]peers{"nobody's": nil, "another log's": {others.Origin(): others.Keyset()}, "other keys'": {stranger.Origin(): stranger.Keyset()}} {
				if p.sealed(m) {
					t.Errorf("%s is %s", typ, name)
				}
			}
			m.Data = append(m.Data[:len(m.Data)-1:len(m.Data)-1], m.Data[len(m.Data)-1]^1)
			if theirs.sealed(m) {
				t.Errorf("%s with another byte is theirs", typ)
			}
		}
	}
	for _, want := range []string{string(receipts.TypeSessionClose), notary.TypeSeal, notary.TypeCheckpoint} {
		if !types[want] {
			t.Errorf("no %s on the streams", want)
		}
	}
}
