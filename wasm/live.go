package wasm

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// SelfTest judges a module that is about to be put in force and returns why it
// must not be; conform.SelfTest runs the vectors a module carries.
type SelfTest func(ctx context.Context, module []byte, m *Module) error

// Live is an enforcer whose module can be replaced while it is in use. A call
// ends on the module it began on, and its verdict names that module.
type Live struct {
	host      *Host
	name      string
	configure []byte
	limits    Limits
	test      SelfTest

	activating sync.Mutex // one replacement at a time
	current    atomic.Pointer[version]
}

// version is one module in force.
type version struct {
	calls    sync.RWMutex // held for reading by every call
	retired  bool         // guarded by calls
	module   *Module
	enforcer *Enforcer
}

// Activation says what replaced what.
type Activation struct{ Old, New [32]byte } // Old is zero for the first

// NewLive returns an enforcer with no module yet: every call is a host_error
// fault until Activate has succeeded once. test may be nil.
func NewLive(h *Host, name string, configure []byte, l Limits, test SelfTest) *Live {
	return &Live{host: h, name: name, configure: slices.Clone(configure), limits: l, test: test}
}

// Activate checks, compiles, configures and tests a module beside the one in
// force, then puts it in force in one step and closes the old one after its
// last call. When anything fails the old one stays (WA-07); the fault says why.
func (l *Live) Activate(ctx context.Context, module []byte) (a Activation, err error) {
	l.activating.Lock()
	defer l.activating.Unlock()
	m, err := l.host.LoadLimited(ctx, l.name, module, l.limits)
	if err != nil {
		return a, err
	}
	e, err := m.Enforcer(ctx, l.configure)
	if err == nil && l.test != nil {
		if err = l.test(ctx, module, m); err != nil {
			err = &enforcers.Fault{Code: LoadRejected, Err: fmt.Errorf("self-test: %w", err)}
		}
	}
	if err != nil {
		m.Close(ctx)
		return a, err
	}
	a.New = m.Digest()
	if old := l.current.Swap(&version{module: m, enforcer: e}); old != nil {
		a.Old = old.module.Digest()
		old.retire(ctx)
	}
	return a, nil
}

// retire waits for the calls under way and closes the module.
func (v *version) retire(ctx context.Context) {
	v.calls.Lock()
	v.retired = true
	v.calls.Unlock()
	// Closing a module without files or sockets has no error to act on.
	_ = v.module.Close(ctx)
}

// enter returns the version in force with its calls lock held for reading, or
// nil when there is none.
func (l *Live) enter() *version {
	for {
		v := l.current.Load()
		if v == nil {
			return nil
		}
		v.calls.RLock()
		if !v.retired {
			return v
		}
		v.calls.RUnlock()
	}
}

// Name returns the enforcer's name.
func (l *Live) Name() string { return l.name }

// Digest returns the digest of the module in force, zero before the first.
func (l *Live) Digest() [32]byte {
	if v := l.current.Load(); v != nil {
		return v.module.Digest()
	}
	return [32]byte{}
}

// Kinds returns the kinds that the module in force judges; all of them before
// the first, so that its absence is a fault and no silent pass.
func (l *Live) Kinds() []enforcers.Kind {
	if v := l.current.Load(); v != nil {
		return v.enforcer.Kinds()
	}
	return allKinds
}

// Body returns how the module in force wants to see bodies: Enforcer.Body.
func (l *Live) Body() (mode string, most int) {
	if v := l.current.Load(); v != nil {
		return v.enforcer.Body()
	}
	return "", 0
}

// Decide asks the module in force. The verdict's Module is its digest.
func (l *Live) Decide(ctx context.Context, action []byte) (enforcers.Verdict, error) {
	v := l.enter()
	if v == nil {
		return enforcers.Verdict{}, fault(HostError, "no module is in force")
	}
	defer v.calls.RUnlock()
	verdict, err := v.enforcer.Decide(ctx, action)
	verdict.Module = receipts.Hash(v.module.Digest())
	return verdict, err
}

// Close takes the module out of force after its last call.
func (l *Live) Close(ctx context.Context) {
	l.activating.Lock()
	defer l.activating.Unlock()
	if v := l.current.Swap(nil); v != nil {
		v.retire(ctx)
	}
}

var (
	_ enforcers.Enforcer  = (*Live)(nil)
	_ enforcers.Inspector = (*Live)(nil)
)
