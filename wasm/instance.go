package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"gatehouse/enforcers"
	"gatehouse/wasm/meter"
)

// instance is one instantiated and configured module. It serves one call at a
// time and is closed after any fault.
type instance struct {
	module  *Module
	ctx     context.Context // carries the instance to the stubs
	memory  *mapping
	mod     api.Module
	mem     api.Memory
	fuel    api.MutableGlobal
	refused api.MutableGlobal // memory.grow was refused
	alloc   api.Function
	ask     api.Function // gatehouse_decide
	about   description
	random  uint64 // state of random_get
	debug   int    // bytes written to Options.Debug
	size    uint32 // bytes of memory after configuring
	buffer  uint32 // where messages go; 0 = ask gatehouse_alloc. The built-in module has one, larger than the input limit
	image   *image // nil for the built-in module
	globals []api.MutableGlobal

	stack   [2]uint64                    // parameters and result of a call
	answers map[string]enforcers.Verdict // answers seen before and what they say, to read and allocate none twice
}

// image is a third-party module's state after configuring: all it may know
// when it is asked (WA-04). It is taken once for a pool, and every instance of
// the pool begins each call from it; the stubs are deterministic, so another
// instance would have come to the same bytes.
type image struct {
	memory  []byte
	globals []uint64
	random  uint64
	about   description
}

// maxAnswers bounds instance.answers; a module that never repeats itself costs an
// allocation per answer instead of memory.
const maxAnswers = 1024

// maxDescription bounds gatehouse_describe's answer, in bytes.
const maxDescription = 64 << 10

// setUpWall bounds an untrusted module's start, _initialize and configure
// together.
const setUpWall = 10 * time.Second

type instanceKey struct{}

func instanceOf(ctx context.Context) *instance { return ctx.Value(instanceKey{}).(*instance) }

// newInstance instantiates the module without running any of it.
func newInstance(m *Module) (*instance, error) {
	memory, err := newMapping(int(m.limits.Memory) << 16)
	if err != nil {
		return nil, err
	}
	in := &instance{module: m, memory: memory, answers: make(map[string]enforcers.Verdict)}
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	ctx := experimental.WithMemoryAllocator(in.ctx, memory)
	in.mod, err = m.runtime.InstantiateModule(ctx, m.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		memory.Free()
		return nil, fault(HostError, "the module could not be instantiated")
	}
	in.mem = in.mod.Memory()
	in.fuel = in.mod.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
	in.refused = in.mod.ExportedGlobal(meter.RefusedExport).(api.MutableGlobal)
	in.alloc, in.ask = in.mod.ExportedFunction("gatehouse_alloc"), in.mod.ExportedFunction("gatehouse_decide")
	if !m.builtin {
		for _, name := range m.globals {
			in.globals = append(in.globals, in.mod.ExportedGlobal(name).(api.MutableGlobal))
		}
	}
	return in, nil
}

// configured returns an instance that has run its start code and taken its
// policy. A third-party one carries the image of that state.
func configured(m *Module, configure []byte) (*instance, error) {
	in, err := newInstance(m)
	if err != nil {
		return nil, err
	}
	if err := in.setUp(configure); err != nil {
		in.close()
		return nil, err
	}
	in.size = in.mem.Size()
	if !m.builtin {
		view, _ := in.mem.Read(0, in.size)
		in.image = &image{memory: bytes.Clone(view), random: in.random, about: in.about}
		for _, g := range in.globals {
			in.image.globals = append(in.image.globals, g.Get())
		}
	}
	return in, nil
}

// fromImage returns an instance in the state of an image, without running
// anything.
func fromImage(m *Module, img *image) (*instance, error) {
	in, err := newInstance(m)
	if err != nil {
		return nil, err
	}
	in.size, in.image, in.about = uint32(len(img.memory)), img, img.about
	if missing := in.size - in.mem.Size(); missing > 0 {
		if _, ok := in.mem.Grow(missing >> 16); !ok {
			in.close()
			return nil, fault(HostError, "no memory for an instance")
		}
	}
	return in, nil
}

// restore puts a third-party instance into the state of its image.
func (in *instance) restore() {
	in.mem.Write(0, in.image.memory)
	for i, g := range in.globals {
		g.Set(in.image.globals[i])
	}
	in.random = in.image.random
}

