package view

import (
	"context"
	"maps"
	"slices"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/receipts"
)

// Event is one row of the event list. It holds facts only, no text.
type Event struct {
	ID         string       `json:"id"`
	Source     string       `json:"source"`
	Endpoint   string       `json:"endpoint"`
	Kind       string       `json:"kind"`
	Action     string       `json:"action,omitempty"`
	Entity     EventEntity  `json:"entity"`
	Actor      EventActor   `json:"actor"`
	Trust      string       `json:"trust"`
	Delivery   string       `json:"delivery,omitempty" doc:"the vendor's delivery id"`
	BodySHA256 string       `json:"body_sha256"`
	Scheme     string       `json:"scheme" doc:"how the signature was checked"`
	Key        string       `json:"key,omitempty" doc:"name of the secret that matched"`
	Late       bool         `json:"late,omitempty"`
	Time       time.Time    `json:"time" doc:"claimed by the body"`
	Received   time.Time    `json:"received"`
	Anomalies  []string     `json:"anomalies"`
	Sessions   []EventStart `json:"sessions" doc:"sessions and refusals it led to, in order"`
}

// EventEntity is what an event is about, by ids.
type EventEntity struct {
	Kind   string            `json:"kind"`
	ID     string            `json:"id"`
	Number string            `json:"number,omitempty"`
	Scope  map[string]string `json:"scope,omitempty"`
}

// EventActor is who caused an event.
type EventActor struct {
	ID    string `json:"id,omitempty"`
	Kind  string `json:"kind"`
	Level string `json:"level"`
}

// EventStart is one session of an event.
type EventStart struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Bundle string `json:"bundle,omitempty"`
}

type eventRow struct {
	row Event
	seq uint64
}

type events struct {
	max   int
	byID  map[string]*eventRow
	order []*eventRow // oldest first
}

func (s *events) fold(m bus.Msg) error {
	e, err := event.Decode(m.Data)
	if err != nil {
		return err
	}
	if s.byID[e.ID] != nil {
		return nil // the subject is written once; a second copy changes nothing
	}
	x := &eventRow{seq: m.Seq, row: Event{
		ID: e.ID, Source: e.Source, Endpoint: e.Endpoint, Kind: e.Kind, Action: e.Action,
		Entity: EventEntity{Kind: e.Entity.Kind, ID: e.Entity.ID, Number: e.Entity.Number, Scope: e.Entity.Scope},
		Actor:  EventActor{ID: e.Actor.ID, Kind: e.Actor.Kind, Level: string(e.Actor.Level)},
		Trust:  e.Trust, Delivery: e.Delivery, BodySHA256: e.BodySHA256,
		Scheme: e.Auth.Scheme, Key: e.Auth.Key, Late: e.Auth.Late,
		Time: e.Time, Received: e.Received, Anomalies: append([]string{}, e.Anomalies...),
	}}
	s.byID[e.ID] = x
	s.order = append(s.order, x)
	if len(s.order) > s.max {
		delete(s.byID, s.order[0].row.ID)
		s.order = s.order[1:]
	}
	return nil
}

func (s *events) sorted() []Event {
	var out []Event
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		out = append(out, s.byID[id].row)
	}
	return out
}

// EventFilter selects events; "" fields match all.
type EventFilter struct {
	Source   string
	Endpoint string
	Kind     string
	Level    string // of the actor
	State    string // of its latest session, "none" for an event without one
}

