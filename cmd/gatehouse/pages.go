package main

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/ui"
)

// newPages makes the pages over the same commands that the API has.
func (n *node) newPages(status func() api.Status) (*ui.UI, error) {
	return ui.New(ui.Options{
		View: n.view, Do: pageCommands{n.do}, Log: n.log,
		Node: func() ui.Node {
			s := status()
			out := ui.Node{Name: s.Node, Version: s.Version, Started: s.Started, Dev: s.Dev, Running: s.Running}
			if s.Bus.Durable > s.Bus.Stored {
				out.Behind = s.Bus.Durable - s.Bus.Stored
			}
			for _, r := range s.Reasons {
				out.Faults = append(out.Faults, r.Detail)
			}
			return out
		},
		Accepts: n.accepts,
		Who:     func(r *http.Request) ui.Person { return ui.Person{Name: api.ActorOf(r.Context()).Name} },
	})
}

// accepts returns the lowest origin that the version in force of a bundle takes.
// Of a bundle that can't be read nothing counts.
func (n *node) accepts(name string) event.Origin {
	for _, b := range n.view.Bundles() {
		if b.Name != name {
			continue
		}
		text, err := (pageCommands{n.do}).Bundle(context.Background(), b.Digest)
		if err != nil {
			return event.Platform
		}
		parsed, err := bundle.Parse(text)
		if err != nil {
			return event.Platform
		}
		return parsed.Accepts
	}
	return event.Platform
}

// pageCommands are the commands in the words of the pages.
type pageCommands struct{ do commands }

func (p pageCommands) by(who ui.Person) api.Actor { return api.Actor{Name: who.Name, Via: "ui"} }

func (p pageCommands) Kill(ctx context.Context, session string, who ui.Person) error {
	return p.do.Kill(ctx, session, p.by(who))
}

func (p pageCommands) Retry(ctx context.Context, session string, who ui.Person) (string, error) {
	return p.do.Retry(ctx, session, p.by(who))
}

func (p pageCommands) Redeliver(ctx context.Context, event string, who ui.Person) (string, error) {
	return p.do.Redeliver(ctx, event, p.by(who))
}

func (p pageCommands) Logs(ctx context.Context, session string) (io.ReadCloser, error) {
	return p.do.Logs(ctx, session)
}

func (p pageCommands) Bundle(_ context.Context, digest string) ([]byte, error) {
	var h receipts.Hash
	b, err := hex.DecodeString(digest)
	if err != nil || copy(h[:], b) != len(h) {
		return nil, problem.New(problem.NotFound, "a version is named by 64 hex digits", "")
	}
	text, ok := p.do.bundle(h)
	if !ok {
		return nil, problem.New(problem.NotFound, "the version's text is not kept", "")
	}
	return text, nil
}

var _ ui.Commands = pageCommands{}