// grown reports whether memory is larger than it was after configuring: it
// cannot shrink, so the instance cannot be put back.
func (in *instance) grown() bool { return in.mem.Size() != in.size }

// deadline returns the context of a call: the instance's own, and for an
// untrusted module one that ends.
func (in *instance) deadline(d time.Duration) (context.Context, context.CancelFunc) {
	if !in.module.limits.Untrusted {
		return in.ctx, func() {}
	}
	return context.WithTimeout(in.ctx, d)
}

func (in *instance) setUp(configure []byte) error {
	ctx, cancel := in.deadline(setUpWall)
	defer cancel()
	if in.module.start { // WA-17
		if err := in.call(ctx, in.mod.ExportedFunction(meter.StartExport), "the start function"); err != nil {
			return err
		}
	}
	if f := in.mod.ExportedFunction("_initialize"); f != nil { // WA-33
		if err := in.call(ctx, f, "_initialize"); err != nil {
			return err
		}
	}
	in.fuel.Set(uint64(in.module.limits.FuelConfigure))
	if err := in.call(ctx, in.mod.ExportedFunction("gatehouse_abi_v1"), "gatehouse_abi_v1"); err != nil {
		return err
	}
	if uint32(in.stack[0]) != 0 {
		return fault(LoadRejected, "the module needs feature bits this host does not have")
	}
	ptr, err := in.message(ctx, configure)
	if err != nil {
		return err
	}
	if in.module.builtin {
		in.buffer = ptr
	}
	in.stack[0], in.stack[1] = uint64(ptr), uint64(len(configure))
	if err := in.call(ctx, in.mod.ExportedFunction("gatehouse_configure"), "gatehouse_configure"); err != nil {
		return err
	}
	switch uint32(in.stack[0]) {
	case 0:
	case 2:
		return fault(ConfigureFailed, "the module does not support this bundle version")
	default:
		return fault(ConfigureFailed, "the module refused its policy")
	}
	return in.describe(ctx)
}

// description is gatehouse_describe's answer, a closed object.
type description struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Actions   []string `json:"actions"`
	Rules     []string `json:"rules"`
	Body      string   `json:"body"`
	BodyBytes int      `json:"body_bytes"`
}

// allKinds is what a module judges that does not describe itself.
var allKinds = []enforcers.Kind{
	enforcers.NetConnect, enforcers.HTTPRequest, enforcers.DNSQuery, enforcers.GitFetch, enforcers.GitPush,
	enforcers.ModelCall, enforcers.OperationCall, enforcers.TelemetryEmit, enforcers.SessionSpawn,
}

func (d description) kinds() []enforcers.Kind {
	if d.Actions == nil {
		return allKinds
	}
	kinds := make([]enforcers.Kind, len(d.Actions))
	for i, a := range d.Actions {
		kinds[i] = enforcers.Kind(a)
	}
	return kinds
}

func (in *instance) describe(ctx context.Context) error {
	f := in.mod.ExportedFunction("gatehouse_describe")
	if f == nil {
		return nil
	}
	if err := in.call(ctx, f, "gatehouse_describe"); err != nil {
		return err
	}
	b, ok := in.result(maxDescription)
	if !ok {
		return fault(BadOutput, "the description lies outside memory or is too large")
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in.about); err != nil || d.More() {
		return fault(BadOutput, "the description is not the JSON object of the ABI")
	}
	for _, k := range in.about.kinds() {
		if !slices.Contains(allKinds, k) {
			return fault(BadOutput, "the description names an unknown action kind")
		}
	}
	for _, text := range append([]string{in.about.Name, in.about.Version}, in.about.Rules...) {
		// Shown to operators: codes, as in an answer, and no control sequences.
		if _, rest, ok := token([]byte(text), 128, isRule); !ok || len(rest) > 0 {
			return fault(BadOutput, "the description holds text that is no code")
		}
	}
	if b := in.about; !slices.Contains([]string{"", "prefix", "whole"}, b.Body) || (b.Body == "") != (b.BodyBytes == 0) || b.BodyBytes < 0 {
		return fault(BadOutput, "the description asks for bodies in no known way")
	}
	return nil
}

func (in *instance) close() {
	// The error of closing an instance without files or sockets is always nil.
	_ = in.mod.Close(context.Background())
	in.memory.Free()
}
