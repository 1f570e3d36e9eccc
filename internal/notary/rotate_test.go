package notary_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// keyed is a node with its keys in a folder.
type keyed struct {
	*node
	keys string
	fpr  string
}

func newKeyed(t *testing.T) *keyed {
	dir := filepath.Join(t.TempDir(), "keys")
	fpr, err := notary.GenerateKeys(dir, origin)
	if err != nil {
		t.Fatal(err)
	}
	k := &keyed{keys: dir, fpr: fpr, node: &node{t: t, disk: &faultfs.FS{}, dir: "journal", clock: newClock()}}
	k.restart()
	return k
}

// restart starts the node again with the keys of the folder.
func (k *keyed) restart() {
	k.t.Helper()
	keys, err := notary.OpenKeys(k.keys)
	if err != nil {
		k.t.Fatal(err)
	}
	if k.j != nil {
		_ = k.j.Close()
	}
	k.Notary = notary.New(notary.Options{Node: "node-1", Keys: keys, Clock: k.clock.Now})
	k.j, err = journal.Open(k.dir, journal.Options{Seal: k.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: k.disk, SegmentBytes: 64 << 10, ReserveBytes: 64 << 10})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = k.j.Close() })
	if err := k.Start(context.Background(), k.j); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keyed) change(c notary.KeyChange) *receipts.Keyset {
	k.t.Helper()
	note, err := notary.ChangeKeys(context.Background(), k.keys, k.Notary, c)
	if err != nil {
		k.t.Fatal(err)
	}
	ks, err := receipts.ParseKeyset(note, k.fpr)
	if err != nil {
		k.t.Fatal(err)
	}
	return ks
}

func (k *keyed) whole() *receipts.Result {
	k.t.Helper()
	return receipts.Verify(bytes.NewReader(k.export(notary.Filter{})), receipts.Options{Root: k.fpr, Now: k.clock.Now()})
}

// session runs one session to its end.
func (k *keyed) session(id string) {
	k.t.Helper()
	c := k.open(id)
	forwarded(c, decide(k.t, c, 1))
	closeChain(k.t, c, "completed")
}

