package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// sessionID makes ids that sort by n.
func sessionID(n int) string { return fmt.Sprintf("01JCA%021d", n) }

// TestRebuildEqualsLive folds while a node works, and again from nothing: equal
// state, whatever the bounds and however the streams interleaved.
func TestRebuildEqualsLive(t *testing.T) {
	for name, o := range map[string]view.Options{
		"unbounded": {},
		"bounded":   {MaxSessions: 7, MaxEvents: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			live := view.New(w.bus, o)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- live.Run(ctx) }()

			rnd := rand.New(rand.NewPCG(5, 6))
			var open []*notary.Chain
			for i := range 300 {
				switch n := rnd.IntN(12); {
				case n < 2:
					e := w.event("issue_comment", "main", event.Member)
					c := w.open(sessionID(i), e, "fix", "admitted", "")
					open = append(open, c)
				case n == 2:
					c := w.open(sessionID(i), w.event("push", "other", event.Outsider), "", "refused", "no_match")
					w.close(c, "refused")
				case n == 3 && len(open) > 0:
					k := rnd.IntN(len(open))
					w.close(open[k], "completed")
					open = slices.Delete(open, k, k+1)
				case n == 4:
					w.change(receipts.TypeBundleApply, receipts.Change{Bundle: fmt.Sprint("b", rnd.IntN(3)), Digest: receipts.Hash{byte(i)}, To: receipts.Shadow, By: "config", Via: "config", Result: "applied"})
				case len(open) > 0:
					v := []receipts.Verdict{receipts.Allow, receipts.Deny}[rnd.IntN(2)]
					w.decide(open[rnd.IntN(len(open))], v, v == receipts.Allow || rnd.IntN(2) == 0, "", int64(rnd.IntN(1000)))
				}
			}
			rebuilt := w.loaded(o).Snapshot()
			until(t, func() bool { return cmp.Equal(rebuilt, live.Snapshot()) })
			if len(rebuilt.Sessions) == 0 || len(rebuilt.Bundles) == 0 || len(rebuilt.Events) == 0 || rebuilt.Strange != 0 {
				t.Fatalf("%d sessions, %d events, %d bundles, %d strange", len(rebuilt.Sessions), len(rebuilt.Events), len(rebuilt.Bundles), rebuilt.Strange)
			}
			if o.MaxSessions > 0 && (len(rebuilt.Sessions) > 2*o.MaxSessions || len(rebuilt.Events) != o.MaxEvents) {
				t.Fatalf("%d sessions and %d events are kept", len(rebuilt.Sessions), len(rebuilt.Events))
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			// The order in which the streams are folded does not matter either.
			backward := w.tape()
			slices.SortStableFunc(backward, func(a, b bus.Msg) int { return strings.Compare(b.Stream, a.Stream) })
			other := view.New(backward, o)
			for _, m := range backward {
				other.Fold(m)
			}
			if d := cmp.Diff(rebuilt, other.Snapshot()); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestSessionRow(t *testing.T) {
	w := newWorld(t)
	e := w.event("issue_comment", "main", event.Member)
	c := w.open(sessionID(1), e, "fix", "admitted", "")
	w.add(c, receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{From: "admitted", To: "running", Level: 3}})
	w.decide(c, receipts.Allow, true, "", 700)
	w.decide(c, receipts.Deny, true, "", 0)
	w.decide(c, receipts.Deny, false, "", 0)
	w.decide(c, receipts.Deny, false, "", 0)
	w.decide(c, receipts.Deny, false, "trap", 0)
	running, err := w.loaded(view.Options{}).Session(sessionID(1))
	if err != nil {
		t.Fatal(err)
	}
	if running.State != "running" || running.Ended != nil || running.Level != 3 {
		t.Fatalf("got %+v", running)
	}
	exit := int64(0)
	if _, err := c.Close(t.Context(), receipts.Close{Reason: "completed", Exit: &exit}); err != nil {
		t.Fatal(err)
	}
	got, err := w.loaded(view.Options{}).Session(sessionID(1))
	if err != nil {
		t.Fatal(err)
	}
	if got.Started.IsZero() || got.Ended == nil || got.Ended.Before(got.Started) {
		t.Fatalf("times %v %v", got.Started, got.Ended)
	}
	got.Started, got.Ended = time.Time{}, nil
	want := view.Session{
		ID: sessionID(1), Log: origin, State: "ended", Reason: "completed", Bundle: "fix", Digest: "01" + strings.Repeat("0", 62),
		Mode: "shadow", Policy: "credential_free", Provider: "local", Event: e, Floor: "member", Level: 3, Exit: &exit,
		Receipts: 10, Counts: view.Counts{Allow: 1, Deny: 2, WouldBlock: 1, Fault: 1}, Spent: 700,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// TestRefusedKeepsItsCode: the end reason of a refusal says only "refused".
func TestRefusedKeepsItsCode(t *testing.T) {
	w := newWorld(t)
	w.close(w.open(sessionID(1), w.event("push", "main", event.Outsider), "", "refused", "below_accepts"), "refused")
	got, err := w.loaded(view.Options{}).Session(sessionID(1))
	if err != nil || got.State != "refused" || got.Reason != "below_accepts" || got.Ended == nil {
		t.Fatalf("%+v, %v", got, err)
	}
}

// collect walks all pages.
func collect[T any](t *testing.T, list func(cursor string) (view.Page[T], error)) (all []T, pages int) {
	t.Helper()
	for cursor := ""; ; {
		p, err := list(cursor)
		if err != nil {
			t.Fatal(err)
		}
		all, pages = append(all, p.Items...), pages+1
		if cursor = p.Next; cursor == "" {
			return all, pages
		}
	}
}

func TestSessionListsAndPages(t *testing.T) {
	w := newWorld(t)
	for i := range 25 {
		e := w.event("issue_comment", "main", event.Member)
		if i%5 == 0 {
			w.close(w.open(sessionID(i), e, "", "refused", "no_match"), "refused")
			continue
		}
		c := w.open(sessionID(i), e, []string{"fix", "lint"}[i%2], "admitted", "")
		if i > 15 {
			w.close(c, "failed")
		}
	}
	v := w.loaded(view.Options{})
	cases := map[string]struct {
		f view.SessionFilter
		n int
	}{
		"all":      {n: 25},
		"refused":  {f: view.SessionFilter{State: "refused"}, n: 5},
		"reason":   {f: view.SessionFilter{Reason: "no_match"}, n: 5},
		"ended":    {f: view.SessionFilter{State: "ended"}, n: 8},
		"bundle":   {f: view.SessionFilter{Bundle: "lint"}, n: 10},
		"both":     {f: view.SessionFilter{Bundle: "lint", State: "ended"}, n: 4},
		"event":    {f: view.SessionFilter{Event: "github:main:d3"}, n: 1},
		"nobody":   {f: view.SessionFilter{Parent: "x"}, n: 0},
		"mode":     {f: view.SessionFilter{Mode: "shadow"}, n: 20},
		"no_match": {f: view.SessionFilter{Bundle: "none"}, n: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all, pages := collect(t, func(cursor string) (view.Page[view.Session], error) { return v.Sessions(c.f, cursor, 4) })
			if len(all) != c.n || pages != max(1, (c.n+3)/4) {
				t.Fatalf("%d sessions on %d pages, want %d", len(all), pages, c.n)
			}
			if !slices.IsSortedFunc(all, func(a, b view.Session) int { return strings.Compare(b.ID, a.ID) }) {
				t.Fatal("not the newest first, or one twice")
			}
		})
	}
	t.Run("new_rows_do_not_shift_pages", func(t *testing.T) {
		first, err := v.Sessions(view.SessionFilter{}, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		w.open(sessionID(100), w.event("issue_comment", "main", event.Member), "fix", "admitted", "")
		later := w.loaded(view.Options{})
		second, err := later.Sessions(view.SessionFilter{}, first.Next, 10)
		if err != nil || second.Items[0].ID != sessionID(14) {
			t.Fatalf("%v, %v", second.Items[0].ID, err)
		}
	})
	t.Run("default_and_largest_limit", func(t *testing.T) {
		for n, want := range map[int]int{0: 26, -1: 26, 100000: 26} {
			p, err := w.loaded(view.Options{}).Sessions(view.SessionFilter{}, "", n)
			if err != nil || len(p.Items) != want {
				t.Fatalf("%d: %d items, %v", n, len(p.Items), err)
			}
		}
	})
}

// TestAction reads what a decision judged by its receipt's leaf, and nothing
// else: a pattern is no leaf.
func TestAction(t *testing.T) {
	leaf := receipts.Leaf([]byte("decision")).String()
	v := view.New(tape{{Stream: bus.Actions, Subject: "gatehouse.v1.actions." + leaf, Seq: 1, Data: []byte(`{"id":"a"}`)}}, view.Options{})
	if b, err := v.Action(t.Context(), leaf); err != nil || string(b) != `{"id":"a"}` {
		t.Fatalf("%s, %v", b, err)
	}
	for name, bad := range map[string]string{"unknown": receipts.Leaf([]byte("other")).String(), "pattern": "*", "everything": ">", "empty": ""} {
		if b, err := v.Action(t.Context(), bad); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

func TestCursorsAreChecked(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.open(sessionID(i), w.event("push", "main", event.Member), "fix", "admitted", "")
	}
	v := w.loaded(view.Options{})
	p, err := v.Sessions(view.SessionFilter{}, "", 1)
	if err != nil || p.Next == "" {
		t.Fatal(err)
	}
	for name, c := range map[string]string{
		"garbage": "!!!", "empty_inside": "cw", "other_list": "ZTE", "zero": "czA", "spaces": "cyAx", "upper": "c1o", "long": strings.Repeat("A", 5000),
	} {
		if _, err := v.Sessions(view.SessionFilter{}, c, 1); problem.CodeOf(err) != problem.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The cursor of one list does not open another.
	if _, err := v.Events(view.EventFilter{}, p.Next, 1); problem.CodeOf(err) != problem.Usage {
		t.Errorf("a session cursor in the event list: %v", err)
	}
}

func FuzzCursor(f *testing.F) {
	v := view.New(tape(nil), view.Options{})
	f.Add("czE")
	f.Add("")
	f.Add("cw==")
	f.Fuzz(func(t *testing.T, c string) {
		p, err := v.Sessions(view.SessionFilter{}, c, 1)
		if err != nil && problem.CodeOf(err) != problem.Usage || p.Next != "" {
			t.Fatal(p, err)
		}
	})
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	a := w.event("issue_comment", "main", event.Member)
	b := w.event("push", "other", event.Outsider)
	c := w.event("ping", "main", event.Platform)
	w.close(w.open(sessionID(1), b, "", "refused", "no_match"), "refused")
	w.close(w.open(sessionID(2), a, "fix", "admitted", ""), "failed")
	w.open(sessionID(3), a, "fix", "admitted", "") // retried
	v := w.loaded(view.Options{})
	cases := map[string]struct {
		f    view.EventFilter
		want []string
	}{
		"all":      {want: []string{c, b, a}},
		"kind":     {f: view.EventFilter{Kind: "push"}, want: []string{b}},
		"endpoint": {f: view.EventFilter{Endpoint: "main"}, want: []string{c, a}},
		"level":    {f: view.EventFilter{Level: "outsider"}, want: []string{b}},
		"source":   {f: view.EventFilter{Source: "sentry"}},
		"refused":  {f: view.EventFilter{State: "refused"}, want: []string{b}},
		"latest":   {f: view.EventFilter{State: "admitted"}, want: []string{a}},
		"none":     {f: view.EventFilter{State: "none"}, want: []string{c}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all, _ := collect(t, func(cursor string) (view.Page[view.Event], error) { return v.Events(c.f, cursor, 2) })
			var ids []string
			for _, e := range all {
				ids = append(ids, e.ID)
			}
			if d := cmp.Diff(c.want, ids); d != "" {
				t.Fatal(d)
			}
		})
	}
	p, err := v.Events(view.EventFilter{Kind: "issue_comment"}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	row, err := json.Marshal(p.Items[0])
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(row), "script") {
		t.Fatalf("text of a stranger is in the list: %s", row)
	}
	want := []view.EventStart{{ID: sessionID(2), State: "ended", Reason: "failed", Bundle: "fix"}, {ID: sessionID(3), State: "admitted", Bundle: "fix"}}
	if d := cmp.Diff(want, p.Items[0].Sessions); d != "" {
		t.Fatal(d)
	}
}

func TestEventDetail(t *testing.T) {
	w := newWorld(t)
	id := w.event("issue_comment", "main", event.Member)
	w.event("push", "main", event.Member)
	d, err := w.loaded(view.Options{Keyset: testKeys().Keyset()}).Event(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := []view.Passage{{Pointer: "/issue/title", As: "title", Origin: "outsider", Author: "88", Value: "<script>alert(1)</script>\u202e", Length: 28, Marks: []string{"bidi"}}}
	if diff := cmp.Diff(want, d.Passages); diff != "" {
		t.Fatal(diff)
	}
	if d.ID != id || d.Seal != view.SealValid || d.Facts["repository.id"] != "501" || d.Prov["/issue/title"] != "outsider" || d.Anomalies[0] != "bom" || d.Scheme != "github-hmac-sha256" {
		t.Fatalf("got %+v", d)
	}
	if _, err := w.loaded(view.Options{}).Event(t.Context(), "github:main:none"); problem.CodeOf(err) != problem.NotFound {
		t.Fatal(err)
	}
	if d, err := w.loaded(view.Options{}).Event(t.Context(), id); err != nil || d.Seal != view.SealUnchecked {
		t.Fatalf("without a keyset: %s, %v", d.Seal, err)
	}
}

// TestSealsOfWhatIsShown: a record the node did not seal shows as such.
func TestSealsOfWhatIsShown(t *testing.T) {
	w := newWorld(t)
	id := w.event("issue_comment", "main", event.Member)
	w.event("push", "main", event.Member)
	keep := w.tape()
	for name, change := range map[string]func(t tape){
		"no_header":     func(t tape) { delete(t[0].Header, receipts.HeaderSeal) },
		"other_message": func(t tape) { t[0].Header = t[1].Header },
		"id":            func(t tape) { t[0].Header[receipts.HeaderID] = "x" },
		"bytes": func(t tape) {
			t[0].Data = []byte(strings.Replace(string(t[0].Data), `"77"`, `"78"`, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := slices.Clone(keep)
			changed[0].Header = map[string]string{}
			for k, v := range keep[0].Header {
				changed[0].Header[k] = v
			}
			change(changed)
			v := view.New(changed, view.Options{Keyset: testKeys().Keyset()})
			if err := v.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			d, err := v.Event(t.Context(), id)
			if err != nil || d.Seal != view.SealInvalid {
				t.Fatalf("%s, %v", d.Seal, err)
			}
		})
	}
	t.Run("another_log", func(t *testing.T) {
		other, err := notary.NewKeys("gatehouse.example/node-2")
		if err != nil {
			t.Fatal(err)
		}
		v := view.New(keep, view.Options{Keyset: other.Keyset()})
		if err := v.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d, err := v.Event(t.Context(), id); err != nil || d.Seal != view.SealUnchecked {
			t.Fatalf("%s, %v", d.Seal, err)
		}
	})
}

func TestReceipts(t *testing.T) {
	w := newWorld(t)
	c := w.open(sessionID(1), w.event("push", "main", event.Member), "fix", "admitted", "")
	other := w.open(sessionID(2), w.event("push", "main", event.Member), "fix", "admitted", "")
	w.decide(c, receipts.Allow, true, "", 5)
	w.decide(other, receipts.Allow, true, "", 5)
	w.decide(c, receipts.Deny, true, "", 0)
	w.decide(c, receipts.Deny, false, "", 0)
	w.decide(c, receipts.Deny, false, "trap", 0)
	w.close(c, "completed")
	v := w.loaded(view.Options{Keyset: testKeys().Keyset()})
	all, pages := collect(t, func(cursor string) (view.Page[view.Receipt], error) {
		return v.Receipts(t.Context(), sessionID(1), cursor, 3)
	})
	if pages != 3 {
		t.Fatalf("%d pages", pages)
	}
	var got []string
	for i, r := range all {
		if r.Seq != uint64(i) || r.Seal != view.SealValid || r.Session != sessionID(1) || receipts.Leaf(r.Payload).String() != r.Leaf {
			t.Fatalf("row %d: %+v", i, r)
		}
		got = append(got, strings.TrimRight(r.Type+" "+r.Verdict+r.Effect, " "))
	}
	want := []string{"session.open", "decision allow", "outcome forwarded", "decision would_block", "outcome forwarded", "decision deny", "decision fault", "session.close"}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if r := all[1]; r.Target != "packages.example.com:443" || r.Method != "GET" || r.Kind != "http.request" || r.Rule != "egress[0]" || r.By != "egress" {
		t.Fatalf("decision %+v", r)
	}
	if r := all[2]; r.Of != all[1].Leaf || r.Spent != 5 || r.Status != 200 || r.Address != "93.184.216.34" {
		t.Fatalf("outcome %+v", r)
	}
	if _, err := v.Receipts(t.Context(), "none", "", 0); problem.CodeOf(err) != problem.NotFound {
		t.Fatal(err)
	}
}

// TestBrokenChainsAreMarked: the view does not verify, but it does not pretend.
func TestBrokenChainsAreMarked(t *testing.T) {
	w := newWorld(t)
	c := w.open(sessionID(1), w.event("push", "main", event.Member), "fix", "admitted", "")
	for range 3 {
		w.decide(c, receipts.Deny, false, "", 0)
	}
	keep := w.tape()
	first := slices.IndexFunc(keep, func(m bus.Msg) bool { return m.Subject == "gatehouse.v1.sessions."+sessionID(1) })
	for name, change := range map[string]func(t tape) tape{
		"whole":   func(t tape) tape { return t },
		"gap":     func(t tape) tape { return slices.Delete(t, first+1, first+2) },
		"swapped": func(t tape) tape { t[first+1], t[first+2] = t[first+2], t[first+1]; return t },
		"unreadable": func(t tape) tape {
			t[first+1].Data = []byte("{}")
			return t
		},
		"splice": func(t tape) tape {
			t[first+2].Data = []byte(strings.ReplaceAll(string(t[first+2].Data), sessionID(1), sessionID(9)))
			return t
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := view.New(tape(nil), view.Options{})
			for _, m := range change(slices.Clone(keep)) {
				v.Fold(m)
			}
			s, err := v.Session(sessionID(1))
			if err != nil || (s.Broken == "") != (name == "whole") {
				t.Fatalf("%q, %v", s.Broken, err)
			}
		})
	}
}

func TestUnreadableReceiptIsListed(t *testing.T) {
	w := newWorld(t)
	c := w.open(sessionID(1), w.event("push", "main", event.Member), "fix", "admitted", "")
	w.decide(c, receipts.Deny, false, "", 0)
	changed := w.tape()
	last := len(changed) - 1
	for changed[last].Subject != "gatehouse.v1.sessions."+sessionID(1) {
		last--
	}
	changed[last].Data = []byte("<script>")
	v := view.New(changed, view.Options{Keyset: testKeys().Keyset()})
	if err := v.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := v.Receipts(t.Context(), sessionID(1), "", 0)
	if err != nil || len(p.Items) != 2 || p.Items[1].Type != "unreadable" || p.Items[1].Seal != view.SealInvalid || string(p.Items[1].Payload) != "null" {
		t.Fatalf("%+v, %v", p.Items, err)
	}
	if v.Snapshot().Strange != 1 {
		t.Fatalf("%d strange", v.Snapshot().Strange)
	}
}

func TestOldestEndedSessionLeaves(t *testing.T) {
	w := newWorld(t)
	old := w.open(sessionID(0), w.event("push", "main", event.Member), "fix", "admitted", "") // stays open
	for i := 1; i < 10; i++ {
		w.close(w.open(sessionID(i), w.event("push", "main", event.Member), "fix", "admitted", ""), "completed")
		w.stored() // one after the other on the stream too: it orders only what one chain says
	}
	v := w.loaded(view.Options{MaxSessions: 3})
	all, _ := collect(t, func(cursor string) (view.Page[view.Session], error) {
		return v.Sessions(view.SessionFilter{}, cursor, 10)
	})
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	if d := cmp.Diff([]string{sessionID(9), sessionID(8), sessionID(0)}, ids); d != "" {
		t.Fatal(d)
	}
	w.decide(old, receipts.Deny, false, "", 0)
	if s, err := w.loaded(view.Options{MaxSessions: 3}).Session(sessionID(0)); err != nil || s.Counts.Deny != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	// Open sessions are bounded too, later.
	for i := 20; i < 30; i++ {
		w.open(sessionID(i), w.event("push", "main", event.Member), "fix", "admitted", "")
	}
	if n := len(w.loaded(view.Options{MaxSessions: 3}).Snapshot().Sessions); n != 6 {
		t.Fatalf("%d sessions are kept", n)
	}
}

func TestBundles(t *testing.T) {
	w := newWorld(t)
	apply := func(d receipts.Hash, result string, to receipts.Mode) {
		w.change(receipts.TypeBundleApply, receipts.Change{Bundle: "fix", Digest: d, To: to, By: "config", Via: "config", Result: result})
	}
	is := func(want view.Bundle) {
		t.Helper()
		got := w.loaded(view.Options{}).Bundles()
		if len(got) != 1 {
			t.Fatalf("%d bundles", len(got))
		}
		got[0].Changed = time.Time{}
		if d := cmp.Diff(want, got[0]); d != "" {
			t.Fatal(d)
		}
	}
	a, b := "01"+strings.Repeat("0", 62), "02"+strings.Repeat("0", 62)
	apply(digestA, "applied", receipts.Shadow)
	is(view.Bundle{Name: "fix", Digest: a, Mode: "shadow", Changes: 1})
	w.change(receipts.TypeModeChange, receipts.Change{Bundle: "fix", Digest: digestA, From: receipts.Shadow, To: receipts.Hard, By: "ann", Via: "ui", Result: "applied", Approvers: 2})
	is(view.Bundle{Name: "fix", Digest: a, Mode: "hard", Changes: 2})
	apply(digestB, "waiting", receipts.Hard)
	is(view.Bundle{Name: "fix", Digest: a, Mode: "hard", Waiting: b, Changes: 3})
	w.change(receipts.TypeModeChange, receipts.Change{Bundle: "fix", Digest: digestA, Enforcer: "dlp", To: receipts.Shadow, By: "ann", Via: "ui", Result: "applied"})
	is(view.Bundle{Name: "fix", Digest: a, Mode: "hard", Modes: map[string]string{"dlp": "shadow"}, Waiting: b, Changes: 4})
	w.change(receipts.TypeApproval, receipts.Change{Bundle: "fix", Digest: digestB, By: "bob", Via: "ui", Result: "rejected"})
	is(view.Bundle{Name: "fix", Digest: a, Mode: "hard", Modes: map[string]string{"dlp": "shadow"}, Changes: 5})
	w.change(receipts.TypeModeChange, receipts.Change{Bundle: "fix", Digest: digestA, By: "bob", Via: "ui", Result: "paused"})
	is(view.Bundle{Name: "fix", Digest: a, Mode: "hard", Modes: map[string]string{"dlp": "shadow"}, Paused: true, Changes: 6})
	w.add(w.notary.Control(), receipts.Receipt{Type: receipts.TypeModeChange, X: map[string]string{view.XStep: "resume", view.XReason: "it was nothing"},
		Change: &receipts.Change{Bundle: "fix", Digest: digestA, To: receipts.Hard, By: "bob", Via: "ui", Result: "applied"}})
	apply(digestB, "applied", receipts.Hard)
	is(view.Bundle{Name: "fix", Digest: b, Mode: "hard", Modes: map[string]string{"dlp": "shadow"}, Changes: 8})

	v := w.loaded(view.Options{})
	h, err := v.History("fix")
	if err != nil || len(h) != 8 || h[0].Digest != b || h[7].Digest != a || h[6].By != "ann" || h[6].Approvers != 2 || h[0].Node != "n1" {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, err := v.History("none"); problem.CodeOf(err) != problem.NotFound {
		t.Fatal(err)
	}
}

func TestHeads(t *testing.T) {
	w := newWorld(t)
	if h := w.loaded(view.Options{}).Heads(); len(h) > 1 || len(h) == 1 && (h[0].Checkpoint != "" || h[0].Seal != view.SealUnchecked) {
		t.Fatalf("%+v", h)
	}
	c := w.open(sessionID(1), w.event("push", "main", event.Member), "fix", "admitted", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.notary.Run(ctx) }()
	until(t, func() bool { return len(w.notary.Head()) > 0 })
	w.decide(c, receipts.Deny, false, "", 0)
	cancel()
	<-done
	h := w.loaded(view.Options{Keyset: testKeys().Keyset()}).Heads()
	if len(h) != 1 || h[0].Node != "n1" || h[0].Seal != view.SealValid || h[0].Size == 0 || h[0].Size > h[0].Sealed || h[0].Time == nil || !strings.HasPrefix(h[0].Checkpoint, origin+"\n") {
		t.Fatalf("%+v", h)
	}
	changed := w.tape()
	for i, m := range changed {
		if string(m.Data) == h[0].Checkpoint {
			changed[i].Data = []byte(strings.Replace(h[0].Checkpoint, "\n", "\n9", 1))
		}
	}
	v := view.New(changed, view.Options{Keyset: testKeys().Keyset()})
	if err := v.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := v.Heads(); h[0].Seal != view.SealInvalid || h[0].Size != 0 {
		t.Fatalf("%+v", h)
	}
}

// TestHostileMessages: nothing on a stream can stop a view.
func TestHostileMessages(t *testing.T) {
	v := view.New(tape(nil), view.Options{})
	for _, subject := range []string{"", "x", "gatehouse.v1.", "gatehouse.v1.events.a.b.c.d.e", "gatehouse.v1.sessions.S", "gatehouse.v1.control.n", "gatehouse.v1.log.n", "gatehouse.v1.other.x"} {
		for _, data := range []string{"", "{}", "null", "\x00", strings.Repeat("[", 10000)} {
			v.Fold(bus.Msg{Subject: subject, Data: []byte(data)})
		}
	}
	if s := v.Snapshot(); len(s.Sessions)+len(s.Events)+len(s.Bundles) != 0 {
		t.Fatalf("%+v", s)
	}
}
