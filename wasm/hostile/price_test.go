package hostile_test

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"

	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

// expensive are loops of one kind of instruction each: what a hostile module
// would choose to get the most time out of its fuel.
func expensive() map[string]*hostile.Guest {
	repeat := func(n int, code ...any) []byte {
		var b []byte
		for range n {
			b = append(b, hostile.Join(code...)...)
		}
		return b
	}
	loop := func(body ...any) []byte {
		return hostile.Join(hostile.Loop(), hostile.Join(body...), hostile.Br(0), hostile.End, hostile.I64Const(0))
	}
	i32op := func(op byte) []byte {
		return repeat(16, hostile.LocalGet(2), hostile.I32Const(7), op, hostile.I32Const(12345), byte(0x72), hostile.LocalSet(2))
	}
	f64 := func(op byte, operands int) []byte {
		b := hostile.Join(hostile.LocalGet(2), byte(0xb7))
		if operands == 2 {
			b = hostile.Join(b, hostile.LocalGet(2), byte(0xb7))
		}
		return repeat(16, b, op, []byte{0xfc, 2}, hostile.LocalSet(2))
	}
	return map[string]*hostile.Guest{
		"empty_loop": {Decide: loop()},
		"add":        {Decide: loop(i32op(0x6a))},
		"divide":     {Decide: loop(i32op(0x6d))},
		"remainder":  {Decide: loop(i32op(0x70))},
		"float_sqrt": {Decide: loop(f64(0x9f, 1))},
		"float_div":  {Decide: loop(f64(0xa3, 2))},
		// A multiplicative walk through 15 MiB: each load waits for the last one.
		"dependent_loads": {Pages: 240, Decide: loop(repeat(8, hostile.LocalGet(2), hostile.I32Const(1664525), hostile.I32Mul, hostile.I32Const(1013904223), hostile.I32Add,
			hostile.LocalTee(2), hostile.I32Const(0xe00000-64), byte(0x71), hostile.Load(0x28, 0), hostile.LocalGet(2), hostile.I32Add, hostile.LocalSet(2)))},
		"scattered_stores": {Pages: 240, Decide: loop(repeat(8, hostile.LocalGet(2), hostile.I32Const(1664525), hostile.I32Mul, hostile.I32Const(1013904223), hostile.I32Add,
			hostile.LocalTee(2), hostile.I32Const(0xe00000-64), byte(0x71), hostile.LocalGet(2), hostile.Store(0x36, 0)))},
		"calls":          {Functions: func(m *hostile.Builder) { m.Func(nil, nil, nil) }, Decide: loop(repeat(8, hostile.Call(0)))},
		"fill_nothing":   {Decide: loop(hostile.I32Const(0), hostile.I32Const(0), hostile.I32Const(0), hostile.MemoryFill())},
		"fill_much":      {Pages: 240, Decide: loop(hostile.I32Const(0), hostile.I32Const(0), hostile.I32Const(1<<20), hostile.MemoryFill())},
		"copy_little":    {Decide: loop(hostile.I32Const(0), hostile.I32Const(64), hostile.I32Const(16), hostile.MemoryCopy())},
		"copy_much":      {Pages: 240, Decide: loop(hostile.I32Const(0), hostile.I32Const(8<<20), hostile.I32Const(1<<20), hostile.MemoryCopy())},
		"grow_nothing":   {Decide: loop(hostile.I32Const(0), hostile.MemoryGrow(), hostile.Drop)},
		"grow_refused":   {Decide: loop(hostile.I32Const(60_000), hostile.MemoryGrow(), hostile.Drop)},
		"indirect_calls": indirect(loop),
		"imports":        imports(loop),
	}
}

func indirect(loop func(...any) []byte) *hostile.Guest {
	g := &hostile.Guest{}
	t := g.Type(nil, nil)
	g.Functions = func(m *hostile.Builder) { m.Table(1); m.Elem(m.FuncOf(t, nil)) }
	g.Decide = loop(hostile.I32Const(0), hostile.CallIndirect(t))
	return g
}

func imports(loop func(...any) []byte) *hostile.Guest {
	g := &hostile.Guest{}
	f := g.Import("wasi_snapshot_preview1", "random_get", []byte{hostile.I32, hostile.I32}, []byte{hostile.I32})
	g.Decide = loop(hostile.I32Const(0), hostile.I32Const(256), hostile.Call(f), hostile.Drop)
	return g
}

// threadTime is the processor time of this thread: neighbours on the machine
// hardly show in it.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(1 /* RUSAGE_THREAD */, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// budget is the default fuel of a decision.
const budget = 2_000_000

// TestPriceOfTime runs each loop through a whole budget and logs the time per
// unit of fuel, putting the instance back included. The goal is 20 ms for a
// whole budget at worst; a shared machine gets ten times that.
func TestPriceOfTime(t *testing.T) {
	ctx := context.Background()
	h, err := wasm.NewHost(ctx, wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(ctx)
	act := action(t)
	for name, g := range expensive() {
		t.Run(name, func(t *testing.T) {
			m, err := h.Load(ctx, name, g.Module())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(ctx)
			e, err := m.Enforcer(ctx, wasm.Configure([]byte(`{}`), []byte(`{}`)))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			best := time.Hour
			for range 5 {
				start := threadTime(t)
				v, err := e.Decide(ctx, act)
				best = min(best, threadTime(t)-start)
				if code(err) != "fuel_exhausted" || v.Fuel != budget {
					t.Fatalf("%v after %d fuel", err, v.Fuel)
				}
			}
			t.Logf("%v, %.2f ns per unit", best, float64(best.Nanoseconds())/budget)
			if best > 200*time.Millisecond {
				t.Errorf("a whole budget took %v", best)
			}
		})
	}
}
