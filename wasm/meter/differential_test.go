package meter_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"gatehouse/wasm/hostile"
	"gatehouse/wasm/meter"
)

// program generates modules that always end: loops count down, calls go to
// earlier functions only, addresses are masked into the one page.
type program struct {
	r     *rand.Rand
	m     *hostile.Builder
	funcs []uint32 // earlier functions, all (i32, i64) -> i32
	depth int      // of open blocks in the current function
}

const (
	pI32  = 0 // parameters and locals of every generated function
	pI64  = 1
	lI32  = 2
	lI64  = 3
	lLoop = 4
	page  = 0xffff
)

func generate(seed uint64) []byte {
	p := &program{r: rand.New(rand.NewPCG(seed, 1)), m: &hostile.Builder{}}
	m := p.m
	m.Memory(1)
	m.Table(4)
	sig := m.Type([]byte{hostile.I32, hostile.I64}, []byte{hostile.I32})
	m.Global(hostile.I32, hostile.I32Const(3))
	m.Global(hostile.I64, hostile.I64Const(-7))
	m.Data(16, []byte("differential"))
	n := 2 + p.r.IntN(4)
	for range n {
		p.depth = 0
		code := p.block(4)
		code = append(code, p.i32(3)...)
		f := m.FuncOf(sig, []byte{hostile.I32, hostile.I64, hostile.I32}, code)
		p.funcs = append(p.funcs, f)
	}
	// The table is filled last, so indirect calls are only made by the driver.
	m.Elem(p.funcs[:min(4, len(p.funcs))]...)
	driver := m.FuncOf(sig, nil,
		hostile.LocalGet(0), hostile.LocalGet(1), hostile.LocalGet(0), hostile.I32Const(1), byte(0x71), hostile.CallIndirect(sig),
		hostile.LocalGet(1), hostile.Call(p.funcs[len(p.funcs)-1]))
	m.Export("f", driver)
	return m.Bytes()
}

func (p *program) pick(options ...func() []byte) []byte { return options[p.r.IntN(len(options))]() }

func (p *program) block(n int) []byte {
	var b []byte
	for range 1 + p.r.IntN(max(n, 1)) {
		b = append(b, p.statement(n-1)...)
	}
	return b
}

func (p *program) statement(n int) []byte {
	if n <= 0 {
		return hostile.Join(p.i32(2), hostile.LocalSet(lI32))
	}
	nested := func(f func() []byte) []byte {
		p.depth++
		defer func() { p.depth-- }()
		return f()
	}
	return p.pick(
		func() []byte { return hostile.Join(p.i32(3), hostile.LocalSet(lI32)) },
		func() []byte { return hostile.Join(p.i64(3), hostile.LocalSet(lI64)) },
		func() []byte { return hostile.Join(p.i32(2), hostile.GlobalSet(0)) },
		func() []byte { return hostile.Join(p.i64(2), hostile.GlobalSet(1)) },
		func() []byte { return hostile.Join(p.address(), p.i32(2), hostile.Store(0x36, 8)) },
		func() []byte { return hostile.Join(p.address(), p.i64(2), hostile.Store(0x37, 0)) },
		func() []byte { return hostile.Join(p.address(), p.i32(1), p.length(), hostile.MemoryFill()) },
		func() []byte { return hostile.Join(p.address(), p.address(), p.length(), hostile.MemoryCopy()) },
		func() []byte { return hostile.Join(p.i32(2), hostile.MemoryGrow(), hostile.LocalSet(lI32)) },
		func() []byte {
			return nested(func() []byte {
				return hostile.Join(p.i32(2), hostile.If(0x40), p.block(n-1), hostile.Else, p.block(n-1), hostile.End)
			})
		},
		func() []byte {
			return nested(func() []byte {
				return hostile.Join(hostile.Block(), p.i32(2), hostile.BrIf(uint32(p.r.IntN(p.depth))), p.block(n-1), hostile.End)
			})
		},
		func() []byte {
			return nested(func() []byte {
				return hostile.Join(hostile.Block(), p.i32(2), hostile.I32Const(1), byte(0x71), hostile.BrTable(0, 0, uint32(p.r.IntN(p.depth))), hostile.End)
			})
		},
		func() []byte {
			if p.depth > 0 { // one loop counter per function: loops do not nest
				return nil
			}
			p.depth += 2
			defer func() { p.depth -= 2 }()
			return hostile.Join(hostile.I32Const(int32(p.r.IntN(9))), hostile.LocalSet(lLoop),
				hostile.Block(), hostile.Loop(), hostile.LocalGet(lLoop), hostile.I32Eqz, hostile.BrIf(1),
				hostile.LocalGet(lLoop), hostile.I32Const(1), hostile.I32Sub, hostile.LocalSet(lLoop),
				p.straight(), hostile.Br(0), hostile.End, hostile.End)
		},
		func() []byte {
			return nested(func() []byte {
				return hostile.Join(p.i32(1), hostile.If(0x40), p.i32(2), hostile.Return, hostile.End)
			})
		},
	)
}

