package notary_test

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// remote is a signer as a KMS offers one: the private half never leaves it, it
// answers from elsewhere, and sometimes it does not.
type remote struct {
	pub ed25519.PublicKey
	ask chan request
}

type request struct {
	message []byte
	answer  chan<- []byte // nil bytes: no answer
}

func (r *remote) Public() crypto.PublicKey { return r.pub }

func (r *remote) Sign(_ io.Reader, message []byte, o crypto.SignerOpts) ([]byte, error) {
	if o.HashFunc() != crypto.Hash(0) {
		return nil, errors.New("the message itself expected")
	}
	answer := make(chan []byte)
	r.ask <- request{message, answer}
	if sig := <-answer; sig != nil {
		return sig, nil
	}
	return nil, errors.New("the signer does not answer")
}

// newRemote starts a signer; down makes it fail until it is called with false.
func newRemote(t *testing.T) (r *remote, down func(bool)) {
	t.Helper()
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r = &remote{pub: pub, ask: make(chan request)}
	var mu sync.Mutex
	failing := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		for q := range r.ask {
			mu.Lock()
			no := failing
			mu.Unlock()
			if no {
				q.answer <- nil
			} else {
				q.answer <- ed25519.Sign(private, q.message)
			}
		}
	}()
	t.Cleanup(func() {
		close(r.ask)
		<-done
	})
	return r, func(f bool) {
		mu.Lock()
		defer mu.Unlock()
		failing = f
	}
}

// TestRemoteSigner: a node whose signing keys are elsewhere writes the same log,
// and one whose checkpoint signer fails goes on and catches up.
func TestRemoteSigner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	seal, _ := newRemote(t)
	checkpoint, down := newRemote(t)
	signers := []notary.Signer{{Purpose: receipts.SealKey, Key: seal}, {Purpose: receipts.CheckpointKey, Key: checkpoint}}
	fpr, err := notary.GenerateKeys(dir, origin, signers...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"seal.key", "checkpoint.key"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want no file", name, err)
		}
	}
	if _, err := notary.LoadKeys(dir); problem.CodeOf(err) != problem.KeysMissing {
		t.Errorf("without the signers: %v", err)
	}
	if _, err := notary.LoadKeys(dir, notary.Signer{Purpose: receipts.SealKey, Key: checkpoint}, signers[1]); problem.CodeOf(err) != problem.KeysInvalid {
		t.Errorf("another key than the keyset names: %v", err)
	}
	keys, err := notary.LoadKeys(dir, signers...)
	if err != nil {
		t.Fatal(err)
	}

	told := make(chan error, 100)
	clock := newClock()
	n := &node{t: t, disk: &faultfs.FS{}, dir: "journal", clock: clock}
	n.Notary = notary.New(notary.Options{Node: "node-1", Keys: keys, Clock: clock.Now, CheckpointEvery: time.Millisecond, Kept: func(_ string, err error) {
		select {
		case told <- err:
		default:
		}
	}})
	if n.j, err = journal.Open(n.dir, journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), FS: n.disk}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.j.Close() })
	if err := n.Start(context.Background(), n.j); err != nil {
		t.Fatal(err)
	}

	down(true)
	if _, err := n.Checkpoint(context.Background()); problem.CodeOf(err) != problem.SignerFailed {
		t.Fatalf("checkpoint with a signer that fails: %v", err)
	}
	size := n.Size()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	for range 3 { // ticks that fail, and that add nothing to the log
		select {
		case err := <-told:
			if problem.CodeOf(err) != problem.SignerFailed {
				t.Fatal(err)
			}
		case err := <-done:
			t.Fatalf("the node stopped: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("nobody was told")
		}
	}
	if n.Size() != size {
		t.Errorf("the log grew from %d to %d leaves while nothing could be signed", size, n.Size())
	}
	down(false)
	deadline := time.After(30 * time.Second)
	for n.Head() == nil {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("no checkpoint after the signer came back")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ks, err := receipts.ParseKeyset(keys.Note(), fpr)
	if err != nil {
		t.Fatal(err)
	}
	if cp, err := receipts.ParseCheckpoint(n.Head(), ks); err != nil || cp.Size != n.Size() {
		t.Errorf("%+v, %v", cp, err)
	}
}

// TestRunKeys: every run is a log of its own under the root that auditors pin.
// RC-14: two logs of one name would be a fork.
func TestRunKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	fpr, err := notary.GenerateKeys(dir, origin)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := notary.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, key := range keys.Keyset().Keys {
		seen[string(key.Public)] = true
	}
	for _, name := range []string{"run-1", "run-2"} {
		k, err := keys.Run(name)
		if err != nil {
			t.Fatal(err)
		}
		ks, err := receipts.ParseKeyset(k.Note(), fpr)
		if err != nil || ks.Origin != origin+"/"+name {
			t.Fatalf("an auditor who pins the root: %v, origin %s", err, ks.Origin)
		}
		for _, key := range ks.Keys {
			if seen[string(key.Public)] {
				t.Errorf("key %s stands in two logs", key.ID())
			}
			seen[string(key.Public)] = true
		}
	}
	if err := os.Remove(filepath.Join(dir, "root.key")); err != nil {
		t.Fatal(err)
	}
	if keys, err = notary.LoadKeys(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Run("run-3"); problem.CodeOf(err) != problem.KeysMissing {
		t.Errorf("a run without the root: %v", err)
	}
}
