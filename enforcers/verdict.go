package enforcers

import (
	"context"

	"gatehouse/receipts"
)

// Effect is what an enforcer says of an action.
type Effect string

// Effects. Deny wins over Allow, Allow over Abstain; all Abstain is a deny.
const (
	Allow   Effect = "allow"
	Deny    Effect = "deny"
	Abstain Effect = "abstain"
)

// Verdict is one enforcer's answer. A deny is a value, never an error.
type Verdict struct {
	Effect Effect
	Rule   string // stable rule id, for example "egress[2]" or "egress.default_deny"
	Reason string // reason code, at most 256 bytes
	Fuel   uint64 // spent by the call, 0 for native enforcers

	// Module is the digest of the module that answered, for an enforcer whose
	// module can be replaced between two calls; zero = the enforcer's Digest.
	Module receipts.Hash
}

// Enforcer judges actions and does nothing else.
//
// Decide is given the canonical bytes of an Action. An error is a fault (the
// enforcer failed), never a deny; a *Fault in its tree carries the fault code.
// Decide must be safe for concurrent use and must not retain action.
type Enforcer interface {
	Name() string
	Digest() [32]byte
	Kinds() []Kind
	Decide(ctx context.Context, action []byte) (Verdict, error)
}

// Inspector is an Enforcer that judges what stands in bodies of http.request.
type Inspector interface {
	// Body returns "prefix" or "whole" and how many bytes of a body at most, or
	// "" and 0 when none is wanted. A body that an action cannot carry like this
	// is a deny with reason body_not_inspectable, and the enforcer is not asked.
	Body() (mode string, most int)
}

// Body modes of an Inspector.
const (
	BodyPrefix = "prefix"
	BodyWhole  = "whole"
)

// Fault codes: reference list in docs/enforcer-abi.md.
const (
	FaultBadOutput = "bad_output"
	FaultHost      = "host_error"
)

// Fault is an enforcer failure with a code of reference/wasm.md section 3.1.
type Fault struct {
	Code string // trap, fuel_exhausted, wall_exceeded, mem_exceeded, bad_output, guest_error, host_error ...
	Err  error
}

// Error names the code and the cause.
func (f *Fault) Error() string {
	if f.Err == nil {
		return f.Code
	}
	return f.Code + ": " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Decision is the effective verdict on one action with everything a receipt
// and an explanation need.
type Decision struct {
	Verdict
	Mode    receipts.Mode
	Passed  bool          // the action may go on: allow, or a would-block
	Fault   string        // fault code of the enforcer that decided, "" if none
	By      string        // enforcer that decided
	Module  receipts.Hash // its digest
	Policy  receipts.Hash // bundle digest
	Held    int64         // nanodollars
	Micros  uint64        // time spent judging
	Receipt receipts.Hash // leaf hash of the decision receipt
	Folded  bool          // a refusal counted with identical ones: Receipt names the newest of them that is written
	Trace   []Step        // every enforcer's answer, in order
	Dev     bool          // dev.upstreams in force
}

// Step is one enforcer's part in a Decision.
type Step struct {
	Enforcer string
	Mode     receipts.Mode
	Verdict  Verdict
	Fault    string
}

// Outcome is what happened after a Permit.
type Outcome struct {
	Effect  string // forwarded | not_forwarded | unknown
	Code    string // why, "" when forwarded without trouble
	Address string // pinned address, or "address_not_public"
	Status  int    // HTTP status, 0 if none
	Up      uint64 // bytes sent outside
	Down    uint64 // bytes received
	Spent   int64  // nanodollars
}

// Outcome effects.
const (
	Forwarded    = "forwarded"
	NotForwarded = "not_forwarded"
	Unknown      = "unknown"
)

// Recorder writes receipts. notary.Chain implements it through an adapter.
type Recorder interface {
	// Decision writes the decision receipt and returns its leaf hash. When
	// durable is true it returns only after the receipt is on disk; an error
	// then means that the action must not happen.
	Decision(ctx context.Context, a *Action, d *Decision, durable bool) (receipts.Hash, error)
	// Outcome enqueues the outcome receipt of a decision.
	Outcome(of receipts.Hash, o Outcome)
	// Progress writes a progress receipt; durable as for Decision.
	Progress(ctx context.Context, of receipts.Hash, o Outcome, durable bool) error
}
