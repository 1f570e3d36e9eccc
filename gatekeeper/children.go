package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// A session may start others under bundles that its own bundle names and
// covers. A child works on its parent's event, has a chain, a door and a
// sandbox of its own, and never outlives its parent.

// Child is what a session may know of a child of its own.
type Child struct {
	ID     string
	Bundle string
	State  string // as in Live, or ended | refused
	Reason string // of an end
	Exit   *int
}

// ChildPlace is a place for one child, taken before the gate is asked whether
// it may start. Exactly one of Start and Release is called.
type ChildPlace struct {
	parent *session
	bundle *bundle.Bundle // nil: the parent's bundle does not name it
	name   string
	count  int
	once   sync.Once
}

// ReserveChild takes a place for a child under a named bundle in force. A bundle
// that the parent's does not cover is refused here, with bundle_not_covered; how
// many there may be, how deep, and whether the bundle is named at all is what
// the gate's enforcers judge from the place.
func (g *Gatekeeper) ReserveChild(ctx context.Context, parent, name string) (*ChildPlace, error) {
	if g.draining() {
		return nil, errDraining
	}
	g.mu.Lock()
	s := g.live[parent]
	g.mu.Unlock()
	if s == nil {
		return nil, problem.New(problem.NotFound, "session "+parent+" does not run", "")
	}
	p := &ChildPlace{parent: s, name: name}
	if c := s.choice.Bundle.Session.Children; c != nil && slices.Contains(c.Bundles, name) {
		var err error
		if p.bundle, err = g.coveredBy(ctx, s.choice.Bundle, name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.childless {
		return nil, problem.New(problem.Conflict, "session "+parent+" is ending", "")
	}
	s.places++
	p.count = len(s.children) + s.places
	return p, nil
}

// coveredBy returns the bundle in force under a name, if parent covers it in
// the modes that are in force: M-02. A child in a weaker mode, under another
// provider or with a longer timeout is a wider bundle, however small the rest.
func (g *Gatekeeper) coveredBy(ctx context.Context, parent *bundle.Bundle, name string) (*bundle.Bundle, error) {
	all, paused, err := g.registry.inForce(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(b *bundle.Bundle) bool { return b.Name == name })
	if i < 0 {
		return nil, problem.New(problem.BundleNotCovered, "there is no bundle "+name, "")
	}
	if paused[name] {
		return nil, problem.New(problem.BundlePaused, "bundle "+name+" is paused", "")
	}
	if ok, why := parent.Covers(all[i]); !ok {
		return nil, problem.New(problem.BundleNotCovered, fmt.Sprintf("bundle %s does not cover %s: %s", parent.Name, name, why), "")
	}
	return all[i], nil
}

// Depth is how many levels below its root the child would be.
func (p *ChildPlace) Depth() int { return p.parent.depth + 1 }

// Count is how many children the parent would have had, this one included.
func (p *ChildPlace) Count() int { return p.count }

// Release gives the place back.
func (p *ChildPlace) Release() {
	p.once.Do(func() {
		p.parent.mu.Lock()
		defer p.parent.mu.Unlock()
		p.parent.places--
	})
}

// Start admits the child and returns its session's id. The gate has allowed it;
// what the bundle says is held once more against the place, so that no answer of
// an enforcer can start what the parent's bundle does not name.
func (p *ChildPlace) Start(ctx context.Context) (string, error) {
	defer p.Release()
	s := p.parent
	g := s.g
	limits := s.choice.Bundle.Session.Children
	if p.bundle == nil || limits == nil || p.Depth() > limits.Depth || p.count > limits.Max {
		return "", problem.New(problem.BundleNotCovered, "bundle "+s.choice.Bundle.Name+" does not let this child start", "")
	}
	c := bundle.ChooseNamed(p.bundle, s.event, g.o.Repositories, g.o.Clock())
	var made *prepared
	if c.Code == "" {
		made, c.Code, c.Why = g.prepare(c)
	}
	if c.Code != "" {
		return "", problem.New(c.Code, c.Why, "")
	}
	of, ok := g.fold.get(s.id)
	if !ok {
		return "", errors.New("the parent's session.open is not known")
	}
	// It counts for no entity: what started the tree was counted.
	past := past{event: s.event.ID, leaf: of.leaf, opened: g.o.Clock(), admitted: true, self: of.self, parent: s.id}
	open := g.openOf(s.event, of.leaf, c, made, past, "")
	open.Parent = s.id
	id := g.newID()
	chain, err := g.o.Notary.Open(ctx, id, open, g.obs(made))
	if err != nil {
		return "", fmt.Errorf("couldn't open session %s: %w", id, err)
	}
	g.fold.opened(id, past)
	g.delivered(g.deliveries(c.Bundle, made.provider))
	child := newSession(g, id, chain, c, made, s.event, past.opened)
	child.below(s)
	g.start(child)
	g.o.Log.InfoContext(ctx, "child admitted", slog.String("session", id), slog.String("parent", s.id), slog.String("bundle", c.Bundle.Name))
	return id, nil
}

// below makes s a child of parent: it ends when the parent must.
func (s *session) below(parent *session) {
	s.cancel(nil)
	s.parent, s.depth = parent, parent.depth+1
	s.ctx, s.cancel = context.WithCancelCause(parent.ctx)
	parent.mu.Lock()
	defer parent.mu.Unlock()
	parent.children = append(parent.children, s)
	if parent.childless { // it ended in between
		s.cancel(end{reason: sandbox.Cancelled})
	}
}

// endChildren lets no further child start and ends those that run. With wait it
// returns when their chains are closed, or ctx has ended.
func (s *session) endChildren(ctx context.Context, wait bool) {
	s.mu.Lock()
	s.childless = true
	all := slices.Clone(s.children)
	s.mu.Unlock()
	for _, child := range all {
		child.cancel(end{reason: sandbox.Cancelled})
	}
	for _, child := range all {
		if !wait {
			return
		}
		select {
		case <-child.done:
		case <-ctx.Done():
			return
		}
	}
}

// Children returns the children that a session of this run started, the oldest
// first.
func (g *Gatekeeper) Children(parent string) []Child {
	g.mu.Lock()
	s := g.live[parent]
	g.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	all := slices.Clone(s.children)
	s.mu.Unlock()
	var out []Child
	for _, child := range all {
		c := Child{ID: child.id, Bundle: child.choice.Bundle.Name, State: child.stateNow()}
		select {
		case <-child.done:
			if r, err := g.Result(child.id); err == nil {
				c.State, c.Reason, c.Exit = r.State, r.Reason, r.Exit
			}
		default:
		}
		out = append(out, c)
	}
	return out
}

// childIDs lists a session's children for its result.
func (s *session) childIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, child := range s.children {
		out = append(out, child.id)
	}
	return out
}
