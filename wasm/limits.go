package wasm

import "time"

// Limits bound one module. The zero value of a field means the default; an
// operator may lower any of them, and raise the fuel up to the ceilings of
// docs/enforcer-abi.md.
type Limits struct {
	Memory        uint32 // pages of 64 KiB, default 256
	Input         int    // bytes of a decide message, default 64 KiB
	Output        int    // bytes of an answer, default 8 KiB
	FuelInit      int64  // start section and _initialize, default 100 M
	FuelConfigure int64  // default 50 M
	FuelDecide    int64  // default 5 M
}

// Fixed bounds.
const (
	maxModule    = 8 << 20 // bytes of a module
	maxConfigure = 1 << 20 // bytes of a configure message
	wall         = 100 * time.Millisecond
)

// defaults fills the zero fields.
func (l Limits) defaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
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
	set(&l.FuelInit, 100e6)
	set(&l.FuelConfigure, 50e6)
	set(&l.FuelDecide, 5e6)
	return l
}
