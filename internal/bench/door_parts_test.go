package bench

import (
	"context"
	"sync/atomic"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// What a request costs at the door is what a proxy does, and what Gatehouse is
// for. To tell them apart a door is measured without its receipts, and without
// them and its enforcer. No node runs like this: only here can a gate be made so.

// unrecorded takes the receipts out.
func unrecorded(g *enforcers.GateOptions) { g.Recorder = new(forgetful) }

// bare takes the receipts and the enforcer in wasm out.
func bare(g *enforcers.GateOptions) {
	unrecorded(g)
	g.Policy.Enforcers = []enforcers.Bound{{Enforcer: permissive{}, Mode: g.Mode, Builtin: true}}
}

type forgetful struct{ n atomic.Uint64 }

func (f *forgetful) Decision(context.Context, *enforcers.Action, *enforcers.Decision, bool) (receipts.Hash, error) {
	n := f.n.Add(1)
	return receipts.Hash{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1}, nil
}
func (*forgetful) Outcome(receipts.Hash, enforcers.Outcome) {}
func (*forgetful) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

type permissive struct{}

func (permissive) Name() string     { return "egress" }
func (permissive) Digest() [32]byte { return [32]byte{1} }
func (permissive) Kinds() []enforcers.Kind {
	return []enforcers.Kind{enforcers.NetConnect, enforcers.HTTPRequest}
}
func (permissive) Decide(context.Context, []byte) (enforcers.Verdict, error) {
	return enforcers.Verdict{Effect: enforcers.Allow, Rule: "egress[2]"}, nil
}
