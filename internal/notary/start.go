package notary

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Start folds the journal: chains and their open decisions, heads, totals, the
// tree. It checks every chain link, seal and tree on the way and refuses a log
// that it cannot have written: problem.LogInconsistent. Then it writes what the
// restart itself makes true: the first receipts of a new log, and outcome
// unknown for each decision whose outcome was not durable. Nothing else may
// append to the journal before it returns.
func (n *Notary) Start(ctx context.Context, j *journal.Journal) error {
	f := &fold{n: n, keys: map[string][32]byte{}}
	from, err := f.restore(j)
	if err != nil {
		return err
	}
	for group, err := range j.Groups(from) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = f.group(group)
		}
		if err != nil {
			return fmt.Errorf("start notary: %w", err)
		}
	}
	if err := f.check(j); err != nil {
		return fmt.Errorf("start notary: %w", err)
	}
	n.mu.Lock()
	n.j, n.started = j, true
	n.next = max(n.next, 1)
	n.mu.Unlock()
	if err := n.recall(); err != nil {
		return fmt.Errorf("start notary: %w", err)
	}
	if err := n.begin(ctx); err != nil {
		return fmt.Errorf("start notary: %w", err)
	}
	return nil
}

// begin writes the receipts that a start makes true.
func (n *Notary) begin(ctx context.Context) error {
	var last *journal.Ticket
	if n.control.Info().Seq == 0 {
		for _, k := range n.o.Keys.keyset.Keys {
			_, ticket, err := n.control.Enqueue(keyReceipt(receipts.TypeKeyAdd, k))
			if err != nil {
				return err
			}
			last = &ticket
		}
	}
	n.mu.Lock()
	chains := []*Chain{n.control}
	for _, c := range n.chains {
		chains = append(chains, c)
	}
	n.mu.Unlock()
	for _, c := range chains {
		ticket, err := c.unknown("restart")
		if err != nil {
			return err
		}
		if ticket != nil {
			last = ticket
		}
	}
	if last == nil {
		return nil
	}
	_, err := last.Wait(ctx)
	return err
}

// unknown is settle with its locks.
func (c *Chain) unknown(code string) (*journal.Ticket, error) {
	c.n.order.RLock()
	defer c.n.order.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settle(code)
}

// fold rebuilds a Notary's state. Nobody else has the Notary yet, so it takes no
// locks.
type fold struct {
	n    *Notary
	keys map[string][32]byte // commitment keys of sessions whose open follows
	seal *receipts.Seal      // the newest
	note []byte              // the newest checkpoint
	pos  uint64              // of note
}

// group folds one durable group.
func (f *fold) group(group []journal.Record) error {
	n := f.n
	g, err := openGroup(group)
	if err != nil {
		return err
	}
	n.next = group[len(group)-1].Pos + 1
	for _, r := range group {
		switch r.Kind {
		case journal.KindPrivate:
			if session, ok := strings.CutPrefix(r.Subject, keyPrefix); ok {
				if len(r.Data) != 32 {
					return inconsistent(r.Pos, errors.New("a commitment key of the wrong size"))
				}
				f.keys[session] = [32]byte(r.Data)
			}
		case journal.KindCheckpoint:
			f.note, f.pos = r.Data, r.Pos
		}
	}
	if g.seal == nil {
		return nil
	}
	first := uint64(n.tree.size)
	if g.seal.Origin != n.origin || g.seal.First != first || g.seal.Prev != n.prev {
		return inconsistent(group[0].Pos, fmt.Errorf("the seal of %s at index %d does not continue the log of %s at %d",
			g.seal.Origin, g.seal.First, n.origin, first))
	}
	for i, r := range g.records {
		n.tree.append(g.leaves[i], group[0].Pos)
		if r.Kind != journal.KindReceipt {
			continue
		}
		if err := f.receipt(r, g.leaves[i], first+uint64(i)); err != nil {
			return inconsistent(r.Pos, err)
		}
	}
	n.prev, f.seal = g.seal.Hash(), g.seal
	return nil
}