// straight is a loop body without branches out of the loop.
func (p *program) straight() []byte {
	return hostile.Join(p.i32(3), hostile.LocalSet(lI32), p.address(), p.i64(2), hostile.Store(0x37, 0),
		p.i32(2), hostile.If(0x40), p.i64(2), hostile.GlobalSet(1), hostile.End)
}

func (p *program) address() []byte {
	return hostile.Join(p.i32(2), hostile.I32Const(page&^0xfff), byte(0x71))
}
func (p *program) length() []byte { return hostile.Join(p.i32(1), hostile.I32Const(0xff), byte(0x71)) }

func (p *program) i32(n int) []byte {
	if n <= 0 {
		return p.pick(
			func() []byte { return hostile.I32Const(int32(p.r.Uint32())) },
			func() []byte { return hostile.LocalGet(pI32) },
			func() []byte { return hostile.LocalGet(lI32) },
			func() []byte { return hostile.GlobalGet(0) },
		)
	}
	return p.pick(
		func() []byte { return p.i32(0) },
		func() []byte {
			ops := []byte{0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x46, 0x48, 0x4b}
			return hostile.Join(p.i32(n-1), p.i32(n-1), ops[p.r.IntN(len(ops))])
		},
		func() []byte { return hostile.Join(p.i64(n-1), byte(0xa7)) },
		func() []byte { return hostile.Join(p.i64(n-1), p.i64(n-1), byte(0x53)) },
		func() []byte { return hostile.Join(p.address(), hostile.Load(0x28, 4)) },
		func() []byte {
			return hostile.Join(p.i32(n-1), hostile.If(hostile.I32), p.i32(n-1), hostile.Else, p.i32(n-1), hostile.End)
		},
		func() []byte { return hostile.Join(p.i32(n-1), p.i32(n-1), p.i32(n-1), byte(0x1b)) },
		func() []byte { return hostile.Join(p.f64(n-1), []byte{0xfc, 2}) },
		func() []byte {
			if len(p.funcs) == 0 {
				return p.i32(0)
			}
			return hostile.Join(p.i32(n-1), p.i64(n-1), hostile.Call(p.funcs[p.r.IntN(len(p.funcs))]))
		},
	)
}

func (p *program) i64(n int) []byte {
	if n <= 0 {
		return p.pick(
			func() []byte { return hostile.I64Const(int64(p.r.Uint64())) },
			func() []byte { return hostile.LocalGet(pI64) },
			func() []byte { return hostile.LocalGet(lI64) },
			func() []byte { return hostile.GlobalGet(1) },
		)
	}
	return p.pick(
		func() []byte { return p.i64(0) },
		func() []byte {
			ops := []byte{0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88}
			return hostile.Join(p.i64(n-1), p.i64(n-1), ops[p.r.IntN(len(ops))])
		},
		func() []byte { return hostile.Join(p.i32(n-1), byte(0xac)) },
		func() []byte { return hostile.Join(p.address(), hostile.Load(0x29, 0)) },
	)
}

