package wasm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"

	"gatehouse/internal/problem"
	"gatehouse/wasm/meter"
	"gatehouse/wasm/policies"
)

// Options configure a Host.
type Options struct {
	// CacheDir keeps compiled modules between runs. It is created 0700 and
	// refused when anyone else could write to it: what stands there is executed.
	// Empty means memory only.
	CacheDir string
	// Instances bounds the live instances of all modules together, 0 = 64. The
	// least recently used idle instance makes room for a new one; its successor
	// costs an instantiation and a configure.
	Instances int
	// Debug takes what modules write to standard error, 4 KiB an instance at
	// most: the last words of a module under test. nil, as on a node, refuses it.
	Debug io.Writer
}

// Host compiles modules and owns every instance made from them. It is safe for
// concurrent use.
type Host struct {
	cache     wazero.CompilationCache
	debug     io.Writer
	live      *ledger
	compiling sync.Mutex // one compilation at a time: it cannot be interrupted
	builtin   *Module    // guarded by compiling

	mu      sync.Mutex
	modules map[*Module]struct{} // loaded and not closed
	closed  bool
}

// NewHost returns a host with no module loaded. It compiles nothing.
func NewHost(ctx context.Context, o Options) (*Host, error) {
	if o.Instances <= 0 {
		o.Instances = 64
	}
	h := &Host{debug: o.Debug, live: &ledger{limit: o.Instances}, modules: make(map[*Module]struct{})}
	if o.CacheDir == "" {
		h.cache = wazero.NewCompilationCache()
		return h, nil
	}
	if err := privateDir(o.CacheDir); err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(o.CacheDir)
	if err != nil {
		return nil, fmt.Errorf("open the compile cache: %w", err)
	}
	h.cache = cache
	return h, nil
}

// privateDir makes dir, or checks that it is a directory of this user that
// nobody else can enter. Cached code has no signature: whoever can write it
// runs as Gatehouse.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the compile cache: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("read the compile cache: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return problem.New(problem.ConfigInvalid, "the wasm compile cache can be written or read by others",
			"Make the folder a directory of Gatehouse's own user with mode 0700, or remove it.")
	}
	return nil
}

// Close closes every module that is still loaded, waiting for the calls under
// way. Enforcers answer host_error afterwards.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	modules := h.modules
	h.modules = make(map[*Module]struct{})
	h.mu.Unlock()
	var errs []error
	for m := range modules {
		errs = append(errs, m.Close(ctx))
	}
	return errors.Join(append(errs, h.cache.Close(ctx))...)
}

// Builtin returns the embedded module of the built-in enforcers, compiling it
// on first use. The host closes it.
func (h *Host) Builtin(ctx context.Context) (*Module, error) {
	h.compiling.Lock()
	defer h.compiling.Unlock()
	if h.builtin != nil {
		return h.builtin, nil
	}
	m, err := h.load(ctx, "builtin", policies.Std, builtin, true)
	if err != nil {
		return nil, err
	}
	h.builtin = m
	return m, nil
}

// Load checks, meters and compiles a third-party module under the default
// limits. It returns in milliseconds when the compiled form is cached and takes
// up to seconds when not: call it off the readiness path. The caller closes the
// Module. A refusal is a fault with code load_rejected.
func (h *Host) Load(ctx context.Context, name string, module []byte) (*Module, error) {
	return h.LoadLimited(ctx, name, module, Limits{})
}

// LoadLimited is Load under limits an operator chose.
func (h *Host) LoadLimited(ctx context.Context, name string, module []byte, l Limits) (*Module, error) {
	l, err := l.settle()
	if err != nil {
		return nil, err
	}
	h.compiling.Lock()
	defer h.compiling.Unlock()
	return h.load(ctx, name, module, l, false)
}

// Stats are counts for metrics.
type Stats struct {
	Modules   int   // loaded
	Instances int   // live
	Created   int64 // instances made so far
	Faulted   int64 // instances closed after a fault
	Slow      int64 // instances closed after a call of over 100 ms
}

// Stats returns the host's counts.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	modules := len(h.modules)
	h.mu.Unlock()
	h.live.mu.Lock()
	instances := h.live.count
	h.live.mu.Unlock()
	return Stats{modules, instances, h.live.created.Load(), h.live.faulted.Load(), h.live.slow.Load()}
}

func (h *Host) forget(m *Module) {
	h.mu.Lock()
	delete(h.modules, m)
	h.mu.Unlock()
}

// admit meters a module and checks it against the ABI; nothing of it is
// compiled or run.
func admit(module []byte, l Limits) (*meter.Module, error) {
	if len(module) > maxModule {
		return nil, fault(LoadRejected, "the module is larger than 8 MiB")
	}
	metered, err := meter.Rewrite(module, meter.Limits{Pages: l.Memory, Fuel: l.FuelInit, Depth: maxDepth})
	if err != nil {
		return nil, fault(LoadRejected, err.Error())
	}
	return metered, checkABI(metered)
}

// load needs h.compiling held.
func (h *Host) load(ctx context.Context, name string, module []byte, l Limits, builtin bool) (*Module, error) {
	start := time.Now()
	metered, err := admit(module, l)
	if err != nil {
		return nil, err
	}
	m := &Module{
		host: h, name: name, digest: sha256.Sum256(module), limits: l, builtin: builtin,
		globals: metered.Globals, start: metered.Start, pools: make(map[[32]byte]*pool),
	}
	if err := m.compile(ctx, h.cache, metered); err != nil {
		return nil, err
	}
	m.compiled = time.Since(start)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.Join(fault(HostError, "the host is closed"), m.shut(ctx))
	}
	h.modules[m] = struct{}{}
	return m, nil
}
