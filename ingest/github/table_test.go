package github

import (
	"slices"
	"testing"

	gogithub "github.com/google/go-github/v66/github"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
)

// Issue 5, Shows 1: without any one row some event of the corpus changes.
func TestEveryRowCounts(t *testing.T) {
	s := source(t)
	tables := map[string]sourcetest.Table{}
	for name, k := range s.kinds {
		tables[name] = sourcetest.Table{Rows: [][]ingest.Row{common, k.rows}, Rebuild: func() { k.table = ingest.NewTable(join(common, k.rows)) }}
	}
	sourcetest.EveryRowCounts(t, tables, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

// Issue 5, Shows 1: what no row knows is an outsider's.
func TestUnknownIsOutsider(t *testing.T) {
	s := source(t)
	sourcetest.UnknownIsOutsider(t, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}

func TestPublishedKinds(t *testing.T) {
	s := source(t)
	if len(published) != 76 {
		t.Errorf("%d published kinds, want 76", len(published))
	}
	for _, name := range published {
		if !event.IsToken(name) || s.kinds[name] == nil || s.kinds[name].table == nil {
			t.Errorf("kind %s has no table", name)
		}
	}
	for name := range s.kinds {
		if !slices.Contains(published, name) {
			t.Errorf("kind %s is not published", name)
		}
	}
	// What go-github knows, we know; the three it has beside are no deliveries.
	for _, name := range gogithub.MessageTypes() {
		if !slices.Contains(published, name) && !slices.Contains([]string{"content_reference", "pull_request_target", "user"}, name) {
			t.Errorf("go-github knows %s", name)
		}
	}
}

// go-github reads the same facts out of the corpus as our tables do.
func TestFactsAgreeWithGoGithub(t *testing.T) {
	s := source(t)
	checked := 0
	for _, p := range payloads(t) {
		if p.Kind == "ping" || !slices.Contains(gogithub.MessageTypes(), p.Kind) {
			continue
		}
		parsed, err := gogithub.ParseWebHook(p.Kind, p.Raw)
		if err != nil {
			continue // go-github is not lenient; we are
		}
		e := build(t, s, p)
		want := map[string]string{}
		id := func(name string, v int64) {
			if v != 0 {
				want[name] = itoa(v)
			}
		}
		switch g := parsed.(type) {
		case *gogithub.WorkflowRunEvent:
			r := g.GetWorkflowRun()
			id("run_id", r.GetID())
			id("workflow_id", r.GetWorkflowID())
			id("repository.id", g.GetRepo().GetID())
			id("head_repository.id", r.GetHeadRepository().GetID())
			want["conclusion"], want["event"], want["status"], want["head_sha"] = r.GetConclusion(), r.GetEvent(), r.GetStatus(), r.GetHeadSHA()
			id("run_attempt", int64(r.GetRunAttempt()))
		case *gogithub.IssueCommentEvent:
			id("issue.id", g.GetIssue().GetID())
			id("number", int64(g.GetIssue().GetNumber()))
			id("comment.id", g.GetComment().GetID())
			id("comment.author.id", g.GetComment().GetUser().GetID())
			id("sender.id", g.GetSender().GetID())
			want["is_pull_request"] = map[bool]string{true: "true", false: "false"}[g.GetIssue().IsPullRequest()]
		case *gogithub.PullRequestEvent:
			pr := g.GetPullRequest()
			id("pull_request.id", pr.GetID())
			id("number", int64(pr.GetNumber()))
			id("head_repository.id", pr.GetHead().GetRepo().GetID())
			id("author.id", pr.GetUser().GetID())
			want["head_sha"], want["state"] = pr.GetHead().GetSHA(), pr.GetState()
		case *gogithub.IssuesEvent:
			id("issue.id", g.GetIssue().GetID())
			id("label.id", g.GetLabel().GetID())
		case *gogithub.PushEvent:
			want["head_sha"], want["before"] = g.GetAfter(), g.GetBefore()
			id("repository.id", g.GetRepo().GetID())
		case *gogithub.CheckRunEvent:
			id("check_run.id", g.GetCheckRun().GetID())
			id("app.id", g.GetCheckRun().GetApp().GetID())
		}
		for k, v := range want {
			checked++
			if e.Facts[k] != v {
				t.Errorf("%s: fact %s is %q, go-github says %q", p.Name, k, e.Facts[k], v)
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d facts compared", checked)
	}
}
