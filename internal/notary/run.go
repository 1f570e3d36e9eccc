package notary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// minSnapshot is how many leaves must have come since the last snapshot.
const minSnapshot = 10_000

// Run checkpoints the log as it grows, writes heartbeats while sessions are open
// and takes snapshots, until ctx ends; then it checkpoints once more. It returns
// nil after ctx, or the error after which the journal takes nothing more.
func (n *Notary) Run(ctx context.Context) error {
	tick := time.NewTicker(n.o.CheckpointEvery)
	defer tick.Stop()
	var beat, kept time.Duration
	quiet := n.o.RefreshEvery // a start shows at once
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			// Twice if the tick that ctx cut short had begun a checkpoint: what it
			// appended comes between the first manifest's count and its leaf.
			_, err := n.step(last, false, false, false)
			if err == nil && n.grown() {
				_, err = n.step(last, false, false, false)
			}
			return err
		case <-tick.C:
		}
		beat, kept, quiet = beat+n.o.CheckpointEvery, kept+n.o.CheckpointEvery, quiet+n.o.CheckpointEvery
		signed, err := n.step(ctx, beat >= n.o.HeartbeatEvery, kept >= n.o.SnapshotEvery, quiet >= n.o.RefreshEvery)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("notary: %w", err)
		}
		if beat >= n.o.HeartbeatEvery {
			beat = 0
		}
		if kept >= n.o.SnapshotEvery {
			kept = 0
		}
		if signed {
			quiet = 0
		}
	}
}

// step does what is due and reports whether it signed a checkpoint. A full disk
// and a signer that does not answer are no errors: they are over when they are
// over.
func (n *Notary) step(ctx context.Context, beat, snapshot, refresh bool) (signed bool, err error) {
	err = func() error {
		if err := n.unfold(); err != nil {
			return err
		}
		if beat {
			if err := n.heartbeat(ctx); err != nil {
				return err
			}
		}
		if n.grown() {
			if _, err := n.checkpoint(ctx); err != nil {
				return err
			}
			signed = true
		} else if refresh {
			if err := n.refresh(ctx); err != nil {
				return err
			}
			signed = true
		}
		if snapshot && n.Size() >= n.kept+minSnapshot {
			return n.Snapshot(ctx)
		}
		return nil
	}()
	switch problem.CodeOf(err) {
	case problem.JournalFull, problem.JournalLimit:
		return signed, nil
	case problem.SignerFailed: // auditors see a log that falls silent
		n.complain("", err)
		return false, nil
	}
	return signed, err
}

// refresh signs the newest checkpoint again with the time of now, so that
// whoever watches an idle log can tell it from a dead one. It adds no leaf; a log
// that has no checkpoint of this process yet gets a full one.
func (n *Notary) refresh(ctx context.Context) error {
	n.tickets.Lock()
	n.mu.Lock()
	last := n.last
	n.mu.Unlock()
	if last == nil {
		n.tickets.Unlock()
		_, err := n.checkpoint(ctx)
		return err
	}
	defer n.tickets.Unlock()
	again := *last
	again.checkpoint.Time = n.o.Clock().UTC()
	return n.sign(ctx, &again)
}

// grown reports whether there are leaves that the newest checkpoint does not
// cover, or that it covers and its manifest does not state: a receipt may come
// between the two.
func (n *Notary) grown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	unstated := n.last != nil && n.last.doc.Size+1 < n.last.checkpoint.Size
	return unstated || uint64(n.tree.size) > n.covered
}

// heartbeat writes a heartbeat if any session is open, so that silence shows.
func (n *Notary) heartbeat(ctx context.Context) error {
	n.mu.Lock()
	b := receipts.Heartbeat{Open: uint64(len(n.chains)), Size: uint64(n.tree.size)}
	if n.last != nil {
		b.Head = n.last.checkpoint.Root
	}
	n.mu.Unlock()
	if b.Open == 0 {
		return nil
	}
	_, err := n.control.Append(ctx, receipts.Receipt{Type: receipts.TypeHeartbeat, Beat: &b})
	return err
}

