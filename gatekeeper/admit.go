package gatekeeper

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Admission is what became of one event.
type Admission struct {
	Session string       // "" for a ping
	Code    problem.Code // refusal code, "" when admitted
	Why     string
	Bundle  string
}

// handle takes one event from the stream. nil settles it.
func (g *Gatekeeper) handle(ctx context.Context, m Message) error {
	e, leaf, err := g.verify(m)
	if err != nil {
		return g.unsealed(ctx, m, err)
	}
	if e.Kind == event.KindPing {
		return nil // pings make no chain
	}
	if scope, ids, ok := e.Stop(); ok {
		g.stopped(scope, ids)
		return nil // what takes something away starts nothing
	}
	if g.fold.judged(leaf) {
		return nil // the journal knows, whatever became of the claims bucket
	}
	return g.once(ctx, eventHash(e.ID), func(c *claim) error {
		_, err := g.admitClaimed(ctx, c, e, leaf, "")
		return err
	})
}

// verify decides whether a message is an event that a known node took from a
// known endpoint: the bytes are canonical, stand under their own subject, and
// lie under a seal of that node's log. Only then is anything in them believed.
func (g *Gatekeeper) verify(m Message) (*event.Event, receipts.Hash, error) {
	unsealed := func(format string, a ...any) error {
		return problem.New(problem.EventUnsealed, fmt.Sprintf(format, a...), "")
	}
	leaf := receipts.Leaf(m.Data)
	h, err := receipts.ParseHeader(m.Header[receipts.HeaderSeal])
	if err != nil {
		return nil, leaf, unsealed("no readable seal")
	}
	keys := g.o.Keysets[h.Seal.Origin]
	if keys == nil {
		return nil, leaf, unsealed("sealed by a log that is not ours")
	}
	if err := h.Verify(leaf, keys); err != nil {
		return nil, leaf, unsealed("the seal does not hold")
	}
	e, err := event.Decode(m.Data)
	if err != nil {
		return nil, leaf, unsealed("sealed bytes that are no event")
	}
	again, err := e.Encode()
	if err != nil || !bytes.Equal(again, m.Data) || e.Subject() != m.Subject {
		return nil, leaf, unsealed("the event does not stand under its own subject")
	}
	if source, ok := g.o.Endpoints[e.Endpoint]; !ok || source != e.Source {
		return nil, leaf, unsealed("no %s endpoint %s is configured", e.Source, e.Endpoint)
	}
	return e, leaf, nil
}

// unsealed refuses what is not ours. The claim is on the bytes, not on the
// event id that they carry: a forged event must not use up a true one's.
func (g *Gatekeeper) unsealed(ctx context.Context, m Message, why error) error {
	leaf := receipts.Leaf(m.Data)
	return g.once(ctx, "unsealed."+hex.EncodeToString(leaf[:]), func(c *claim) error {
		g.o.Log.WarnContext(ctx, "event refused", slog.String("code", string(problem.EventUnsealed)), slog.String("session", c.Session), slog.Any("err", why))
		open := receipts.Open{State: stateRefused, Code: string(problem.EventUnsealed), EventLeaf: leaf}
		if err := g.refuse(ctx, c.Session, open, past{opened: g.o.Clock()}); err != nil {
			return err
		}
		_ = c.opened(ctx, g.o.Claims) // a refusal has nothing that could start twice
		return nil
	})
}

// Admit judges an event that came by another way than the stream: gatehouse
// run, and children later. The caller answers for its origin.
func (g *Gatekeeper) Admit(ctx context.Context, e *event.Event, leaf receipts.Hash) (Admission, error) {
	if e.Kind == event.KindPing {
		return Admission{Code: problem.NoMatch, Why: "a ping starts nothing"}, nil
	}
	return g.admit(ctx, g.newID(), e, leaf, "")
}

func (g *Gatekeeper) admit(ctx context.Context, id string, e *event.Event, leaf receipts.Hash, retryOf string) (Admission, error) {
	return g.admitClaimed(ctx, &claim{Session: id}, e, leaf, retryOf)
}

