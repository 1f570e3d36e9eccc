package view

import (
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// Session is one row of the session list.
type Session struct {
	ID        string            `json:"id"`
	Log       string            `json:"log" doc:"origin of the node's log"`
	State     string            `json:"state" doc:"admitted, preparing, running, ended or refused"`
	Reason    string            `json:"reason,omitempty" doc:"end reason of an ended session, refusal code of a refused one"`
	Bundle    string            `json:"bundle,omitempty"`
	Digest    string            `json:"digest,omitempty" doc:"of the bundle, lower hex SHA-256"`
	Mode      string            `json:"mode,omitempty"`
	Policy    string            `json:"policy,omitempty" doc:"credential policy"`
	Provider  string            `json:"provider,omitempty"`
	Parent    string            `json:"parent,omitempty"`
	Event     string            `json:"event" doc:"id of the event that caused it"`
	Floor     string            `json:"floor,omitempty" doc:"lowest origin of the delivered text"`
	Level     int               `json:"level" doc:"observation level in force, 0 to 3"`
	Facts     map[string]string `json:"facts,omitempty"`
	Started   time.Time         `json:"started" doc:"asserted by the node's clock"`
	Ended     *time.Time        `json:"ended,omitempty"`
	Exit      *int64            `json:"exit,omitempty" doc:"exit code of the agent"`
	Receipts  uint64            `json:"receipts"`
	Counts    Counts            `json:"counts"`
	Spent     int64             `json:"spent" doc:"nanodollars"`
	Pending   uint64            `json:"pending" doc:"passed decisions without an outcome"`
	Unknown   uint64            `json:"unknown" doc:"outcomes whose effect is unknown"`
	Losses    uint64            `json:"losses" doc:"receipts that admit a gap"`
	Artifacts int               `json:"artifacts,omitempty" doc:"files that the agent left; 201 stands for more than 200"`
	Dev       bool              `json:"dev,omitempty" doc:"development substitutions were in force"`
	Broken    string            `json:"broken,omitempty" doc:"why the chain could not be followed; verify it"`
}

// Counts are decisions by what became of them. Each counts once; a would-block
// is never an allow.
type Counts struct {
	Allow      uint64 `json:"allow"`
	Deny       uint64 `json:"deny"`
	WouldBlock uint64 `json:"would_block"`
	Fault      uint64 `json:"fault"`
}

// session is the fold of one chain.
type session struct {
	row     Session
	tally   receipts.Tally
	next    uint64 // expected seq
	prev    receipts.Hash
	opened  uint64 // stream sequence of session.open: the order of the list
	dropped bool
	seen    *seen    // for the groups; nil for a refusal
	tail    []uint64 // stream sequences of the newest receipts, oldest first; nil once it ended
}

type sessions struct {
	max     int
	byID    map[string]*session
	byEvent map[string][]string
	order   []*session // by session.open, oldest first; dropped ones are skipped
	drops   int
	groups  *groups
	series  series
}

func (s *sessions) fold(m bus.Msg) error {
	r, err := receipts.Decode(m.Data)
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	if err != nil {
		if x := s.byID[id]; x != nil && x.row.Broken == "" {
			x.row.Broken = "a receipt cannot be read"
		}
		return err
	}
	if r.Session != id {
		return fmt.Errorf("receipt of session %s on the subject of %s", r.Session, id)
	}
	x := s.byID[id]
	if x == nil {
		if r.Type != receipts.TypeSessionOpen {
			return nil // left the list, or its start is not on the stream
		}
		x = &session{opened: m.Seq, row: Session{ID: id, Log: r.Log}}
		s.byID[id] = x
		s.order = append(s.order, x)
		s.byEvent[r.Open.Event] = append(s.byEvent[r.Open.Event], id)
		if r.Open.State == "admitted" {
			x.seen = &seen{id: id, event: r.Open.Event, floor: r.Open.Floor, opened: m.Seq}
		}
	}
	leaf := receipts.Leaf(m.Data)
	if x.row.Broken == "" && (r.Seq != x.next || r.Seq > 0 && r.Prev != x.prev) {
		x.row.Broken = fmt.Sprintf("receipt %d does not follow", r.Seq)
	}
	x.next, x.prev = r.Seq+1, leaf
	was := x.row
	x.add(r, leaf)
	x.trail(m.Seq)
	s.series.add(r, &was, &x.row)
	switch {
	case x.seen == nil:
	case r.Dec != nil:
		s.groups.decision(x.seen, x.row.Bundle, r, leaf)
	case r.Close != nil:
		s.groups.ended(x.seen, r.Close.Reason)
	}
	if r.Type == receipts.TypeSessionOpen || r.Type == receipts.TypeSessionClose {
		s.trim()
	}
	return nil
}

// tailKept is how many receipts of an open session are found from its end.
const tailKept = 200

func (x *session) trail(seq uint64) {
	switch {
	case x.row.Ended != nil:
		x.tail = nil // read from the beginning: nothing more comes
	case len(x.tail) < tailKept:
		x.tail = append(x.tail, seq)
	default:
		copy(x.tail, x.tail[1:])
		x.tail[tailKept-1] = seq
	}
}

func (x *session) add(r *receipts.Receipt, leaf receipts.Hash) {
	row := &x.row
	x.tally.Add(r, leaf)
	switch r.Type {
	case receipts.TypeSessionOpen:
		o := r.Open
		row.State, row.Reason = o.State, o.Code
		row.Bundle, row.Digest, row.Mode, row.Policy = o.Bundle, digest(o.Digest), string(o.Mode), o.Policy
		row.Provider, row.Parent, row.Event, row.Floor, row.Facts, row.Dev = o.Provider, o.Parent, o.Event, o.Floor, o.Facts, o.Dev
		row.Started = r.T
		if r.Obs != nil {
			row.Level = r.Obs.Level
		}
	case receipts.TypeSessionState:
		row.State, row.Level = r.State.To, r.State.Level
		if r.State.Reason != "" {
			row.Reason = r.State.Reason
		}
	case receipts.TypeModeChange:
		row.Mode = string(r.Change.To)
	case receipts.TypeSessionClose:
		if row.State != "refused" {
			row.State, row.Reason = "ended", r.Close.Reason
		}
		ended := r.T
		row.Ended, row.Exit = &ended, r.Close.Exit
		for label := range r.Close.Out {
			switch {
			case label == "artifacts":
				row.Artifacts = manyArtifacts
			case strings.HasPrefix(label, "artifact."):
				row.Artifacts++
			}
		}
	}
	t := &x.tally
	row.Receipts, row.Spent, row.Pending, row.Unknown, row.Losses = t.Count, t.Spent, t.Pending(), t.Unknown, t.Losses
	row.Counts = Counts{
		Allow: t.Verdicts[receipts.CountAllow], Deny: t.Verdicts[receipts.CountDeny],
		WouldBlock: t.Verdicts[receipts.CountWouldBlock], Fault: t.Verdicts[receipts.CountFault],
	}
}

// manyArtifacts stands for more artifacts than session.close lists one by one.
const manyArtifacts = 201

// trim drops the oldest sessions that have ended; open ones only when there are
// twice as many as the bound. It looks only at the order of one stream, so that
// two folds drop the same.
func (s *sessions) trim() {
	for len(s.byID) > s.max {
		i := slices.IndexFunc(s.order, func(x *session) bool { return !x.dropped && x.row.Ended != nil })
		if i < 0 && len(s.byID) <= 2*s.max {
			return
		}
		if i < 0 {
			i = slices.IndexFunc(s.order, func(x *session) bool { return !x.dropped })
		}
		x := s.order[i]
		x.dropped = true
		delete(s.byID, x.row.ID)
		rest := slices.DeleteFunc(s.byEvent[x.row.Event], func(id string) bool { return id == x.row.ID })
		if s.byEvent[x.row.Event] = rest; len(rest) == 0 {
			delete(s.byEvent, x.row.Event)
		}
		if s.drops++; s.drops > s.max/4 {
			s.order = slices.DeleteFunc(s.order, func(x *session) bool { return x.dropped })
			s.drops = 0
		}
	}
}

func (s *sessions) sorted() iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for _, id := range slices.Sorted(maps.Keys(s.byID)) {
			if !yield(s.byID[id].row) {
				return
			}
		}
	}
}

