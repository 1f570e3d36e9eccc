package wasm

import (
	"context"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
)

// epoch makes a reading of the monotonic clock alone: half of time.Now.
var epoch = time.Now()

// Enforcer is one module under one policy. It implements enforcers.Enforcer.
type Enforcer struct {
	pool   *pool
	name   string
	about  description
	kinds  []enforcers.Kind
	closed atomic.Bool
}

// Name returns the built-in enforcer's name, or the one given to Load.
func (e *Enforcer) Name() string { return e.name }

// Digest returns the SHA-256 of the module as supplied.
func (e *Enforcer) Digest() [32]byte { return e.pool.module.digest }

// Kinds returns the action kinds the module says it judges. The caller must
// not change them.
func (e *Enforcer) Kinds() []enforcers.Kind { return e.kinds }

// Body returns how the enforcer wants bodies of http.request, "prefix" or
// "whole", and how many bytes of them at most; "" and 0 when it wants none. An
// action that cannot carry what is asked for is not to be allowed
// (body_not_inspectable).
func (e *Enforcer) Body() (mode string, most int) { return e.about.Body, e.about.BodyBytes }

// Version returns what the module says its version is.
func (e *Enforcer) Version() string { return e.about.Version }

// Rules lists the rule ids that the module says it uses.
func (e *Enforcer) Rules() []string { return e.about.Rules }

// Decide judges a canonical action. It waits for a free instance as long as
// ctx allows. Every error is a *enforcers.Fault.
func (e *Enforcer) Decide(ctx context.Context, action []byte) (enforcers.Verdict, error) {
	if e.closed.Load() {
		return enforcers.Verdict{}, fault(HostError, "the enforcer is closed")
	}
	if len(action)+len(decidePrefix)+len(decideSuffix) > e.pool.module.limits.Input {
		return enforcers.Verdict{}, fault(HostError, "the action is larger than the input limit")
	}
	e.pool.module.life.RLock()
	defer e.pool.module.life.RUnlock()
	in, err := e.pool.take(ctx)
	if err != nil {
		return enforcers.Verdict{}, err
	}
	start := time.Since(epoch)
	v, err := in.decide(action)
	switch live := e.pool.module.host.live; {
	case err != nil:
		live.faulted.Add(1)
		e.pool.drop(in)
	case time.Since(epoch)-start > slow:
		// A call that took this long within its fuel points at a defect or a
		// starved machine; the verdict stands, the instance does not.
		live.slow.Add(1)
		e.pool.drop(in)
	case in.grown():
		e.pool.drop(in)
	default:
		e.pool.put(in)
	}
	return v, err
}

// Close gives up the enforcer's share of the instances. It is idempotent; a
// call under way ends first.
func (e *Enforcer) Close() {
	if e.closed.CompareAndSwap(false, true) {
		e.pool.module.release(e.pool)
	}
}
