package notary

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Budget bounds what one session may write, so that none can fill the disk or
// slow the others down. The zero Budget has the defaults.
//
// The first FoldAfter refusals of one kind have a receipt each. Further ones are
// counted and written as one receipt with the count: when it has doubled, when a
// second has passed, and when the session ends. A crash can lose the count of the
// last second; no action passed that has no receipt.
type Budget struct {
	Receipts  uint64        // from here on decisions wait Pace each, and at twice as many the session ends; 0 = 20,000
	Refusals  uint64        // refusals of one session, folded ones in full, at which it ends; 0 = 100,000
	FoldAfter uint64        // identical refusals with a receipt each; 0 = 16
	Pace      time.Duration // 0 = 50 ms

	// Flood is told once of each session that is over its budget and must end. It
	// must not wait for the session.
	Flood func(session string)
}

func (b Budget) withDefaults() Budget {
	for _, d := range []struct {
		v   *uint64
		def uint64
	}{{&b.Receipts, 20_000}, {&b.Refusals, 100_000}, {&b.FoldAfter, 16}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if b.Pace == 0 {
		b.Pace = 50 * time.Millisecond
	}
	if b.Flood == nil {
		b.Flood = func(string) {}
	}
	return b
}

// maxFold is how many refusals one receipt counts at most.
const maxFold = 4096

// foldEvery is how long a folded refusal may wait for its receipt.
const foldEvery = time.Second

// refusalKind is what makes refusals identical: everything that their receipts
// say but the action's id, its exact input, its time, and what judging it cost.
type refusalKind struct {
	kind, scheme, host, method, connection, repository, name string
	port                                                     uint16
	blind, authority, dev                                    bool
	args, units, x                                           string
	verdict                                                  receipts.Verdict
	mode                                                     receipts.Mode
	fault, rule, reason, by                                  string
	policy, module                                           receipts.Hash
	gen                                                      uint64
	held                                                     int64
	level                                                    int
}

func kindOf(r *receipts.Receipt) refusalKind {
	a, d := r.Act, r.Dec
	k := refusalKind{
		kind: a.Kind, scheme: a.Scheme, host: a.Host, method: a.Method, connection: a.Connection, repository: a.Repository, name: a.Name,
		port: a.Port, blind: a.Blind, authority: a.Authority, dev: d.Dev,
		verdict: d.Verdict, mode: d.Mode, fault: d.Fault, rule: d.Rule, reason: d.Reason, by: d.By,
		policy: d.Policy, module: d.Module, gen: d.Gen, held: d.Held, level: r.Obs.Level,
	}
	for _, label := range slices.Sorted(maps.Keys(a.Args)) {
		h := a.Args[label]
		k.args += label + "\x00" + string(h[:])
	}
	for _, unit := range slices.Sorted(maps.Keys(a.Units)) {
		k.units += unit + "\x00" + strconv.FormatUint(a.Units[unit], 10)
	}
	for _, name := range slices.Sorted(maps.Keys(r.X)) {
		k.x += name + "\x00" + r.X[name] + "\x00"
	}
	return k
}

// folded are the refusals of one kind.
type folded struct {
	single  uint64            // receipts of their own
	leaf    receipts.Hash     // of the newest receipt of the kind
	waiting uint64            // refusals without a receipt
	next    uint64            // how many may wait
	since   time.Time         // when the first of them came
	newest  *receipts.Receipt // receipt of the newest of them, without the count
}

// spending is what a chain has used of its budget. Chain.mu guards it.
type spending struct {
	kinds    map[refusalKind]*folded
	refusals uint64
	pace     *rate.Limiter // nil until the chain must wait
	flooded  bool
}

// afford waits where the budget says so, and refuses what is over it.
func (c *Chain) afford(ctx context.Context) error {
	b := &c.n.o.Budget
	c.mu.Lock()
	s := &c.spending
	over := c.link.seq >= 2*b.Receipts || s.refusals >= b.Refusals
	tell := over && !s.flooded
	s.flooded = s.flooded || over
	if c.link.seq >= b.Receipts && s.pace == nil {
		s.pace = rate.NewLimiter(rate.Every(b.Pace), 1)
	}
	pace := s.pace
	c.mu.Unlock()
	switch {
	case tell:
		b.Flood(c.session)
		fallthrough
	case over:
		return problem.New(problem.ReceiptFlood, "the session has used up its receipts", "It ends; look for a loop in what the agent does.")
	case pace != nil:
		return pace.Wait(ctx)
	}
	return nil
}

// refuse writes the decision receipt of a refusal, or counts it. It returns the
// receipt that stands for it: the newest of its kind.
func (c *Chain) refuse(r *receipts.Receipt) (receipts.Hash, *journal.Ticket, error) {
	c.n.order.RLock()
	defer c.n.order.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	b, s, kind := &c.n.o.Budget, &c.spending, kindOf(r)
	if s.kinds == nil {
		s.kinds = map[refusalKind]*folded{}
	}
	f := s.kinds[kind]
	if f == nil {
		f = &folded{next: b.FoldAfter}
	}
	if f.single < b.FoldAfter || c.closed {
		leaf, ticket, err := c.write(r, nil)
		if err != nil {
			return receipts.Hash{}, nil, err
		}
		s.refusals++
		f.single, f.leaf = f.single+1, leaf
		s.kinds[kind] = f
		return leaf, &ticket, nil
	}
	if f.waiting == 0 {
		f.since = c.n.o.Clock()
	}
	f.newest = new(*r) // what is kept for replay beside a receipt is the action that wrote it
	f.waiting++
	s.refusals++
	if f.waiting < f.next {
		return f.leaf, nil, nil
	}
	f.next = min(2*f.next, maxFold)
	ticket, err := c.unfold(f)
	return f.leaf, ticket, err
}

// unfold writes the receipt of the refusals of a kind that wait, under the locks.
func (c *Chain) unfold(f *folded) (*journal.Ticket, error) {
	if f.waiting == 0 {
		return nil, nil
	}
	r := *f.newest
	dec := *r.Dec
	dec.Count = f.waiting
	r.Dec = &dec
	leaf, ticket, err := c.write(&r, nil)
	if err != nil {
		return nil, err // they stay counted for the next try
	}
	f.leaf, f.waiting, f.newest = leaf, 0, nil
	return &ticket, nil
}

// unfoldAll writes what waits, in the order in which it came; with since, only
// what has waited since before then. Under the locks.
func (c *Chain) unfoldAll(since time.Time) error {
	var due []*folded
	for _, f := range c.spending.kinds {
		if f.waiting > 0 && (since.IsZero() || f.since.Before(since)) {
			due = append(due, f)
		}
	}
	slices.SortFunc(due, func(a, b *folded) int { return a.since.Compare(b.since) })
	for _, f := range due {
		if _, err := c.unfold(f); err != nil {
			return err
		}
	}
	return nil
}

// unfold writes the folded refusals of all sessions that have waited long enough.
func (n *Notary) unfold() error {
	n.mu.Lock()
	chains := values(n.chains)
	n.mu.Unlock()
	since := n.o.Clock().Add(-foldEvery)
	for _, c := range chains {
		err := func() error {
			n.order.RLock()
			defer n.order.RUnlock()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.closed {
				return nil
			}
			return c.unfoldAll(since)
		}()
		if err != nil {
			return err
		}
	}
	return nil
}