// admitClaimed judges an event whose claim is held and writes the session's
// first receipts. It starts the session when the event is admitted.
func (g *Gatekeeper) admitClaimed(ctx context.Context, cl *claim, e *event.Event, leaf receipts.Hash, retryOf string) (Admission, error) {
	bundles, paused, err := g.registry.inForce(ctx)
	if err != nil {
		return Admission{}, err
	}
	asItCame := e
	if g.o.Lift != nil {
		e = g.o.Lift(ctx, e)
	}
	now := g.o.Clock()
	c := bundle.Choose(bundles, e, g.o.Repositories, now)
	p := past{event: e.ID, leaf: leaf, opened: now, admitted: true, entity: bundle.EntityKey(e), self: selfCaused(e, g.identities, namespaces(bundles))}
	var made *prepared
	if c.Code == "" && paused[c.Bundle.Name] {
		c.Code, c.Why = problem.BundlePaused, "bundle "+c.Bundle.Name+" is paused"
	}
	if c.Code == "" {
		made, c.Code, c.Why = g.prepare(c)
	}
	if c.Code == "" {
		if retryOf != "" {
			g.fold.reserveRetry(cl.Session, p)
		} else {
			c.Code, c.Why = g.fold.reserve(cl.Session, c.Bundle, p)
		}
	}
	a := Admission{Session: cl.Session, Code: c.Code, Why: c.Why}
	if c.Bundle != nil {
		a.Bundle = c.Bundle.Name
	}
	open := g.openOf(e, leaf, c, made, p, retryOf)
	if e != asItCame {
		open.Facts[factLifted] = "true" // else the floor could not be told from the sealed event
	}
	if c.Code != "" {
		g.o.Log.InfoContext(ctx, "event refused", slog.String("code", string(c.Code)), slog.String("session", cl.Session), slog.String("bundle", a.Bundle), slog.String("why", c.Why))
		p.admitted = false
		if err := g.refuse(ctx, cl.Session, open, p); err != nil {
			return Admission{}, err
		}
		if cl.key != "" {
			_ = cl.opened(ctx, g.o.Claims) // a refusal has nothing that could start twice
		}
		return a, nil
	}
	chain, err := g.o.Notary.Open(ctx, cl.Session, open, g.obs(made))
	if err != nil {
		g.fold.release(cl.Session)
		return Admission{}, fmt.Errorf("couldn't open session %s: %w", cl.Session, err)
	}
	g.fold.opened(cl.Session, p)
	g.delivered(g.deliveries(c.Bundle, made.provider))
	s := newSession(g, cl.Session, chain, c, made, e, now)
	if cl.key != "" {
		if err := cl.opened(ctx, g.o.Claims); err != nil {
			g.o.Log.WarnContext(ctx, "another node took the claim, session not started", slog.String("session", cl.Session), slog.Any("err", err))
			s.cancel(end{reason: sandbox.Lost})
		}
	}
	g.start(s)
	g.tell(Admitted{Session: s.id, Bundle: c.Bundle, Event: e})
	g.o.Log.InfoContext(ctx, "event admitted", slog.String("session", cl.Session), slog.String("bundle", a.Bundle), slog.String("floor", string(c.Floor.Origin)))
	return a, nil
}

// prepared is what admission resolves for a session before it opens.
type prepared struct {
	provider sandbox.Provider
	contract receipts.Hash // of the provider's declared capabilities
	policy   []byte
	digest   [32]byte // of the bundle
	sets     map[string]receipts.Hash
}

