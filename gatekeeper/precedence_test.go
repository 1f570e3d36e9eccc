package gatekeeper

import (
	"strings"
	"testing"
)

// One person must not widen a hard bundle by putting another one before it.
func TestNobodyPassesAHardBundle(t *testing.T) {
	hard := plus("b", "egress: [{host: x.a.test}]\npriority: 5\nmode: hard\n")
	cases := map[string]struct{ src, result string }{
		"wider_before":        {plus("n", "egress: [{host: '**.a.test'}]\npriority: 6\n"), "rejected"},
		"incomparable_before": {plus("n", "egress: [{host: z.test}]\npriority: 6\n"), "rejected"},
		"softer_before":       {plus("n", "egress: [{host: x.a.test}]\npriority: 6\n"), "rejected"},
		"wider_behind":        {plus("n", "egress: [{host: '**.a.test'}]\npriority: 5\n"), "applied"},
		"covered_before":      {plus("n", "egress: [{host: x.a.test, paths: [/a]}]\npriority: 6\nmode: hard\n"), "applied"},
		"other_events":        {strings.Replace(plus("n", "egress: [{host: '**.a.test'}]\npriority: 6\n"), "workflow_run.completed", "push", 1), "applied"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.mustApply(hard, "applied")
			w.mustApply(c.src, c.result)
		})
	}
	t.Run("raised_later", func(t *testing.T) {
		w := newWorld(t, nil)
		w.mustApply(hard, "applied")
		w.mustApply(plus("n", "egress: [{host: '**.a.test'}]\n"), "applied")
		w.mustApply(plus("n", "egress: [{host: '**.a.test'}]\npriority: 6\n"), "rejected")
	})
	t.Run("was_before_already", func(t *testing.T) {
		w := newWorld(t, nil)
		w.mustApply(plus("n", "egress: [{host: '**.c.test'}]\npriority: 6\n"), "applied")
		w.mustApply(hard, "applied")
		w.mustApply(plus("n", "egress: [{host: '**.b.test'}]\npriority: 6\n"), "applied")
	})
}

// taker returns which bundle an event goes to now, and whether it is admitted.
func (w *world) taker(run string) string {
	open := w.log.receipts(w.take(failedRun(run)))[0].Open
	return open.Bundle + " " + string(open.Mode) + " " + string(open.State)
}

// Nor by any other change of one person: what a hard bundle takes stays with it
// until a second person says yes.
func TestNobodyMakesWay(t *testing.T) {
	hard := func(more string) string { return plus("h", "egress: [{host: x.a.test}]\nmode: hard\n"+more) }
	some := func(src, where string) string {
		return strings.Replace(src, "fork: false", "fork: false, "+where, 1)
	}
	wide := func(more string) string { return plus("s", "egress: [{host: '**.b.test'}]\n"+more) }
	pause := func(w *world, name string) {
		w.t.Helper()
		if err := w.Pause(w.t.Context(), name, "x", ann); err != nil {
			w.t.Fatal(err)
		}
	}
	cases := map[string]struct {
		have   []string
		before func(w *world)
		change func(w *world) string // what came of it
		want   string
	}{
		"rollback_to_a_priority": {
			[]string{wide("priority: 9\n"), wide(""), hard("priority: 5\n")}, nil,
			func(w *world) string {
				return code(w.Rollback(w.t.Context(), "s", full(w.t, wide("priority: 9\n")), "back", ann))
			}, "not_covered",
		},
		"lower_the_hard_one": {
			[]string{hard("priority: 5\n"), wide("priority: 4\n")}, nil,
			func(w *world) string { return w.must(hard("")) }, "waiting",
		},
		"lower_it_then_come": {
			[]string{hard("priority: 5\n"), hard("")}, nil,
			func(w *world) string { return w.must(wide("priority: 4\n")) }, "rejected",
		},
		"narrow_its_match": {
			[]string{hard(""), plus("s", "egress: [{host: '**.a.test'}]\n")}, nil,
			func(w *world) string { return w.must(some(hard(""), "run_id: ['1']")) }, "waiting",
		},
		"narrow_its_match_for_later": {
			[]string{hard("")}, nil,
			func(w *world) string { return w.must(some(hard(""), "run_id: ['1']")) }, "waiting",
		},
		"resume_with_priority": {
			[]string{wide("priority: 9\n")},
			func(w *world) {
				pause(w, "s")
				w.mustApply(hard("priority: 5\n"), "applied")
			},
			func(w *world) string {
				p, err := w.Resume(w.t.Context(), "s", "x", ann)
				return code(err) + p.State
			}, ProposalOpen,
		},
		"lower_beside_a_paused_one": {
			[]string{hard("priority: 5\n"), wide("priority: 4\n")},
			func(w *world) {
				pause(w, "s")
				w.mustApply(hard(""), "applied")
			},
			func(w *world) string {
				p, err := w.Resume(w.t.Context(), "s", "x", ann)
				return code(err) + p.State
			}, ProposalOpen,
		},
		"wider_match_of_one_before": {
			[]string{some(wide("priority: 9\n"), "run_id: ['7']"), hard("")}, nil,
			func(w *world) string { return w.must(wide("priority: 9\n")) }, "rejected",
		},
		"no_longer_the_wider": {
			[]string{plus("s", "egress: [{host: '**.a.test'}]\npriority: 9\n"), hard("")}, nil,
			func(w *world) string { return w.must(wide("priority: 9\n")) }, "rejected",
		},
		"a_third": {
			[]string{plus("s", "egress: [{host: '**.a.test'}]\npriority: 9\n"), hard("")}, nil,
			func(w *world) string { return w.must(plus("t", "egress: [{host: c.test}]\n")) }, "rejected",
		},
		"file_says_hard": {
			[]string{plus("s", "egress: [{host: x.a.test}]\n"), hard("priority: 5\n")}, nil,
			func(w *world) string {
				return w.must(plus("s", "egress: [{host: x.a.test, paths: [/a]}]\nmode: hard\npriority: 6\n"))
			}, "rejected",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			for _, src := range c.have {
				w.mustApply(src, "applied")
			}
			if c.before != nil {
				c.before(w)
			}
			was := w.taker("2")
			if got := c.change(w); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if got := w.taker("3"); got != was {
				t.Errorf("the event goes to %s, it went to %s", got, was)
			}
		})
	}
	t.Run("two_people_may", func(t *testing.T) {
		w := newWorld(t, nil)
		w.mustApply(hard("priority: 5\n"), "applied")
		w.mustApply(wide("priority: 4\n"), "applied")
		w.approve1(w.propose(hard(""), ann), bob)
		if got := w.taker("2"); got != "s shadow admitted" {
			t.Errorf("the event goes to %s", got)
		}
	})
}

func (w *world) must(src string) string {
	w.t.Helper()
	a, err := w.apply1(src)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Result
}
