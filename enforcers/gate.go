package enforcers

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/internal/authority"
	"gatehouse/internal/netguard"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// GateOptions describe one session's gate.
type GateOptions struct {
	Session    string
	Mode       receipts.Mode // shadow only when it says so; anything else is hard
	Policy     Policy
	Generation uint64           // of Policy; 0 = 1
	Recorder   Recorder         //
	Dev        bool             // dev.upstreams in force: shown in every decision
	Clock      func() time.Time // nil = time.Now
}

// Gate judges one session's actions. Decide is the only maker of a Permit. A
// Gate is safe for concurrent use.
type Gate struct {
	session string
	mode    receipts.Mode
	rec     Recorder
	dev     bool
	clock   func() time.Time
	seq     atomic.Uint64
	gen     atomic.Pointer[generation]
	names   names
	explain history
	uploads uploads

	mu      sync.Mutex    // guards the fields below and every change of gen
	revoked string        // reason code, "" while the session lives
	live    *Permit       // the newest that has no outcome yet; Permit.older leads to the others
	idle    chan struct{} // closed and replaced when live becomes empty; nil while nobody waits
}

// generation is one policy in force. Its context ends when the next one comes
// or the session ends; the cause names which.
type generation struct {
	n      uint64
	policy Policy
	grants map[string]*Grant // by rule
	hosts  map[string][]int  // places in policy.Grants by Hosts.Base
	ctx    context.Context
	cut    context.CancelCauseFunc
}

func newGeneration(n uint64, p Policy) *generation {
	g := &generation{n: n, policy: p, grants: make(map[string]*Grant, len(p.Grants)), hosts: make(map[string][]int, len(p.Grants))}
	for i := range p.Grants {
		grant := &p.Grants[i]
		g.grants[grant.Rule] = grant
		if base := grant.Hosts.Base(); base != "" {
			g.hosts[base] = append(g.hosts[base], i)
		}
	}
	g.ctx, g.cut = context.WithCancelCause(context.Background())
	return g
}

// cutError is the cause with which a generation's context ends.
func cutError(code string) error {
	return problem.New(problem.Code(code), "the permission this rested on has ended", "")
}

// NewGate returns the gate of one session.
func NewGate(o GateOptions) *Gate {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Mode != receipts.Shadow {
		o.Mode = receipts.Hard // an unknown mode never opens anything
	}
	g := &Gate{
		session: o.Session, mode: o.Mode, rec: o.Recorder, dev: o.Dev, clock: o.Clock,
	}
	g.gen.Store(newGeneration(max(o.Generation, 1), o.Policy))
	return g
}

// Session returns the session the gate belongs to.
func (g *Gate) Session() string { return g.session }

// Mode returns the session's mode.
func (g *Gate) Mode() receipts.Mode { return g.mode }

// Generation returns the number of the policy in force.
func (g *Gate) Generation() uint64 { return g.gen.Load().n }

// Context ends when the policy in force is replaced or the session ends. Its
// cause carries CodeGeneration or the code given to Revoke.
func (g *Gate) Context() context.Context { return g.gen.Load().ctx }

// Grants returns the grants in force, in the policy's order. The caller must
// not change them.
func (g *Gate) Grants() []Grant { return g.gen.Load().policy.Grants }

// Covering goes through the grants in force that are for a host and port, in the
// policy's order, which may have ten thousand others. The caller must not change
// them.
func (g *Gate) Covering(to authority.Authority) iter.Seq[*Grant] {
	gen := g.gen.Load()
	return func(yield func(*Grant) bool) {
		var few [8]int
		for _, i := range gen.at(to, few[:0]) {
			if grant := &gen.policy.Grants[i]; grant.Covers(to) && !yield(grant) {
				return
			}
		}
	}
}

// at adds the places of the grants that may be for a host. It stands by itself so
// that few need not leave the stack.
func (gen *generation) at(to authority.Authority, few []int) []int {
	for base := to.Host(); base != ""; _, base, _ = strings.Cut(base, ".") {
		few = append(few, gen.hosts[base]...)
	}
	slices.Sort(few)
	return few
}

// Action returns a new action of this session, numbered and dated, for the
// caller to fill with its body.
func (g *Gate) Action(kind Kind) *Action {
	n := g.seq.Add(1)
	return &Action{
		ID: g.session + "-" + strconv.FormatUint(n, 10), Session: g.session, Seq: n,
		Kind: kind, At: g.clock(), Generation: g.Generation(),
	}
}

// maxInspected bounds what is held of one body for enforcers.
const maxInspected = 1 << 20

// Body returns how the enforcers in force want to see bodies of http.request:
// the most that any of them asks for.
func (g *Gate) Body() (mode string, most int) {
	policy := &g.gen.Load().policy
	for i := range policy.Enforcers {
		m, n := wants(&policy.Enforcers[i])
		if m == "" {
			continue
		}
		if mode != BodyWhole {
			mode = m
		}
		most = max(most, min(n, maxInspected))
	}
	return mode, most
}

