package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"gatehouse/enforcers"
)

// instance is one instantiated and configured module. It serves one call at a
// time and is closed after any fault.
type instance struct {
	module *Module
	ctx    context.Context // carries the instance to the stubs
	mod    api.Module
	mem    api.Memory
	alloc  api.Function
	ask    api.Function // gatehouse_decide
	about  description
	random uint64 // state of random_get

	stack [2]uint64         // parameters and result of a call
	words map[string]string // rule ids and reasons seen before, to allocate none twice
}

// maxWords bounds instance.words; a module that never repeats itself costs an
// allocation per answer instead of memory.
const maxWords = 4096

// maxDescription bounds gatehouse_describe's answer, in bytes.
const maxDescription = 64 << 10

type instanceKey struct{}

func instanceOf(ctx context.Context) *instance { return ctx.Value(instanceKey{}).(*instance) }

// newInstance instantiates, initializes and configures.
func newInstance(m *Module, configure []byte) (*instance, error) {
	in := &instance{module: m, words: make(map[string]string)}
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	ctx, cancel := context.WithTimeout(in.ctx, initWall)
	defer cancel()
	mod, err := m.runtime.InstantiateModule(ctx, m.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, in.classify(err, "while starting")
	}
	in.mod, in.mem = mod, mod.Memory()
	in.alloc, in.ask = mod.ExportedFunction("gatehouse_alloc"), mod.ExportedFunction("gatehouse_decide")
	if err := in.setUp(ctx, configure); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// initWall bounds start section, _initialize and gatehouse_configure together.
const initWall = 10 * time.Second

func (in *instance) setUp(ctx context.Context, configure []byte) error {
	if f := in.mod.ExportedFunction("_initialize"); f != nil {
		if err := f.CallWithStack(ctx, nil); err != nil {
			return in.classify(err, "in _initialize") // WA-33
		}
	}
	if err := in.mod.ExportedFunction("gatehouse_abi_v1").CallWithStack(ctx, in.stack[:]); err != nil {
		return in.classify(err, "in gatehouse_abi_v1")
	}
	if uint32(in.stack[0]) != 0 {
		return fault(LoadRejected, "the module needs feature bits this host does not have")
	}
	ptr, err := in.message(ctx, configure)
	if err != nil {
		return err
	}
	in.stack[0], in.stack[1] = uint64(ptr), uint64(len(configure))
	if err := in.mod.ExportedFunction("gatehouse_configure").CallWithStack(ctx, in.stack[:]); err != nil {
		return in.classify(err, "in gatehouse_configure")
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
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Actions []string `json:"actions"`
	Rules   []string `json:"rules"`
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
	if err := f.CallWithStack(ctx, in.stack[:]); err != nil {
		return in.classify(err, "in gatehouse_describe")
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
	return nil
}

// message allocates n bytes in the module and returns where. WA-23: the
// address is only trusted after the range check of the write that follows.
func (in *instance) message(ctx context.Context, parts ...[]byte) (uint32, error) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	in.stack[0] = uint64(n)
	if err := in.alloc.CallWithStack(ctx, in.stack[:]); err != nil {
		return 0, in.classify(err, "in gatehouse_alloc")
	}
	ptr := uint32(in.stack[0])
	if ptr == 0 {
		return 0, fault(GuestError, "the module refused the message")
	}
	at := uint64(ptr)
	for _, p := range parts {
		if at > 1<<32-1 || !in.mem.Write(uint32(at), p) {
			return 0, fault(BadOutput, "gatehouse_alloc returned an address outside memory") // WA-18
		}
		at += uint64(len(p))
	}
	return ptr, nil
}

// result returns a view of the packed answer on the stack: pointer in the high
// half, length in the low half.
func (in *instance) result(limit int) ([]byte, bool) {
	ptr, n := uint32(in.stack[0]>>32), uint32(in.stack[0])
	if int64(n) > int64(limit) { // WA-25
		return nil, false
	}
	return in.mem.Read(ptr, n)
}

var (
	decidePrefix = []byte(`{"abi":1,"action":`)
	decideSuffix = []byte(`}`)
)

// decide judges one canonical action.
func (in *instance) decide(ctx context.Context, action []byte) (enforcers.Verdict, error) {
	ptr, err := in.message(ctx, decidePrefix, action, decideSuffix)
	if err != nil {
		return enforcers.Verdict{}, err
	}
	in.stack[0], in.stack[1] = uint64(ptr), uint64(len(decidePrefix)+len(action)+len(decideSuffix))
	if err := in.ask.CallWithStack(ctx, in.stack[:]); err != nil {
		return enforcers.Verdict{}, in.classify(err, "in gatehouse_decide")
	}
	if in.stack[0] == 0 {
		return enforcers.Verdict{}, fault(GuestError, "the module could not judge the action")
	}
	out, ok := in.result(in.module.limits.Output)
	if !ok {
		return enforcers.Verdict{}, fault(BadOutput, "the answer lies outside memory or is too large")
	}
	effect, rule, reason, ok := parseAnswer(out)
	if !ok {
		return enforcers.Verdict{}, fault(BadOutput, "the answer is not in the closed schema")
	}
	return enforcers.Verdict{Effect: effect, Rule: in.word(rule), Reason: in.word(reason)}, nil
}

// word returns b as a string that does not alias the module's memory.
func (in *instance) word(b []byte) string {
	if s, ok := in.words[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(in.words) < maxWords {
		in.words[s] = s
	}
	return s
}

// classify turns an error of a call into a fault. Its text is never passed on:
// it holds names that the module chose.
func (in *instance) classify(err error, where string) error {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		if exit.ExitCode() == sys.ExitCodeDeadlineExceeded || exit.ExitCode() == sys.ExitCodeContextCanceled {
			return fault(WallExceeded, "the deadline passed "+where)
		}
		return fault(HostError, "the instance was closed "+where)
	}
	if errors.Is(err, errExit) {
		return fault(Trap, "the module tried to exit "+where)
	}
	return fault(Trap, "the module trapped "+where)
}

func (in *instance) close() {
	// The error of closing an instance without files or sockets is always nil.
	_ = in.mod.Close(context.Background())
}
