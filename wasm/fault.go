package wasm

import (
	"errors"

	"gatehouse/enforcers"
)

// Fault codes: the closed list of docs/enforcer-abi.md. Each stands in a
// receipt as it is.
const (
	LoadRejected    = "load_rejected"    // the module breaks a static rule; nothing was run
	ConfigureFailed = "configure_failed" // the module refused its policy
	Trap            = "trap"             // the module trapped or tried to exit
	FuelExhausted   = "fuel_exhausted"   // the instruction budget ran out
	WallExceeded    = "wall_exceeded"    // the deadline of an untrusted module passed
	MemExceeded     = "mem_exceeded"     // trapped after memory was refused
	BadOutput       = "bad_output"       // the answer is outside the closed schema
	GuestError      = "guest_error"      // the module said that it failed
	HostError       = "host_error"       // the host could not ask: input too large, host closing
)

// fault makes a fault whose cause is a fixed sentence: nothing a module wrote
// (trap messages, function names) reaches a log or a receipt through it.
func fault(code, why string) *enforcers.Fault {
	return &enforcers.Fault{Code: code, Err: errors.New(why)}
}
