package review_test

import (
	"strings"
	"testing"
	"time"

	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// TestOwnEndpoints: what the bundle's agent calls for itself is marked, can be
// left out, and nobody has to decide about it before hard mode; what only looks
// like it stays.
func TestOwnEndpoints(t *testing.T) {
	const host = "statsig.anthropic.com"
	claude := strings.Replace(fix, "{command: {argv: [sh]}}", "claude-code", 1)
	played := func(t *testing.T, text string, hosts ...string) *world {
		w := newWorld(t, map[string]string{"npm": npm}, text)
		for range 2 {
			a := w.session(w.event("issue_comment"), "fix", "member")
			for _, h := range hosts {
				a.tries("POST", h, "/v1/rgstr")
			}
			a.ends("completed")
		}
		return w
	}
	decided := func(r *review.Review) review.Item {
		t.Helper()
		// Weeks later nothing but a decision is missing.
		ready, err := r.Ready(t.Context(), "fix")
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range ready.Items {
			if i.ID == "decided" {
				return i
			}
		}
		t.Fatal("no item says what is decided")
		return review.Item{}
	}
	later := func(o *review.Options) { o.Clock = func() time.Time { return time.Now().AddDate(0, 0, 20) } }
	shown := func(t *testing.T, r *review.Review, filter string) []view.Group {
		t.Helper()
		p, err := r.Groups(t.Context(), filter, "", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.Items
	}
	t.Run("marked", func(t *testing.T) {
		r := played(t, claude, host).review(later)
		own := shown(t, r, "own:true")
		if len(own) != 1 || !own[0].Own || own[0].Host != host || len(shown(t, r, "own:false")) != 0 {
			t.Fatalf("%+v", own)
		}
		if d, err := r.Group(t.Context(), own[0].ID); err != nil || !d.Own {
			t.Errorf("its page: %v, %v", d.Own, err)
		}
		if i := decided(r); !i.OK {
			t.Errorf("it counts against readiness: %s", i.Text)
		}
	})
	for id, c := range map[string]struct{ text, host string }{
		"RV-01_another_agent":  {fix, host},
		"RV-01_another_preset": {claude, "models.dev"},
		"RV-01_below":          {claude, "x." + host},
		"RV-01_lookalike":      {claude, "statsig.anthropic.com.example.net"},
		"RV-01_many_tenants":   {claude, "o1.ingest.sentry.io"},
		"RV-01_model":          {claude, "api.anthropic.com"},
	} {
		t.Run(id, func(t *testing.T) {
			r := played(t, c.text, c.host).review(later)
			if own := shown(t, r, "own:true"); len(own) != 0 {
				t.Errorf("marked as the agent's own: %+v", own)
			}
			if i := decided(r); i.OK {
				t.Error("nobody has to decide about it")
			}
		})
	}
}
