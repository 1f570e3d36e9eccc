package wasm

import (
	"context"
	"errors"

	"gatehouse/enforcers"
)

// Recorded is what a receipt says of one judgement.
type Recorded struct {
	Module  [32]byte // digest of the module that decided
	Verdict enforcers.Verdict
	Fault   string // fault code, "" when there was a verdict
}

// ErrOtherModule is returned when the module at hand is not the one recorded.
var ErrOtherModule = errors.New("the module is not the one that decided")

// Replay judges an action again as it was judged before: the module with the
// recorded digest, the same configure message, the same canonical action. The
// result equals want, fuel included, unless the record or one of the three is
// not what it was (WA-08). An error means that nothing was judged.
func Replay(ctx context.Context, m *Module, configure, action []byte, want Recorded) (got Recorded, same bool, err error) {
	if m.Digest() != want.Module {
		return got, false, ErrOtherModule
	}
	e, err := m.Enforcer(ctx, configure)
	if err != nil {
		return got, false, err
	}
	defer e.Close()
	got.Module = m.Digest()
	got.Verdict, err = e.Decide(ctx, action)
	var f *enforcers.Fault
	if errors.As(err, &f) {
		// The gate writes a fault as a denial under the fault's code.
		got.Fault = f.Code
		got.Verdict.Effect, got.Verdict.Rule, got.Verdict.Reason = want.Verdict.Effect, want.Verdict.Rule, want.Verdict.Reason
	}
	got.Verdict.Module = want.Verdict.Module
	return got, got == want, nil
}
