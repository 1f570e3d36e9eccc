package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"gatehouse/enforcers/agent"
	"gatehouse/enforcers/agent/mcp"
	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper"
	"gatehouse/receipts"
)

// agentVariable tells programs inside where the agent's endpoint is.
const agentVariable = "GATEHOUSE_AGENT_URL"

// mcpVariable tells them where the same is for MCP clients.
const mcpVariable = "GATEHOUSE_MCP_URL"

// children is the gatekeeper as a session's agent may use it.
type children interface {
	ReserveChild(ctx context.Context, parent, bundle string) (*gatekeeper.ChildPlace, error)
	Children(parent string) []gatekeeper.Child
	RequestAccess(ctx context.Context, session string, refusal receipts.Hash) error
}

// agent returns the agent's side of one session's door: what the session is,
// its children, and whatever the other mediators add.
func (d *doors) agent(s gatekeeper.DoorSpec, others []mediation) (mediation, error) {
	b := s.Bundle
	o := agent.Options{
		Event: s.Event, More: map[string]door.Handler{}, Log: d.log,
		Session: agent.Session{
			ID: s.Session, Parent: s.Parent, Bundle: b.Name, Digest: hex.EncodeToString(s.Digest[:]), Mode: string(b.Mode),
			Credentials: b.Credentials.Policy, Provider: b.Session.Provider, Repository: s.Subject.Repository, Entity: s.Subject.Entity,
			Opened: s.Opened.UTC(), Timeout: time.Duration(b.Session.Timeout).String(), Operations: b.Operations,
		},
	}
	if c := b.Session.Children; c != nil {
		o.Session.Children = c.Bundles
	}
	if d.children != nil {
		o.More["children"] = agent.Children(&family{d.children(), s.Session})
		o.More["access"] = agent.Access(asking{d.children(), s.Session})
	}
	for _, m := range others {
		for name, h := range m.Agent {
			if o.More[name] != nil {
				return mediation{}, fmt.Errorf("two mediators answer for %s of the agent's endpoint", name)
			}
			o.More[name] = h
		}
	}
	route, err := agent.Route(o)
	if err != nil {
		return mediation{}, err
	}
	return mediation{
		Routes: []door.Route{route, mcp.Route(route, d.log)},
		Inside: gatekeeper.Inside{Env: map[string]string{agentVariable: agent.URL, mcpVariable: mcp.URL}},
	}, nil
}

// asking files what one session's agent asks a reviewer for.
type asking struct {
	of      children
	session string
}

func (a asking) File(ctx context.Context, refusal receipts.Hash) error {
	return a.of.RequestAccess(ctx, a.session, refusal)
}

// family is one session's children. The session is the door's, not the
// request's.
type family struct {
	of      children
	session string
}

func (f *family) Reserve(ctx context.Context, bundle string) (agent.Place, error) {
	p, err := f.of.ReserveChild(ctx, f.session, bundle)
	if err != nil {
		return nil, err // not p: a nil *ChildPlace would be a Place
	}
	return p, nil
}

func (f *family) List() []agent.Child {
	var out []agent.Child
	for _, c := range f.of.Children(f.session) {
		out = append(out, agent.Child(c))
	}
	return out
}
