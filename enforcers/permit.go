package enforcers

import (
	"context"
	"sync/atomic"

	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Permit is the leave to carry out one action, once. Only Gate.Decide makes
// one, after the action's receipt is written. A zero, copied, used, finished
// or outlived Permit lets nothing happen. It must not be copied; vet's
// copylocks check finds a copy.
type Permit struct {
	_       noCopy
	self    *Permit // the address Decide gave it: a copy differs
	gate    *Gate
	gen     *generation
	act     *Action
	grant   *Grant
	receipt receipts.Hash
	denied  bool // a would-block: passed in shadow without any authority
	state   atomic.Uint32
	spent   atomic.Int64
	settle  atomic.Pointer[func(Outcome) int64]

	older, newer *Permit // neighbours among the gate's live ones, guarded by gate.mu
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

const (
	permitUsed = 1 << iota
	permitDone
)

func (g *Gate) permit(gen *generation, a *Action, d *Decision) *Permit {
	p := &Permit{gate: g, gen: gen, act: a, receipt: d.Receipt, denied: d.Effect != Allow}
	p.self = p
	if !p.denied {
		p.grant = gen.grants[d.Rule]
	}
	g.mu.Lock()
	if p.older = g.live; p.older != nil {
		p.older.newer = p
	}
	g.live = p
	g.mu.Unlock()
	return p
}

// genuine reports whether p is the very value that Decide returned.
func (p *Permit) genuine() bool { return p != nil && p.self == p && p.gate != nil }

// To returns where the permitted action goes.
func (p *Permit) To() authority.Authority {
	if !p.genuine() {
		return authority.Authority{}
	}
	return p.act.To()
}

// Action returns the permitted action. The caller must not change it.
func (p *Permit) Action() *Action {
	if !p.genuine() {
		return nil
	}
	return p.act
}

// Session returns the session the Permit belongs to, "" for an invalid one.
func (p *Permit) Session() string {
	if !p.genuine() {
		return ""
	}
	return p.gate.session
}

// Generation returns the policy generation the action was judged under.
func (p *Permit) Generation() uint64 {
	if !p.genuine() {
		return 0
	}
	return p.gen.n
}

// Receipt returns the leaf hash of the decision receipt.
func (p *Permit) Receipt() receipts.Hash {
	if !p.genuine() {
		return receipts.Hash{}
	}
	return p.receipt
}

// Grant returns what the allowing rule gives; the zero Grant for a would-block
// or a rule that grants nothing.
func (p *Permit) Grant() Grant {
	if !p.genuine() || p.grant == nil {
		return Grant{}
	}
	return *p.grant
}

// WouldBlock reports whether the action passes only because the session is in
// shadow. No credential may be added to it.
func (p *Permit) WouldBlock() bool { return !p.genuine() || p.denied }

// Context ends when the policy generation or the session ends; its cause names
// the code. Everything done under the Permit must end with it.
func (p *Permit) Context() context.Context {
	if !p.genuine() {
		return ended
	}
	return p.gen.ctx
}

var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cutError(CodePermit))
	return ctx
}()

// Live returns nil while the action may go on, else an error whose code says
// why not.
func (p *Permit) Live() error {
	if !p.genuine() {
		return problem.New(CodePermit, "permit is zero or a copy", "")
	}
	if p.state.Load()&permitDone != 0 {
		return problem.New(CodePermit, "permit has its outcome already", "")
	}
	if p.gen.ctx.Err() != nil {
		return context.Cause(p.gen.ctx)
	}
	return nil
}

// Use takes the Permit for its single use: the first call on a live Permit
// returns nil, every other call an error.
func (p *Permit) Use() error {
	if err := p.Live(); err != nil {
		return err
	}
	if !p.state.CompareAndSwap(0, permitUsed) {
		return problem.New(CodePermit, "permit was used already", "")
	}
	return nil
}

// Void ends a Permit that nobody used: it writes a not_forwarded outcome with
// code. On a used, finished or invalid Permit it does nothing.
func (p *Permit) Void(code string) {
	if p.genuine() && p.state.CompareAndSwap(0, permitUsed|permitDone) {
		o := Outcome{Effect: NotForwarded, Code: code}
		o.Spent = p.cost(o)
		p.gate.rec.Outcome(p.receipt, o)
		p.gate.finished(p)
	}
}

// Progress writes a progress receipt; in hard mode it returns once the receipt
// is durable, and an error means that no further byte may move.
func (p *Permit) Progress(ctx context.Context, o Outcome) error {
	if err := p.Live(); err != nil {
		return err
	}
	return p.gate.rec.Progress(ctx, p.receipt, o, p.gate.mode == receipts.Hard)
}

// EndSession revokes the whole session the Permit belongs to: what was found
// while carrying the action out leaves nothing to be trusted.
func (p *Permit) EndSession(code string) {
	if p.genuine() {
		p.gate.Revoke(code)
	}
}

// Spend adds nanodollars to the outcome that Done will write.
func (p *Permit) Spend(nano int64) {
	if p.genuine() {
		p.spent.Add(nano)
	}
}

// Settles has fn say what the action cost. fn is called once, with the outcome
// as it is about to be written, whoever ends the Permit: so a budget and the
// receipt can never differ. It must be set before the Permit is used.
func (p *Permit) Settles(fn func(Outcome) (nano int64)) {
	if p.genuine() {
		p.settle.Store(&fn)
	}
}

func (p *Permit) cost(o Outcome) int64 {
	if fn := p.settle.Load(); fn != nil {
		return (*fn)(o)
	}
	return o.Spent
}

// Done writes the outcome receipt. Only the first call counts.
func (p *Permit) Done(o Outcome) {
	if !p.genuine() {
		return
	}
	for {
		s := p.state.Load()
		if s&permitDone != 0 {
			return
		}
		if p.state.CompareAndSwap(s, s|permitDone) {
			break
		}
	}
	o.Spent += p.spent.Load()
	o.Spent = p.cost(o)
	p.gate.rec.Outcome(p.receipt, o)
	p.gate.finished(p)
}

func (p *Permit) cutCode() string {
	if p.gen.ctx.Err() == nil {
		return CodeNotUsed
	}
	return string(problem.CodeOf(context.Cause(p.gen.ctx)))
}

// finished takes a Permit out of the live ones. Its state sees to it that this
// happens once.
func (g *Gate) finished(p *Permit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		g.live = p.older
	}
	if p.older != nil {
		p.older.newer = p.newer
	}
	p.older, p.newer = nil, nil
	if g.live == nil && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}
