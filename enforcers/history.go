package enforcers

import (
	"sync"

	"gatehouse/receipts"
)

// historySize is how many decisions a gate can still explain.
const historySize = 1024

// Explanation is one decision with every enforcer's part in it. It holds no
// header, query or body.
type Explanation struct {
	Receipt  receipts.Hash
	ID       string
	Kind     Kind
	To       string // "scheme://host:port", "" when it goes nowhere by itself
	Method   string
	Path     string
	Decision Decision
}

// history keeps the newest decisions by receipt.
type history struct {
	mu   sync.Mutex
	ring [historySize]receipts.Hash
	next int
	by   map[receipts.Hash]Explanation
}

func (h *history) add(a *Action, d Decision) {
	e := Explanation{Receipt: d.Receipt, ID: a.ID, Kind: a.Kind, To: a.To().String(), Decision: d}
	if a.HTTP != nil {
		e.Method, e.Path = a.HTTP.Method, a.HTTP.Path
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = make(map[receipts.Hash]Explanation)
	}
	delete(h.by, h.ring[h.next])
	h.ring[h.next] = d.Receipt
	h.next = (h.next + 1) % historySize
	h.by[d.Receipt] = e
}

// Explain returns the decision behind a receipt of this session, if it is
// among the newest 1,024.
func (g *Gate) Explain(receipt receipts.Hash) (Explanation, bool) {
	g.explain.mu.Lock()
	defer g.explain.mu.Unlock()
	e, ok := g.explain.by[receipt]
	return e, ok
}

// Refused returns this session's newest stopped actions, the newest first, at
// most n of those that Explain still knows.
func (g *Gate) Refused(n int) []Explanation {
	h := &g.explain
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Explanation
	for i := 1; i <= historySize && len(out) < n; i++ {
		e := h.by[h.ring[(h.next-i+historySize)%historySize]]
		// Equal refusals may share a receipt, and then follow each other.
		if e.Decision.Effect == Deny && !e.Decision.Passed && (len(out) == 0 || out[len(out)-1].Receipt != e.Receipt) {
			out = append(out, e)
		}
	}
	return out
}
