package gatekeeper

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
)

// T-14: an approval is of a change beside the bundles that it was judged beside.
// When one of them is another by now, people look again; when any other bundle
// is, they need not.
func TestApprovalIsBesideItsNeighbours(t *testing.T) {
	const first = "priority: 5\nmode: hard\n"
	narrow, wide := plus("a", "egress: [{host: x.a.test}]\n"+first), plus("a", "egress: [{host: '*.a.test'}]\n"+first)
	apart := func(src string) string { return strings.Replace(src, "workflow_run.completed", "push", 1) }
	childless := func(src string) string {
		_, rest, _ := strings.Cut(src, "match: ")
		_, rest, _ = strings.Cut(rest, "\n")
		before, _, _ := strings.Cut(src, "match: ")
		return before + rest
	}
	parent := func(src, child string) string {
		return strings.Replace(src, "session: {", "session: {children: {bundles: ["+child+"]}, ", 1)
	}
	sets := &folder{}
	beside := func(more string) string { return plus("b", "egress: [{host: b.test}]\n"+more) }
	cases := map[string]struct {
		have       []string
		asked      string // version of a, "" = wide
		between    func(w *world)
		want, name string
	}{
		"T-14_wider": {[]string{beside("")}, "", func(w *world) { w.mustApply(beside("operations: [scm.comment]\n"), "applied") }, "neighbour_changed", "b"},
		"T-14_new":   {nil, "", func(w *world) { w.mustApply(beside(""), "applied") }, "neighbour_changed", "b"},
		"T-14_its_set": {[]string{plus("b", "egress: [{set: npm}]\n")}, "", func(w *world) {
			sets.write(setFile("a.test", "evil.test"))
			w.mustApply(plus("b", "egress: [{set: npm}]\n"), "applied")
		}, "neighbour_changed", "b"},
		"T-14_paused":        {[]string{beside("")}, "", func(w *world) { must(w, w.Pause(w.t.Context(), "b", "x", ann)) }, "neighbour_changed", "b"},
		"T-14_hard":          {[]string{beside("")}, "", func(w *world) { w.promote("b", "") }, "neighbour_changed", "b"},
		"T-14_enforcer_hard": {[]string{beside(strings.Replace(module, "%", "shadow", 1))}, "", func(w *world) { w.promote("b", "dlp") }, "neighbour_changed", "b"},
		"T-14_child":         {[]string{childless(plus("c", ""))}, parent(wide, "c"), func(w *world) { w.mustApply(childless(plus("c", "operations: [scm.comment]\n")), "applied") }, "neighbour_changed", "c"},
		"T-14_parent":        {[]string{parent(apart(plus("p", "")), "a")}, "", func(w *world) { w.mustApply(parent(apart(plus("p", "operations: [scm.comment]\n")), "a"), "applied") }, "neighbour_changed", "p"},
		"T-14_meets_the_candidate_only": {
			[]string{apart(beside(""))}, strings.Replace(wide, "workflow_run.completed", "workflow_run.completed, push", 1),
			func(w *world) { w.mustApply(apart(beside("operations: [scm.comment]\n")), "applied") }, "neighbour_changed", "b",
		},
		"unrelated":          {[]string{apart(beside(""))}, "", func(w *world) { w.mustApply(apart(beside("operations: [scm.comment]\n")), "applied") }, "", ""},
		"unrelated_new":      {nil, "", func(w *world) { w.mustApply(apart(beside("")), "applied") }, "", ""},
		"unrelated_child":    {[]string{childless(plus("c", ""))}, "", func(w *world) { w.mustApply(childless(plus("c", "operations: [scm.comment]\n")), "applied") }, "", ""},
		"nothing":            {[]string{beside("")}, "", func(*world) {}, "", ""},
		"applied_unchanged":  {[]string{beside("")}, "", func(w *world) { w.mustApply(beside(""), "unchanged") }, "", ""},
		"only_proposed":      {[]string{beside("")}, "", func(w *world) { w.propose(beside("operations: [scm.comment]\n"), bob) }, "", ""},
		"its_set_is_not_its": {[]string{plus("b", "egress: [{set: npm}]\n")}, "", func(*world) { sets.write(setFile("evil.test")) }, "", ""},
		"there_and_back": {[]string{beside("")}, "", func(w *world) {
			w.mustApply(beside("operations: [scm.comment]\n"), "applied")
			w.mustApply(beside(""), "applied")
		}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sets.write(setFile("a.test"))
			w := newWorld(t, nil, func(w *world) { w.opts.Sets = sets })
			w.mustApply(narrow, "applied")
			for _, src := range c.have {
				w.mustApply(src, "applied")
			}
			asked := c.asked
			if asked == "" {
				asked = wide
			}
			p := w.propose(asked, ann)
			c.between(w)
			w.restarted() // what it was judged beside is in the receipt
			_, err := w.Approve(t.Context(), p.ID, p.Digest, bob)
			if code(err) != c.want {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if c.want == "" {
				return
			}
			if !strings.Contains(err.Error(), ": "+c.name+" may take") {
				t.Errorf("which one changed is not said: %v", err)
			}
			again := w.propose(asked, ann)
			w.approve1(again, bob)
			if p, _ = w.Proposal(p.ID); p.State != ProposalReplaced {
				t.Errorf("the first proposal is %s", p.State)
			}
		})
	}

	t.Run("applied_together", func(t *testing.T) {
		w := newWorld(t, []string{narrow, beside("")})
		out, err := w.Apply(t.Context(), []File{{"a", []byte(wide)}, {"b", []byte(beside("operations: [scm.comment]\n"))}}, "config", "config")
		if err != nil || out[0].Result != ResultWaiting || out[1].Result != ResultApplied {
			t.Fatalf("%+v, %v", out, err)
		}
		p := w.newestProposal()
		w.approve1(p, ann)
		w.approve1(p, bob)
	})
	t.Run("applied_again", func(t *testing.T) {
		w := newWorld(t, []string{narrow, beside("")})
		w.mustApply(wide, "waiting")
		p := w.newestProposal()
		w.mustApply(wide, "waiting")
		if w.newestProposal().ID != p.ID {
			t.Error("a restart is a second request")
		}
		w.mustApply(beside("operations: [scm.comment]\n"), "applied")
		w.mustApply(wide, "waiting")
		if again := w.newestProposal(); again.ID == p.ID || again.State != ProposalOpen {
			t.Errorf("what is stale was not asked for again: %+v", again)
		}
	})
	t.Run("T-14_mode", func(t *testing.T) {
		w := newWorld(t, []string{plus("a", ""), beside("")})
		ask := func() Proposal {
			p, err := w.ProposeMode(t.Context(), "a", "", bundle.Hard, "quiet", ann)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := ask()
		w.mustApply(beside("operations: [scm.comment]\n"), "applied")
		if _, err := w.Approve(t.Context(), p.ID, p.Digest, bob); code(err) != "neighbour_changed" {
			t.Errorf("%v", err)
		}
		w.approve1(ask(), bob)
		if p, _ = w.Proposal(p.ID); p.State != ProposalReplaced {
			t.Errorf("the first proposal is %s", p.State)
		}
	})
}

// T-14: a version that leaves an enforcer out is not approved once the enforcer
// became hard: nobody said yes to that.
func TestVersionBesideItsEnforcers(t *testing.T) {
	const first = "egress: [{host: x.a.test}]\nmode: hard\n"
	with, without := plus("a", first+strings.Replace(module, "%", "shadow", 1)), plus("a", first)
	w := newWorld(t, []string{with})
	stale := w.propose(without, ann)
	w.promote("a", "dlp")
	w.restarted()
	if _, err := w.Approve(t.Context(), stale.ID, stale.Digest, bob); code(err) != "conflict" {
		t.Errorf("%v", err)
	}
	if got := w.inForceText(); !strings.Contains(got, "dlp=hard") {
		t.Errorf("in force: %s", got)
	}
	w.approve1(w.propose(without, ann), bob)
	if got := w.inForceText(); strings.Contains(got, "dlp") {
		t.Errorf("in force: %s", got)
	}
	// What somebody applied is asked for again, not left waiting for ever.
	for _, enforcer := range []string{"dlp", ""} {
		w = newWorld(t, []string{strings.Replace(with, "mode: hard\n", "", 1)})
		w.promote("a", map[bool]string{true: "", false: "dlp"}[enforcer != ""]) // one is hard, so that a version waits
		w.mustApply(without, "waiting")
		w.promote("a", enforcer)
		w.mustApply(without, "waiting")
		again := w.newestProposal()
		if again.State != ProposalOpen || again.Kind != ProposeVersion {
			t.Fatalf("the newest proposal is %+v", again)
		}
		w.approve1(again, ann)
		w.approve1(again, bob)
	}
	// And the other way round: an enforcer's mode does not wait for a version.
	w = newWorld(t, []string{with})
	mode, err := w.ProposeMode(t.Context(), "a", "dlp", bundle.Hard, "quiet", ann)
	must(w, err)
	w.propose(without, ann)
	w.approve1(mode, bob)
	if got := w.inForceText(); !strings.Contains(got, "dlp=hard") {
		t.Errorf("in force: %s", got)
	}
}

func must(w *world, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// promote turns a bundle, or one enforcer of it, to hard by two people.
func (w *world) promote(name, enforcer string) {
	w.t.Helper()
	p, err := w.ProposeMode(w.t.Context(), name, enforcer, bundle.Hard, "quiet", ann)
	must(w, err)
	w.approve1(p, bob)
}
