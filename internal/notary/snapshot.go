package notary

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// state is a Notary's state as of one place in the journal. It holds commitment
// keys and is written as a private record only.
type state struct {
	Format  int
	Keyset  receipts.Hash // digest of the keyset in force
	Pos     uint64        // first journal position that is not in it
	Size    int64
	Prev    receipts.Hash
	Totals  totals
	Covered uint64
	Head    []byte
	Heads   []headAt
	Low     [][]tlog.Hash
	High    [][]tlog.Hash
	At      []uint64
	Chains  []chainState // the control chain first
}

type chainState struct {
	Session string
	Seq     uint64
	Prev    receipts.Hash
	Last    time.Time
	Mono    uint64
	Tally   receipts.Tally
	Pending []receipts.Hash
	Key     [32]byte
	Info    OpenSession
}

const stateFormat = 1

// Snapshot writes the state to the journal, so that the next Start folds only
// what came after it. Receipts wait for about one group commit meanwhile. State
// that does not fit into a journal record is problem.JournalLimit; the next
// start is then a longer one and nothing else.
func (n *Notary) Snapshot(ctx context.Context) error {
	n.tickets.Lock()
	defer n.tickets.Unlock()
	s, err := n.capture(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if err := errors.Join(gob.NewEncoder(z).Encode(s), z.Close()); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	_, err = n.j.Append(
		journal.Record{Kind: journal.KindPrivate, Subject: foldName, Data: buf.Bytes()},
		journal.Record{Kind: journal.KindSnapshot, Subject: foldName},
	).Wait(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept, n.keptPos = uint64(s.Size), s.Pos
	return nil
}

// Needed returns the first journal position that the next Start reads, as far as
// the notary goes: what lies before it may be trimmed once it is published and
// no export needs it. It is 0 until a checkpoint covers all of that.
func (n *Notary) Needed() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.covered < n.kept {
		return 0
	}
	return n.keptPos
}

// capture copies the state at a moment when every receipt that has its place in
// a chain is sealed and durable.
func (n *Notary) capture(ctx context.Context) (*state, error) {
	n.order.Lock()
	defer n.order.Unlock()
	// Nothing extends a chain now. A marker behind everything that does not
	// change the log is durable only after all of it is.
	_, err := n.j.Append(journal.Record{Kind: journal.KindPrivate, Subject: foldName + ".barrier"}).Wait(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started {
		return nil, errNotStarted
	}
	v := n.tree.view(nil)
	s := &state{
		Format: stateFormat, Keyset: n.keyset, Pos: n.next, Size: v.size, Prev: n.prev, Totals: n.totals,
		Covered: n.covered, Head: n.head, Heads: slices.Collect(maps.Values(n.heads)),
		High: v.high, At: v.at,
	}
	for _, row := range v.low {
		s.Low = append(s.Low, slices.Clone(row))
	}
	for _, c := range append([]*Chain{n.control}, values(n.chains)...) {
		if c.link.seq == 0 {
			continue // its session.open comes after the snapshot
		}
		// No lock: whoever extends a chain holds n.order.
		tally := c.tally
		tally.Verdicts = maps.Clone(tally.Verdicts)
		s.Chains = append(s.Chains, chainState{
			Session: c.session, Seq: c.link.seq, Prev: c.link.prev, Last: c.link.last, Mono: c.link.mono,
			Tally: tally, Pending: tally.Waiting(), Key: c.key, Info: c.info,
		})
	}
	return s, nil
}

// restore reads the newest snapshot and returns where the fold goes on.
func (f *fold) restore(j *journal.Journal) (from uint64, err error) {
	pos, ok := j.Snapshot(foldName)
	if !ok {
		return 0, nil
	}
	for group, err := range j.Groups(pos) {
		if err != nil {
			return 0, fmt.Errorf("start notary: %w", err)
		}
		for _, r := range group {
			if r.Pos+1 != pos || r.Kind != journal.KindPrivate || r.Subject != foldName {
				continue
			}
			if r.Data == nil {
				return 0, problem.New(problem.JournalKey, "the snapshot needs the node key", "Open the journal with the node key.")
			}
			s, err := decodeState(r.Data)
			if err != nil {
				return 0, inconsistent(r.Pos, err)
			}
			if !f.n.o.Keys.keyset.Knows(s.Keyset) {
				return 0, problem.New(problem.KeysInvalid, "the keys are not those of the journal", "Restore the keys that wrote this journal.")
			}
			f.apply(s)
			return s.Pos, nil
		}
		break
	}
	return 0, inconsistent(pos, errors.New("a snapshot without its state"))
}

func decodeState(b []byte) (*state, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	s := new(state)
	if err := gob.NewDecoder(io.LimitReader(z, 1<<30)).Decode(s); err != nil {
		return nil, err
	}
	if s.Format != stateFormat || len(s.Low) != chunkLevel || len(s.Chains) == 0 || s.Chains[0].Session != receipts.ControlSession {
		return nil, errors.New("state of another format")
	}
	return s, nil
}

func (f *fold) apply(s *state) {
	n := f.n
	n.tree = tree{size: s.Size, high: s.High, at: s.At}
	copy(n.tree.low[:], s.Low)
	n.prev, n.next, n.totals, n.covered, n.head = s.Prev, s.Pos, s.Totals, s.Covered, s.Head
	n.kept, n.keptPos = uint64(s.Size), s.Pos
	for _, h := range s.Heads {
		n.heads[h.Session] = h
	}
	for _, cs := range s.Chains {
		c := n.control
		if cs.Session != receipts.ControlSession {
			c = n.chain(cs.Session, sessionPrefix+cs.Session)
			n.chains[cs.Session] = c
		}
		c.link = link{seq: cs.Seq, prev: cs.Prev, last: cs.Last, mono: cs.Mono}
		c.tally, c.key, c.info = cs.Tally, cs.Key, cs.Info
		c.tally.Wait(cs.Pending)
	}
}
