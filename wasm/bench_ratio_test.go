package wasm

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/wasm/policies"
)

// TestBenchDecide prints one JSON line: a decision of the built-in egress
// enforcer in wasm against the same source compiled natively, in turns.
func TestBenchDecide(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	const rounds, calls = 7, 20_000
	action := benchAction(t)
	native, err := policies.Native("egress", Configure([]byte(benchPolicy()), BuiltinParams("egress")))
	if err != nil {
		t.Fatal(err)
	}
	guest := builtinEnforcer(t, "egress", benchPolicy())
	micros := func(e enforcers.Enforcer) float64 {
		start := time.Now()
		for range calls {
			if v, err := e.Decide(t.Context(), action); err != nil || v.Rule != "egress[42]" {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		return float64(time.Since(start).Nanoseconds()) / 1e3 / calls
	}
	var ours, base []float64
	for range rounds {
		ours = append(ours, micros(guest))
		base = append(base, micros(native))
	}
	slices.Sort(ours)
	slices.Sort(base)
	line, err := json.Marshal(map[string]any{
		"name": "wasm.decide/50_rules", "unit": "us", "ours": ours[rounds/2], "base": base[rounds/2], "ratio": ours[rounds/2] / base[rounds/2],
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}
