package gatekeeper

import (
	"encoding/hex"
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

var (
	ann    = By{Name: "ann@example.com", Via: "ui"}
	bob    = By{Name: "bob@example.com", Via: "ui"}
	socket = By{Name: ByLocal, Via: "cli"}
)

func full(t testing.TB, src string) string {
	t.Helper()
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	d := b.Digest()
	return hex.EncodeToString(d[:])
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return string(problem.CodeOf(err))
}

// restarted rebuilds the node from its journal alone.
func (w *world) restarted() {
	w.t.Helper()
	w.Close()
	w.store.buckets["bundles"].keys = map[string]Entry{}
	w.start()
}

func (w *world) propose(src string, by By) Proposal {
	w.t.Helper()
	p, err := w.Propose(w.t.Context(), []byte(src), "why", by)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) newestProposal() Proposal {
	w.t.Helper()
	all := w.Proposals()
	if len(all) == 0 {
		w.t.Fatal("no proposal")
	}
	return all[0]
}

func (w *world) approve1(p Proposal, by By) {
	w.t.Helper()
	if _, err := w.Approve(w.t.Context(), p.ID, p.Digest, by); err != nil {
		w.t.Fatal(err)
	}
}

func TestTwoPeople(t *testing.T) {
	wide := plus("b", "egress: [{host: '*.a.test'}]\n")
	narrow := plus("b", "egress: [{host: x.a.test}]\n")
	type try struct {
		by   By
		want string // problem code
	}
	cases := map[string]struct {
		proposer By
		tries    []try
		applied  bool
		single   bool // promotion.approvers: 1
	}{
		"second_person":           {ann, []try{{bob, ""}}, true, false},
		"proposer_excluded":       {ann, []try{{ann, "self_approval"}}, false, false},
		"proposers_token":         {ann, []try{{By{Name: ann.Name, Via: "api", Token: "ci"}, "self_approval"}}, false, false},
		"proposer_through_cli":    {ann, []try{{By{Name: ann.Name, Via: "cli"}, "self_approval"}}, false, false},
		"socket_is_nobody":        {ann, []try{{socket, "person_unknown"}}, false, false},
		"sockets_own":             {socket, []try{{socket, "person_unknown"}}, false, false},
		"socket_asks_two_approve": {socket, []try{{bob, ""}, {bob, "self_approval"}, {ann, ""}}, true, false},
		"config_asks_one_is_few":  {By{Name: ByConfig, Via: "config"}, []try{{bob, ""}}, false, false},
		"nameless":                {ann, []try{{By{Via: "api"}, "person_unknown"}}, false, false},
		"single":                  {socket, []try{{socket, ""}}, true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.mustApply(narrow+"mode: hard\n", "applied")
			if c.single {
				w.o.Approvers = 1
			}
			p, err := w.Propose(t.Context(), []byte(wide), "the monthly job needs it", c.proposer)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range c.tries {
				if _, err := w.Approve(t.Context(), p.ID, p.Digest, x.by); code(err) != x.want {
					t.Errorf("try %d by %s: %v, want %q", i, x.by.Name, err, x.want)
				}
			}
			p, err = w.Proposal(p.ID)
			if err != nil {
				t.Fatal(err)
			}
			if (p.State == ProposalApplied) != c.applied {
				t.Errorf("state %s", p.State)
			}
			want := w.inForceText()
			if applied := strings.HasPrefix(want, "b hard "+short(wide)); applied != c.applied {
				t.Errorf("in force: %s", want)
			}
			w.restarted()
			if got := w.inForceText(); got != want {
				t.Errorf("rebuilt: %s, want %s", got, want)
			}
			again, err := w.Proposal(p.ID)
			if err != nil || again.State != p.State || len(again.Approvals) != len(p.Approvals) {
				t.Errorf("rebuilt: %+v, %v; was %+v", again, err, p)
			}
			if c.applied {
				h := w.History("b")
				last := h[len(h)-1]
				if last.Result != ResultApplied || last.By != c.tries[len(c.tries)-1].by.Name || last.Single != c.single {
					t.Errorf("last receipt %+v", last)
				}
			}
		})
	}
}

