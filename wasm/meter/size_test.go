package meter_test

import (
	"fmt"
	"testing"

	"gatehouse/wasm/hostile"
	"gatehouse/wasm/meter"
)

// TestTinyFunctions is WA-06: the modules that grow most, which are nothing but tiny
// functions, grow less than tenfold.
func TestTinyFunctions(t *testing.T) {
	t.Run("WA-06_tiny_functions", func(t *testing.T) {
		for _, globals := range []int{0, 900} { // the added ones have longer numbers behind many
			for name, code := range map[string][]byte{"empty": nil, "calls": hostile.Call(0)} {
				m := &hostile.Builder{}
				m.Memory(1)
				for range globals {
					m.Global(hostile.I32, hostile.I32Const(3))
				}
				f := m.Type(nil, nil)
				for range 40_000 {
					m.FuncOf(f, nil, code)
				}
				module := m.Bytes()
				metered, err := meter.Rewrite(module, meter.Limits{Pages: 4, Fuel: 1 << 40, Depth: 10_000})
				if err != nil {
					t.Fatal(err)
				}
				grown := fmt.Sprintf("%s, %d globals: %d bytes became %d, %.2f times", name, globals, len(module), len(metered.Wasm), float64(len(metered.Wasm))/float64(len(module)))
				if t.Log(grown); len(metered.Wasm) > 10*len(module)+1024 {
					t.Error(grown)
				}
			}
		}
	})
}
