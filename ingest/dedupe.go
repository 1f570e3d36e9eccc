package ingest

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/journal"
)

// digest is the first half of a SHA-256: enough to tell deliveries apart, half
// the memory.
type digest [16]byte

func digestOf(s string) digest {
	sum := sha256.Sum256([]byte(s))
	return digest(sum[:16])
}

// generations is in how many parts the window of an endpoint is forgotten.
const generations = 8

// keys are what tells a delivery from others. A zero same is none.
type keys struct{ id, body, same digest }

// dedupe knows the deliveries of one endpoint: a fold of the node's own event
// records and of nothing else. An entry exists only for a record that the
// journal took, so a claim without its event cannot be (IN-03).
type dedupe struct {
	window time.Duration
	byBody bool

	// mu also covers the append of the record, so that the order of entries is
	// the order of the journal.
	mu      sync.Mutex
	gens    []*generation // newest first
	flights map[digest]journal.Ticket
}

// generation is one eighth of the window. Maps hold no pointers, so that the
// collector passes them by.
type generation struct {
	start  time.Time
	ids    map[digest]uint32 // delivery -> entry
	bodies map[digest]uint32 // body -> entry
	sames  map[digest]uint32 // what the vendor says again under another body -> entry
	odd    map[digest]bool   // deliveries that were quarantined: known, but no conflict and no repetition
	list   []entry
	names  []byte // event ids, one after the other
}

type entry struct {
	body     digest
	from, to uint32 // the event id in names
}

// known is what the index says about a delivery.
type known struct {
	seen     bool
	conflict bool   // the same id came with another body
	first    string // event id of the first
}

func newDedupe(window time.Duration, byBody bool) *dedupe {
	return &dedupe{window: window, byBody: byBody, flights: map[digest]journal.Ticket{}}
}

// look asks for a delivery. The caller holds mu.
func (x *dedupe) look(k keys) known {
	for _, g := range x.gens {
		if i, ok := g.ids[k.id]; ok {
			e := g.list[i]
			return known{seen: e.body == k.body, conflict: e.body != k.body, first: g.name(e)}
		}
	}
	for _, g := range x.gens {
		i, ok := g.bodies[k.body]
		if !ok {
			i, ok = g.sames[k.same]
		}
		if ok {
			return known{seen: true, first: g.name(g.list[i])}
		}
	}
	return known{}
}

// knows reports whether an event id is known, as an event of its own or as one
// that was quarantined: asked for again it would be quarantined again. The
// caller holds mu.
func (x *dedupe) knows(id digest) bool {
	for _, g := range x.gens {
		if _, ok := g.ids[id]; ok || g.odd[id] {
			return true
		}
	}
	return false
}

func (g *generation) name(e entry) string { return string(g.names[e.from:e.to]) }

// add notes an event that the journal took. The caller holds mu.
func (x *dedupe) add(name string, k keys, at time.Time) {
	for len(x.gens) > 0 && at.Sub(x.gens[len(x.gens)-1].start) > x.window+x.window/generations {
		x.gens = x.gens[:len(x.gens)-1]
	}
	if len(x.gens) == 0 || at.Sub(x.gens[0].start) > x.window/generations {
		g := &generation{start: at, ids: map[digest]uint32{}, bodies: map[digest]uint32{}, sames: map[digest]uint32{}, odd: map[digest]bool{}}
		x.gens = append([]*generation{g}, x.gens...)
	}
	g := x.gens[0]
	from := uint32(len(g.names)) //nolint:gosec // G115: bounded by memory long before
	g.names = append(g.names, name...)
	i := uint32(len(g.list))                                                               //nolint:gosec // G115: as above
	g.list = append(g.list, entry{body: k.body, from: from, to: from + uint32(len(name))}) //nolint:gosec // G115: as above
	g.ids[k.id] = i
	if at := strings.LastIndexByte(name, quarantineMark); at >= 0 {
		g.odd[digestOf(name[:at])] = true
	}
	if _, ok := g.bodies[k.body]; !ok && x.byBody {
		g.bodies[k.body] = i
	}
	if _, ok := g.sames[k.same]; !ok && k.same != (digest{}) {
		g.sames[k.same] = i
	}
}

// flight returns the ticket of an event that was not durable when last asked.
func (x *dedupe) flight(id digest) (journal.Ticket, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t, ok := x.flights[id]
	return t, ok
}

func (x *dedupe) landed(id digest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.flights, id)
}

// ask is look with the lock.
func (x *dedupe) ask(k keys) known {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.look(k)
}

// claim appends the record of an event and notes it, in one step, unless the
// event became known since it was asked for.
func (x *dedupe) claim(name string, k keys, at time.Time, appendRecord func() journal.Ticket) (t journal.Ticket, fresh bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.look(k); known.seen || known.conflict {
		return t, false
	}
	if t = appendRecord(); t.Refused() == nil {
		x.add(name, k, at)
		x.flights[k.id] = t
	}
	return t, true
}
