package notary_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// keeping starts a node that keeps its checkpoints in dir.
func keeping(t *testing.T, disk journal.FS, dir string, c *clock, told func(string, error)) (*node, error) {
	t.Helper()
	n := &node{t: t, disk: disk, dir: "journal", clock: c}
	n.Notary = notary.New(notary.Options{Node: "node-1", Keys: testKeys(), Clock: c.Now, Keep: []string{dir}, Kept: told})
	var err error
	n.j, err = journal.Open(n.dir, journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: disk, SegmentBytes: 64 << 10, ReserveBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.j.Close() })
	return n, n.Start(context.Background(), n.j)
}

func (n *node) checkpoint() []byte {
	n.t.Helper()
	b, err := n.Checkpoint(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

func TestKeep(t *testing.T) {
	c, disk, dir := newClock(), &faultfs.FS{}, filepath.Join(t.TempDir(), "log")
	n, err := keeping(t, disk, dir, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		n.event(fmt.Sprint(i))
		if i%200 == 0 {
			n.checkpoint()
		}
	}
	latest := n.checkpoint()
	kept, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil || !bytes.Equal(kept, latest) {
		t.Fatalf("the kept checkpoint is not the newest: %v", err)
	}
	cp, err := receipts.ParseCheckpoint(kept, testKeys().Keyset())
	if err != nil {
		t.Fatal(err)
	}
	// The folder proves every leaf without the node.
	tiles := receipts.OpenTiles(os.DirFS(dir), cp)
	for i := range 600 {
		leaf := receipts.Leaf(fmt.Appendf(nil, `{"id":%q}`, fmt.Sprint(i)))
		found := false
		for _, index := range []int{i, i + 2, i + 3, i + 4, i + 5} { // key.add twice, manifests
			p, err := tiles.Proof(uint64(index))
			if err != nil {
				t.Fatal(err)
			}
			found = found || p.Check(cp.Size, cp.Root, leaf) == nil
		}
		if !found {
			t.Fatalf("no proof of event %d from the tiles", i)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tile/0/000.p")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("partial versions lie beside the full tile: %v", err)
	}

	// RC-16: a journal restored from before is behind what was kept.
	if err := n.j.Close(); err != nil {
		t.Fatal(err)
	}
	older := disk.Clone()
	if n, err = keeping(t, disk, dir, c, nil); err != nil {
		t.Fatal(err)
	}
	n.event("later")
	n.checkpoint()
	behind, err := keeping(t, older, dir, c, nil)
	if problem.CodeOf(err) != problem.LogInconsistent || !strings.Contains(err.Error(), "kept in") {
		t.Fatalf("RC-16: a rolled back journal started: %v", err)
	}
	if err := behind.j.Close(); err != nil {
		t.Fatal(err)
	}

	// RC-14: as many leaves as were kept, and other ones.
	fork := start(t, older, "journal", c)
	for i := range 3 {
		fork.event(fmt.Sprint("other", i))
	}
	fork.checkpoint()
	if err := fork.j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := keeping(t, older, dir, c, nil); problem.CodeOf(err) != problem.LogInconsistent || !strings.Contains(err.Error(), "another root") {
		t.Fatalf("RC-14: a forked journal started: %v", err)
	}

	// The true one goes on, and a folder that fails stops nothing.
	if err := n.j.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := keeping(t, disk, dir, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.event("again")
	if now := again.checkpoint(); bytes.Equal(now, latest) {
		t.Fatal("no new checkpoint")
	}
	if err := again.j.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var failed []error
	broken, err := keeping(t, disk, filepath.Join(file, "log"), c, func(_ string, err error) { failed = append(failed, err) })
	if err != nil {
		t.Fatal(err)
	}
	broken.event("still")
	broken.checkpoint()
	if len(failed) == 0 {
		t.Error("a folder that cannot be written was not reported")
	}
}

// TestInterop holds the log to other people's code: Go's note package reads the
// checkpoint, and transparency-dev's verifier accepts the proofs.
func TestInterop(t *testing.T) {
	n, _ := fresh(t)
	for i := range 300 {
		n.event(fmt.Sprint(i))
	}
	older := n.checkpoint()
	n.open("s1")
	payload, p, err := n.Prove(context.Background(), "s1", 0)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := testKeys().Keyset().Active(receipts.CheckpointKey)
	if !ok {
		t.Fatal("no checkpoint key")
	}
	v, err := note.NewVerifier(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (size uint64, root []byte) {
		t.Helper()
		signed, err := note.Open(b, note.VerifierList(v))
		if err != nil {
			t.Fatalf("x/mod note does not accept the checkpoint: %v", err)
		}
		var name, encoded string
		if _, err := fmt.Sscanf(signed.Text, "%s\n%d\n%s\n", &name, &size, &encoded); err != nil || name != origin {
			t.Fatalf("%q: %v", signed.Text, err)
		}
		if root, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			t.Fatal(err)
		}
		return size, root
	}
	bytesOf := func(path []receipts.Hash) (out [][]byte) {
		for _, h := range path {
			out = append(out, h[:])
		}
		return out
	}
	size, root := read(p.Checkpoint)
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, p.Proof.Index, size, rfc6962.DefaultHasher.HashLeaf(payload), bytesOf(p.Proof.Path), root); err != nil {
		t.Fatalf("inclusion: %v", err)
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, p.Proof.Index, size, rfc6962.DefaultHasher.HashLeaf(payload[1:]), bytesOf(p.Proof.Path), root); err == nil {
		t.Fatal("a changed receipt has a proof")
	}
	oldSize, oldRoot := read(older)
	path, err := n.Consistency(oldSize, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, oldSize, size, bytesOf(path), oldRoot, root); err != nil {
		t.Fatalf("consistency: %v", err)
	}

	// The same through the text form, as an auditor gets it.
	parsed, err := receipts.ParseLogProof(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	cp, err := parsed.Verify(payload, testKeys().Keyset())
	if err != nil || cp.Size != size {
		t.Fatalf("%+v %v", cp, err)
	}
	if _, _, err := n.Prove(context.Background(), "s1", 1); problem.CodeOf(err) != problem.NotFound {
		t.Fatalf("a proof of nothing: %v", err)
	}
	for name, sizes := range map[string][2]uint64{"zero": {0, 1}, "backwards": {size, oldSize}, "too large": {oldSize, size + 1000}} {
		if _, err := n.Consistency(sizes[0], sizes[1]); problem.CodeOf(err) != problem.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := cmp.Diff(p, parsed); d != "" {
		t.Error(d)
	}
}

// TestRefresh: the checkpoint of an idle log gets new times, and the log does
// not grow by them.
func TestRefresh(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "log"), newClock()
	n := &node{t: t, disk: &faultfs.FS{}, dir: "journal", clock: c}
	n.Notary = notary.New(notary.Options{
		Node: "node-1", Keys: testKeys(), Clock: c.Now, Keep: []string{dir},
		CheckpointEvery: time.Millisecond, RefreshEvery: time.Millisecond, HeartbeatEvery: time.Hour,
	})
	var err error
	if n.j, err = journal.Open(n.dir, journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: n.disk}); err != nil {
		t.Fatal(err)
	}
	defer n.j.Close() //nolint:errcheck // memory
	if err := n.Start(t.Context(), n.j); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	seen := map[time.Time]bool{}
	var size uint64
	for deadline := time.Now().Add(10 * time.Second); len(seen) < 3; {
		if time.Now().After(deadline) {
			t.Fatalf("an idle log fell silent; seen %v", seen)
		}
		b, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
		if err != nil {
			continue
		}
		cp, err := receipts.ParseCheckpoint(b, testKeys().Keyset())
		if err != nil {
			t.Fatal(err)
		}
		if size != 0 && cp.Size != size {
			t.Fatalf("the log grew from %d to %d by being idle", size, cp.Size)
		}
		size, seen[cp.Time] = cp.Size, true
		c.Add(time.Second)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// What is exported from then on still verifies.
	r := n.verify(n.export(notary.Filter{}), receipts.Options{})
	want(t, r, receipts.ExitUnproven, receipts.ClassEndAsOf)
}
