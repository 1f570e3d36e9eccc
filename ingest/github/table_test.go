package github

import (
	"bytes"
	"slices"
	"testing"

	gogithub "github.com/google/go-github/v66/github"

	"gatehouse/ingest"
	"gatehouse/internal/event"
)

// declared is one row as it stands in the source, with the kinds that use it.
type declared struct {
	at    string
	kinds map[string]bool
}

// rowsOf collects the rows of a kind, each once, however many kinds use it.
func rowsOf(kind string, rows []ingest.Row, seen map[*ingest.Row]declared, at string) {
	for i := range rows {
		r := &rows[i]
		if seen[r].kinds == nil {
			seen[r] = declared{at + r.Path, map[string]bool{}}
		}
		seen[r].kinds[kind] = true
		rowsOf(kind, r.Use, seen, at+r.Path)
	}
}

// Issue 5, Shows 1: without any one row some event of the corpus changes. A row
// that no payload reaches would be a claim that nothing backs.
func TestEveryRowCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the corpus once for each row")
	}
	s := source(t)
	byKind := map[string][]payload{}
	whole := map[string][]byte{}
	encode := func(p payload) []byte {
		b, err := build(t, s, p).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, p := range payloads(t) {
		byKind[p.kind] = append(byKind[p.kind], p)
		whole[p.name] = encode(p)
	}
	rows := map[*ingest.Row]declared{}
	for name, k := range s.kinds {
		rowsOf(name, common, rows, "common ")
		rowsOf(name, k.rows, rows, name+" ")
	}
	for r, d := range rows {
		kept := *r
		*r = ingest.Row{Path: "/removed by the test", Rule: outsider}
		counts := false
		for name := range d.kinds {
			k := s.kinds[name]
			k.table = ingest.NewTable(join(common, k.rows))
			for _, p := range byKind[name] {
				if counts = !bytes.Equal(whole[p.name], encode(p)); counts {
					break
				}
			}
			if counts {
				break
			}
		}
		*r = kept
		if !counts {
			t.Errorf("no payload needs the row %s", d.at)
		}
		for name := range d.kinds {
			k := s.kinds[name]
			k.table = ingest.NewTable(join(common, k.rows))
		}
	}
	if len(rows) < 150 {
		t.Errorf("only %d rows tested", len(rows))
	}
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
		if p.kind == "ping" || !slices.Contains(gogithub.MessageTypes(), p.kind) {
			continue
		}
		parsed, err := gogithub.ParseWebHook(p.kind, p.raw)
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
				t.Errorf("%s: fact %s is %q, go-github says %q", p.name, k, e.Facts[k], v)
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d facts compared", checked)
	}
}
