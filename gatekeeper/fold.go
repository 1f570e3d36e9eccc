package gatekeeper

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// How long the fold remembers. Starts count for the longest window that a
// bundle can ask for; refusals only so that one can be tried again after the
// configuration was mended.
const (
	keepStarts   = 30 * 24 * time.Hour
	keepRefusals = 7 * 24 * time.Hour
)

// Facts of session.open that the fold reads back. They are in the receipt, so
// that every decision can be followed from the journal alone.
const (
	factEntity  = "entity"   // bundle.EntityKey of the event
	factSelf    = "self"     // "true" when Gatehouse itself caused the event
	factLifted  = "lifted"   // "true" when an author's level was lifted by a platform's answer (Lift)
	factRetryOf = "retry_of" // the session that this one repeats
	factAgent   = "agent"    // claude-code, codex, gemini, opencode or command
)

// past is what the node knows of a session that it opened.
type past struct {
	event    string        // CloudEvents id
	leaf     receipts.Hash // of the event; zero for one that was not ours, so that a forged event does not use up a true one with its bytes
	entity   string        // "" when the event is about nothing
	opened   time.Time
	admitted bool
	self     bool
	closed   bool
	parent   string // of a child
	bundle   string
}

// fold is the node state that decisions read: the sessions of this node's own
// journal, and what has been reserved for sessions whose session.open is on
// its way there.
type fold struct {
	mu       sync.Mutex
	sessions map[string]*past
	byEntity map[string][]string // entity -> session ids
	streaks  *streaks            // of failures, by bundle
	changes  []change            // of the control chain, in order
	events   map[[16]byte]bool   // leaf prefixes of the events that were judged here

	proposals []*Proposal // of the control chain, oldest first
}

// change is one receipt of the control chain about a bundle.
type change struct {
	receipts.Change
	Type receipts.Type
	At   time.Time
	Leaf receipts.Hash
	X    map[string]string
}

func newFold() *fold {
	return &fold{streaks: &streaks{}, sessions: map[string]*past{}, byEntity: map[string][]string{}, events: map[[16]byte]bool{}}
}

// load folds the journal from its start.
func (f *fold) load(j Journal, now time.Time) error {
	for group, err := range j.Groups(0) {
		if err != nil {
			return fmt.Errorf("couldn't read the journal: %w", err)
		}
		for _, r := range group {
			if r.Kind != journal.KindReceipt || !receipts.MayBe(r.Data, folded...) {
				continue
			}
			rec, err := receipts.Decode(r.Data)
			if err != nil {
				return fmt.Errorf("journal position %d holds no receipt: %w", r.Pos, err)
			}
			f.add(rec, receipts.Leaf(r.Data))
		}
	}
	f.forget(now)
	return nil
}

// folded are the few receipts that the fold reads, beside the many decisions.
var folded = []receipts.Type{receipts.TypeSessionOpen, receipts.TypeSessionClose, receipts.TypeBundleApply, receipts.TypeModeChange, receipts.TypeApproval}

func (f *fold) add(r *receipts.Receipt, leaf receipts.Hash) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Type {
	case receipts.TypeSessionOpen:
		p := past{
			event: r.Open.Event, leaf: r.Open.EventLeaf, entity: r.Open.Facts[factEntity], opened: r.T,
			admitted: r.Open.State == stateAdmitted, self: r.Open.Facts[factSelf] == "true", parent: r.Open.Parent, bundle: r.Open.Bundle,
		}
		if r.Open.Code == string(problem.EventUnsealed) {
			p.leaf = receipts.Hash{}
		}
		f.judge(p.leaf)
		f.open(r.Session, p)
	case receipts.TypeSessionClose:
		if p := f.sessions[r.Session]; p != nil {
			p.closed = true
			f.streaks.note(p.bundle, r.Close.Reason)
		}
	case receipts.TypeBundleApply, receipts.TypeModeChange, receipts.TypeApproval:
		if r.Change.Result == ResultPaused {
			f.streaks.forget(r.Change.Bundle)
		}
		f.took(change{Change: *r.Change, Type: r.Type, At: r.T, Leaf: leaf, X: r.X})
	}
}

func (f *fold) open(session string, p past) {
	if f.sessions[session] != nil {
		return // reserved before
	}
	f.sessions[session] = &p
	if p.admitted && p.entity != "" {
		f.byEntity[p.entity] = append(f.byEntity[p.entity], session)
	}
}

// opened records a session.open that is durable.
func (f *fold) opened(session string, p past) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge(p.leaf)
	f.open(session, p)
}

// judge notes that an event has its session.open. The caller holds mu.
func (f *fold) judge(leaf receipts.Hash) {
	if !leaf.IsZero() {
		f.events[[16]byte(leaf[:])] = true
	}
}

// judged reports whether a session.open for the event is in the journal. It
// outlives the claims, which are lost with the NATS store: an event that comes
// back on a stream made again starts nothing a second time.
func (f *fold) judged(leaf receipts.Hash) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events[[16]byte(leaf[:])]
}

// release takes back a reservation whose session.open was not written.
func (f *fold) release(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(session)
}

func (f *fold) drop(session string) {
	p := f.sessions[session]
	if p == nil {
		return
	}
	delete(f.sessions, session)
	if p.entity == "" {
		return
	}
	left := slices.DeleteFunc(f.byEntity[p.entity], func(s string) bool { return s == session })
	if len(left) == 0 {
		delete(f.byEntity, p.entity)
		return
	}
	f.byEntity[p.entity] = left
}

// forget drops what no decision can ask for any more.
func (f *fold) forget(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(f.sessions)) {
		p := f.sessions[id]
		keep := keepRefusals
		if p.admitted {
			keep = keepStarts
		}
		if p.closed && now.Sub(p.opened) > keep {
			f.drop(id)
		}
	}
}

func (f *fold) closed(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.sessions[session]; p != nil {
		p.closed = true
	}
}

// get returns what is known of a session.
func (f *fold) get(session string) (past, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.sessions[session]
	if p == nil {
		return past{}, false
	}
	return *p, true
}

// starts counts the sessions that an entity started since a time, and how many
// of these Gatehouse itself caused. The caller holds mu.
func (f *fold) starts(entity string, since time.Time) (all, self int) {
	for _, id := range f.byEntity[entity] {
		p := f.sessions[id]
		if !p.opened.Before(since) {
			all++
			if p.self {
				self++
			}
		}
	}
	return all, self
}

// history returns the control chain's receipts about a bundle, oldest first.
func (f *fold) history(name string) []change {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []change
	for _, c := range f.changes {
		if c.Bundle == name {
			out = append(out, c)
		}
	}
	return out
}

func (f *fold) changed(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took(c)
}

// took folds one receipt of the control chain. The caller holds mu.
func (f *fold) took(c change) {
	f.propose(c)
	if c.Type == receipts.TypeBundleApply || c.Type == receipts.TypeModeChange {
		f.changes = append(f.changes, c)
	}
}

// hasPrefixAny reports whether s begins with one of the prefixes.
func hasPrefixAny(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
