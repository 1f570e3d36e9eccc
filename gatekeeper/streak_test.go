package gatekeeper

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// branchRun is failedRun of a branch of its own, so that no loop guard counts
// it with another.
func branchRun(n int) *event.Event {
	return failedRun(fmt.Sprintf("run-%d", n), func(e *event.Event) {
		e.Facts["branch_hash"] = fmt.Sprintf("%08x", n)
		e.Facts["workflow_id"] = fmt.Sprint(n)
		delete(e.Lists, "pull_requests")
	})
}

// TestPausedAfterFailures: three sessions of a bundle that fail in a row pause
// it; what ends otherwise begins a new count or says nothing.
func TestPausedAfterFailures(t *testing.T) {
	cases := map[string]struct {
		ends   []string
		paused bool
	}{
		"three_failures":             {[]string{"failed", "failed", "failed"}, true},
		"failures_and_timeouts":      {[]string{"timeout", "failed", "timeout"}, true},
		"two_are_no_streak":          {[]string{"failed", "failed"}, false},
		"a_success_between":          {[]string{"failed", "failed", "completed", "failed", "failed"}, false},
		"no_effect_between":          {[]string{"failed", "failed", "no_effect", "failed", "failed"}, false},
		"a_kill_says_nothing":        {[]string{"failed", "failed", "cancelled", "failed"}, true},
		"kills_are_no_failures":      {[]string{"cancelled", "cancelled", "cancelled"}, false},
		"remembered_over_a_restart":  {[]string{"failed", "failed", "restart", "failed"}, true},
		"a_restart_is_no_failure":    {[]string{"failed", "failed", "restart"}, false},
		"counted_again_after_resume": {[]string{"failed", "failed", "failed", "resume", "failed", "failed"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var next atomic.Value
			w := newWorld(t, []string{fixCI}, func(w *world) { w.opts.Failures = 3 })
			run := func(ctx context.Context, _ sandbox.Spec) (sandbox.End, error) {
				switch end := next.Load().(string); end {
				case "cancelled":
					<-ctx.Done()
					return sandbox.End{Reason: sandbox.Cancelled, Exit: 143}, nil
				case "no_effect":
					return sandbox.End{Reason: sandbox.Completed}, nil
				case "completed":
					return sandbox.End{Reason: sandbox.Completed, Artifacts: map[string]string{"x": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}, nil
				default:
					return sandbox.End{Reason: end, Exit: 1}, nil
				}
			}
			w.room.run = run
			for i, end := range c.ends {
				switch end {
				case "restart":
					w.Close()
					w.start()
					continue
				case "resume":
					if _, err := w.Resume(t.Context(), "fix-ci", "mended", By{Name: "ada@example.com", Via: "ui"}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				next.Store(end)
				id := w.take(branchRun(i))
				if end == "cancelled" {
					if err := w.Kill(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				if r := w.ended(id); r.Reason != end {
					t.Fatalf("session %d ended %q (%s), want %s", i, r.Reason, r.Code, end)
				}
			}
			next.Store("completed")
			id := w.take(branchRun(99))
			refused := w.log.receipts(id)[0].Open.Code == string(problem.BundlePaused)
			if refused != c.paused {
				t.Errorf("paused %v, want %v; %s", refused, c.paused, w.log.story(id))
			}
			said := 0
			for _, r := range w.newest() {
				if r.Change != nil && r.Change.Result == ResultPaused && r.Change.By == byNode.Name {
					said++
				}
			}
			if (said > 0) != (c.paused || name == "counted_again_after_resume") {
				t.Errorf("%d receipts of a pause by the node", said)
			}
		})
	}
}
