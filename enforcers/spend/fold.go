package spend

import (
	"gatehouse/receipts"
)

// Fold reads one receipt of a session's chain. The receipts come in the log's
// order, before anything is held. leaf is the receipt's own.
func (l *Ledger) Fold(leaf receipts.Hash, r *receipts.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.Open != nil:
		b := &budget{kind: KindSession, id: r.Session, bundle: r.Open.Bundle, day: dayOf(r.T)}
		b.parent = l.sessions[r.Open.Parent]
		l.sessions[r.Session] = b
	case r.Dec != nil && r.Dec.Passed && r.Dec.Held > 0:
		b := l.sessions[r.Session]
		if b == nil {
			return // its opening was trimmed from the journal with the day it belongs to
		}
		h := &Hold{l: l, path: l.path(b, r.T), amount: Nano(r.Dec.Held)}
		for _, p := range h.path {
			p.held += h.amount
		}
		l.pending[leaf] = h
	case r.Close != nil:
		if b := l.sessions[r.Session]; b != nil {
			b.ended = true
		}
	case r.Type == receipts.TypeOutcome && r.Out != nil:
		h := l.pending[r.Out.Ref]
		if h == nil {
			return
		}
		delete(l.pending, r.Out.Ref)
		l.settle(h, charge(h.amount, r.Out.Effect, r.Out.Spent), r.T)
	}
}

// Folded ends the fold: what has no outcome is spent in full, since nobody can
// say any more what it cost. It returns how many calls that concerns.
func (l *Ledger) Folded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.pending)
	for leaf, h := range l.pending {
		delete(l.pending, leaf)
		l.settle(h, h.amount, l.clock())
	}
	l.forget()
	return n
}