// A version that somebody applied and that waits is a proposal of theirs.
func TestAppliedWideningIsAProposal(t *testing.T) {
	wide := plus("b", "egress: [{host: '*.a.test'}]\n")
	w := newWorld(t, nil)
	w.mustApply(plus("b", "egress: [{host: x.a.test}]\n")+"mode: hard\n", "applied")
	if _, err := w.Apply(t.Context(), []File{{Name: "f.yaml", Source: []byte(wide)}}, ann.Name, "ui"); err != nil {
		t.Fatal(err)
	}
	p := w.newestProposal()
	if p.By != ann.Name || p.Digest != full(t, wide) || p.Kind != ProposeVersion {
		t.Errorf("proposal %+v", p)
	}
	if _, err := w.Approve(t.Context(), p.ID, p.Digest, ann); code(err) != "self_approval" {
		t.Errorf("who applied it approved it: %v", err)
	}
	w.approve1(p, bob)
	if want := "b hard " + short(wide); w.inForceText() != want {
		t.Errorf("in force: %s, want %s", w.inForceText(), want)
	}
}

func TestChangedCandidateIsRefused(t *testing.T) {
	wide := plus("b", "egress: [{host: '*.a.test'}]\n")
	wider := plus("b", "egress: [{host: '**.a.test'}]\n")
	narrow := plus("b", "egress: [{host: x.a.test}]\n")
	narrower := plus("b", "egress: [{host: x.a.test, paths: [/a]}]\n")
	same := func(*testing.T, Proposal) (string, string) { return "", "" }
	cases := map[string]struct {
		between func(w *world)
		ask     func(t *testing.T, p Proposal) (id, digest string) // "" = the proposal's own
		want    string
	}{
		"as_shown":         {func(*world) {}, same, ""},
		"other_digest":     {func(*world) {}, func(t *testing.T, _ Proposal) (string, string) { return "", full(t, wider) }, "candidate_changed"},
		"short_digest":     {func(*world) {}, func(_ *testing.T, p Proposal) (string, string) { return "", p.Digest[:8] }, "candidate_changed"},
		"base_moved":       {func(w *world) { w.mustApply(narrower, "applied") }, same, "conflict"},
		"another_proposed": {func(w *world) { w.propose(wider, ann) }, same, "conflict"},
		"another_applied":  {func(w *world) { w.mustApply(wider, "waiting") }, same, "conflict"},
		"rejected": {func(w *world) {
			if _, err := w.Reject(w.t.Context(), w.newestProposal().ID, "not now", bob); err != nil {
				w.t.Fatal(err)
			}
		}, same, "conflict"},
		"done":    {func(w *world) { w.approve1(w.newestProposal(), bob) }, same, "conflict"},
		"unknown": {func(*world) {}, func(*testing.T, Proposal) (string, string) { return "AAAA", "" }, "not_found"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.mustApply(narrow+"mode: hard\n", "applied")
			p := w.propose(wide, ann)
			c.between(w)
			id, digest := c.ask(t, p)
			if id == "" {
				id = p.ID
			}
			if digest == "" {
				digest = p.Digest
			}
			if _, err := w.Approve(t.Context(), id, digest, bob); code(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestPromote(t *testing.T) {
	src := plus("b", strings.Replace(module, "%", "shadow", 1))
	w := newWorld(t, nil)
	w.mustApply(src, "applied")
	whole, err := w.ProposeMode(t.Context(), "b", "", bundle.Hard, "quiet for two weeks", ann)
	if err != nil {
		t.Fatal(err)
	}
	enforcer, err := w.ProposeMode(t.Context(), "b", "dlp", bundle.Hard, "it finds only cards", ann)
	if err != nil {
		t.Fatal(err)
	}
	if want := "b shadow " + short(src) + " dlp=shadow"; w.inForceText() != want {
		t.Errorf("a proposal alone changed something: %s", w.inForceText())
	}
	w.approve1(enforcer, bob)
	if want := "b shadow " + short(src) + " dlp=hard"; w.inForceText() != want {
		t.Errorf("in force: %s, want %s", w.inForceText(), want)
	}
	w.approve1(whole, bob)
	want := "b hard " + short(src) + " dlp=hard"
	if w.inForceText() != want {
		t.Errorf("in force: %s, want %s", w.inForceText(), want)
	}
	for name, try := range map[string]struct {
		enforcer string
		to       bundle.Mode
		reason   string
		want     string
	}{
		"hard_twice":     {"", bundle.Hard, "again", "conflict"},
		"built_in":       {"egress", bundle.Hard, "built in", "not_found"},
		"without_reason": {"", bundle.Shadow, " ", "usage"},
		"no_mode":        {"", "off", "off", "usage"},
	} {
		if _, err := w.ProposeMode(t.Context(), "b", try.enforcer, try.to, try.reason, ann); code(err) != try.want {
			t.Errorf("%s: %v, want %s", name, err, try.want)
		}
	}
	// Back to shadow is a widening like any other.
	back, err := w.ProposeMode(t.Context(), "b", "", bundle.Shadow, "the release is stuck", ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Approve(t.Context(), back.ID, back.Digest, ann); code(err) != "self_approval" {
		t.Errorf("one person softened a hard bundle: %v", err)
	}
	w.restarted()
	if w.inForceText() != want {
		t.Errorf("rebuilt: %s, want %s", w.inForceText(), want)
	}
	for _, r := range w.newest() {
		if r.Change != nil && (r.Change.By == "" || r.Change.Via == "") {
			t.Errorf("a receipt of nobody: %+v", r.Change)
		}
	}
}

func TestRollback(t *testing.T) {
	wide := plus("b", "egress: [{host: '*.a.test'}]\n")
	narrow := plus("b", "egress: [{host: x.a.test}]\n")
	w := newWorld(t, nil)
	w.mustApply(narrow, "applied")
	w.mustApply(wide, "applied")
	roll := func(src string, by By) string {
		return code(w.Rollback(t.Context(), "b", full(t, src), "it broke", by))
	}
	p, err := w.ProposeMode(t.Context(), "b", "", bundle.Hard, "now", ann)
	if err != nil {
		t.Fatal(err)
	}
	w.approve1(p, bob)
	if got := roll(plus("b", "egress: [{host: y.a.test}]\n"), ann); got != "not_found" {
		t.Errorf("to a version that never was: %q", got)
	}
	if got := roll(narrow, socket); got != "" {
		t.Errorf("one person could not narrow: %s", got)
	}
	want := "b hard " + short(narrow)
	if w.inForceText() != want {
		t.Errorf("in force: %s, want %s", w.inForceText(), want)
	}
	if got := roll(wide, ann); got != "not_covered" {
		t.Errorf("one person widened by rolling back: %q", got)
	}
	w.restarted()
	if w.inForceText() != want {
		t.Errorf("rebuilt: %s, want %s", w.inForceText(), want)
	}
	h := w.History("b")
	if last := h[len(h)-1]; last.Result != ResultRolledBack || last.By != ByLocal {
		t.Errorf("last receipt: %+v", last)
	}
}

func TestPause(t *testing.T) {
	for mode, alone := range map[string]bool{"shadow": true, "hard": false} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, nil)
			w.mustApply(plus("b", "mode: "+mode+"\n"), "applied")
			if err := w.Pause(t.Context(), "b", "something is odd", socket); err != nil {
				t.Fatal(err)
			}
			paused := func() bool {
				all, err := w.Bundles(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return all[0].Paused
			}
			if !paused() {
				t.Fatal("not paused")
			}
			w.restarted()
			if !paused() {
				t.Error("a restart ended the pause")
			}
			p, err := w.Resume(t.Context(), "b", "it was nothing", ann)
			if err != nil {
				t.Fatal(err)
			}
			if paused() == alone {
				t.Errorf("paused: %v", paused())
			}
			if !alone {
				if _, err := w.Approve(t.Context(), p.ID, p.Digest, ann); code(err) != "self_approval" {
					t.Errorf("one person resumed a hard bundle: %v", err)
				}
				w.approve1(p, bob)
			}
			if paused() {
				t.Error("still paused")
			}
			w.restarted()
			if paused() {
				t.Error("a restart paused it again")
			}
		})
	}
}

// A pause must not open the way for a wider bundle.
func TestPausedBundleMakesNoWay(t *testing.T) {
	w := newWorld(t, nil)
	w.mustApply(plus("b", "egress: [{host: x.a.test}]\n"), "applied")
	w.mustApply(plus("wide", "egress: [{host: '*.a.test'}]\n"), "applied")
	if err := w.Pause(t.Context(), "b", "something is odd", socket); err != nil {
		t.Fatal(err)
	}
	id := w.take(failedRun("1"))
	if open := w.log.receipts(id)[0].Open; open.Code != string(problem.BundlePaused) || open.Bundle != "b" {
		t.Errorf("session.open is %+v", open)
	}
}
