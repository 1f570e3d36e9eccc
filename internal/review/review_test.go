package review_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

const fix = `
apiVersion: gatehouse/v1
kind: Bundle
name: fix
accepts: member
match: [{source: github, endpoint: main, kinds: [issue_comment.created, push.*]}]
session: {agent: {command: {argv: [sh]}}, task: "fix it"}
egress: [{host: packages.example.com, methods: [GET], paths: ["/acme/**"]}]
`

const npm = `
apiVersion: gatehouse/v1
kind: EgressSet
name: npm
hosts: [registry.example.net]
methods: [GET, HEAD]
`

var ann = gatekeeper.By{Name: "ann@example.com", Via: "ui"}

// played is a world in which two comments made agents try things.
func played(t *testing.T) *world {
	w := newWorld(t, map[string]string{"npm": npm}, fix)
	for range 2 {
		a := w.session(w.event("issue_comment"), "fix", "member")
		a.tries("GET", "packages.example.com", "/acme/x.tgz")
		a.tries("GET", "registry.example.net", "/left-pad/1234567")
		a.tries("POST", "packages.example.com", "/acme/x.tgz")
		a.tries("GET", "packages.examp1e.com", "/acme/x.tgz")
		a.tries("GET", "xn--pckages-8za.example.org", "/")
		a.ends("completed")
	}
	one := w.session(w.event("issue_comment"), "fix", "member")
	one.tries("GET", "once.example.org", "/")
	one.ends("completed")
	low := w.session(w.event("issue_comment"), "fix", "outsider")
	low.tries("GET", "twice-by-outsiders.example.org", "/")
	low.ends("completed")
	low = w.session(w.event("issue_comment"), "fix", "outsider")
	low.tries("GET", "twice-by-outsiders.example.org", "/")
	low.ends("completed")
	return w
}

func group(t *testing.T, r *review.Review, filter string) view.Group {
	t.Helper()
	p, err := r.Groups(t.Context(), filter, "count", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Items) != 1 {
		t.Fatalf("%s: %d groups", filter, len(p.Items))
	}
	return p.Items[0]
}

func TestSuggest(t *testing.T) {
	r := played(t).review()
	cases := map[string]struct {
		filter string
		kinds  string // rungs, narrow to wide
		refuse string // part of why nothing is offered
		check  func(t *testing.T, l review.Ladder)
	}{
		"set_fits": {"host:registry.example.net", "exact host set", "", func(t *testing.T, l review.Ladder) {
			if got := l.Rungs[0].Title; got != "GET registry.example.net/left-pad/*" {
				t.Errorf("narrowest: %s", got)
			}
			if !slices.Contains(l.Rungs[0].Authority, "a new host: registry.example.net") || l.Rungs[0].Covers != 2 {
				t.Errorf("rung %+v", l.Rungs[0])
			}
			if !strings.Contains(l.Rungs[2].Entry, "set: npm") || !strings.Contains(l.Rungs[2].Diff, "+    - set: npm") {
				t.Errorf("set: %s\n%s", l.Rungs[2].Entry, l.Rungs[2].Diff)
			}
		}},
		"write_method": {"method:POST", "exact host", "", func(t *testing.T, l review.Ladder) {
			if words := strings.Join(l.Rungs[0].Authority, "; "); !strings.Contains(words, "writing methods: POST, up to 1MiB a request") || strings.Contains(words, "a new host") {
				t.Errorf("words: %s", words)
			}
		}},
		"look_alike": {"host:packages.examp1e.com", "exact host", "", func(t *testing.T, l review.Ladder) {
			for _, rung := range l.Rungs {
				if !strings.Contains(strings.Join(rung.Caution, ""), "nearly example.com") {
					t.Errorf("one click: %+v", rung)
				}
			}
		}},
		"idn": {"host:xn--*", "exact host", "", func(t *testing.T, l review.Ladder) {
			for _, rung := range l.Rungs {
				if !strings.Contains(strings.Join(rung.Caution, ""), "outside ASCII") {
					t.Errorf("one click: %+v", rung)
				}
			}
		}},
		"one_event":         {"host:once.example.org", "", "behind it: 1, and 2 are needed", nil},
		"outsiders_only":    {"host:twice-by-outsiders.example.org", "", "behind it: 0, and 2 are needed", nil},
		"listed_is_no_wish": {"host:packages.example.com method:POST", "exact host", "", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := r.Suggest(t.Context(), group(t, r, c.filter).ID)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, rung := range l.Rungs {
				kinds = append(kinds, rung.Kind)
				next, err := bundle.Parse([]byte(rung.Candidate))
				if err != nil || fmt.Sprintf("%x", next.Digest()) != rung.Digest {
					t.Errorf("candidate: %v\n%s", err, rung.Candidate)
				}
				if !strings.Contains(rung.Diff, "\n+") {
					t.Errorf("diff:\n%s", rung.Diff)
				}
			}
			if got := strings.Join(kinds, " "); got != c.kinds || !strings.Contains(l.Refuse, c.refuse) || (c.refuse == "") != (l.Refuse == "") {
				t.Fatalf("rungs %q, refuse %q", got, l.Refuse)
			}
			if c.check != nil {
				c.check(t, l)
			}
		})
	}
}

