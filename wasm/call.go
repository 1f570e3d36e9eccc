package wasm

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"gatehouse/enforcers"
)

// message allocates n bytes in the module and returns where. WA-23: the
// address is only trusted after the range check of the write that follows.
func (in *instance) message(ctx context.Context, parts ...[]byte) (uint32, error) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	ptr := in.buffer
	if ptr == 0 {
		in.stack[0] = uint64(n)
		if err := in.call(ctx, in.alloc, "gatehouse_alloc"); err != nil {
			return 0, err
		}
		if ptr = uint32(in.stack[0]); ptr == 0 {
			return 0, fault(GuestError, "the module refused the message")
		}
	}
	at := uint64(ptr)
	for _, p := range parts {
		if at > 1<<32-1 || !in.mem.Write(uint32(at), p) {
			return 0, fault(BadOutput, "gatehouse_alloc returned an address outside memory") // WA-18
		}
		at += uint64(len(p))
	}
	return ptr, nil
}

// result returns a view of the packed answer on the stack: pointer in the high
// half, length in the low half.
func (in *instance) result(limit int) ([]byte, bool) {
	ptr, n := uint32(in.stack[0]>>32), uint32(in.stack[0])
	if int64(n) > int64(limit) { // WA-25
		return nil, false
	}
	return in.mem.Read(ptr, n)
}

var (
	decidePrefix = []byte(`{"abi":1,"action":`)
	decideSuffix = []byte(`}`)
)

// decide judges one canonical action.
func (in *instance) decide(action []byte) (v enforcers.Verdict, err error) {
	if in.image != nil {
		in.restore()
	}
	budget := in.module.limits.FuelDecide
	in.fuel.Set(uint64(budget))
	in.refused.Set(0)
	ctx, cancel := in.deadline(slow)
	defer cancel()
	v, err = in.judge(ctx, action)
	v.Fuel = uint64(min(budget, budget-int64(in.fuel.Get())))
	return v, err
}

func (in *instance) judge(ctx context.Context, action []byte) (v enforcers.Verdict, err error) {
	ptr, err := in.message(ctx, decidePrefix, action, decideSuffix)
	if err != nil {
		return v, err
	}
	in.stack[0], in.stack[1] = uint64(ptr), uint64(len(decidePrefix)+len(action)+len(decideSuffix))
	if err := in.call(ctx, in.ask, "gatehouse_decide"); err != nil {
		return v, err
	}
	if in.stack[0] == 0 {
		return v, fault(GuestError, "the module could not judge the action")
	}
	out, ok := in.result(in.module.limits.Output)
	if !ok {
		return v, fault(BadOutput, "the answer lies outside memory or is too large")
	}
	if v, ok = in.answers[string(out)]; ok {
		return v, nil
	}
	effect, rule, reason, ok := parseAnswer(out)
	if !ok {
		return enforcers.Verdict{}, fault(BadOutput, "the answer is not in the closed schema")
	}
	v = enforcers.Verdict{Effect: effect, Rule: string(rule), Reason: string(reason)}
	if len(in.answers) < maxAnswers {
		in.answers[string(out)] = v
	}
	return v, nil
}

// call calls a function with its parameters on in.stack, where the result is
// left. The last run of instructions of a call is paid for but not checked by
// the module itself, so a counter below zero after a return is a fault too.
func (in *instance) call(ctx context.Context, f api.Function, name string) error {
	if err := f.CallWithStack(ctx, in.stack[:]); err != nil {
		return in.classify(err, name)
	}
	if int64(in.fuel.Get()) < 0 {
		return fault(FuelExhausted, "the instruction budget ran out in "+name)
	}
	return nil
}

// classify turns an error of a call into a fault. Its text is never passed on:
// it holds names that the module chose.
func (in *instance) classify(err error, name string) error {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		if exit.ExitCode() == sys.ExitCodeDeadlineExceeded || exit.ExitCode() == sys.ExitCodeContextCanceled {
			return fault(WallExceeded, "the deadline passed in "+name)
		}
		return fault(HostError, "the instance was closed in "+name)
	}
	if int64(in.fuel.Get()) < 0 {
		return fault(FuelExhausted, "the instruction budget ran out in "+name)
	}
	if uint32(in.refused.Get()) != 0 {
		return fault(MemExceeded, "the module trapped for want of memory in "+name)
	}
	if errors.Is(err, errExit) {
		return fault(Trap, "the module tried to exit in "+name)
	}
	return fault(Trap, "the module trapped in "+name)
}
