package review

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// Bundles are the versions that the node knows; *gatekeeper.Gatekeeper is one.
type Bundles interface {
	Bundles(ctx context.Context) ([]gatekeeper.InForce, error)
	Version(digest string) ([]byte, error)
}

// Module finds the code of an added enforcer by its reference, name@sha256:digest.
type Module func(ref string) (code []byte, limits wasm.Limits, err error)

// Options are everything a review works with.
type Options struct {
	View         *view.View
	Bundles      Bundles
	Actions      func(ctx context.Context, leaf string) ([]byte, error)               // stored action of a decision; an error means that it is no longer kept
	Control      func(ctx context.Context, r receipts.Receipt) (receipts.Hash, error) // writes the node's control chain
	Checks       func(ctx context.Context, b *bundle.Bundle) []Item                   // what the node itself knows about a bundle's readiness; nil = nothing
	Host         *wasm.Host                                                           // enforcers of its own: simulating takes no instance from a live session
	Module       Module                                                               // nil: added enforcers are not judged again, and the result says so
	Sets         bundle.SetResolver                                                   //
	Names        func() []string                                                      // the node's egress sets
	Repositories map[string]string                                                    // id -> owner/name
	Upstreams    []bundle.Upstream                                                    //
	Clock        func() time.Time                                                     // nil = time.Now
}

// Review is safe for concurrent use.
type Review struct {
	o Options

	mu    sync.Mutex
	ready map[string]cached // newest simulation of what is in force, by bundle
	asked map[string]Asked  // requests for access that were found, by leaf

	present *present
}

type cached struct {
	key string
	at  time.Time
	sim Simulation
}

// New checks the options.
func New(o Options) (*Review, error) {
	if o.View == nil || o.Bundles == nil || o.Actions == nil || o.Control == nil || o.Host == nil {
		return nil, errors.New("review: a part is missing")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Names == nil {
		o.Names = func() []string { return nil }
	}
	return &Review{o: o, ready: map[string]cached{}, present: newPresent()}, nil
}

// inForce returns one bundle in its effective modes.
func (r *Review) inForce(ctx context.Context, name string) (gatekeeper.InForce, error) {
	all, err := r.o.Bundles.Bundles(ctx)
	if err != nil {
		return gatekeeper.InForce{}, err
	}
	for _, f := range all {
		if f.Bundle.Name == name {
			return f, nil
		}
	}
	return gatekeeper.InForce{}, problem.New(problem.NotFound, "no bundle is called "+name, "`gatehouse bundle apply` makes one known")
}

// accepts returns what each bundle in force takes; one that is gone takes member.
func (r *Review) accepts(ctx context.Context) (func(string) event.Origin, error) {
	all, err := r.o.Bundles.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]event.Origin{}
	for _, f := range all {
		byName[f.Bundle.Name] = f.Bundle.Accepts
	}
	return func(name string) event.Origin {
		if o, ok := byName[name]; ok {
			return o
		}
		return event.Member
	}, nil
}

// own returns which groups are of endpoints that the agents of the bundles in
// force call for themselves.
func (r *Review) own(ctx context.Context) (func(*view.Group) bool, error) {
	all, err := r.o.Bundles.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*bundle.Bundle{}
	for _, f := range all {
		byName[f.Bundle.Name] = f.Bundle
	}
	return func(g *view.Group) bool { return owned(byName[g.Bundle], g) }, nil
}

// owned: what an agent's own endpoint would learn, its maker learns; nothing of
// the session's authority goes there.
func owned(b *bundle.Bundle, g *view.Group) bool {
	switch g.Kind {
	case "http.request", "net.connect", "dns.query":
		return b != nil && g.Connection == "" && gatekeeper.OwnEndpoint(b.Session.Agent.Name, g.Host)
	}
	return false
}

// Groups lists the groups of what sessions try and the rules deny. filter is a
// line of view.ParseTerms over view.GroupKeys.
func (r *Review) Groups(ctx context.Context, filter, sort, after string, n int) (view.GroupPage, error) {
	terms, err := view.ParseTerms(filter, view.GroupKeys)
	if err != nil {
		return view.GroupPage{}, err
	}
	accepts, err := r.accepts(ctx)
	if err != nil {
		return view.GroupPage{}, err
	}
	own, err := r.own(ctx)
	if err != nil {
		return view.GroupPage{}, err
	}
	p, err := r.o.View.Groups(view.GroupQuery{Terms: terms, Sort: sort, Accepts: accepts, Own: own}, after, n)
	if err != nil {
		return p, err
	}
	return p, r.stale(ctx, p.Items)
}

// Group returns one group with its newest attempts.
func (r *Review) Group(ctx context.Context, id string) (view.GroupDetail, error) {
	accepts, err := r.accepts(ctx)
	if err != nil {
		return view.GroupDetail{}, err
	}
	own, err := r.own(ctx)
	if err != nil {
		return view.GroupDetail{}, err
	}
	d, err := r.o.View.Group(id, accepts)
	if err != nil {
		return d, err
	}
	d.Own = own(&d.Group)
	one := []view.Group{d.Group}
	err = r.stale(ctx, one)
	d.Group = one[0]
	return d, err
}

// Mark says what a group means: kept (expected to stay blocked), noise, or new
// again. A kept group may have an end. The mark is a receipt of the control chain.
func (r *Review) Mark(ctx context.Context, id, status, reason string, expires time.Time, by gatekeeper.By) (view.Mark, error) {
	g, err := r.Group(ctx, id)
	if err != nil {
		return view.Mark{}, err
	}
	now := r.o.Clock()
	switch {
	case status != view.StatusKept && status != view.StatusNoise && status != view.StatusNew:
		return view.Mark{}, problem.New(problem.Usage, "a group is marked kept, noise or new", "")
	case !expires.IsZero() && !expires.After(now):
		return view.Mark{}, problem.New(problem.Usage, "the mark would end before it begins", "")
	}
	if status != view.StatusNew || reason != "" {
		if err := gatekeeper.CheckReason(reason); err != nil {
			return view.Mark{}, err
		}
	}
	x := map[string]string{view.XGroup: id, view.XStatus: status}
	m := view.Mark{Status: status, Reason: reason, By: by.Name, Time: now}
	if reason != "" {
		x[view.XReason] = reason
	}
	if by.Token != "" {
		x[view.XToken] = by.Token
	}
	if !expires.IsZero() {
		expires = expires.UTC().Truncate(time.Second)
		x[view.XExpires], m.Expires = expires.Format(time.RFC3339), &expires
	}
	leaf, err := r.o.Control(ctx, receipts.Receipt{Type: receipts.TypePolicyChange, X: x, Change: &receipts.Change{
		Bundle: g.Bundle, By: by.Name, Via: by.Via, Result: "applied",
	}})
	m.Leaf = leaf.String()
	return m, err
}