// Each rung must be no narrower than what it says: simulated, it allows the group.
func TestRungsAllowWhatTheyCover(t *testing.T) {
	r := played(t).review()
	for _, filter := range []string{"host:registry.example.net", "method:POST", "host:packages.examp1e.com"} {
		g := group(t, r, filter)
		l, err := r.Suggest(t.Context(), g.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, rung := range l.Rungs {
			s, err := r.Simulate(t.Context(), []byte(rung.Candidate), review.Window{})
			if err != nil {
				t.Fatal(err)
			}
			if s.NewlyAllowed != rung.Covers || s.NewlyBlocked != 0 || s.Allowed[0].Group.ID != g.ID {
				t.Errorf("%s: covers %d, simulated %d newly allowed, %d newly blocked", rung.Title, rung.Covers, s.NewlyAllowed, s.NewlyBlocked)
			}
		}
	}
}

func TestSimulate(t *testing.T) {
	w := played(t)
	r := w.review()
	with := func(egress string) []byte {
		return []byte(fix[:strings.Index(fix, "egress:")] + "egress: " + egress + "\n")
	}
	type counts struct{ Blocked, Allowed, StillBlocked, StillAllowed, WouldStop uint64 }
	cases := map[string]struct {
		egress  string
		want    counts
		stopped int
	}{
		"same":    {`[{host: packages.example.com, methods: [GET], paths: ["/acme/**"]}]`, counts{0, 0, 11, 2, 11}, 5},
		"nothing": {"[]", counts{2, 0, 11, 0, 13}, 5},
		"more":    {`[{host: packages.example.com, methods: [GET, POST]}, {host: once.example.org}]`, counts{0, 3, 8, 2, 8}, 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := r.Simulate(t.Context(), with(c.egress), review.Window{})
			if err != nil {
				t.Fatal(err)
			}
			got := counts{s.NewlyBlocked, s.NewlyAllowed, s.StillBlocked, s.StillAllowed, s.WouldStop}
			if diff := cmp.Diff(c.want, got); diff != "" || s.Stopped != c.stopped || s.Sessions != 5 || len(s.Unknown) != 0 {
				t.Errorf("%s stopped %d of %d, unknown %v", diff, s.Stopped, s.Sessions, s.Unknown)
			}
			if len(s.Limits) < 3 {
				t.Error("it does not say what it cannot know")
			}
		})
	}
	t.Run("expired_actions", func(t *testing.T) {
		w.forget = true
		defer func() { w.forget = false }()
		s, err := r.Simulate(t.Context(), with("[]"), review.Window{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Unknown["action_not_kept"] != 13 || s.Actions != 0 || !slices.ContainsFunc(s.Limits, func(l string) bool { return strings.HasPrefix(l, "13 actions are no longer kept") }) {
			t.Errorf("unknown %v, limits %v", s.Unknown, s.Limits)
		}
	})
	t.Run("cut", func(t *testing.T) {
		s, err := r.Simulate(t.Context(), with("[]"), review.Window{Actions: 1})
		if err != nil || !s.Cut || s.Sessions != 1 {
			t.Errorf("%d sessions, cut %v, %v", s.Sessions, s.Cut, err)
		}
	})
	t.Run("match_misses", func(t *testing.T) {
		src := strings.Replace(fix, "issue_comment.created, push.*", "push.*", 1)
		s, err := r.Simulate(t.Context(), []byte(src), review.Window{})
		if err != nil || s.Missed != 5 {
			t.Errorf("missed %d, %v", s.Missed, err)
		}
	})
	t.Run("unknown_bundle", func(t *testing.T) {
		if _, err := r.Simulate(t.Context(), []byte(strings.Replace(fix, "name: fix", "name: other", 1)), review.Window{}); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%v", err)
		}
	})
}

func TestReady(t *testing.T) {
	w := played(t)
	under := w.session(w.event("issue_comment"), "fix", "member")
	under.tunnels("registry.example.net")
	under.tries("GET", "registry.example.net", "/left-pad/1234567")
	under.ends("completed")
	items := func(r *review.Review) (map[string]bool, review.Readiness) {
		t.Helper()
		got, err := r.Ready(t.Context(), "fix")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, i := range got.Items {
			out[i.ID] = i.OK
			if i.Text == "" {
				t.Errorf("item %s says nothing", i.ID)
			}
			// A list is narrowed by q and nothing else: another name would show every session.
			if _, query, ok := strings.Cut(i.Link, "?"); ok && !strings.HasPrefix(query, "q=bundle:fix") {
				t.Errorf("item %s leads to %s", i.ID, i.Link)
			} else if i.ID == "decided" && !i.OK {
				// The list has what was counted, neither less nor more.
				values, err := url.ParseQuery(query)
				if err != nil {
					t.Fatal(err)
				}
				p, err := r.Groups(t.Context(), values.Get("q"), "", "", 0)
				if n, _, _ := strings.Cut(i.Text, " "); err != nil || n != strconv.Itoa(len(p.Items)) {
					t.Errorf("%q leads to %d groups, %v", i.Text, len(p.Items), err)
				}
			}
		}
		return out, got
	}
	got, ready := items(w.review())
	want := map[string]bool{"observed": true, "triggers": false, "quiet": false, "decided": false, "replayed": false, "faults": true, "chain": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ready.Ready || ready.Expect != "promoted now it would have stopped 6 of 6 sessions" || !slices.Equal(ready.Never, []string{"github main push.*"}) {
		t.Errorf("ready %v, %q, never %v", ready.Ready, ready.Expect, ready.Never)
	}

	// Editing the bundle begins nothing anew: what it allows now is decided, and
	// the rest is marked.
	w.apply(strings.Replace(fix, "egress: [", "egress: [{set: npm}, {host: packages.example.com, methods: [POST]}, ", 1))
	r := w.review()
	p, err := r.Groups(t.Context(), "status:new", "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range p.Items {
		if g.Host == "registry.example.net" || g.Method == "POST" {
			continue
		}
		if _, err := r.Mark(t.Context(), g.ID, view.StatusKept, "nobody needs it", time.Time{}, ann); err != nil {
			t.Fatal(err)
		}
	}
	a := w.session(w.event("push"), "fix", "member")
	a.tries("GET", "packages.example.com", "/acme/y.tgz")
	a.ends("completed")
	later := func(o *review.Options) {
		o.Clock = func() time.Time { return time.Now().AddDate(0, 0, 20) }
		o.Checks = func(context.Context, *bundle.Bundle) []review.Item {
			return []review.Item{{ID: "provider", OK: true, Text: "proven"}}
		}
	}
	got, ready = items(w.review(later))
	for id, ok := range got {
		if !ok {
			t.Errorf("%s does not hold: %+v", id, ready.Items)
		}
	}
	if !ready.Ready || ready.Sessions != 7 {
		t.Errorf("ready %v after %d sessions", ready.Ready, ready.Sessions)
	}
}

func TestStaleGroupsAreMarked(t *testing.T) {
	w := played(t)
	r := w.review()
	defer r.Close(t.Context())
	if g := group(t, r, "host:registry.example.net"); g.Stale {
		t.Error("what is still refused is called stale")
	}
	w.apply(strings.Replace(fix, "egress: [", "egress: [{set: npm}, ", 1))
	if g := group(t, r, "host:registry.example.net"); !g.Stale {
		t.Error("what is allowed by now is not marked")
	}
	if g := group(t, r, "host:once.example.org"); g.Stale {
		t.Error("another group is called stale")
	}
	w.forget = true
	r = w.review()
	defer r.Close(t.Context())
	if g := group(t, r, "host:registry.example.net"); g.Stale {
		t.Error("what cannot be judged is called stale")
	}
}

func TestNothingObservedIsNotReady(t *testing.T) {
	got, err := newWorld(t, nil, fix).review().Ready(t.Context(), "fix")
	if err != nil {
		t.Fatal(err)
	}
	if got.Ready || !strings.Contains(got.Expect, "no evidence") {
		t.Errorf("ready %v: %s", got.Ready, got.Expect)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t, nil, fix)
	a := w.session(w.event("issue_comment"), "fix", "member")
	leaves := map[string]string{}
	for name, x := range map[string][3]string{
		"allowed":      {"GET", "packages.example.com", "/acme/a"},
		"wrong_path":   {"GET", "packages.example.com", "/other/a"},
		"wrong_method": {"PUT", "packages.example.com", "/acme/a"},
		"other_host":   {"GET", "b.example.com", "/acme/a"},
	} {
		leaves[name] = a.tries(x[0], x[1], x[2]).String()
	}
	a.ends("completed")
	r := w.review()
	for name, want := range map[string]struct{ sentence, needs, lacks string }{
		"allowed":      {"was allowed", "", ""},
		"wrong_path":   {"would have been refused in hard mode", "rule egress[0] would have to admit it; it has path /acme/**", "path /acme/**"},
		"wrong_method": {"would have been refused in hard mode", "rule egress[0] would have to admit it; it has method GET", "method GET"},
		"other_host":   {"would have been refused in hard mode", "a rule would have to list the host b.example.com", "host packages.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := r.Explain(t.Context(), a.chain.Session(), leaves[name])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(x.Sentence, want.sentence) || strings.Join(x.Needs, "; ") != want.needs || strings.Join(x.Steps[0].Lacks, "; ") != want.lacks {
				t.Errorf("%s\nneeds %v\nsteps %+v", x.Sentence, x.Needs, x.Steps)
			}
			if (x.Group == "") != (name == "allowed") || len(x.Action) == 0 {
				t.Errorf("group %q, action %s", x.Group, x.Action)
			}
			if x.Group != "" {
				if _, err := r.Group(t.Context(), x.Group); err != nil {
					t.Errorf("its group is not there: %v", err)
				}
			}
		})
	}
	if _, err := r.Explain(t.Context(), a.chain.Session(), "77"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("%v", err)
	}
}

