package spend

import "time"

// Codes of refusals: in decisions, in answers and in metrics.
const (
	CodeExceeded = "budget_exceeded" // final: what is left of a budget does not pay for the call
	CodeHeld     = "budget_held"     // for now: other calls hold what would pay for it
	CodeFrozen   = "budget_frozen"   // a call cost more than its worst case; a person must look
	CodeClosed   = "budget_closed"   // the session spends nothing any more, or never could
)

// Refusal says why a call is not paid for. It is a value of judging, never a
// failure.
type Refusal struct {
	Code      string
	Budget    string // "session S", "bundle B, day D" or "node, day D"
	Remaining Nano   // of that budget, without what is held
	Held      Nano   // by other calls
	Limit     Nano
}

// Hold is money set aside for one call.
type Hold struct {
	l      *Ledger
	path   []*budget
	amount Nano
	done   bool // guarded by l.mu
}

// Hold sets a call's worst case aside in every budget above the session, or in
// none. want is told how much there is room for and returns the worst case of
// what it makes of it, false when it can make nothing of so little. It is
// called with the ledger locked: it must only calculate.
func (l *Ledger) Hold(session string, want func(room Nano) (worst Nano, ok bool)) (*Hold, *Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.sessions[session]
	if b == nil || !b.limited {
		return nil, &Refusal{Code: CodeClosed, Budget: "session " + session}
	}
	path := l.path(b, l.clock())
	room, left := most, most // what nobody has, and what nobody has spent
	tight, poor := b, b
	for _, p := range path {
		switch {
		case p.frozen != "":
			return nil, p.refusal(CodeFrozen)
		case p.kind == KindSession && !p.open:
			return nil, p.refusal(CodeClosed)
		case !p.limited:
			continue
		}
		if r := p.limit - p.spent - p.held; r < room {
			room, tight = r, p
		}
		if r := p.limit - p.spent; r < left {
			left, poor = r, p
		}
	}
	worst, ok := want(max(room, 0))
	if ok && worst >= 0 && worst <= room {
		for _, p := range path {
			p.held += worst
		}
		return &Hold{l: l, path: path, amount: worst}, nil
	}
	// Would it be paid for if nothing else were under way?
	if worst, ok := want(max(left, 0)); ok && worst >= 0 && worst <= left {
		return nil, tight.refusal(CodeHeld)
	}
	return nil, poor.refusal(CodeExceeded)
}

// Exactly is a want that can make do with nothing less than n.
func Exactly(n Nano) func(Nano) (Nano, bool) {
	return func(room Nano) (Nano, bool) { return n, n <= room }
}

func (b *budget) refusal(code string) *Refusal {
	r := &Refusal{Code: code, Remaining: max(b.limit-b.spent, 0), Held: b.held, Limit: b.limit}
	switch b.kind {
	case KindSession:
		r.Budget = "session " + b.id
	case KindBundle:
		r.Budget = "bundle " + b.id + ", day " + b.day.String()
	default:
		r.Budget = "node, day " + b.day.String()
	}
	return r
}

// Amount returns what is held.
func (h *Hold) Amount() Nano { return h.amount }

// Release gives the money back. It is for calls of which it is proven that
// nothing was sent.
func (h *Hold) Release() { h.settle(0) }

// Keep spends all that is held: nobody knows what the call cost.
func (h *Hold) Keep() Nano { return h.settle(h.amount) }

// Settle spends what the call really cost. More than was held is recorded as
// it is, and freezes the session and all below it: its bound was wrong, so
// every other bound of it may be.
func (h *Hold) Settle(actual Nano) Nano { return h.settle(actual) }

// settle returns what was spent. Only the first call counts.
func (h *Hold) settle(actual Nano) Nano {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.l.settle(h, actual, h.l.clock())
}

func (l *Ledger) settle(h *Hold, actual Nano, t time.Time) Nano {
	if h.done {
		return 0
	}
	h.done = true
	actual = min(max(actual, 0), most)
	for _, p := range h.path {
		p.held -= h.amount
		p.spent = min(p.spent+actual, most)
		if actual > 0 {
			p.calls++
		}
		if p.kind == KindSession {
			p.day = dayOf(t)
		}
	}
	if actual > h.amount {
		h.path[0].frozen = CodeFrozen
	}
	return actual
}

// Effects of outcomes, as receipts have them.
const (
	forwarded    = "forwarded"
	notForwarded = "not_forwarded"
)

// charge is what a folded call costs by its outcome. Whoever settles a live call
// writes an outcome that reads back the same.
func charge(held Nano, effect string, spent int64) Nano {
	switch {
	case effect == notForwarded:
		return 0
	case effect == forwarded || spent > 0:
		return Nano(spent)
	default:
		return held
	}
}
