package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/event"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// TestSeries counts each receipt in its hour and day, once, for its bundle and
// for all.
func TestSeries(t *testing.T) {
	w := newWorld(t)
	w.open(sessionID(1), w.event("push", "main", event.Member), "", "refused", "no_match")
	for i, bundle := range []string{"fix", "fix", "docs"} {
		c := w.open(sessionID(2+i), w.event("push", "main", event.Member), bundle, "admitted", "")
		w.decide(c, receipts.Allow, true, "", 700)
		w.decide(c, receipts.Deny, true, "", 0)
		w.decide(c, receipts.Deny, false, "", 0)
		w.decide(c, receipts.Deny, false, "timeout", 0)
	}
	w.stored()
	now := time.Now()
	v := w.loaded(view.Options{Clock: func() time.Time { return now }})
	one := view.Counts{Allow: 1, WouldBlock: 1, Deny: 1, Fault: 1}
	three := view.Counts{Allow: 3, WouldBlock: 3, Deny: 3, Fault: 3}
	for name, tc := range map[string]struct {
		bundle string
		want   view.Span
	}{
		"all":    {"", view.Span{Sessions: 3, Refused: 1, Counts: three, Spent: 2100}},
		"one":    {"docs", view.Span{Sessions: 1, Counts: one, Spent: 700}},
		"absent": {"none", view.Span{}},
	} {
		t.Run(name, func(t *testing.T) {
			for by, n := range map[time.Duration]int{time.Hour: 24, 24 * time.Hour: 30} {
				spans := v.Series(tc.bundle, by, n)
				if len(spans) != n || !spans[n-1].Start.Equal(now.UTC().Truncate(by)) || !spans[0].Start.Equal(now.UTC().Truncate(by).Add(-time.Duration(n-1)*by)) {
					t.Fatalf("%d spans by %s from %v to %v", len(spans), by, spans[0].Start, spans[len(spans)-1].Start)
				}
				var got view.Span // an hour may have ended while the receipts were made
				for _, s := range spans {
					got.Sessions, got.Refused, got.Spent = got.Sessions+s.Sessions, got.Refused+s.Refused, got.Spent+s.Spent
					got.Counts.Allow, got.Counts.Deny = got.Counts.Allow+s.Counts.Allow, got.Counts.Deny+s.Counts.Deny
					got.Counts.WouldBlock, got.Counts.Fault = got.Counts.WouldBlock+s.Counts.WouldBlock, got.Counts.Fault+s.Counts.Fault
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Errorf("by %s (-want +got):\n%s", by, d)
				}
			}
		})
	}
	// A day later the hours are empty and the day is not.
	now = now.Add(25 * time.Hour)
	for _, s := range v.Series("", time.Hour, 24) {
		if s.Sessions != 0 {
			t.Errorf("%v still counts %d sessions", s.Start, s.Sessions)
		}
	}
	if days := v.Series("", 24*time.Hour, 3); days[0].Sessions+days[1].Sessions != 3 {
		t.Errorf("the days before count %d sessions", days[0].Sessions+days[1].Sessions)
	}
}

// TestTail shows the newest receipts of an open session, and a closed one from its
// beginning.
func TestTail(t *testing.T) {
	w := newWorld(t)
	id := sessionID(1)
	c := w.open(id, w.event("push", "main", event.Member), "fix", "admitted", "")
	look := func() (first, last uint64, more bool) {
		v := w.loaded(view.Options{})
		p, err := v.Tail(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range p.Items {
			if r.Seq != p.Items[0].Seq+uint64(i) {
				t.Fatalf("receipt %d stands at place %d behind %d", r.Seq, i, p.Items[0].Seq)
			}
		}
		return p.Items[0].Seq, p.Items[len(p.Items)-1].Seq, p.Next != ""
	}
	said := func() string { f, l, m := look(); return fmt.Sprint(f, " ", l, " ", m) }
	w.decide(c, receipts.Deny, false, "", 0)
	if got := said(); got != "0 1 false" {
		t.Errorf("a short chain: %s", got)
	}
	for range 300 {
		w.decide(c, receipts.Deny, false, "", 0)
	}
	if got := said(); got != "102 301 false" {
		t.Errorf("a long chain: %s", got)
	}
	w.close(c, "completed")
	if got := said(); got != "0 199 true" {
		t.Errorf("a closed chain: %s", got)
	}
	if _, err := w.loaded(view.Options{}).Tail(t.Context(), "none"); err == nil {
		t.Error("a session that is not there has a tail")
	}
}
