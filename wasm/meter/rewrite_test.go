package meter_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"gatehouse/wasm/hostile"
	"gatehouse/wasm/meter"
)

var limits = meter.Limits{Pages: 256, Fuel: 1_000_000, Depth: 100}

func rewrite(t testing.TB, module []byte) *meter.Module {
	t.Helper()
	m, err := meter.Rewrite(module, limits)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return m
}

// start instantiates a module in a runtime of its own.
func start(t testing.TB, module []byte) api.Module {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { r.Close(ctx) })
	mod, err := r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	return mod
}

func fuel(m api.Module) int64 { return int64(m.ExportedGlobal(meter.FuelExport).Get()) }

// run builds a module with one exported function "f" of one i32 parameter and
// result, and calls it metered.
func run(t testing.TB, arg uint64, build func(m *hostile.Builder) uint32) (result uint64, used int64, err error) {
	t.Helper()
	m := &hostile.Builder{}
	m.Memory(1)
	m.Export("f", build(m))
	mod := start(t, rewrite(t, m.Bytes()).Wasm)
	out, err := mod.ExportedFunction("f").Call(context.Background(), arg)
	used = limits.Fuel - fuel(mod)
	if err != nil {
		return 0, used, err
	}
	return out[0], used, nil
}

var (
	oneI32 = []byte{hostile.I32}
	none   []byte
)

// sum is a loop that adds n, n-1, ... 1.
func sum(m *hostile.Builder) uint32 {
	return m.Func(oneI32, oneI32, oneI32,
		hostile.Block(), hostile.Loop(),
		hostile.LocalGet(0), hostile.I32Eqz, hostile.BrIf(1),
		hostile.LocalGet(0), hostile.LocalGet(1), hostile.I32Add, hostile.LocalSet(1),
		hostile.LocalGet(0), hostile.I32Const(1), hostile.I32Sub, hostile.LocalSet(0),
		hostile.Br(0), hostile.End, hostile.End, hostile.LocalGet(1))
}

func TestFuelOfALoop(t *testing.T) {
	var at [3]int64
	for i, n := range []uint64{0, 1, 2} {
		got, used, err := run(t, n, sum)
		if err != nil || got != n*(n+1)/2 {
			t.Fatalf("sum(%d) = %d, %v", n, got, err)
		}
		at[i] = used
	}
	if at[1]-at[0] != at[2]-at[1] || at[1] <= at[0] {
		t.Errorf("an iteration has no constant price: %v", at)
	}
	if _, _, err := run(t, 1<<30, sum); err == nil {
		t.Error("a billion iterations ended in the budget")
	}
}

// TestLargeBodiesPayBySegments takes the long and the short way through a body
// that is too large to be paid for at its head.
func TestLargeBodiesPayBySegments(t *testing.T) {
	work := func(n int) []byte {
		var b []byte
		for range n {
			b = append(b, hostile.Join(hostile.LocalGet(1), hostile.I32Const(1), hostile.I32Add, hostile.LocalSet(1))...)
		}
		return b
	}
	const each = 2 // an addition and a local.set
	branch := func(m *hostile.Builder) uint32 {
		return m.Func(oneI32, oneI32, oneI32, hostile.LocalGet(0), hostile.If(0x40), work(100), hostile.Else, work(10), hostile.End, work(50), hostile.LocalGet(1))
	}
	long, paidLong, err := run(t, 1, branch)
	if err != nil || long != 150 {
		t.Fatalf("%d, %v", long, err)
	}
	short, paidShort, err := run(t, 0, branch)
	if err != nil || short != 60 {
		t.Fatalf("%d, %v", short, err)
	}
	if paidLong-paidShort != 90*each || paidShort < 60*each {
		t.Errorf("the long way cost %d, the short way %d", paidLong, paidShort)
	}
}

func TestFuelIsExhaustedBelowZero(t *testing.T) {
	m := &hostile.Builder{}
	m.Memory(1)
	m.Export("f", m.Func(none, none, nil, hostile.Loop(), hostile.Br(0), hostile.End)) // WA-09
	mod := start(t, rewrite(t, m.Bytes()).Wasm)
	if _, err := mod.ExportedFunction("f").Call(context.Background()); err == nil || fuel(mod) >= 0 {
		t.Errorf("endless loop: %v, fuel %d", err, fuel(mod))
	}
}