func TestChangeKeys(t *testing.T) {
	rotate := func(p receipts.Purpose) notary.KeyChange { return notary.KeyChange{Purpose: p} }
	for name, c := range map[string]struct {
		change notary.KeyChange
		types  []string // last on the control chain before its manifest
	}{
		"seal":       {rotate(receipts.SealKey), []string{"key.retire", "key.add"}},
		"checkpoint": {rotate(receipts.CheckpointKey), []string{"key.retire", "key.add"}},
		"revoked":    {notary.KeyChange{Purpose: receipts.CheckpointKey, Revoke: true, From: 2}, []string{"key.revoke", "key.add"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeyed(t)
			k.session("s1")
			open := k.open("s2")
			before := k.Size()
			ks := k.change(c.change)
			at := before + 3
			last := ks.Keys[len(ks.Keys)-1]
			if ks.Serial != 2 || last.Purpose != c.change.Purpose || last.From != at || k.Size() != at {
				t.Fatalf("keyset %+v at size %d, want a %s key from %d", ks.Keys, k.Size(), c.change.Purpose, at)
			}
			chain := types(k.chainOf(receipts.ControlSession))
			if got := chain[len(chain)-3:]; got[0] != c.types[0] || got[1] != c.types[1] || got[2] != "manifest" {
				t.Fatalf("control chain ends in %v", got)
			}
			// The outgoing key has sealed what says so: with it gone, nothing changes.
			k.restart()
			resumed, err := k.Resume(open.Session())
			if err != nil {
				t.Fatal(err)
			}
			closeChain(t, resumed, "lost")
			k.session("s3")
			r := k.whole()
			want(t, r, receipts.ExitUnproven, receipts.ClassEndAsOf)
			if r.Authenticity.State != receipts.Yes || r.Integrity.State != receipts.Yes || len(r.Sessions) < 3 {
				t.Fatalf("%+v", r)
			}
			k.restart()
		})
	}

	t.Run("revoked seal key", func(t *testing.T) {
		k := newKeyed(t)
		k.session("s1")
		stolen := k.Size()
		k.session("s2")
		k.change(notary.KeyChange{Purpose: receipts.SealKey, Revoke: true, From: stolen})
		k.restart()
		k.session("s3")
		one := func(session string) *receipts.Result {
			return receipts.Verify(bytes.NewReader(k.export(notary.Filter{Sessions: []string{session}})), receipts.Options{Root: k.fpr, Now: k.clock.Now()})
		}
		// RC-11: what the revoked key sealed from then on is not trusted.
		want(t, one("s2"), receipts.ExitUntrusted, receipts.ClassKey)
		want(t, one("s3"), receipts.ExitComplete, receipts.ClassComplete)
	})

	t.Run("retire ends the log", func(t *testing.T) {
		k := newKeyed(t)
		k.session("s1")
		k.change(notary.KeyChange{Retire: true})
		if _, err := notary.LoadKeys(k.keys); problem.CodeOf(err) != problem.KeysInvalid {
			t.Fatalf("the keys of an ended log load: %v", err)
		}
		want(t, k.whole(), receipts.ExitUnproven, receipts.ClassEndAsOf)
	})

	t.Run("without the root", func(t *testing.T) {
		k := newKeyed(t)
		if err := os.Rename(filepath.Join(k.keys, "root.key"), filepath.Join(k.keys, "../root.key")); err != nil {
			t.Fatal(err)
		}
		k.restart()
		if _, err := notary.ChangeKeys(context.Background(), k.keys, k.Notary, rotate(receipts.SealKey)); problem.CodeOf(err) != problem.KeysMissing {
			t.Fatal(err)
		}
		keys, err := notary.LoadKeys(k.keys)
		if err != nil {
			t.Fatal(err)
		}
		if err := keys.UseRoot(filepath.Join(k.keys, "../root.key")); err != nil || keys.RootOffline() {
			t.Fatal(err)
		}
		other := filepath.Join(t.TempDir(), "other")
		if _, err := notary.GenerateKeys(other, origin); err != nil {
			t.Fatal(err)
		}
		if err := keys.UseRoot(filepath.Join(other, "root.key")); problem.CodeOf(err) != problem.KeysInvalid {
			t.Fatalf("another root: %v", err)
		}
	})
}

// TestChangeKeysCutShort stops a change behind each of its steps: the next try
// finishes the same change, and nothing starts before.
func TestChangeKeysCutShort(t *testing.T) {
	for leaves := range uint64(4) { // of key.retire, key.add and the manifest
		for _, renamed := range []bool{false, true} {
			if renamed && leaves < 3 {
				continue
			}
			k := newKeyed(t)
			k.session("s1")
			before := k.Size()
			if err := notary.StopKeyChange(k.Notary, k.keys, int(leaves), notary.KeyChange{Purpose: receipts.SealKey}); err != nil {
				t.Fatal(err)
			}
			if k.Size() != before+leaves {
				t.Fatalf("stopped at %d leaves, want %d", k.Size()-before, leaves)
			}
			if renamed {
				if err := os.Rename(filepath.Join(k.keys, "keyset.next"), filepath.Join(k.keys, "keyset.note")); err != nil {
					t.Fatal(err)
				}
			} else if _, err := notary.LoadKeys(k.keys); problem.CodeOf(err) != problem.KeysInvalid {
				t.Fatalf("a node may start inside a key change: %v", err)
			}
			k.restart()
			if !renamed {
				ks := k.change(notary.KeyChange{Purpose: receipts.CheckpointKey})
				if last := ks.Keys[len(ks.Keys)-1]; last.Purpose != receipts.SealKey || last.From != before+3 || k.Size() != before+3 {
					t.Fatalf("another change than the one cut short: %+v at %d", ks.Keys, k.Size())
				}
				k.restart()
			}
			k.session("s2")
			want(t, k.whole(), receipts.ExitUnproven, receipts.ClassEndAsOf)
		}
	}
}
