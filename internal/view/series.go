package view

import (
	"maps"
	"slices"
	"time"

	"gatehouse/receipts"
)

// Span is one hour or one UTC day of what sessions did.
type Span struct {
	Start    time.Time `json:"start" doc:"UTC"`
	Sessions int       `json:"sessions" doc:"sessions that opened in it"`
	Refused  int       `json:"refused" doc:"events that started none"`
	Counts   Counts    `json:"counts" doc:"decisions taken in it"`
	Spent    int64     `json:"spent" doc:"nanodollars settled in it"`
}

// keepHours is how many hours with anything in them a bundle keeps: those of
// keepDays.
const keepHours = keepDays * 24

// series are the hours of each bundle, by hours since 1970. Hours are those of
// the receipts, so that two folds of the same streams are equal.
type series map[string]map[int64]*Span

// add puts one receipt into its hour. was is its session's row before the
// receipt, now after it.
func (s series) add(r *receipts.Receipt, was, now *Session) {
	d := Span{
		Spent: now.Spent - was.Spent,
		Counts: Counts{
			Allow: now.Counts.Allow - was.Counts.Allow, Deny: now.Counts.Deny - was.Counts.Deny,
			WouldBlock: now.Counts.WouldBlock - was.Counts.WouldBlock, Fault: now.Counts.Fault - was.Counts.Fault,
		},
	}
	switch {
	case r.Open != nil && r.Open.State == "refused":
		d.Refused = 1
	case r.Open != nil:
		d.Sessions = 1
	}
	if d == (Span{}) {
		return
	}
	hours := s[now.Bundle]
	if hours == nil {
		hours = map[int64]*Span{}
		s[now.Bundle] = hours
	}
	at := r.T.Unix() / 3600
	h := hours[at]
	if h == nil {
		h = &Span{}
		if hours[at] = h; len(hours) > keepHours {
			delete(hours, slices.Min(slices.Collect(maps.Keys(hours))))
		}
	}
	h.sum(&d)
}

func (s *Span) sum(d *Span) {
	s.Sessions += d.Sessions
	s.Refused += d.Refused
	s.Spent += d.Spent
	s.Counts.Allow += d.Counts.Allow
	s.Counts.Deny += d.Counts.Deny
	s.Counts.WouldBlock += d.Counts.WouldBlock
	s.Counts.Fault += d.Counts.Fault
}

// Series returns the last n spans of a bundle up to now, the oldest first and
// those in which nothing happened too: hours, or UTC days when by is 24 hours.
// bundle "" stands for all, and for events that no bundle matched.
func (v *View) Series(bundle string, by time.Duration, n int) []Span {
	hours := int64(1)
	if by >= 24*time.Hour {
		hours = 24
	}
	last := v.o.Clock().Unix() / 3600 / hours
	first := last - int64(n) + 1
	out := make([]Span, n)
	for i := range out {
		out[i].Start = time.Unix((first+int64(i))*3600*hours, 0).UTC()
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for name, of := range v.sessions.series {
		if bundle != "" && name != bundle {
			continue
		}
		for at, h := range of {
			if i := at/hours - first; i >= 0 && i < int64(n) {
				out[i].sum(h)
			}
		}
	}
	return out
}
