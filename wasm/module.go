package wasm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"gatehouse/enforcers"
	"gatehouse/wasm/meter"
)

// Module is one compiled module. It is safe for concurrent use.
type Module struct {
	host     *Host
	name     string
	digest   [32]byte
	limits   Limits
	builtin  bool
	globals  []string // exports of its mutable globals
	start    bool     // has a start function
	runtime  wazero.Runtime
	code     wazero.CompiledModule
	compiled time.Duration

	life   sync.RWMutex // held for reading while an instance is in use, for writing by Close
	closed bool         // guarded by life

	mu    sync.Mutex
	pools map[[32]byte]*pool // by digest of the configure message
}

// Name returns the name given to Load.
func (m *Module) Name() string { return m.name }

// Digest returns the SHA-256 of the module as supplied.
func (m *Module) Digest() [32]byte { return m.digest }

// CompileTime returns how long checking and compiling took.
func (m *Module) CompileTime() time.Duration { return m.compiled }

// export is one function of ABI v1.
type export struct {
	name     string
	typ      meter.FuncType
	optional bool
}

var abi = []export{
	{"gatehouse_abi_v1", meter.FuncType{Results: []meter.ValType{meter.I32}}, false},
	{"gatehouse_alloc", meter.FuncType{Params: []meter.ValType{meter.I32}, Results: []meter.ValType{meter.I32}}, false},
	{"gatehouse_configure", meter.FuncType{Params: []meter.ValType{meter.I32, meter.I32}, Results: []meter.ValType{meter.I32}}, false},
	{"gatehouse_decide", meter.FuncType{Params: []meter.ValType{meter.I32, meter.I32}, Results: []meter.ValType{meter.I64}}, false},
	{"gatehouse_describe", meter.FuncType{Results: []meter.ValType{meter.I64}}, true},
	{"_initialize", meter.FuncType{}, true},
}

// checkABI checks imports and exports by name and type, before anything is
// compiled.
func checkABI(m *meter.Module) error {
	known := stubs()
	for _, i := range m.Imports {
		s, ok := known[i.Name]
		if i.Module != wasip1 || !ok {
			return fault(LoadRejected, fmt.Sprintf("import %q from %q is in no profile", i.Name, i.Module)) // WA-19
		}
		if !sameType(i.Type, s.params, s.results) {
			return fault(LoadRejected, fmt.Sprintf("import %q has another type", i.Name))
		}
	}
	if m.Memory != "memory" {
		return fault(LoadRejected, "the module must export its memory as \"memory\"")
	}
	for _, e := range abi {
		t, ok := m.Funcs[e.name]
		switch {
		case !ok && e.optional:
		case !ok:
			return fault(LoadRejected, "export "+e.name+" is missing") // WA-32
		case !slices.Equal(t.Params, e.typ.Params) || !slices.Equal(t.Results, e.typ.Results):
			return fault(LoadRejected, "export "+e.name+" has another type") // WA-20
		}
	}
	return nil
}

func sameType(t meter.FuncType, params, results []api.ValueType) bool {
	same := func(a []meter.ValType, b []api.ValueType) bool {
		return slices.EqualFunc(a, b, func(x meter.ValType, y api.ValueType) bool { return byte(x) == y })
	}
	return same(t.Params, params) && same(t.Results, results)
}

// compile makes the module's runtime and native code.
func (m *Module) compile(ctx context.Context, cache wazero.CompilationCache, metered *meter.Module) error {
	m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2&^api.CoreFeatureSIMD).
		WithMemoryLimitPages(m.limits.Memory).
		WithCompilationCache(cache).
		WithCloseOnContextDone(m.limits.Untrusted).
		WithDebugInfoEnabled(false))
	var err error
	if m.code, err = m.runtime.CompileModule(ctx, metered.Wasm); err != nil {
		return errors.Join(fault(LoadRejected, "the module is not valid WebAssembly"), m.runtime.Close(ctx))
	}
	if len(metered.Imports) > 0 {
		if err := instantiateStubs(ctx, m.runtime); err != nil {
			return errors.Join(fmt.Errorf("instantiate the inert profile: %w", err), m.shut(ctx))
		}
	}
	return nil
}

// shut releases runtime and code.
func (m *Module) shut(ctx context.Context) error {
	return errors.Join(m.runtime.Close(ctx), m.code.Close(ctx))
}

// Enforcer returns the enforcer this module makes of a configure message
// (Configure builds one). It instantiates and configures once, so that a
// refused policy shows here as a configure_failed fault. The caller closes it.
func (m *Module) Enforcer(ctx context.Context, configure []byte) (*Enforcer, error) {
	if len(configure) > maxConfigure {
		return nil, fault(ConfigureFailed, "the configure message is larger than 1 MiB")
	}
	m.life.RLock()
	defer m.life.RUnlock()
	key := sha256.Sum256(configure)
	m.mu.Lock()
	p := m.pools[key]
	if p == nil {
		p = newPool(m, key, slices.Clone(configure))
		m.pools[key] = p
	}
	p.users++
	m.mu.Unlock()
	e := &Enforcer{pool: p}
	in, err := p.take(ctx)
	if err != nil {
		e.Close()
		return nil, err
	}
	e.about, e.name, e.kinds = in.about, in.about.Name, in.about.kinds()
	p.put(in)
	if !m.builtin {
		e.name = m.name
	}
	return e, nil
}

// release gives up one user of a pool and closes it after the last.
func (m *Module) release(p *pool) {
	m.mu.Lock()
	p.users--
	last := p.users == 0
	if last && m.pools[p.key] == p {
		delete(m.pools, p.key)
	}
	m.mu.Unlock()
	if last {
		p.close()
	}
}

// Close ends every instance of the module after the calls under way. Its
// enforcers answer host_error afterwards. It is idempotent.
func (m *Module) Close(ctx context.Context) error {
	m.life.Lock()
	defer m.life.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.mu.Lock()
	pools := m.pools
	m.pools = make(map[[32]byte]*pool)
	m.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	m.host.forget(m)
	return m.shut(ctx)
}

// Configure returns the configure message for a compiled policy and an
// enforcer's params, both canonical JSON objects.
func Configure(policy, params []byte) []byte {
	b := make([]byte, 0, len(policy)+len(params)+32)
	b = append(b, `{"abi":1,"bundle":`...)
	b = append(b, policy...)
	b = append(b, `,"params":`...)
	b = append(b, params...)
	return append(b, '}')
}

// BuiltinParams returns the params that make the built-in module the named
// enforcer: "egress", "git" or "spend".
func BuiltinParams(name string) []byte { return []byte(`{"enforcer":"` + name + `"}`) }

// Section returns the payload of a module's first custom section with the given
// name, nil when it has none or is no module.
func Section(module []byte, name string) []byte { return meter.Custom(module, name) }

var _ enforcers.Enforcer = (*Enforcer)(nil)
