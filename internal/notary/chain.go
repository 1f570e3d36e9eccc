package notary

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// Chain is one session's receipts, or the node's control chain. It is safe for
// concurrent use; the order of receipts is the order of the calls.
type Chain struct {
	n       *Notary
	session string
	subject string
	key     [32]byte // commitment key; zero on the control chain
	labels  sync.Map // of *committer, by label

	mu     sync.Mutex
	link   link
	text   []byte    // of the receipt that is being written
	start  time.Time // when Mono was zero
	closed bool
	tally  receipts.Tally
	known  [][]byte           // secret values that may stand in no receipt
	redact *receipts.Redactor // over known, nil when there are none
	info   OpenSession

	spending spending
	ending   bool // what is written now ends the session
}

// link is the end of a chain: what the next receipt continues.
type link struct {
	seq  uint64 // of the next receipt
	prev receipts.Hash
	last time.Time
	mono uint64
}

// Session returns the session's id.
func (c *Chain) Session() string { return c.session }

// Info describes the session as its chain tells it.
func (c *Chain) Info() OpenSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := c.info
	info.Seq, info.Pending = c.link.seq, int(c.tally.Pending())
	return info
}

// Append writes r as the chain's next receipt and returns its leaf hash when it
// is durable. It fills V, Log, Session, Seq, Prev, Epoch, T and Mono. If ctx ends
// first the receipt may still become durable. After any error but that nothing
// was added to the chain, unless the error is problem.JournalFailed, after which
// no chain goes on.
func (c *Chain) Append(ctx context.Context, r receipts.Receipt) (receipts.Hash, error) {
	leaf, ticket, err := c.Enqueue(r)
	if err != nil {
		return receipts.Hash{}, err
	}
	if _, err := ticket.Wait(ctx); err != nil {
		return receipts.Hash{}, fmt.Errorf("receipt %s: %w", r.Type, err)
	}
	return leaf, nil
}

// Enqueue is Append without the wait: the receipt has its place, and is durable
// when the ticket says so.
func (c *Chain) Enqueue(r receipts.Receipt) (receipts.Hash, journal.Ticket, error) {
	if r.Type == receipts.TypeSessionOpen || r.Type == receipts.TypeSessionClose {
		return receipts.Hash{}, journal.Ticket{}, problem.New(problem.Usage, "a chain is opened and closed by Open and Close", "")
	}
	return c.add(&r, nil)
}

// Close writes outcome unknown for every decision that has none, and
// session.close, after which nothing may follow. It fills Count, Verdicts,
// Unknown and Spent, and returns when the receipt is durable.
func (c *Chain) Close(ctx context.Context, cl receipts.Close) (receipts.Hash, error) {
	if c == c.n.control {
		return receipts.Hash{}, problem.New(problem.Usage, "the control chain is never closed", "")
	}
	leaf, ticket, err := c.end(cl)
	if err != nil {
		return receipts.Hash{}, err
	}
	c.n.drop(c.session)
	if _, err := ticket.Wait(ctx); err != nil {
		return receipts.Hash{}, fmt.Errorf("close session: %w", err)
	}
	return leaf, nil
}

// end writes the last receipts of the chain, with nothing in between.
func (c *Chain) end(cl receipts.Close) (receipts.Hash, journal.Ticket, error) {
	c.n.order.RLock()
	defer c.n.order.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	defer func() { c.ending = false }()
	if err := c.unfoldAll(time.Time{}); err != nil {
		return receipts.Hash{}, journal.Ticket{}, err
	}
	if _, err := c.settle("session_ended"); err != nil {
		return receipts.Hash{}, journal.Ticket{}, err
	}
	return c.write(&receipts.Receipt{Type: receipts.TypeSessionClose, Close: &cl}, nil)
}

// settle writes outcome unknown for the decisions that wait for one, under the
// locks. It returns the ticket of the last; the journal keeps the order, so
// waiting for it is waiting for all.
func (c *Chain) settle(code string) (last *journal.Ticket, err error) {
	for _, of := range c.tally.Waiting() {
		_, ticket, err := c.write(&receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: of, Effect: "unknown", Code: code}}, nil)
		if err != nil {
			return last, err
		}
		last = &ticket
	}
	return last, nil
}

// answer writes the outcome of a decision that waits for one. It returns false
// when the decision has its outcome already, or is none of this chain's.
func (c *Chain) answer(of receipts.Hash, out *receipts.Out) (journal.Ticket, bool, error) {
	c.n.order.RLock()
	defer c.n.order.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.tally.Waits(of) {
		return journal.Ticket{}, false, nil
	}
	_, ticket, err := c.write(&receipts.Receipt{Type: receipts.TypeOutcome, Out: out}, nil)
	return ticket, err == nil, err
}

// add gives r its place in the chain and in the journal, behind the records
// given, which become durable together with it. index, if set, receives the log
// index before the ticket is done.
func (c *Chain) add(r *receipts.Receipt, index *uint64, before ...journal.Record) (receipts.Hash, journal.Ticket, error) {
	c.n.order.RLock()
	defer c.n.order.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write(r, index, before...)
}