func TestMark(t *testing.T) {
	w := played(t)
	r := w.review()
	g := group(t, r, "host:once.example.org")
	for name, c := range map[string]struct {
		status, reason string
		expires        time.Time
		want           problem.Code
	}{
		"kept":        {view.StatusKept, "it is the agent's update check", time.Now().Add(time.Hour), ""},
		"no_reason":   {view.StatusKept, "", time.Time{}, problem.Usage},
		"no_status":   {"gone", "x", time.Time{}, problem.Usage},
		"long_reason": {view.StatusNoise, strings.Repeat("x", 501), time.Time{}, problem.Usage},
		"ends_before": {view.StatusKept, "x", time.Now().Add(-time.Hour), problem.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Mark(t.Context(), g.ID, c.status, c.reason, c.expires, ann)
			if c.want == "" && err != nil || c.want != "" && problem.CodeOf(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if got := group(t, w.review(), "host:once.example.org"); got.Status != view.StatusKept || got.Mark.By != ann.Name {
		t.Errorf("%+v", got)
	}
}

func TestGrowthAndDiff(t *testing.T) {
	a, err := bundle.Parse([]byte(fix))
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Parse([]byte(fix + "operations: [scm.comment]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"operation scm.comment can be run"}, review.Growth(a, b)); diff != "" {
		t.Error(diff)
	}
	if got := review.Growth(b, a); len(got) != 0 {
		t.Errorf("narrowing grows: %v", got)
	}
	d, err := review.Diff(a, b)
	if err != nil || !strings.Contains(d, "+operations:\n+    - scm.comment\n") {
		t.Errorf("%v\n%s", err, d)
	}
}
