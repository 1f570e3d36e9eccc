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
)

// Module is one compiled module. It is safe for concurrent use.
type Module struct {
	host     *Host
	name     string
	digest   [32]byte
	limits   Limits
	builtin  bool
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
	params   []api.ValueType
	results  []api.ValueType
	optional bool
}

var exports = []export{
	{"gatehouse_abi_v1", nil, []api.ValueType{i32}, false},
	{"gatehouse_alloc", []api.ValueType{i32}, []api.ValueType{i32}, false},
	{"gatehouse_configure", []api.ValueType{i32, i32}, []api.ValueType{i32}, false},
	{"gatehouse_decide", []api.ValueType{i32, i32}, []api.ValueType{i64}, false},
	{"gatehouse_describe", nil, []api.ValueType{i64}, true},
	{"_initialize", nil, nil, true},
}

// compile checks the module's imports and exports by name and type, so that
// nothing of it has run when it is refused.
func (m *Module) compile(ctx context.Context, module []byte) error {
	code, err := m.runtime.CompileModule(ctx, module)
	if err != nil {
		return fault(LoadRejected, "the module is not valid WebAssembly within the limits")
	}
	m.code = code
	known := stubs()
	uses := false
	for _, f := range code.ImportedFunctions() {
		from, name, _ := f.Import()
		s, ok := known[name]
		if from != wasip1 || !ok {
			return fault(LoadRejected, fmt.Sprintf("import %q from %q is not in a profile", name, from)) // WA-19
		}
		if !slices.Equal(f.ParamTypes(), s.params) || !slices.Equal(f.ResultTypes(), s.results) {
			return fault(LoadRejected, fmt.Sprintf("import %q has another type", name))
		}
		uses = true
	}
	if len(code.ImportedMemories()) > 0 {
		return fault(LoadRejected, "the module imports a memory")
	}
	if code.ExportedMemories()["memory"] == nil || len(code.ExportedMemories()) != 1 {
		return fault(LoadRejected, "the module must export exactly one memory, as \"memory\"")
	}
	defined := code.ExportedFunctions()
	for _, e := range exports {
		f, ok := defined[e.name]
		if !ok && e.optional {
			continue
		}
		if !ok {
			return fault(LoadRejected, "export "+e.name+" is missing") // WA-32
		}
		if !slices.Equal(f.ParamTypes(), e.params) || !slices.Equal(f.ResultTypes(), e.results) {
			return fault(LoadRejected, "export "+e.name+" has another type") // WA-20
		}
	}
	if uses {
		if err := instantiateStubs(ctx, m.runtime); err != nil {
			return fmt.Errorf("instantiate the inert profile: %w", err)
		}
	}
	return nil
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
	e.name, e.kinds = in.about.Name, in.about.kinds()
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
	return errors.Join(m.runtime.Close(ctx), m.code.Close(ctx))
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

var _ enforcers.Enforcer = (*Enforcer)(nil)