func wants(b *Bound) (mode string, most int) {
	if i, ok := b.Enforcer.(Inspector); ok {
		return i.Body()
	}
	return "", 0
}

// carries reports whether a carries its body the way b must see it.
func carries(b *Bound, a *Action) bool {
	if a.HTTP == nil || a.HTTP.Body.Mode == "none" {
		return true
	}
	switch mode, most := wants(b); mode {
	case BodyWhole:
		return a.HTTP.Body.Mode == BodyWhole && len(a.HTTP.Body.Bytes) <= most
	case BodyPrefix:
		return a.HTTP.Body.Mode == BodyWhole || a.HTTP.Body.Mode == BodyPrefix
	}
	return true
}

// Swap puts a new policy in force and cuts everything that rests on the old
// one. It does nothing after Revoke.
func (g *Gate) Swap(p Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked != "" {
		return
	}
	old := g.gen.Load()
	g.gen.Store(newGeneration(old.n+1, p))
	old.cut(cutError(CodeGeneration))
}

// Revoke ends the session's permissions for good: nothing is decided any more
// and everything under way is cut. The first code stays.
func (g *Gate) Revoke(code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked != "" {
		return
	}
	g.revoked = code
	g.gen.Load().cut(cutError(code))
}

// Epilogue returns a gate for what the node itself does for the session once its
// agent's permissions have ended. It judges by the policy in force, writes to the
// same chain and numbers its actions on; Revoke of g does not end it. Nothing
// that comes from inside may reach it. The caller revokes and settles it before
// the chain is closed.
func (g *Gate) Epilogue() *Gate {
	e := &Gate{session: g.session, mode: g.mode, rec: g.rec, dev: g.dev, clock: g.clock}
	old := g.gen.Load()
	e.gen.Store(newGeneration(old.n, old.policy))
	e.seq.Store(g.seq.Load())
	return e
}

// Settle waits until every Permit has its outcome or ctx ends, then writes the
// missing ones: not_forwarded for a Permit nobody used, unknown for one in
// use. It is called once, after Revoke.
func (g *Gate) Settle(ctx context.Context) {
	g.mu.Lock()
	var idle chan struct{}
	if g.live != nil {
		g.idle = make(chan struct{})
		idle = g.idle
	}
	g.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	var left []*Permit
	for p := g.live; p != nil; p = p.older {
		left = append(left, p)
	}
	g.mu.Unlock()
	for _, p := range slices.Backward(left) {
		if p.state.Load()&permitUsed == 0 {
			p.Done(Outcome{Effect: NotForwarded, Code: CodeNotUsed})
		} else {
			p.Done(Outcome{Effect: Unknown, Code: p.cutCode()})
		}
	}
}

// Decide judges a, writes the decision receipt, and returns a Permit when the
// action may go on. In hard mode, and in every mode for an action that uses
// authority, the receipt of a passing decision is durable before Decide
// returns; if it cannot be written the action is denied. A nil Permit means
// that nothing may leave.
func (g *Gate) Decide(ctx context.Context, a *Action) (*Permit, Decision) {
	start := g.clock()
	gen := g.gen.Load()
	a.Generation, a.judged = gen.n, nil
	defer func() { a.judged = nil }() // it may be changed and decided again
	d := g.judge(ctx, gen, a)
	d.Mode, d.Policy, d.Dev = g.mode, gen.policy.Digest, g.dev
	d.Micros = uint64(max(0, g.clock().Sub(start).Microseconds()))
	if a.Model != nil && d.Passed {
		d.Held = a.Model.Held
	}

	if code := g.ended(); code != "" {
		// The chain is closed or about to be: no receipt may follow.
		return nil, Decision{Verdict: Verdict{Effect: Deny, Rule: RuleGate, Reason: code}, Mode: g.mode}
	}
	durable := d.Passed && (g.mode == receipts.Hard || a.Authority())
	// A client that leaves must not leave a receipt behind that may or may not
	// have been written: the wait for the disk is not the client's to end.
	receipt, err := g.rec.Decision(context.WithoutCancel(ctx), a, &d, durable)
	if err != nil {
		// EG-99: the receipt log is down. Nothing passes, in shadow neither.
		d.Verdict = Verdict{Effect: Deny, Rule: RuleGate, Reason: CodeReceiptUnavailable}
		d.Passed, d.By, d.Module, d.Held = false, "", receipts.Hash{}, 0
		return nil, d
	}
	d.Receipt = receipt
	g.explain.add(a, d)
	if !d.Passed {
		return nil, d
	}
	return g.permit(gen, a, &d), d
}

func (g *Gate) ended() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.revoked
}

