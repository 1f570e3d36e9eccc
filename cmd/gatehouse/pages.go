package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/review"
	"gatehouse/ui"
)

// newPages makes the pages over the same commands that the API has.
func (n *node) newPages(ctx context.Context, rev *review.Review, has inventory, status func() api.Status) (*ui.UI, error) {
	return ui.New(ui.Options{
		View: n.view, Review: rev, Changes: stepsOf{n.gk}, Do: pageCommands{n.do}, Inventory: has, Log: n.log, Ending: ctx.Done(),
		Budget: func(session string) (spend.Budget, bool) {
			b, ok := budgetsOf(n.do.exits.budgets())[session]
			return b, ok
		},
		Node: func() ui.Node {
			s := status()
			out := ui.Node{Name: s.Node, Version: s.Version, Started: s.Started, Dev: s.Dev, Running: s.Running, Weaker: n.gk.Weaker()}
			if s.Bus.Durable > s.Bus.Stored {
				out.Behind = s.Bus.Durable - s.Bus.Stored
			}
			for _, r := range s.Reasons {
				out.Faults = append(out.Faults, r.Detail)
			}
			return out
		},
		Who: func(r *http.Request) ui.Person {
			id, _ := auth.From(r.Context())
			return ui.Person{By: callerOf(r.Context()), CSRF: id.CSRF, May: func(act ui.Act) error {
				return api.Allow(id, api.Step(act), time.Now())
			}}
		},
	})
}

// pageCommands are the commands in the words of the pages.
type pageCommands struct{ do commands }

func (p pageCommands) by(who ui.Person) api.Actor { return api.Actor(who.By) }

func (p pageCommands) Kill(ctx context.Context, session string, who ui.Person) error {
	return p.do.Kill(ctx, session, p.by(who))
}

func (p pageCommands) Retry(ctx context.Context, session string, who ui.Person) (string, error) {
	return p.do.Retry(ctx, session, p.by(who))
}

func (p pageCommands) Redeliver(ctx context.Context, event string, who ui.Person) (string, error) {
	return p.do.Redeliver(ctx, event, p.by(who))
}

func (p pageCommands) Artifacts(ctx context.Context, session string) ([]ui.Artifact, error) {
	all, err := p.do.Artifacts(ctx, session)
	out := make([]ui.Artifact, len(all))
	for i, a := range all {
		out[i] = ui.Artifact(a)
	}
	return out, err
}

func (p pageCommands) Logs(ctx context.Context, session string) (io.ReadCloser, error) {
	return p.do.Logs(ctx, session)
}

var _ ui.Commands = pageCommands{}