// f64 stays away from NaN payloads, which WebAssembly leaves open.
func (p *program) f64(n int) []byte {
	return hostile.Join(p.i32(n), byte(0xb7), p.i32(0), byte(0xb7), byte(0xa0))
}

// state is everything a module can show after a call.
type state struct {
	result  string
	memory  []byte
	globals [2]uint64
}

func observe(t *testing.T, config wazero.RuntimeConfig, module []byte, globals []string, x, y uint64) (state, int64) {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(4))
	defer r.Close(ctx)
	mod, err := r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	var s state
	out, err := mod.ExportedFunction("f").Call(ctx, x, y)
	if err != nil {
		s.result = "trap"
	} else {
		s.result = fmt.Sprint(out)
	}
	s.memory, _ = mod.Memory().Read(0, mod.Memory().Size())
	s.memory = bytes.Clone(s.memory)
	left := int64(0)
	if globals != nil {
		for i, g := range globals {
			s.globals[i] = mod.ExportedGlobal(g).Get()
		}
		left = int64(mod.ExportedGlobal(meter.FuelExport).(api.MutableGlobal).Get())
	}
	return s, left
}

// TestDifferential is WA-05: the metered form of a module computes what the
// original does, for the same fuel on both engines.
func TestDifferential(t *testing.T) {
	t.Run("WA-05_differential", func(t *testing.T) {
		n := uint64(400)
		if testing.Short() {
			n = 60
		}
		wide := meter.Limits{Pages: 4, Fuel: 1 << 40, Depth: 10_000}
		traps, results := 0, 0
		for seed := range n {
			module := generate(seed)
			metered, err := meter.Rewrite(module, wide)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			x, y := seed*2654435761%97, seed*40503
			want, _ := observe(t, wazero.NewRuntimeConfigInterpreter(), module, nil, x, y)
			got, left := observe(t, wazero.NewRuntimeConfig(), metered.Wasm, metered.Globals, x, y)
			again, leftAgain := observe(t, wazero.NewRuntimeConfigInterpreter(), metered.Wasm, metered.Globals, x, y)
			if got.result != want.result || !bytes.Equal(got.memory, want.memory) {
				t.Errorf("WA-05 seed %d: metered %s, original %s, memory equal %v", seed, got.result, want.result, bytes.Equal(got.memory, want.memory))
			}
			if got.globals != again.globals || got.result != again.result || left != leftAgain {
				t.Errorf("WA-05 seed %d: engines differ: %v %v, fuel %d %d", seed, got.globals, again.globals, left, leftAgain)
			}
			if left >= wide.Fuel {
				t.Errorf("WA-05 seed %d: nothing was paid", seed)
			}
			if want.result == "trap" {
				traps++
			} else {
				results++
			}
		}
		if results < int(n)/4 || traps == 0 {
			t.Errorf("the generator is one-sided: %d results, %d traps", results, traps)
		}
	})
}

// TestBudgetEndsAtTheSamePlace cuts generated programs off at every budget
// below their need: the cut must be a trap with a negative counter.
func TestBudgetEndsAtTheSamePlace(t *testing.T) {
	for seed := range uint64(20) {
		module := generate(seed)
		wide := meter.Limits{Pages: 4, Fuel: 1 << 40, Depth: 10_000}
		metered, err := meter.Rewrite(module, wide)
		if err != nil {
			t.Fatal(err)
		}
		full, left := observe(t, wazero.NewRuntimeConfig(), metered.Wasm, metered.Globals, 3, 5)
		need := wide.Fuel - left
		if full.result == "trap" {
			continue
		}
		for _, budget := range []int64{need, need - 1, need / 2, 0} {
			metered, err := meter.Rewrite(module, meter.Limits{Pages: 4, Fuel: budget, Depth: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			got, left := observe(t, wazero.NewRuntimeConfig(), metered.Wasm, metered.Globals, 3, 5)
			if enough := budget >= need; enough != (got.result != "trap") || enough != (left >= 0) {
				t.Errorf("seed %d: budget %d of %d: %s, left %d", seed, budget, need, got.result, left)
			}
		}
	}
}