// SessionFilter selects sessions; "" fields match all.
type SessionFilter struct {
	State  string // admitted | preparing | running | ended | refused
	Reason string
	Bundle string
	Mode   string
	Event  string
	Parent string
}

func (f *SessionFilter) match(r *Session) bool {
	return is(f.State, r.State) && is(f.Reason, r.Reason) && is(f.Bundle, r.Bundle) &&
		is(f.Mode, r.Mode) && is(f.Event, r.Event) && is(f.Parent, r.Parent)
}

func is(want, have string) bool { return want == "" || want == have }

// Sessions lists sessions, the newest first.
func (v *View) Sessions(f SessionFilter, after string, n int) (Page[Session], error) {
	before, err := parseCursor('s', after)
	if err != nil {
		return Page[Session]{}, err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return page('s', limit(n), before, v.sessions.order, func(x *session) (Session, uint64, bool) {
		return x.row, x.opened, !x.dropped && f.match(&x.row)
	}), nil
}

// page walks rows, oldest first, from the end, and takes what read accepts
// below the stream position before (0: from the end).
func page[R, T any](list byte, n int, before uint64, rows []R, read func(R) (T, uint64, bool)) Page[T] {
	p := Page[T]{Items: []T{}}
	last := uint64(0)
	for _, r := range slices.Backward(rows) {
		row, seq, ok := read(r)
		if !ok || before > 0 && seq >= before {
			continue
		}
		if len(p.Items) == n {
			p.Next = cursor(list, last)
			break
		}
		p.Items, last = append(p.Items, row), seq
	}
	return p
}

// Session returns one session.
func (v *View) Session(id string) (Session, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.sessions.byID[id]
	if x == nil {
		return Session{}, notFound("session", id)
	}
	return x.row, nil
}

// digest writes the digest of a file (a bundle, a module) as people compare it:
// lower hex, "" for none. Leaf hashes are written as in receipts.
func digest(h receipts.Hash) string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h[:])
}
