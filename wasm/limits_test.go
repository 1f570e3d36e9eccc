package wasm_test

import (
	"testing"

	"gatehouse/internal/problem"
	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

func TestLimitsHaveCeilings(t *testing.T) {
	h := newHost(t)
	module := answering("one")
	for name, l := range map[string]wasm.Limits{
		"memory":         {Memory: 257},
		"input":          {Input: 1<<20 + 1},
		"negative_input": {Input: -1},
		"output":         {Output: 8<<10 + 1},
		"fuel_init":      {FuelInit: 100e6 + 1},
		"fuel_configure": {FuelConfigure: 500e6 + 1},
		"fuel_decide":    {FuelDecide: 20e6 + 1},
		"negative_fuel":  {FuelDecide: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := h.LoadLimited(t.Context(), "g", module, l); problem.CodeOf(err) != problem.ConfigInvalid {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLimitsApply(t *testing.T) {
	h := newHost(t)
	ask := func(t *testing.T, g *hostile.Guest, l wasm.Limits) (fuel uint64, code string) {
		t.Helper()
		m, err := h.LoadLimited(t.Context(), "g", g.Module(), l)
		if err != nil {
			return 0, faultCode(err)
		}
		defer m.Close(t.Context())
		e, err := m.Enforcer(t.Context(), empty)
		if err != nil {
			return 0, faultCode(err)
		}
		defer e.Close()
		v, err := e.Decide(t.Context(), []byte(`{}`))
		return v.Fuel, faultCode(err)
	}
	loop := hostile.Join(hostile.Loop(), hostile.Br(0), hostile.End)
	endless := func() *hostile.Guest { return &hostile.Guest{Decide: hostile.Join(loop, hostile.I64Const(0))} }
	if fuel, code := ask(t, endless(), wasm.Limits{FuelDecide: 1000}); fuel != 1000 || code != wasm.FuelExhausted {
		t.Errorf("decide: %d fuel, %s", fuel, code)
	}
	// The last run of a large body is paid for, but no head behind it checks.
	var last []byte
	for range 500 {
		last = append(last, hostile.Join(hostile.LocalGet(2), hostile.I32Const(1), hostile.I32Add, hostile.LocalSet(2))...)
	}
	tail := &hostile.Guest{Decide: hostile.Join(hostile.LocalGet(0), hostile.If(0x40), last, hostile.End, hostile.Packed(hostile.AnswerAt, int64(len(hostile.Deny))))}
	if fuel, code := ask(t, tail, wasm.Limits{FuelDecide: 500}); fuel != 500 || code != wasm.FuelExhausted {
		t.Errorf("unchecked last run: %d fuel, %q", fuel, code)
	}
	if _, code := ask(t, &hostile.Guest{Init: loop}, wasm.Limits{FuelInit: 1000}); code != wasm.FuelExhausted {
		t.Errorf("init: %s", code)
	}
	if _, code := ask(t, &hostile.Guest{Pages: 3}, wasm.Limits{Memory: 2}); code != wasm.LoadRejected {
		t.Errorf("memory: %s", code)
	}
	if _, code := ask(t, &hostile.Guest{}, wasm.Limits{Input: 10}); code != wasm.HostError {
		t.Errorf("input: %s", code)
	}
	if _, code := ask(t, &hostile.Guest{}, wasm.Limits{Output: 10}); code != wasm.BadOutput {
		t.Errorf("output: %s", code)
	}
	// Ten million loop heads, each asking for the deadline: seconds without it.
	if _, code := ask(t, endless(), wasm.Limits{FuelDecide: 20e6, Untrusted: true}); code != wasm.WallExceeded {
		t.Errorf("untrusted: %s", code)
	}
	if _, code := ask(t, &hostile.Guest{}, wasm.Limits{Untrusted: true}); code != "" {
		t.Errorf("a healthy untrusted module: %s", code)
	}
}

// TestRandomIsTheSame writes random bytes into the rule id: the same in every
// call (WA-04) and in every instance (WA-02), and not all equal.
func TestRandomIsTheSame(t *testing.T) {
	g := &hostile.Guest{Answer: `{"reason":"no","rule":"rrrrrrrr","verdict":"deny"}`}
	random := g.Import("wasi_snapshot_preview1", "random_get", []byte{hostile.I32, hostile.I32}, []byte{hostile.I32})
	g.Decide = hostile.Join(hostile.I32Const(600), hostile.I32Const(8), hostile.Call(random), hostile.Drop)
	for i := range int32(8) {
		at := int32(hostile.AnswerAt + len(`{"reason":"no","rule":"`))
		g.Decide = hostile.Join(g.Decide, hostile.I32Const(at+i), hostile.I32Const(600+i), hostile.Load(0x2d, 0), hostile.I32Const(15), byte(0x71), hostile.I32Const('a'), hostile.I32Add, hostile.Store(0x3a, 0))
	}
	g.Decide = hostile.Join(g.Decide, hostile.Packed(hostile.AnswerAt, int64(len(g.Answer))))
	module := g.Module()
	rules := map[string]int{}
	for range 2 {
		m, err := newHost(t).Load(t.Context(), "g", module)
		if err != nil {
			t.Fatal(err)
		}
		e, err := m.Enforcer(t.Context(), empty)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			v, err := e.Decide(t.Context(), []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			rules[v.Rule]++
		}
		e.Close()
	}
	if len(rules) != 1 || rules["rrrrrrrr"] != 0 || rules["aaaaaaaa"] != 0 {
		t.Errorf("WA-04 rules %v", rules)
	}
}
