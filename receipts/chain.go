package receipts

import (
	"maps"
	"slices"
	"time"
)

// chain is one session's receipts as the file shows them.
type chain struct {
	Session
	leaves  []Hash // by seq, from base on
	base    uint64
	index   uint64 // log index of the last receipt
	last    time.Time
	mono    uint64
	closed  bool
	broken  bool // a receipt is missing: what follows proves no end
	partial bool // it began before the file does
	tally   Tally
	level   int // lowest level of a decision, -1 none
	points  []string
	seen    map[string]bool
	notSeen []string
	dev     bool
	opened  uint64 // log index of session.open + 1, 0 = none
	revoked uint64 // seq+1 of the last receipt under a revoked seal key
}

func newChain(id string) *chain {
	return &chain{Session: Session{ID: id, State: "open"}, level: -1, seen: map[string]bool{}}
}

// next is the seq that must follow.
func (c *chain) next() uint64 { return c.base + uint64(len(c.leaves)) }

// leaf returns the leaf hash of a receipt by seq.
func (c *chain) leaf(seq uint64) (Hash, bool) {
	if seq < c.base || seq >= c.next() {
		return Hash{}, false
	}
	return c.leaves[seq-c.base], true
}

// add judges the receipt's place in the chain and takes it in.
func (c *chain) add(v *verifier, r *Receipt, index uint64, leaf Hash) {
	bad := func(class Class, format string, a ...any) {
		v.find(ExitTampered, class, c.ID, int64(index), format, a...)
	}
	switch next := c.next(); {
	case len(c.leaves) == 0 && r.Seq > 0 && v.first > 0:
		c.base, c.partial = r.Seq, true
	case len(c.leaves) == 0 && !c.begins(v, r, bad):
		c.base, c.broken = r.Seq, true
	case len(c.leaves) == 0:
	case r.Seq < next:
		if old, ok := c.leaf(r.Seq); ok && old == leaf { // RC-09
			bad(ClassDuplicate, "receipt %d twice", r.Seq)
		} else { // RC-14
			bad(ClassFork, "two signed receipts with number %d", r.Seq)
		}
		return
	case r.Seq > next: // RC-03, RC-29
		bad(ClassGap, "receipts %d to %d are missing", next, r.Seq-1)
		c.leaves, c.base, c.broken = nil, r.Seq, true
	case r.Prev != c.leaves[len(c.leaves)-1]:
		bad(ClassChain, "receipt %d does not follow receipt %d", r.Seq, r.Seq-1)
	}
	if c.closed { // RC-12
		bad(ClassOrder, "receipt %d stands behind session.close", r.Seq)
	}
	if len(c.leaves) > 0 && (r.T.Before(c.last) || r.Mono < c.mono) { // RC-27
		v.find(ExitAdmitted, ClassTime, c.ID, int64(index), "the clock of receipt %d runs backwards", r.Seq)
	}
	c.leaves = append(c.leaves, leaf)
	c.index, c.last, c.mono = index, r.T, r.Mono
	if v.revoked {
		c.revoked = r.Seq + 1
	}
	c.tally.Add(r, leaf)
	c.tell(r, index)
	if r.Close != nil && !c.broken && !c.partial {
		c.checkClose(r.Close, bad)
	}
}

// begins judges the first receipt of a chain. It returns false if the chain's
// beginning is missing.
func (c *chain) begins(v *verifier, r *Receipt, bad func(Class, string, ...any)) bool {
	if r.Seq != 0 { // RC-03
		bad(ClassGap, "receipts 0 to %d are missing", r.Seq-1)
		return false
	}
	if r.Open != nil {
		if !v.ks.Knows(r.Open.Keyset) || r.Prev != Genesis(r.Log, r.Session, r.Open.Keyset) { // RC-13
			bad(ClassSplice, "the first receipt does not belong to this log, session and keyset")
		}
		return true
	}
	for _, d := range append([]Hash{v.ks.Digest()}, v.ks.Was...) {
		if r.Prev == Genesis(r.Log, r.Session, d) {
			return true
		}
	}
	bad(ClassSplice, "the first receipt does not belong to this log, session and keyset")
	return true
}

// checkClose compares the totals that session.close states.
func (c *chain) checkClose(l *Close, bad func(Class, string, ...any)) {
	switch {
	case l.Count != c.tally.Count:
		bad(ClassGap, "session.close counts %d receipts, the chain has %d", l.Count, c.tally.Count)
	case !sameCounts(l.Verdicts, c.tally.Verdicts):
		bad(ClassChain, "session.close counts other verdicts than the chain has")
	}
}

// sameCounts compares totals; an absent one is zero.
func sameCounts(a, b map[string]uint64) bool {
	for _, m := range []map[string]uint64{a, b} {
		for k := range m {
			if a[k] != b[k] {
				return false
			}
		}
	}
	return true
}

// tell takes from a receipt what the report says of the session.
func (c *chain) tell(r *Receipt, index uint64) {
	if len(c.leaves) == 1 {
		c.From = r.T
	}
	c.To = r.T
	if o := r.Open; o != nil {
		c.opened = index + 1
		c.Bundle, c.Mode, c.Policy, c.Event, c.Code = o.Bundle, o.Mode, o.Policy, o.Event, o.Code
		if o.State == "refused" {
			c.State = "refused"
		}
		c.points, c.notSeen = o.Points, o.NotSeen
		c.dev = c.dev || o.Dev
	} else if r.Obs != nil {
		c.seen[r.Obs.Point] = true
	}
	if r.Dec != nil {
		c.dev = c.dev || r.Dec.Dev
		if c.level < 0 || r.Obs.Level < c.level {
			c.level = r.Obs.Level
		}
	}
	if l := r.Close; l != nil {
		c.closed = true
		c.Reason, c.ExitCode = l.Reason, l.Exit
		if c.State == "open" {
			c.State = "closed"
		}
	}
}

// finish completes the summary.
func (c *chain) finish() {
	c.Receipts = c.tally.Count
	c.Verdicts = c.tally.Verdicts
	c.Spent, c.Unknown, c.Losses = c.tally.Spent, c.tally.Unknown, c.tally.Losses
	c.Pending = c.tally.Pending()
	if n := len(c.leaves); n > 0 {
		c.Head = c.leaves[n-1].String()
	}
}

// reported splits the expected points into those that reported and the others.
func (c *chain) reported() (yes, no []string) {
	for _, p := range c.points {
		if c.seen[p] {
			yes = append(yes, p)
		} else {
			no = append(no, p)
		}
	}
	return yes, no
}

// sorted returns the members of a set in order, never nil: JSON has no null list.
func sorted(set map[string]bool) []string {
	list := slices.AppendSeq(make([]string, 0, len(set)), maps.Keys(set))
	slices.Sort(list)
	return list
}