// judge finds the effective verdict and whether it passes. It is the same in
// both modes up to the last step.
func (g *Gate) judge(ctx context.Context, gen *generation, a *Action) Decision {
	switch {
	case a.HardSet != "":
		return hardDeny(a.HardSet)
	case a.Session != g.session:
		return hardDeny(CodeSessionMismatch)
	case !a.complete():
		return hardDeny(CodeMalformedAction)
	}
	if class, ok := netguard.Name(a.host()); !ok {
		return hardDeny(nameCode(class)) // EG-30: even if listed
	}
	d := g.combine(ctx, gen, a)
	if d.Effect == Allow {
		if grant := gen.grants[d.Rule]; grant != nil && !g.names.admit(grant, a) {
			d.Effect, d.Reason = Deny, CodeNameBudget // EG-109
		}
	}
	switch {
	case d.Effect == Allow:
		d.Passed = true
	case g.mode == receipts.Hard:
	case a.Authority():
		d.Reason = CodeNeedsAuthority // EG-104
	case closedUnlessListed(a) != "":
		d.Reason = closedUnlessListed(a) // EG-18, EG-20
	default:
		d.Passed = true // would-block
	}
	return d
}

func hardDeny(code string) Decision {
	return Decision{Verdict: Verdict{Effect: Deny, Rule: RuleHardSet, Reason: code}}
}

func nameCode(c netguard.Class) string {
	if c == netguard.Metadata {
		return CodeMetadata
	}
	return CodeSpecialName
}

// closedUnlessListed names the part of the hard set that a rule may open and
// shadow may not: IP literals, ports other than 80 and 443, and hosts that
// exist to carry data elsewhere.
func closedUnlessListed(a *Action) string {
	to := a.To()
	switch {
	case to.IsIP():
		return CodeIPLiteral
	case !to.IsZero() && to.Port() != 80 && to.Port() != 443:
		return CodePort
	case netguard.Relay(a.host()):
		return CodeRelay
	default:
		return ""
	}
}

// combine asks every enforcer that judges a's kind. Deny wins over allow, allow
// over abstain, and all abstaining is a deny. A fault denies under its own
// code. In a hard session a shadow enforcer is asked for the trace only.
func (g *Gate) combine(ctx context.Context, gen *generation, a *Action) Decision {
	d := Decision{Verdict: Verdict{Effect: Deny, Rule: RuleDefault, Reason: CodeNotListed}}
	action, err := a.Canonical()
	if err != nil {
		d.Rule, d.Reason, d.Fault = RuleGate, CodeMalformedAction, FaultHost
		return d
	}
	a.judged = action
	rank := 0
	for i := range gen.policy.Enforcers {
		b := &gen.policy.Enforcers[i]
		if !slices.Contains(b.Kinds(), a.Kind) {
			continue
		}
		step := Step{Enforcer: b.Name(), Mode: b.Mode, Verdict: Verdict{Effect: Deny, Rule: RuleGate, Reason: CodeBodyNotInspected}}
		if carries(b, a) {
			step = ask(ctx, b, action)
		}
		d.Trace = append(d.Trace, step)
		if g.mode == receipts.Hard && b.Mode != receipts.Hard {
			continue
		}
		if r := weight(step); r > rank {
			rank = r
			d.Verdict, d.Fault, d.By, d.Module = step.Verdict, step.Fault, b.Name(), step.Verdict.Module
			if d.Module.IsZero() {
				d.Module = b.Digest()
			}
		}
	}
	return d
}

// weight orders answers: an explicit deny tells more than a fault, and both
// beat an allow.
func weight(s Step) int {
	switch {
	case s.Fault != "":
		return 2
	case s.Verdict.Effect == Deny:
		return 3
	case s.Verdict.Effect == Allow:
		return 1
	default:
		return 0
	}
}

const maxReason = 256 // bytes of Verdict.Reason and Verdict.Rule

// ask runs one enforcer and turns whatever is not a well-formed verdict into a
// fault.
func ask(ctx context.Context, b *Bound, action []byte) Step {
	step := Step{Enforcer: b.Name(), Mode: b.Mode}
	v, err := b.Decide(ctx, action)
	if err != nil {
		code := FaultHost
		var f *Fault
		if errors.As(err, &f) {
			code = f.Code
		}
		return step.faulted(code, v.Fuel)
	}
	switch {
	case v.Effect != Allow && v.Effect != Deny && v.Effect != Abstain,
		len(v.Reason) > maxReason, len(v.Rule) > maxReason,
		v.Effect != Abstain && v.Rule == "",
		v.Effect == Allow && !b.Builtin: // only the bundle can allow
		return step.faulted(FaultBadOutput, v.Fuel)
	}
	step.Verdict = v
	return step
}

func (s Step) faulted(code string, fuel uint64) Step {
	s.Fault = code
	s.Verdict = Verdict{Effect: Deny, Rule: RuleGate, Reason: code, Fuel: fuel}
	return s
}
