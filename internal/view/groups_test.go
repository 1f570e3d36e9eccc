package view_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/notary"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// attempt appends a denied http.request that passed, and the action under it.
func (w *world) attempt(c *notary.Chain, host, method, path string) receipts.Hash {
	w.t.Helper()
	w.n++
	obs := doorObs
	leaf := w.add(c, receipts.Receipt{
		Type: receipts.TypeDecision, Obs: &obs,
		Act: &receipts.Act{ID: fmt.Sprint(c.Session(), "-", w.n), Kind: "http.request", Scheme: "https", Host: host, Port: 443, Method: method},
		Dec: &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Rule: "gate.default_deny", Reason: "not_listed"},
	})
	w.action(leaf, "http.request", fmt.Sprintf(`"http_request":{"host":%q,"method":%q,"path":%q}`, host, method, path))
	return leaf
}

func (w *world) action(leaf receipts.Hash, kind, body string) {
	w.t.Helper()
	if err := w.bus.PutAction(w.t.Context(), leaf.String(), []byte(fmt.Sprintf(`{"kind":%q,%s}`, kind, body))); err != nil {
		w.t.Fatal(err)
	}
}

func acceptsMember(string) event.Origin { return event.Member }

func TestGroups(t *testing.T) {
	w := newWorld(t)
	sessions := map[string]string{"01A": "a", "01B": "b", "01C": "c", "01D": "d"}
	chains := map[string]*notary.Chain{}
	for _, id := range []string{"01A", "01B", "01C", "01D"} {
		sessions[id] = w.event("issue_comment", "main", event.Member)
		chains[id] = w.open(id, sessions[id], "fix", "admitted", "")
	}
	for range 3 {
		w.attempt(chains["01A"], "cdn.example.net", "GET", "/files/11111111/a.tgz")
	}
	w.attempt(chains["01B"], "cdn.example.net", "GET", "/files/22222222/a.tgz")
	w.attempt(chains["01B"], "cdn.example.net", "POST", "/files/22222222/a.tgz")
	w.attempt(chains["01C"], "only-killed.example.net", "GET", "/")
	w.decide(chains["01D"], receipts.Allow, true, "", 0)
	w.close(chains["01C"], "cancelled")
	w.stored()

	load := func(t *testing.T, order ...string) *view.View {
		v := view.New(w.bus, view.Options{})
		for _, stream := range order {
			for m, err := range w.bus.Read(t.Context(), stream, "", 0) {
				if err != nil {
					t.Fatal(err)
				}
				v.Fold(m)
			}
		}
		return v
	}
	list := func(t *testing.T, v *view.View, q view.GroupQuery) []view.Group {
		q.Accepts = acceptsMember
		p, err := v.Groups(q, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.Total != len(p.Items) {
			t.Errorf("total %d of %d", p.Total, len(p.Items))
		}
		return p.Items
	}
	for name, order := range map[string][]string{
		"receipts_first": {bus.Events, bus.Sessions, bus.Log, bus.Actions},
		"actions_first":  {bus.Actions, bus.Log, bus.Sessions, bus.Events},
	} {
		t.Run(name, func(t *testing.T) {
			got := list(t, load(t, order...), view.GroupQuery{Sort: "count"})
			type row struct {
				Method, Host, Path, Status, Ignored string
				WouldBlock                          uint64
				Sessions, Events                    int
			}
			var rows []row
			for _, g := range got {
				rows = append(rows, row{g.Method, g.Host, g.Path, g.Status, g.Ignored, g.WouldBlock, g.Sessions, g.Events})
			}
			slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.Host+a.Method, b.Host+b.Method) })
			want := []row{
				{"GET", "cdn.example.net", "/files/*/a.tgz", "new", "", 4, 2, 2},
				{"POST", "cdn.example.net", "/files/*/a.tgz", "new", "", 1, 1, 1},
				{"GET", "only-killed.example.net", "/", "ignored", "killed", 1, 1, 0},
			}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("same_fingerprint_in_every_fold", func(t *testing.T) {
		ids := func(gs []view.Group) (out []string) {
			for _, g := range gs {
				out = append(out, g.ID)
			}
			slices.Sort(out)
			return out
		}
		a := ids(list(t, load(t, bus.Sessions, bus.Actions), view.GroupQuery{}))
		b := ids(list(t, load(t, bus.Actions, bus.Sessions), view.GroupQuery{}))
		if diff := cmp.Diff(a, b); diff != "" || len(a) != 3 {
			t.Error(a, diff)
		}
	})
	t.Run("without_actions", func(t *testing.T) {
		got := list(t, load(t, bus.Sessions), view.GroupQuery{})
		if len(got) != 3 || got[0].Path != "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("below_accepts", func(t *testing.T) {
		v := load(t, bus.Sessions, bus.Actions)
		p, err := v.Groups(view.GroupQuery{Accepts: func(string) event.Origin { return event.Operator }}, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range p.Items {
			if g.Status != view.StatusIgnored || g.Counted != 0 || g.Events != 0 {
				t.Errorf("%s counts: %+v", g.Host, g)
			}
		}
	})
	t.Run("detail", func(t *testing.T) {
		v := load(t, bus.Sessions, bus.Actions)
		top := list(t, v, view.GroupQuery{Sort: "count"})[0]
		d, err := v.Group(top.ID, acceptsMember)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Samples) != 4 || d.Samples[0].Session == "" || d.Samples[0].Leaf == "" || d.Floors["member"] != 2 {
			t.Errorf("detail %+v", d)
		}
		if got := v.GroupSessions(top.ID); !slices.Equal(got, []string{"01B", "01A"}) {
			t.Errorf("sessions %v", got)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		stopped, of := load(t, bus.Sessions, bus.Actions).Stopped("fix", event.Member)
		if stopped != 2 || of != 3 {
			t.Errorf("would have stopped %d of %d", stopped, of)
		}
	})
	t.Run("cursor", func(t *testing.T) {
		v := load(t, bus.Sessions, bus.Actions)
		var ids []string
		for cursor := ""; ; {
			p, err := v.Groups(view.GroupQuery{Sort: "count"}, cursor, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range p.Items {
				ids = append(ids, g.ID)
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != 3 {
			t.Errorf("pages gave %v", ids)
		}
		if _, err := v.Groups(view.GroupQuery{Sort: "last"}, "Zzz", 1); err == nil {
			t.Error("a foreign cursor was taken")
		}
	})
	t.Run("mark", func(t *testing.T) {
		top := list(t, load(t, bus.Sessions, bus.Actions), view.GroupQuery{Sort: "count"})[0]
		mark := func(status, expires string) {
			x := map[string]string{view.XGroup: top.ID, view.XStatus: status, view.XReason: "expected"}
			if expires != "" {
				x[view.XExpires] = expires
			}
			w.add(w.notary.Control(), receipts.Receipt{Type: receipts.TypePolicyChange, X: x,
				Change: &receipts.Change{Bundle: "fix", By: "ann", Via: "cli", Result: "applied"}})
			w.stored()
		}
		status := func() string {
			d, err := load(t, bus.Sessions, bus.Actions, bus.Log).Group(top.ID, acceptsMember)
			if err != nil {
				t.Fatal(err)
			}
			if d.Mark != nil && (d.Mark.By != "ann" || d.Mark.Reason != "expected") {
				t.Errorf("mark %+v", d.Mark)
			}
			return d.Status
		}
		mark("kept", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		if got := status(); got != "kept" {
			t.Errorf("status %s", got)
		}
		mark("kept", "2020-01-01T00:00:00Z")
		if got := status(); got != "new" {
			t.Errorf("an expired mark still counts: %s", got)
		}
		mark("noise", "")
		if got := status(); got != "noise" {
			t.Errorf("status %s", got)
		}
		mark("new", "")
		if got := status(); got != "new" {
			t.Errorf("status %s", got)
		}
	})
}

func TestGroupsBesideAHardDecision(t *testing.T) {
	w := newWorld(t)
	c := w.open("01A", w.event("push", "main", event.Member), "fix", "admitted", "")
	obs := doorObs
	w.add(c, receipts.Receipt{
		Type: receipts.TypeDecision, Obs: &obs, X: map[string]string{"enforcer.acme-dlp": "deny acme.card card_number"},
		Act: &receipts.Act{ID: "x-1", Kind: "http.request", Scheme: "https", Host: "api.example.com", Port: 443, Method: "POST"},
		Dec: &receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, Rule: "egress[0]", Reason: "listed", By: "egress"},
	})
	got := w.loaded(view.Options{}).GroupsOf("fix", event.Member)
	if len(got) != 1 || got[0].Enforcer != "acme-dlp" || got[0].Rule != "acme.card" || got[0].WouldBlock != 1 || got[0].Refused != 0 {
		t.Errorf("groups %+v", got)
	}
}

func TestTemplates(t *testing.T) {
	hosts := map[string]string{
		"packages.example.com":                  "packages.example.com",
		"d111111abcdef8.cdn.example.net":        "*.cdn.example.net",
		"a1b2c3d4-0000-4000-8000-1234.e.com":    "*.e.com",
		"python3.example.com":                   "python3.example.com",
		"20261130.logs.eu-west-1.example.com":   "*.logs.eu-west-1.example.com",
		"example.com":                           "example.com",
		"169.254.169.254":                       "169.254.169.254",
		"2606:2800:21f:cb07::8b2c":              "2606:2800:21f:cb07::8b2c",
		"93184216.34567890":                     "93184216.34567890",
		"deadbeef.example.com":                  "deadbeef.example.com",
		"xn--pypal-4ve.example.com":             "xn--pypal-4ve.example.com",
		"cafe1234babe5678.static.example.com":   "*.static.example.com",
		"verylongnamewithoutdigits.example.com": "verylongnamewithoutdigits.example.com",
	}
	for host, want := range hosts {
		if got := view.HostPattern(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	paths := map[string]string{
		"/":                             "/",
		"/repos/acme/shop/issues/42":    "/repos/acme/shop/issues/*",
		"/v1.2.3/x":                     "/v1.2.3/x",
		"/c/0a1b2c3d4e5f60718293a4b5c6": "/c/*",
		"/a/b/c/d/e/f/g/h/i/j":          "/a/b/c/d/e/f/g/h/**",
		"/pkg/left-pad-1.3.0.tgz":       "/pkg/left-pad-1.3.0.tgz",
	}
	for path, want := range paths {
		if got := view.PathShape(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestTemplatesStayThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := "/" + rapid.StringMatching(`[a-z0-9/-]{0,80}`).Draw(t, "path")
		if once := view.PathShape(p); view.PathShape(once) != once {
			t.Errorf("%q -> %q -> %q", p, once, view.PathShape(once))
		}
	})
}

func TestTerms(t *testing.T) {
	good := map[string]string{
		"host:*.example.net -status:noise": "host:*.example.net -status:noise",
		`tarball  reason:"a b"`:            `tarball reason:"a b"`,
		"path:/a:b":                        "path:/a:b",
		"https://x":                        "https://x",
		"":                                 "",
		`"color:red"`:                      "",
	}
	for line, want := range good {
		terms, err := view.ParseTerms(line, view.GroupKeys)
		if line == `"color:red"` {
			continue // judged below
		}
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		var back []string
		for _, x := range terms {
			back = append(back, x.String())
		}
		if got := strings.Join(back, " "); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
	if _, err := view.ParseTerms("colour:red", view.GroupKeys); err == nil {
		t.Error("an unknown key was taken for text")
	}
}

func FuzzTerms(f *testing.F) {
	f.Add("host:a -b:c \"x y\"")
	f.Add("-\"")
	f.Fuzz(func(t *testing.T, line string) {
		terms, err := view.ParseTerms(line, view.GroupKeys)
		if err != nil {
			return
		}
		var parts []string
		for _, x := range terms {
			parts = append(parts, x.String())
		}
		_, _ = view.ParseTerms(strings.Join(parts, " "), view.GroupKeys)
	})
}

// An agent chooses names and paths; it must not choose how much the node holds.
func TestGroupsAreBounded(t *testing.T) {
	w := newWorld(t)
	c := w.open("01A", w.event("push", "main", event.Member), "fix", "admitted", "")
	for i := range 20 {
		w.attempt(c, fmt.Sprintf("h%c.example.net", 'a'+i), "GET", "/")
	}
	w.stored()
	v := view.New(w.bus, view.Options{MaxGroups: 5})
	for _, s := range []string{bus.Actions, bus.Sessions} {
		for m, err := range w.bus.Read(t.Context(), s, "", 0) {
			if err != nil {
				t.Fatal(err)
			}
			v.Fold(m)
		}
	}
	got := v.GroupsOf("fix", event.Member)
	var all uint64
	rest := 0
	for _, g := range got {
		all += g.WouldBlock
		if g.Host == "*" {
			rest = int(g.WouldBlock)
		}
	}
	if len(got) != 6 || all != 20 || rest != 15 {
		t.Errorf("%d groups, %d attempts, %d of them beside", len(got), all, rest)
	}
}

// withoutActions is a source whose stream of actions somebody removed.
type withoutActions struct{ view.Source }

func (s withoutActions) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	if stream == bus.Actions {
		return func(yield func(bus.Msg, error) bool) { yield(bus.Msg{}, errors.New("stream not found")) }
	}
	return s.Source.Follow(ctx, stream, filter, from)
}

// Deleting the stream of actions changes no list but the paths of groups.
func TestActionsMayBeGone(t *testing.T) {
	w := newWorld(t)
	c := w.open("01A", w.event("push", "main", event.Member), "fix", "admitted", "")
	w.attempt(c, "a.example.net", "GET", "/x")
	w.stored()
	v := view.New(withoutActions{w.bus}, view.Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	until(t, func() bool { return len(v.GroupsOf("fix", event.Member)) == 1 })
	select {
	case err := <-ended:
		t.Fatalf("the view ended: %v", err)
	default:
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
