package wasm

import (
	"time"

	"gatehouse/internal/problem"
)

// Limits bound one module. The zero value of a field means the default. An
// operator may lower any of them, and raise the fuel of a module up to the
// ceilings.
type Limits struct {
	Memory        uint32 // pages of 64 KiB, default and ceiling 256
	Input         int    // bytes of a decide message, default 64 KiB, ceiling 1 MiB
	Output        int    // bytes of an answer, default and ceiling 8 KiB
	FuelInit      int64  // start section and _initialize, default 10 M, ceiling 100 M
	FuelConfigure int64  // default 20 M, ceiling 500 M
	FuelDecide    int64  // default 2 M (15 ms of waiting for memory at worst, 41 ms beside eight busy builds), ceiling 20 M

	// Untrusted adds a second line against a defect of the meter: a deadline that
	// native code checks at every loop, at 30 to 400 us a call.
	Untrusted bool
}

// builtin are the limits of the embedded module: ours, and linear in its
// input, so that no action an agent can make runs it out of fuel
// (TestLargestActions). A push names every file it changes, hence the input.
var builtin = Limits{Memory: 256, Input: 512 << 10, Output: 8 << 10, FuelInit: 10e6, FuelConfigure: 1e9, FuelDecide: 400e6}

// Fixed bounds.
const (
	maxModule    = 8 << 20 // bytes of a module
	maxConfigure = 1 << 20 // bytes of a configure message
	maxDepth     = 2000    // frames of a call
	slow         = 100 * time.Millisecond
)

// settle fills the zero fields and reports a field that is above its ceiling.
func (l Limits) settle() (Limits, error) {
	for _, f := range []struct {
		name              string
		v                 *int64
		standard, ceiling int64
	}{
		{"fuel for initialization", &l.FuelInit, 10e6, 100e6},
		{"fuel for configuring", &l.FuelConfigure, 20e6, 500e6},
		{"fuel for deciding", &l.FuelDecide, 2e6, 20e6},
	} {
		if *f.v == 0 {
			*f.v = f.standard
		}
		if *f.v < 0 || *f.v > f.ceiling {
			return l, limitError(f.name)
		}
	}
	if l.Memory == 0 {
		l.Memory = 256
	}
	if l.Input == 0 {
		l.Input = 64 << 10
	}
	if l.Output == 0 {
		l.Output = 8 << 10
	}
	switch {
	case l.Memory > 256:
		return l, limitError("memory")
	case l.Input < 0 || l.Input > 1<<20:
		return l, limitError("input")
	case l.Output < 0 || l.Output > 8<<10:
		return l, limitError("output")
	}
	return l, nil
}

func limitError(what string) error {
	return problem.New(problem.ConfigInvalid, "an enforcer's limit on "+what+" is above what Gatehouse allows",
		"Lower the limit; docs/enforcer-abi.md lists the ceilings.")
}