// Events lists events, the newest first.
func (v *View) Events(f EventFilter, after string, n int) (Page[Event], error) {
	before, err := parseCursor('e', after)
	if err != nil {
		return Page[Event]{}, err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return page('e', limit(n), before, v.events.order, func(x *eventRow) (Event, uint64, bool) {
		e := &x.row
		if !is(f.Source, e.Source) || !is(f.Endpoint, e.Endpoint) || !is(f.Kind, e.Kind) || !is(f.Level, e.Actor.Level) {
			return Event{}, 0, false
		}
		row := v.withSessions(*e)
		state := "none"
		if n := len(row.Sessions); n > 0 {
			state = row.Sessions[n-1].State
		}
		return row, x.seq, is(f.State, state)
	}), nil
}

// withSessions joins an event with its sessions. It is done at reading, so that
// it does not matter which of the two streams came first.
func (v *View) withSessions(e Event) Event {
	e.Sessions = []EventStart{}
	for _, id := range v.sessions.byEvent[e.ID] {
		r := &v.sessions.byID[id].row
		e.Sessions = append(e.Sessions, EventStart{ID: id, State: r.State, Reason: r.Reason, Bundle: r.Bundle})
	}
	return e
}

// Seal says whether a seal was checked and holds.
type Seal string

// Seals.
const (
	SealValid     Seal = "valid"
	SealInvalid   Seal = "invalid"
	SealUnchecked Seal = "unchecked" // of another node's log, or no keyset here
)

// EventDetail is one event with its facts and its text. Passages are untrusted:
// whoever shows them boxes and escapes them.
type EventDetail struct {
	Event
	Seal     Seal                `json:"seal" enum:"valid,invalid,unchecked" doc:"whether this node sealed exactly these bytes"`
	Facts    map[string]string   `json:"facts"`
	Lists    map[string][]string `json:"lists,omitempty"`
	Prov     map[string]string   `json:"prov" doc:"JSON pointer to origin; the longest match wins"`
	Passages []Passage           `json:"untrusted_text"`
}

// Passage is untrusted text with its origin.
type Passage struct {
	Pointer string   `json:"pointer"`
	As      string   `json:"as"`
	Origin  string   `json:"origin"`
	Author  string   `json:"author,omitempty"`
	Value   string   `json:"value"`
	Length  int      `json:"length" doc:"bytes before it was cut"`
	Cut     bool     `json:"cut,omitempty"`
	Marks   []string `json:"marks,omitempty" doc:"bidi, zero_width, tag, html_comment, lossy"`
}

// Event reads one event from the stream.
func (v *View) Event(ctx context.Context, id string) (EventDetail, error) {
	v.mu.RLock()
	x := v.events.byID[id]
	var row Event
	if x != nil {
		row = v.withSessions(x.row)
	}
	v.mu.RUnlock()
	if x == nil {
		return EventDetail{}, notFound("event", id)
	}
	for m, err := range v.src.Read(ctx, bus.Events, "", x.seq) {
		if err != nil {
			return EventDetail{}, err
		}
		e, err := event.Decode(m.Data)
		if err != nil || e.ID != id {
			break // the stream changed under the list
		}
		d := EventDetail{Event: row, Seal: v.seal(m), Facts: e.Facts, Lists: e.Lists, Prov: map[string]string{}, Passages: []Passage{}}
		for p, o := range e.Prov {
			d.Prov[p] = string(o)
		}
		for _, p := range e.Text {
			d.Passages = append(d.Passages, Passage{
				Pointer: p.Pointer, As: p.As, Origin: string(p.Origin), Author: p.Author,
				Value: p.Value.Untrusted(), Length: p.Len, Cut: p.Cut, Marks: p.Marks,
			})
		}
		return d, nil
	}
	return EventDetail{}, notFound("event", id)
}

// Sealed returns one event as it stands on the stream, for those who judge it
// again. Its text is untrusted.
func (v *View) Sealed(ctx context.Context, id string) (*event.Event, error) {
	v.mu.RLock()
	x := v.events.byID[id]
	v.mu.RUnlock()
	if x == nil {
		return nil, notFound("event", id)
	}
	for m, err := range v.src.Read(ctx, bus.Events, "", x.seq) {
		if err != nil {
			return nil, err
		}
		if e, err := event.Decode(m.Data); err == nil && e.ID == id {
			return e, nil
		}
		break // the stream changed under the list
	}
	return nil, notFound("event", id)
}

// seal checks the seal of a message against this node's keyset.
func (v *View) seal(m bus.Msg) Seal {
	h, err := receipts.ParseHeader(m.Header[receipts.HeaderSeal])
	switch {
	case v.o.Keyset == nil:
		return SealUnchecked
	case err != nil:
		return SealInvalid
	case h.Seal.Origin != v.o.Keyset.Origin:
		return SealUnchecked
	}
	msg := receipts.Message{Data: m.Data, Type: m.Header[receipts.HeaderType], Seal: m.Header[receipts.HeaderSeal], ID: m.Header[receipts.HeaderID]}
	if _, _, err := msg.Open(v.o.Keyset); err != nil {
		return SealInvalid
	}
	return SealValid
}