// receipt folds one receipt into its chain.
func (f *fold) receipt(rec journal.Record, leaf receipts.Hash, index uint64) error {
	n := f.n
	r, err := receipts.Decode(rec.Data)
	if err != nil {
		return err
	}
	c := n.control
	if r.Session != receipts.ControlSession {
		c = n.chains[r.Session]
		if r.Type == receipts.TypeSessionOpen {
			if c != nil {
				return fmt.Errorf("session %s is opened twice", r.Session)
			}
			if c, err = f.open(r); err != nil {
				return err
			}
		}
	}
	if c == nil {
		return fmt.Errorf("a receipt of %s, which is not open", r.Session)
	}
	if rec.Subject != c.subject || r.Log != n.origin || r.Seq != c.link.seq || !c.follows(r) {
		return fmt.Errorf("receipt %d of %s does not continue its chain at %d", r.Seq, r.Session, c.link.seq)
	}
	c.link = link{seq: r.Seq + 1, prev: leaf, last: r.T, mono: r.Mono}
	c.account(r, leaf)
	n.advance(r.Session, r.Seq, leaf, r.Type, index)
	switch r.Type {
	case receipts.TypeSessionClose:
		delete(n.chains, r.Session)
	case receipts.TypeManifest:
		n.stated(r.Man.Size)
	}
	return nil
}

// open starts the chain of a session that is opened in the journal.
func (f *fold) open(r *receipts.Receipt) (*Chain, error) {
	key, ok := f.keys[r.Session]
	if !ok {
		return nil, fmt.Errorf("session %s has no commitment key", r.Session)
	}
	delete(f.keys, r.Session)
	c := f.n.chain(r.Session, sessionPrefix+r.Session)
	c.key = key
	c.info = OpenSession{Session: r.Session, Open: *r.Open, State: r.Open.State}
	f.n.chains[r.Session] = c
	return c, nil
}

// follows reports whether r continues the chain's last receipt, or begins it
// under the keyset in force or an earlier one.
func (c *Chain) follows(r *receipts.Receipt) bool {
	if r.Seq > 0 || r.Prev == c.link.prev {
		return r.Prev == c.link.prev
	}
	for _, d := range c.n.o.Keys.keyset.Was {
		if r.Prev == receipts.Genesis(c.n.origin, c.session, d) {
			return true
		}
	}
	return false
}

// check judges what only the end of the fold can tell.
func (f *fold) check(j *journal.Journal) error {
	n := f.n
	ks := own(n.o.Keys.keyset)
	size := uint64(n.tree.size)
	if f.seal != nil {
		// One signature speaks for all: each seal names the one before it.
		if err := f.seal.Verify(ks); err != nil {
			return problem.Wrap(err, problem.KeysInvalid, "the keys are not those of the journal",
				"Restore the keys that wrote this journal.")
		}
	}
	if k, ok := ks.Active(receipts.SealKey); !ok || !k.Covers(size, 1) {
		return problem.New(problem.KeysInvalid, "the seal key may not sign the next index of the log", "Rotate the key again.")
	}
	if f.note != nil {
		cp, err := receipts.ParseCheckpoint(f.note, ks)
		if err != nil {
			return inconsistent(f.pos, err)
		}
		if cp.Size > size {
			return inconsistent(f.pos, fmt.Errorf("a checkpoint of %d leaves in a log of %d", cp.Size, size))
		}
		root, err := n.tree.view(j).root(cp.Size)
		if err != nil {
			return err
		}
		if root != cp.Root {
			return inconsistent(f.pos, errors.New("the checkpoint's root is not the log's"))
		}
		n.covered, n.head = cp.Size, f.note
	}
	for _, c := range append([]*Chain{n.control}, values(n.chains)...) {
		c.resume()
	}
	return nil
}

// resume makes Mono go on from where it was: it counts while the node runs.
func (c *Chain) resume() {
	if c.link.seq > 0 {
		c.start = c.n.o.Clock().Add(-duration(c.link.mono))
	}
}
