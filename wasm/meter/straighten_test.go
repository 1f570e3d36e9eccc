package meter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"

	"gatehouse/wasm/hostile"
	"gatehouse/wasm/meter"
)

// jumble makes a module with one function in the form that Go's compiler gives
// every function, with jumps to all sides: into loops, out of them, across. Each
// place mixes its number into global 0; global 1 counts the places left to go.
func jumble(r *rand.Rand) []byte {
	m := &hostile.Builder{}
	m.Memory(1)
	m.Global(hostile.I32, hostile.I32Const(1))
	m.Global(hostile.I32, hostile.I32Const(60))
	const number = 0
	places := 1 + r.IntN(12)
	numbers := make([]uint32, places+r.IntN(4)) // several may stand for one place, as in Go
	for i := range numbers {
		numbers[i] = uint32(min(i, places-1))
	}
	r.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })

	code := hostile.Join(hostile.Block(), hostile.Loop())
	for range places {
		code = append(code, hostile.Block()...)
	}
	code = append(code, hostile.Join(hostile.LocalGet(number), hostile.BrTable(numbers...), hostile.End)...)
	for n := range places {
		loop := uint32(places - 1 - n)
		jump := func(depth uint32) []byte {
			// Past the table's end is legal, and is its last entry.
			return hostile.Join(hostile.I32Const(int32(r.IntN(len(numbers)+2))), hostile.LocalSet(number), hostile.Br(depth+loop))
		}
		bit := func() []byte {
			return hostile.Join(hostile.GlobalGet(0), hostile.I32Const(int32(r.IntN(32))), byte(0x76), hostile.I32Const(1), byte(0x71))
		}
		code = append(code, hostile.Join(
			hostile.GlobalGet(0), hostile.I32Const(31), byte(0x6c), hostile.I32Const(int32(n+1)), byte(0x6a), hostile.GlobalSet(0),
			hostile.GlobalGet(1), hostile.I32Const(1), byte(0x6b), hostile.GlobalSet(1),
			hostile.GlobalGet(1), byte(0x45), hostile.BrIf(loop+1))...)
		for range r.IntN(4) {
			switch r.IntN(5) {
			case 0: // a number that nothing looks up
				code = append(code, hostile.Join(hostile.I32Const(int32(r.IntN(len(numbers)))), hostile.LocalSet(number))...)
			case 1:
				code = append(code, hostile.Join(hostile.Block(), bit(), hostile.BrIf(0), bit(), hostile.If(0x40), jump(2), hostile.End, hostile.End)...)
			case 2:
				code = append(code, hostile.Join(bit(), hostile.If(0x40), hostile.Br(loop+2), hostile.End)...)
			default:
				code = append(code, hostile.Join(bit(), hostile.If(0x40), jump(1), hostile.End)...)
			}
		}
		switch r.IntN(5) {
		case 0:
			code = append(code, jump(0)...)
		case 1:
			if n > 0 {
				code = append(code, byte(0x0f)) // return
			}
		}
		code = append(code, hostile.End) // of the next place's block, of the loop after the last
	}
	code = append(code, hostile.Join( // differs by the way out
		hostile.GlobalGet(1), hostile.I32Const(100), byte(0x6a), hostile.GlobalSet(1), hostile.End,
		hostile.GlobalGet(1), hostile.I32Const(1000), byte(0x6a), hostile.GlobalSet(1))...)
	f := m.Func([]byte{hostile.I32, hostile.I64}, nil, nil, code)
	m.Export("f", f)
	m.ExportGlobal("mixed", 0)
	m.ExportGlobal("left", 1)
	return m.Bytes()
}

// TestStraightenDoesTheSame enters jumbles at every number, and finds them where
// the same jumble with straightened jumps is, metered and not.
func TestStraightenDoesTheSame(t *testing.T) {
	n := uint64(400)
	if testing.Short() {
		n = 60
	}
	seen := make(map[uint64]bool)
	for seed := range n {
		module := jumble(rand.New(rand.NewPCG(seed, 3)))
		straight, functions, err := meter.Straighten(module)
		if err != nil || functions != 1 || bytes.Equal(straight, module) {
			t.Fatalf("seed %d: %d functions straightened, %v", seed, functions, err)
		}
		metered, err := meter.Rewrite(straight, meter.Limits{Pages: 4, Fuel: 1 << 40, Depth: 10_000})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for number := range uint64(20) {
			want := ending(t, module, number)
			seen[want[0]] = true
			for _, got := range [][2]uint64{ending(t, straight, number), ending(t, metered.Wasm, number)} {
				if got != want {
					t.Fatalf("seed %d, entered at %d: %v, want %v", seed, number, got, want)
				}
			}
		}
	}
	if len(seen) < int(n) {
		t.Errorf("%d endings in %d jumbles", len(seen), n)
	}
}

// A lookup in a loop that lies in another one is reached from there with numbers
// that a straight jump did not set: such a function stays as it is.
func TestStraightenLeavesInnerLoops(t *testing.T) {
	for _, outer := range []bool{false, true} {
		open, end := []byte(nil), []byte(nil)
		if outer {
			open, end = hostile.Loop(), hostile.Join(hostile.End)
		}
		m := &hostile.Builder{}
		m.Memory(1)
		m.Export("f", m.Func([]byte{hostile.I32}, nil, nil, hostile.Join(open, hostile.Loop(), hostile.Block(), hostile.Block(),
			hostile.LocalGet(0), hostile.BrTable(0, 1), hostile.End,
			hostile.I32Const(1), hostile.LocalSet(0), hostile.Br(1), hostile.End,
			hostile.End, end)))
		out, n, err := meter.Straighten(m.Bytes())
		if err != nil || outer != (n == 0) || outer != bytes.Equal(out, m.Bytes()) {
			t.Errorf("in a loop %t: %d functions straightened, %v", outer, n, err)
		}
	}
}

// ending returns the globals of a jumble that was entered at a number.
func ending(t *testing.T, module []byte, number uint64) [2]uint64 {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	mod, err := r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mod.ExportedFunction("f").Call(ctx, number, 0); err != nil {
		t.Fatal(fmt.Errorf("call: %w", err))
	}
	return [2]uint64{mod.ExportedGlobal("mixed").Get(), mod.ExportedGlobal("left").Get()}
}
