package enforcers

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// permitted returns a live permit and its gate.
func permitted(t *testing.T, l *log) (*Permit, *Gate) {
	t.Helper()
	grants := []Grant{{Rule: "egress[0]", Connection: "github-main"}}
	bound := []Bound{{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Hard, Builtin: true}}
	g := NewGate(GateOptions{Session: "s", Mode: receipts.Hard, Recorder: l, Policy: Policy{Enforcers: bound, Grants: grants}})
	p, d := g.Decide(t.Context(), get(g, to(t, "https", "api.good.test:443")))
	if p == nil {
		t.Fatalf("%+v", d)
	}
	return p, g
}

// copyOf copies a Permit the way a hostile or careless caller could, behind
// vet's back.
func copyOf(p *Permit) *Permit {
	c := reflect.New(reflect.TypeFor[Permit]())
	c.Elem().Set(reflect.ValueOf(p).Elem())
	return c.Interface().(*Permit)
}

// TestPermit: a zero, copied, used, finished or outlived Permit does nothing.
func TestPermit(t *testing.T) {
	l := &log{}
	p, g := permitted(t, l)
	for name, bad := range map[string]*Permit{"nil": nil, "zero": new(Permit), "copied": copyOf(p)} {
		t.Run(name, func(t *testing.T) {
			if bad.Live() == nil || bad.Use() == nil || bad.Context().Err() == nil || bad.Progress(t.Context(), Outcome{}) == nil {
				t.Error("it is live")
			}
			if !bad.To().IsZero() || bad.Action() != nil || bad.Session() != "" || bad.Generation() != 0 || !bad.Receipt().IsZero() ||
				!bad.WouldBlock() || bad.Grant().Connection != "" {
				t.Error("it leads somewhere")
			}
			bad.Spend(5)
			bad.Done(Outcome{Effect: Forwarded})
			if len(l.outcomes) != 0 {
				t.Error("it wrote an outcome")
			}
		})
	}
	if p.To().Host() != "api.good.test" || p.Session() != "s" || p.Generation() != 1 || p.Receipt().IsZero() || p.WouldBlock() || p.Grant().Connection != "github-main" {
		t.Error("the genuine permit is not")
	}
	if err := p.Use(); err != nil {
		t.Fatal(err)
	}
	if err := p.Use(); problem.CodeOf(err) != CodePermit {
		t.Errorf("second use: %v", err)
	}
	if err := p.Live(); err != nil {
		t.Errorf("in use: %v", err)
	}
	p.Spend(40)
	p.Spend(2)
	p.Done(Outcome{Effect: Forwarded, Up: 1})
	p.Done(Outcome{Effect: Unknown})
	if len(l.outcomes) != 1 || l.outcomes[0] != (Outcome{Effect: Forwarded, Up: 1, Spent: 42}) {
		t.Errorf("outcomes %+v", l.outcomes)
	}
	if p.Live() == nil || p.Use() == nil || p.Progress(t.Context(), Outcome{}) == nil {
		t.Error("a finished permit is live")
	}
	after := copyOf(p)
	if after.Use() == nil {
		t.Error("a copy of a finished permit is live")
	}
	_ = g
}

// TestPermitRace: however many use and finish a permit at once, one does.
func TestPermitRace(t *testing.T) {
	l := &log{}
	p, _ := permitted(t, l)
	var used atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if p.Use() == nil {
				used.Add(1)
			}
			p.Done(Outcome{Effect: Forwarded})
		})
	}
	wg.Wait()
	if used.Load() > 1 || len(l.outcomes) != 1 {
		t.Errorf("used %d times, %d outcomes", used.Load(), len(l.outcomes))
	}
}

// TestPermitSettles: whoever ends a Permit, its cost is asked for once and
// stands in the outcome.
func TestPermitSettles(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Permit, *Gate)
		want Outcome
	}{
		"done": {func(p *Permit, _ *Gate) { _ = p.Use(); p.Done(Outcome{Effect: Forwarded}); p.Done(Outcome{}) }, Outcome{Effect: Forwarded, Spent: 7}},
		"void": {func(p *Permit, _ *Gate) { p.Void("given_up"); p.Done(Outcome{}) }, Outcome{Effect: NotForwarded, Code: "given_up", Spent: 7}},
		"gate": {func(p *Permit, g *Gate) { _ = p.Use(); g.Revoke(CodeRevoked); end(t, g) }, Outcome{Effect: Unknown, Code: CodeRevoked, Spent: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			p, g := permitted(t, l)
			asked := 0
			p.Settles(func(o Outcome) int64 {
				asked++
				if o.Effect != c.want.Effect {
					t.Errorf("asked with effect %s", o.Effect)
				}
				return 7
			})
			c.end(p, g)
			if asked != 1 || len(l.outcomes) != 1 || l.outcomes[0] != c.want {
				t.Errorf("asked %d times, outcomes %+v, want %+v", asked, l.outcomes, c.want)
			}
		})
	}
}

// end settles a gate without waiting for anybody.
func end(t *testing.T, g *Gate) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Settle(ctx)
}
