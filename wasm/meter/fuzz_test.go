package meter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"

	"gatehouse/wasm/meter"
)

// FuzzRewrite is WA-06: arbitrary bytes never panic the rewriter and never
// grow more than tenfold; what it accepts of a valid module stays valid.
func FuzzRewrite(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(generate(seed))
		f.Add(jumble(rand.New(rand.NewPCG(seed, 3))))
	}
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, module []byte) {
		if len(module) > 1<<16 {
			return
		}
		if b := meter.Custom(module, "x"); len(b) > len(module) {
			t.Errorf("a section of %d bytes in a module of %d", len(b), len(module))
		}
		// What it does is no matter here: TestStraightenDoesTheSame.
		_, _, _ = meter.Straighten(module)
		m, err := meter.Rewrite(module, limits)
		if err != nil {
			var r *meter.Refusal
			if !errors.As(err, &r) {
				t.Errorf("an error that is no refusal: %v", err)
			}
			return
		}
		if len(m.Wasm) > 10*len(module)+1024 {
			t.Errorf("WA-06 %d bytes became %d", len(module), len(m.Wasm))
		}
		ctx := context.Background()
		r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
		defer r.Close(ctx)
		if _, err := r.CompileModule(ctx, module); err != nil {
			return
		}
		if _, err := r.CompileModule(ctx, m.Wasm); err != nil {
			t.Errorf("a valid module became invalid: %v", err)
		}
	})
}

// TestBuiltinModule rewrites the largest module there is at hand.
func TestBuiltinModule(t *testing.T) {
	b, err := os.ReadFile("../policies/std.wasm")
	if err != nil {
		t.Fatal(err)
	}
	m := rewrite(t, b)
	if len(m.Imports) == 0 || m.Memory != "memory" || len(m.Funcs) == 0 {
		t.Errorf("%d imports, memory %q, %d functions", len(m.Imports), m.Memory, len(m.Funcs))
	}
	t.Logf("%d bytes became %d", len(b), len(m.Wasm))
}