// write is add under the locks. It changes r.
func (c *Chain) write(r *receipts.Receipt, index *uint64, before ...journal.Record) (receipts.Hash, journal.Ticket, error) {
	if c.closed { // RC-12
		return receipts.Hash{}, journal.Ticket{}, problem.New(problem.ChainClosed, "the session's chain is closed", "")
	}
	if c.n.j == nil {
		return receipts.Hash{}, journal.Ticket{}, errNotStarted
	}
	next := c.link
	c.stamp(r, &next)
	payload, err := c.encode(r)
	if err != nil {
		return receipts.Hash{}, journal.Ticket{}, err
	}
	leaf := receipts.Leaf(payload)
	recs := append(make([]journal.Record, 0, 2), before...)
	recs = append(recs, journal.Record{
		Kind: journal.KindReceipt, Subject: c.subject, Data: payload,
		Mark: &flight{chain: c, seq: r.Seq, typ: r.Type, leaf: leaf, index: index},
	})
	var ticket journal.Ticket
	if ends(r.Type) || c.ending {
		ticket = c.n.j.AppendReserved(recs...)
	} else {
		ticket = c.n.j.Append(recs...)
	}
	if err := ticket.Refused(); err != nil { // it has no place, and the next receipt takes this one's
		return receipts.Hash{}, ticket, fmt.Errorf("receipt %s: %w", r.Type, err)
	}
	next.seq, next.prev = r.Seq+1, leaf
	c.link = next
	c.account(r, leaf)
	return leaf, ticket, nil
}

// ends reports whether a receipt ends something: it must still go through when
// the disk is full.
func ends(t receipts.Type) bool {
	switch t {
	case receipts.TypeOutcome, receipts.TypeSessionState, receipts.TypeSessionClose, receipts.TypeLoss, receipts.TypeCredentialRevoke:
		return true
	}
	return false
}

// stamp fills what the chain knows. Times never run backwards in a chain,
// whatever the clock does.
func (c *Chain) stamp(r *receipts.Receipt, next *link) {
	now := c.n.o.Clock()
	if c.start.IsZero() {
		c.start = now
	}
	next.last = now.UTC().Round(0)
	if next.last.Before(c.link.last) { // RC-44
		next.last = c.link.last
	}
	if mono := now.Sub(c.start); mono > 0 {
		next.mono = max(c.link.mono, uint64(mono))
	}
	r.V, r.Log, r.Session, r.Epoch = receipts.Version, c.n.origin, c.session, 1
	r.Seq, r.Prev, r.T, r.Mono = next.seq, next.prev, next.last, next.mono
	if r.Close != nil {
		cl := *r.Close
		cl.Count, cl.Unknown, cl.Spent = next.seq+1, c.tally.Unknown, c.tally.Spent
		cl.Verdicts = maps.Clone(c.tally.Verdicts)
		r.Close = &cl
	}
	if r.Obs != nil && r.Obs.Build.IsZero() && !c.n.o.Build.IsZero() {
		obs := *r.Obs
		obs.Build = c.n.o.Build
		r.Obs = &obs
	}
}

// encode returns the receipt's bytes, which stand until the next. A field that holds
// a known secret is replaced; the decision stays.
func (c *Chain) encode(r *receipts.Receipt) (_ []byte, err error) {
	if c.redact != nil { // RC-33
		c.text, err = c.redact.Append(c.text[:0], r)
	} else {
		c.text, err = r.Append(c.text[:0])
	}
	return c.text, err
}

// account takes a receipt into the chain's totals.
func (c *Chain) account(r *receipts.Receipt, leaf receipts.Hash) {
	c.tally.Add(r, leaf)
	switch r.Type {
	case receipts.TypeSessionOpen:
		c.info.Since = r.T
	case receipts.TypeSessionState:
		c.info.State, c.info.Level = r.State.To, r.State.Level
	case receipts.TypeSessionClose:
		c.closed, c.known, c.redact = true, nil, nil
		c.spending = spending{}
	}
}

// Guard names values that may stand in no receipt of the chain from now on:
// what was minted, injected or handed out for the session. They are kept in
// memory in searchable form until the chain is closed.
func (c *Chain) Guard(values ...secret.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range values {
		c.known = append(c.known, slices.Clone(v.Reveal()))
	}
	c.redact = receipts.NewRedactor(c.known...)
}

// Commit returns the keyed commitment to value under a label: receipts.Commit
// with the key that receipts.CommitKey derives from the session's random key.
func (c *Chain) Commit(label string, value []byte) receipts.Hash {
	k := c.committer(label)
	m := k.macs.Get().(*mac)
	m.Write(value)
	return k.sum(m)
}

// commit is Commit for text, which it does not copy whole.
func (c *Chain) commit(label, value string) receipts.Hash {
	k := c.committer(label)
	m := k.macs.Get().(*mac)
	for value != "" {
		n := copy(m.text[:], value)
		m.Write(m.text[:n])
		value = value[n:]
	}
	return k.sum(m)
}

// committer commits under one label. Deriving its key costs as much as
// committing, and setting a MAC up more: both are done once.
type committer struct {
	macs sync.Pool // of *mac: HMAC-SHA256 under the label's key
}

// mac is a MAC with room for what goes in and comes out.
type mac struct {
	hash.Hash
	text [256]byte
	out  receipts.Hash
}

// sum ends a commitment.
func (k *committer) sum(m *mac) receipts.Hash {
	m.Sum(m.out[:0])
	m.Reset()
	out := m.out
	k.macs.Put(m)
	return out
}

func (c *Chain) committer(label string) *committer {
	if k, ok := c.labels.Load(label); ok {
		return k.(*committer)
	}
	key := receipts.CommitKey(c.key[:], label)
	k, _ := c.labels.LoadOrStore(label, &committer{macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key[:])} }}})
	return k.(*committer)
}
