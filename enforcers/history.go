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
	e := Explanation{ID: a.ID, Kind: a.Kind, To: a.To().String(), Decision: d}
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
