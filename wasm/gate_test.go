package wasm_test

import (
	"context"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

const onePolicy = `{"egress":[{"host":"api.good.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}]}`

// keep is a recorder that remembers the last decision.
type keep struct{ last enforcers.Decision }

func (k *keep) Decision(_ context.Context, _ *enforcers.Action, d *enforcers.Decision, _ bool) (receipts.Hash, error) {
	k.last = *d
	return receipts.Hash{1}, nil
}
func (k *keep) Outcome(receipts.Hash, enforcers.Outcome) {}
func (k *keep) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// TestAddedAllowChangesNothing puts an added module that allows everything
// beside the built-in one: a host that the bundle does not list stays denied,
// and the answer stands in the receipt as a fault.
func TestAddedAllowChangesNothing(t *testing.T) {
	h := sharedHost(t)
	builtin, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	egress, err := builtin.Enforcer(t.Context(), wasm.Configure([]byte(onePolicy), wasm.BuiltinParams("egress")))
	if err != nil {
		t.Fatal(err)
	}
	defer egress.Close()
	m, err := h.Load(t.Context(), "generous", (&hostile.Guest{Answer: `{"reason":"why_not","rule":"r","verdict":"allow"}`}).Module())
	if err != nil {
		t.Fatal(err)
	}
	generous, err := m.Enforcer(t.Context(), empty)
	if err != nil {
		t.Fatal(err)
	}
	defer generous.Close()
	for name, c := range map[string]struct{ host, reason string }{
		"unlisted": {"evil.test", "name_not_listed"},
		"listed":   {"api.good.test", wasm.BadOutput}, // a fault denies in hard mode
	} {
		t.Run(name, func(t *testing.T) {
			rec := &keep{}
			g := enforcers.NewGate(enforcers.GateOptions{Session: "s", Mode: receipts.Hard, Recorder: rec, Policy: enforcers.Policy{Enforcers: []enforcers.Bound{
				{Enforcer: egress, Mode: receipts.Hard, Builtin: true}, {Enforcer: generous, Mode: receipts.Hard},
			}}})
			a := g.Action(enforcers.DNSQuery)
			a.DNS = &enforcers.DNS{Name: c.host, Type: "A"}
			permit, d := g.Decide(t.Context(), a)
			if permit != nil || d.Effect != enforcers.Deny || d.Reason != c.reason {
				t.Errorf("permit %v, %+v", permit != nil, d.Verdict)
			}
			if n := len(rec.last.Trace); n != 2 || rec.last.Trace[1].Fault != wasm.BadOutput || rec.last.Trace[1].Enforcer != "generous" {
				t.Errorf("trace %+v", rec.last.Trace)
			}
		})
	}
}

// TestDecideAllocatesNothing is the goal for the host: an allow costs no
// garbage, with the built-in module and with one that is put back.
func TestDecideAllocatesNothing(t *testing.T) {
	h := sharedHost(t)
	builtin, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	added, err := h.Load(t.Context(), "g", answering("one"))
	if err != nil {
		t.Fatal(err)
	}
	a := enforcers.Action{ID: "s-1", Session: "s", Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: "api.good.test", Type: "A"}}
	action, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		module    *wasm.Module
		configure []byte
	}{
		"builtin": {builtin, wasm.Configure([]byte(onePolicy), wasm.BuiltinParams("egress"))},
		"added":   {added, empty},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := c.module.Enforcer(t.Context(), c.configure)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ctx := t.Context()
			if n := testing.AllocsPerRun(200, func() {
				if _, err := e.Decide(ctx, action); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}