func TestDepth(t *testing.T) {
	recurse := func(m *hostile.Builder) uint32 {
		// f(n) = n == 0 ? 0 : f(n-1) + 1, once by falling through, and with a
		// return and a branch to the function's own label on the way.
		self := uint32(0)
		return m.Func(oneI32, oneI32, nil,
			hostile.LocalGet(0), hostile.I32Eqz, hostile.If(0x40), hostile.I32Const(0), hostile.Return, hostile.End,
			hostile.LocalGet(0), hostile.I32Const(1), hostile.I32Sub, hostile.Call(self), hostile.I32Const(1), hostile.I32Add,
			hostile.Br(0))
	}
	if got, _, err := run(t, 99, recurse); err != nil || got != 99 {
		t.Errorf("99 calls: %d, %v", got, err)
	}
	if _, _, err := run(t, 100, recurse); err == nil { // WA-11
		t.Error("101 frames under a limit of 100")
	}
	// The counter must be back where it was: many shallow calls in a row.
	m := &hostile.Builder{}
	m.Memory(1)
	m.Export("f", recurse(m))
	mod := start(t, rewrite(t, m.Bytes()).Wasm)
	for range 200 {
		if _, err := mod.ExportedFunction("f").Call(context.Background(), 50); err != nil {
			t.Fatal(err)
		}
	}
}

// An instance that was stopped at its depth is as limited when it is called again.
func TestDepthAfterATrap(t *testing.T) {
	m := &hostile.Builder{}
	m.Memory(1)
	m.Global(hostile.I32, hostile.I32Const(0))
	m.Export("f", m.Func(none, none, nil, hostile.GlobalGet(0), hostile.I32Const(1), hostile.I32Add, hostile.GlobalSet(0), hostile.Call(0))) // WA-11
	m.ExportGlobal("calls", 0)
	mod := start(t, rewrite(t, m.Bytes()).Wasm)
	calls := uint64(0)
	for n := range 3 {
		_, err := mod.ExportedFunction("f").Call(context.Background())
		now := mod.ExportedGlobal("calls").Get()
		if err == nil || now-calls > 100 || fuel(mod) < 0 {
			t.Errorf("call %d: %v after %d frames, fuel %d", n, err, now-calls, fuel(mod))
		}
		calls = now
	}
}

func TestBulkIsPricedByLength(t *testing.T) {
	fill := func(m *hostile.Builder) uint32 {
		return m.Func(oneI32, oneI32, nil, hostile.I32Const(0), hostile.I32Const(7), hostile.LocalGet(0), hostile.MemoryFill(), hostile.I32Const(0), hostile.Load(0x2d, 0))
	}
	_, small, err := run(t, 1, fill)
	if err != nil {
		t.Fatal(err)
	}
	got, large, err := run(t, 60_001, fill)
	if err != nil || got != 7 {
		t.Fatalf("%d, %v", got, err)
	}
	if large-small != 60_000 {
		t.Errorf("60,000 bytes more cost %d", large-small)
	}
}

func TestGrowth(t *testing.T) {
	grow := func(m *hostile.Builder) uint32 {
		return m.Func(oneI32, oneI32, nil, hostile.LocalGet(0), hostile.MemoryGrow())
	}
	got, used, err := run(t, 3, grow)
	if err != nil || got != 1 || used < 3*8192 {
		t.Errorf("3 pages: %d for %d fuel, %v", got, used, err)
	}
	got, used, err = run(t, 60_000, grow)
	if err != nil || int32(got) != -1 || used > 1000 {
		t.Errorf("over the limit: %d for %d fuel, %v", int32(got), used, err)
	}
}

func TestGlobalsAreExported(t *testing.T) {
	m := &hostile.Builder{}
	m.Memory(1)
	m.Global(hostile.I32, hostile.I32Const(5))
	m.Global(hostile.F64, hostile.Join(byte(0x44), []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}))
	m.Export("f", m.Func(none, none, nil, hostile.I32Const(9), hostile.GlobalSet(0)))
	out := rewrite(t, m.Bytes())
	mod := start(t, out.Wasm)
	if len(out.Globals) != 2 {
		t.Fatalf("globals %v", out.Globals)
	}
	g := mod.ExportedGlobal(out.Globals[0]).(api.MutableGlobal)
	if _, err := mod.ExportedFunction("f").Call(context.Background()); err != nil || g.Get() != 9 {
		t.Fatalf("%d, %v", g.Get(), err)
	}
	g.Set(5)
	if g.Get() != 5 {
		t.Error("a global cannot be put back")
	}
}