// prepare resolves what a session needs of the node. What the node does not
// have is a refusal, never something to do without.
func (g *Gatekeeper) prepare(c bundle.Choice) (*prepared, problem.Code, string) {
	b := c.Bundle
	refuse := func(format string, a ...any) (*prepared, problem.Code, string) {
		return nil, problem.ProviderCapabilityMissing, fmt.Sprintf(format, a...)
	}
	p := &prepared{provider: g.o.Providers[b.Session.Provider], digest: b.Digest(), sets: map[string]receipts.Hash{}}
	if p.provider == nil {
		return refuse("the node has no provider %s", b.Session.Provider)
	}
	if why := unmediated(b, g.deliveries(b, p.provider)); why != "" {
		return nil, problem.ConnectionUnmediated, why // M-16
	}
	// A session that would start without what its bundle counts on is no smaller
	// session, it is another one.
	switch x := b.Session; {
	case slices.ContainsFunc(x.Mounts, func(m bundle.Mount) bool { return m.Mode == "write" }):
		return refuse("provider %s mounts no folder for writing", b.Session.Provider)
	case g.o.Lint != nil && g.o.Lint.Private != nil && slices.ContainsFunc(x.Mounts, func(m bundle.Mount) bool { return g.o.Lint.Private(m.Source) }):
		// Judged when the bundle was applied, and again: a link may lead elsewhere by now.
		return refuse("bundle %s mounts the node's own secrets", b.Name)
	case slices.ContainsFunc(x.Caches, func(c bundle.Cache) bool { return g.o.Caches[c.Name] == "" }):
		return refuse("the node does not have every cache of bundle %s", b.Name)
	case x.Rootfs.Kind == rootfsImage && g.o.Images == nil:
		return refuse("the node unpacks no images")
	}
	if w := b.Credentials.Weaker; w != nil && !g.o.Clock().Before(w.Expires.Time) {
		return refuse("credentials: compatibility of bundle %s ended at %s", b.Name, w.Expires)
	}
	declared := p.provider.Capabilities()
	for _, capability := range g.needs(b) {
		if !declared[capability] {
			return refuse("provider %s does not have %s", b.Session.Provider, capability)
		}
	}
	if _, distant := p.provider.(sandbox.Distant); distant && b.Mode == bundle.Hard {
		if g.o.Report == nil {
			return refuse("provider %s has no conformance report", b.Session.Provider)
		}
		if err := g.o.Report(p.provider); err != nil {
			return refuse("%v", err)
		}
	}
	p.contract = contract(p.provider)
	var err error
	subject := c.Subject
	subject.Upstreams = g.o.Upstreams
	// The sets are those that the version holds: a file that changed since was
	// approved by nobody.
	if p.policy, err = b.Policy(nil, subject); err != nil {
		if problem.CodeOf(err) == problem.SetNotPinned {
			return nil, problem.SetNotPinned, err.Error()
		}
		return refuse("bundle %s cannot be compiled: %v", b.Name, err)
	}
	digests, err := b.SetDigests(nil)
	if err != nil {
		return refuse("bundle %s cannot be compiled: %v", b.Name, err)
	}
	for name, d := range digests {
		p.sets[name] = d
	}
	return p, "", ""
}

