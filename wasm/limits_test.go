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