func TestRefusals(t *testing.T) {
	base := func(code ...any) []byte {
		m := &hostile.Builder{}
		m.Memory(1)
		m.Table(1)
		m.Global(hostile.I64, hostile.I64Const(0))
		m.Export("f", m.Func(none, none, oneI32, code...))
		return m.Bytes()
	}
	if _, err := meter.Rewrite(base(hostile.Nop), limits); err != nil {
		t.Fatalf("the base case is refused: %v", err)
	}
	with := func(f func(m *hostile.Builder)) []byte {
		m := &hostile.Builder{}
		f(m)
		return m.Bytes()
	}
	raw := func(body []byte) []byte {
		return with(func(m *hostile.Builder) { m.Memory(1); m.Raw(m.Type(nil, nil), body) })
	}
	cases := map[string]struct {
		module []byte
		why    string
	}{
		"not_wasm":                   {[]byte("\x7fELF"), "not a WebAssembly module"},
		"version_2":                  {[]byte("\x00asm\x02\x00\x00\x00"), "not a WebAssembly module"},
		"WA-13_table_grow":           {base(hostile.I32Const(0), hostile.I32Const(1), []byte{0xfc, 15, 0}, hostile.Drop), "outside the profile"},
		"WA-14_table_min":            {with(func(m *hostile.Builder) { m.Memory(1); m.Table(100_000_000) }), "a table of more than"},
		"WA-15_memory_min":           {with(func(m *hostile.Builder) { m.Memory(257) }), "memory begins larger"},
		"WA-27_truncated":            {base(hostile.Nop)[:40], "ends too early"},
		"WA-28_leb_overlong":         {append([]byte("\x00asm\x01\x00\x00\x00"), 1, 0x80, 0x80, 0x80, 0x80, 0x10), "too many bits"},
		"WA-29_locals":               {raw(hostile.Join(byte(1), hostile.U32(50_000), hostile.I32, hostile.End)), "more than 5,000 locals"},
		"WA-29_locals_overflow":      {raw(hostile.Join(byte(2), hostile.U32(1<<31), hostile.I32, hostile.U32(1<<31), hostile.I32, hostile.End)), "more than 5,000 locals"},
		"memory_init":                {base(hostile.I32Const(0), hostile.I32Const(0), hostile.I32Const(0), []byte{0xfc, 8, 0, 0}), "outside the profile"},
		"data_drop":                  {base([]byte{0xfc, 9, 0}), "outside the profile"},
		"table_get":                  {base(hostile.I32Const(0), []byte{0x25, 0}, hostile.Drop), "outside the profile"},
		"simd":                       {base([]byte{0xfd, 12}), "outside the profile"},
		"atomics":                    {base([]byte{0xfe, 3, 0}), "outside the profile"},
		"tail_call":                  {base([]byte{0x12, 0}), "outside the profile"},
		"ref_null":                   {base([]byte{0xd0, 0x70}, hostile.Drop), "outside the profile"},
		"no_memory":                  {with(func(m *hostile.Builder) { m.Func(nil, nil, nil) }), "has no memory"},
		"call_into_the_meter":        {base(hostile.I32Const(0), hostile.Call(1), hostile.Drop), "an unknown function"},
		"set_the_fuel":               {base(hostile.I64Const(1<<62), hostile.GlobalSet(1)), "an unknown global"},
		"read_the_fuel":              {base(hostile.GlobalGet(1), hostile.Drop), "an unknown global"},
		"scratch_local":              {base(hostile.I64Const(1), hostile.LocalSet(1)), "an unknown local"},
		"branch_out_of_the_function": {base(hostile.Br(1)), "leaves its function"},
		"branch_table_out":           {base(hostile.I32Const(0), hostile.BrTable(0, 1)), "leaves its function"},
		"too_many_ends":              {base(hostile.End, hostile.Nop), "bytes left over"},
		"too_few_ends":               {base(hostile.Block()), "ends too early"},
		"else_without_if":            {base(hostile.Block(), hostile.Else, hostile.End), "else outside"},
		"type_of_the_meter":          {base(hostile.I32Const(0), hostile.CallIndirect(1)), "unknown type"},
		"reserved_export":            {with(func(m *hostile.Builder) { m.Memory(1); m.Export(meter.FuelExport, m.Func(nil, nil, nil)) }), "reserved name"},
		"import_in_the_table":        {with(func(m *hostile.Builder) { m.Memory(1); m.Table(1); m.Elem(m.Import("a", "b", nil, nil)) }), "not a function of the module"},
		"export_of_an_import":        {with(func(m *hostile.Builder) { m.Memory(1); m.Export("x", m.Import("a", "b", nil, nil)) }), "import is exported"},
		"element_of_the_meter":       {with(func(m *hostile.Builder) { m.Memory(1); m.Table(1); m.Func(nil, nil, nil); m.Elem(1) }), "not a function of the module"},
		"sections_out_of_order":      {append(base(hostile.Nop), 1, 1, 0), "out of order"},
		"unknown_section":            {append(base(hostile.Nop), 13, 1, 0), "unknown section"},
		"align_names_another_memory": {base(hostile.I32Const(0), []byte{0x28, 0x42, 0, 0}, hostile.Drop), "alignment"},
		"shared_memory":              {append([]byte("\x00asm\x01\x00\x00\x00"), 5, 4, 1, 3, 1, 1), "a flag is"},
		"memory64":                   {append([]byte("\x00asm\x01\x00\x00\x00"), 5, 3, 1, 4, 1), "a flag is"},
		"duplicate_export":           {with(func(m *hostile.Builder) { m.Memory(1); f := m.Func(nil, nil, nil); m.Export("f", f); m.Export("f", f) }), "two exports"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := meter.Rewrite(c.module, limits)
			var r *meter.Refusal
			if !errors.As(err, &r) || !strings.Contains(r.Why, c.why) {
				t.Errorf("got %v, want a refusal because %q", err, c.why)
			}
		})
	}
}