// needs lists the capabilities that a bundle asks of its provider: DESIGN.md
// section 7. Only compatibility asks for none, which is written with a reason
// and lowers the observation level.
func (g *Gatekeeper) needs(b *bundle.Bundle) []sandbox.Capability {
	var need []sandbox.Capability
	if b.Credentials.Weaker == nil {
		need = append(need, sandbox.NetworkClosed, sandbox.EnvironmentClean, sandbox.FilesystemPrivate, sandbox.ProcessesPrivate, sandbox.Unprivileged)
	}
	if b.Mode == bundle.Hard {
		need = append(need, sandbox.NetworkClosed, sandbox.Unprivileged, sandbox.SyscallsFiltered, sandbox.VsockClosed, sandbox.Supervised)
		if g.o.Doors != nil {
			need = append(need, sandbox.DoorOnly)
		}
		if !g.o.Unlimited {
			need = append(need, sandbox.ResourceLimited)
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// contract is the digest of what a provider declares; observation levels rest
// on it.
func contract(p sandbox.Provider) receipts.Hash {
	var declared []string
	for c, ok := range p.Capabilities() {
		if ok {
			declared = append(declared, string(c))
		}
	}
	slices.Sort(declared)
	raw, _ := json.Marshal(map[string]any{"provider": p.Name(), "capabilities": declared}) // strings only: cannot fail
	return receipts.Leaf(raw)
}

// openOf is the body of session.open.
func (g *Gatekeeper) openOf(e *event.Event, leaf receipts.Hash, c bundle.Choice, made *prepared, p past, retryOf string) receipts.Open {
	o := receipts.Open{
		State: stateAdmitted, Event: e.ID, EventLeaf: leaf, Dev: g.o.Dev, Unlimited: g.o.Unlimited, Facts: map[string]string{
			"kind": strings.TrimSuffix(e.Kind+"."+e.Action, "."),
		},
	}
	for _, name := range []string{"repository.id", "run_id", "number"} {
		if v := e.Facts[name]; v != "" {
			o.Facts[name] = v
		}
	}
	if p.entity != "" {
		o.Facts[factEntity] = p.entity
	}
	if p.self {
		o.Facts[factSelf] = "true"
	}
	if retryOf != "" {
		o.Facts[factRetryOf] = retryOf
	}
	if c.Bundle != nil {
		o.Facts[factAgent] = c.Bundle.Session.Agent.Name
		o.Bundle, o.Digest, o.Mode, o.Policy = c.Bundle.Name, c.Bundle.Digest(), receipts.Mode(c.Bundle.Mode), c.Bundle.Credentials.Policy
		o.Floor, o.FloorAt = string(c.Floor.Origin), c.Floor.Pointer
		withDeliveries(o.Facts, g.deliveries(c.Bundle, g.o.Providers[c.Bundle.Session.Provider]))
	}
	if c.Code != "" {
		o.State, o.Code = stateRefused, string(c.Code)
		return o
	}
	o.Provider, o.Contract, o.Sets = c.Bundle.Session.Provider, made.contract, made.sets
	o.NotSeen = notObserved
	o.Text = unrated
	o.Points = []string{pointGatekeeper}
	if g.o.Doors != nil {
		o.Points = append(o.Points, pointDoor)
	}
	for _, d := range c.Bundle.Deliver(e) {
		if len(o.Deliveries) == maxDeliveries {
			break // the floor speaks of them all
		}
		o.Deliveries = append(o.Deliveries, d.Pointer)
	}
	o.Modules = moduleDigests(c.Bundle)
	return o
}

// maxDeliveries is how many pointers a receipt's list takes.
const maxDeliveries = 256

// notObserved are the paths of a session that no receipt can show.
var notObserved = []string{"processes and files inside the sandbox", "protocols other than TCP and DNS"}

// moduleDigests are the modules that the bundle names; the built-in ones stand
// in each decision.
func moduleDigests(b *bundle.Bundle) map[string]receipts.Hash {
	out := map[string]receipts.Hash{}
	for _, name := range slices.Sorted(maps.Keys(b.Enforcers)) {
		_, digest, _ := strings.Cut(b.Enforcers[name].Module, "@sha256:")
		if h := decodeHash(digest); !h.IsZero() {
			out[name] = h
		}
	}
	return out
}

// refuse writes the two receipts of a refusal's own chain.
func (g *Gatekeeper) refuse(ctx context.Context, id string, o receipts.Open, p past) error {
	chain, err := g.o.Notary.Open(ctx, id, o, receipts.Obs{Point: pointGatekeeper, Kind: pointGatekeeper, Level: 2, Mediation: "sole"})
	if err != nil {
		return fmt.Errorf("couldn't write the refusal %s: %w", id, err)
	}
	if _, err := chain.Close(ctx, receipts.Close{Reason: stateRefused}); err != nil {
		return fmt.Errorf("couldn't close the refusal %s: %w", id, err)
	}
	p.closed = true
	g.fold.opened(id, p)
	return nil
}

// Enforcement points of a session, as its receipts name them.
const (
	pointGatekeeper = "gatekeeper"
	pointDoor       = "door"
)

func (g *Gatekeeper) obs(p *prepared) receipts.Obs {
	return receipts.Obs{Point: pointGatekeeper, Kind: pointGatekeeper, Level: 2, Mediation: "sole", Contract: p.contract}
}
