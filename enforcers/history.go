package enforcers

import (
	"sync"

	"gatehouse/internal/authority"
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

// history keeps the newest decisions. It is written with every action and read
// when somebody asks why, so it is a ring that is searched.
type history struct {
	mu   sync.Mutex
	ring []told // grows to historySize
	next int    // the oldest, once it is full
}

// told is an Explanation whose To is not spelled yet: few are ever read.
type told struct {
	Explanation
	to authority.Authority
}

func (t told) explain() Explanation {
	t.To = t.to.String()
	return t.Explanation
}

func (h *history) add(a *Action, d Decision) {
	t := told{Explanation{Receipt: d.Receipt, ID: a.ID, Kind: a.Kind, Decision: d}, a.To()}
	if a.HTTP != nil {
		t.Method, t.Path = a.HTTP.Method, a.HTTP.Path
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < historySize {
		h.ring = append(h.ring, t)
		return
	}
	h.ring[h.next] = t
	h.next = (h.next + 1) % historySize
}

// newest goes from the newest decision to the oldest.
func (h *history) newest(yield func(*told) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.ring {
		if !yield(&h.ring[(h.next+len(h.ring)-1-i)%len(h.ring)]) {
			return
		}
	}
}

// Explain returns the decision behind a receipt of this session, if it is
// among the newest 1,024.
func (g *Gate) Explain(receipt receipts.Hash) (Explanation, bool) {
	for t := range g.explain.newest {
		if t.Receipt == receipt {
			return t.explain(), true
		}
	}
	return Explanation{}, false
}

// Refused returns this session's newest stopped actions, the newest first, at
// most n of those that Explain still knows.
func (g *Gate) Refused(n int) []Explanation {
	var out []Explanation
	for t := range g.explain.newest {
		if len(out) == n {
			break
		}
		// Equal refusals may share a receipt, and then follow each other.
		if t.Decision.Effect == Deny && !t.Decision.Passed && (len(out) == 0 || out[len(out)-1].Receipt != t.Receipt) {
			out = append(out, t.explain())
		}
	}
	return out
}
