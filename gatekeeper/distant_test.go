package gatekeeper

import (
	"errors"
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// elsewhere is a room on another machine.
type elsewhere struct{ *room }

func (elsewhere) Distant() {}

// TestDistantProvider: a provider whose probe this node cannot see is hard only
// with a conformance report that holds, and is observed at level 2 at most.
func TestDistantProvider(t *testing.T) {
	cases := map[string]struct {
		mode   string
		report Report
		names  string // of the refusal; "" = it runs
	}{
		"shadow_needs_no_report":   {"shadow", nil, ""},
		"hard_without_reports":     {"hard", nil, "no conformance report"},
		"hard_with_an_ended_one":   {"hard", func(sandbox.Provider) error { return errors.New("ended yesterday") }, "ended yesterday"},
		"hard_with_one_that_holds": {"hard", func(sandbox.Provider) error { return nil }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doors{}
			w := newWorld(t, []string{strings.Replace(fixCI, "accepts:", "mode: "+c.mode+"\naccepts:", 1)}, withDoors(d), func(w *world) {
				w.opts.Providers, w.opts.Report, w.opts.Unlimited = map[string]sandbox.Provider{"local": elsewhere{w.room}}, c.report, true
			})
			id := w.take(failedRun("this"))
			if c.names != "" {
				w.wantStory(id, "open refused provider_capability_missing, close refused")
				if len(w.room.specs) != 0 {
					t.Error("a sandbox started")
				}
				if _, code, why := w.prepare(bundle.Choice{Bundle: w.registry.known()[0]}); code != problem.ProviderCapabilityMissing || !strings.Contains(why, c.names) {
					t.Errorf("%s %q, want %q", code, why, c.names)
				}
				return
			}
			w.ended(id)
			w.wantStory(id, happy)
			for _, rec := range w.log.receipts(id) {
				if rec.State != nil && rec.State.To == "running" && rec.State.Level != 2 {
					t.Errorf("observed at level %d, want 2", rec.State.Level)
				}
			}
		})
	}
}