// Checkpoint makes a fresh checkpoint and returns its note.
func (n *Notary) Checkpoint(ctx context.Context) ([]byte, error) {
	e, err := n.checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return e.note, nil
}

// checkpoint writes a manifest and signs the tree that ends in it. The note is
// signed only when everything it covers is durable.
func (n *Notary) checkpoint(ctx context.Context) (*ending, error) {
	n.tickets.Lock()
	defer n.tickets.Unlock()
	n.mu.Lock()
	if !n.started {
		n.mu.Unlock()
		return nil, errNotStarted
	}
	if e := n.unsigned; e != nil && e.checkpoint.Size == uint64(n.tree.size) {
		n.mu.Unlock() // nothing has come since: the same manifest is still the last leaf
		e.checkpoint.Time = n.o.Clock().UTC()
		if err := n.sign(ctx, e); err != nil {
			return nil, err
		}
		return e, nil
	}
	e := &ending{doc: receipts.ManifestDoc{
		Size: uint64(n.tree.size), Sessions: n.totals.Sessions, Closed: n.totals.Closed,
		Receipts: n.totals.Receipts, Losses: n.totals.Losses, Tree: uint64(len(n.heads)),
	}}
	for _, h := range n.heads {
		e.heads = append(e.heads, h.Head)
	}
	n.mu.Unlock()
	var err error
	if e.doc.Heads, err = receipts.HeadsRoot(e.heads); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}

	var index uint64
	doc := e.doc
	leaf, ticket, err := n.control.add(&receipts.Receipt{Type: receipts.TypeManifest, Man: &doc}, &index)
	if err != nil {
		return nil, err
	}
	pos, err := ticket.Wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if e.manifest, err = n.payload(pos, leaf); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	n.mu.Lock()
	v := n.tree.view(n.j)
	n.mu.Unlock()
	e.checkpoint = receipts.Checkpoint{Origin: n.origin, Size: index + 1, Time: n.o.Clock().UTC()}
	if e.checkpoint.Root, err = v.root(e.checkpoint.Size); err != nil {
		return nil, err
	}
	if err := n.sign(ctx, e); err != nil {
		return nil, err
	}
	return e, nil
}

// sign signs a checkpoint, makes the note durable and hands it on. n.tickets is
// held.
func (n *Notary) sign(ctx context.Context, e *ending) (err error) {
	if e.note, err = receipts.SignCheckpoint(n.o.Keys.checkpoint, e.checkpoint); err != nil {
		n.unsigned = e
		return problem.Wrap(err, problem.SignerFailed, "the checkpoint could not be signed", "Check the signer that holds the checkpoint key; the log goes on meanwhile.")
	}
	n.unsigned = nil
	if _, err := n.j.Append(journal.Record{Kind: journal.KindCheckpoint, Subject: n.logName, Data: e.note}).Wait(ctx); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	n.mu.Lock()
	n.stated(e.doc.Size)
	n.last, n.head, n.covered = e, e.note, e.checkpoint.Size
	n.mu.Unlock()
	n.keep(e)
	return nil
}

// payload reads a durable leaf back: what is proven is what is on the disk.
func (n *Notary) payload(pos uint64, leaf receipts.Hash) ([]byte, error) {
	for group, err := range n.j.Groups(pos) {
		if err != nil {
			return nil, err
		}
		for _, r := range group {
			if r.Pos == pos && receipts.Leaf(r.Data) == leaf {
				return r.Data, nil
			}
		}
		break
	}
	return nil, inconsistent(pos, errors.New("the journal gives back other bytes than it was given"))
}

func values(m map[string]*Chain) []*Chain { return slices.Collect(maps.Values(m)) }

func duration(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
