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
		w.mustApply(plus("n", "egress: [{host: '**.a.test'}]\npriority: 6\n"), "applied")
		w.mustApply(hard, "applied")
		w.mustApply(plus("n", "egress: [{host: '**.b.test'}]\npriority: 6\n"), "applied")
	})
}
