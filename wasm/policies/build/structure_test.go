package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// guest compiles testdata/flow, names kept.
func guest(t testing.TB) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "flow.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-buildvcs=false", "-o", out, "./testdata/flow")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStructuredDoesTheSame runs a program that takes every kind of jump as the
// compiler wrote it and as it is written again: functions that are unwound and
// resumed in loops, whose stacks grow, which panic.
func TestStructuredDoesTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a guest")
	}
	before := guest(t)
	after, done, left, err := structured(before, "main.")
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range left {
		if !strings.HasSuffix(why, "no jumps)") && !strings.HasSuffix(why, "no table)") && !slices.Contains([]string{"main.try", "main.run", "main.indirect"}, strings.Fields(why)[0]) {
			t.Errorf("left alone: %s", why)
		}
	}
	if done < 12 {
		t.Errorf("%d functions written again", done)
	}
	ctx := t.Context()
	run := func(module []byte) func(seed uint64) uint64 {
		r := wazero.NewRuntime(ctx)
		t.Cleanup(func() { r.Close(ctx) })
		wasi_snapshot_preview1.MustInstantiate(ctx, r)
		m, err := r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
		if err != nil {
			t.Fatal(err)
		}
		return func(seed uint64) uint64 {
			out, err := m.ExportedFunction("run").Call(ctx, seed)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return out[0]
		}
	}
	old, now := run(before), run(after)
	for seed := range uint64(300) {
		if want, got := old(seed), now(seed); got != want {
			t.Fatalf("seed %d: %#x, want %#x", seed, got, want)
		}
	}
}

// TestShapesLeftAlone: what does not look like the compiler's work is not touched.
func TestShapesLeftAlone(t *testing.T) {
	for name, body := range map[string][]byte{
		"no_table":     {0, opI32Const, 0, opEnd},
		"no_loop":      {0, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opI32Const, 0, opEnd},
		"value":        {0, opLoop, 0x7f, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opUnreachable, opEnd, opUnreachable, opEnd},
		"other_local":  {0, opLoop, void, opBlock, void, opLocalGet, 1, opBrTable, 0, 0, opEnd, opUnreachable, opEnd, opUnreachable, opEnd},
		"second_table": {0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opLocalGet, 0, opBrTable, 0, 0, opEnd, opUnreachable, opEnd},
		"other_branch": {0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opBr, 0, opEnd, opUnreachable, opEnd},
		"number_read":  {0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opLocalGet, 0, 0x1a, opEnd, opUnreachable, opEnd},
		"number_set":   {0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opI32Const, 0, opLocalSet, 0, opReturn, opEnd, opUnreachable, opEnd},
		"other_end":    {0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opUnreachable, opEnd, opI32Const, 0, opEnd},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := structure(body, nil); !errors.Is(err, errShape) {
				t.Errorf("%x, %v", b, err)
			}
		})
	}
	good := []byte{0, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opI32Const, 0, opLocalSet, 0, opBr, 0, opEnd, opUnreachable, opEnd}
	if b, err := structure(good, nil); err != nil {
		t.Errorf("%x, %v", b, err)
	}
	for n := range good {
		if _, err := structure(good[:n], nil); err == nil {
			t.Errorf("%d bytes of a function were accepted", n)
		}
	}
}

// TestUnwindingAtTheEnd: the branch out of a function that is unwound does not fall
// into what stands behind its loop.
func TestUnwindingAtTheEnd(t *testing.T) {
	body := []byte{0, opBlock, void, opLoop, void, opBlock, void, opLocalGet, 0, opBrTable, 0, 0, opEnd, opBr, 1, opEnd, opUnreachable, opEnd, opI32Const, 1, opEnd}
	want := []byte{0, opBlock, void, opBlock, void, opBr, 0, opEnd, opBr, 0, opUnreachable, opEnd, opI32Const, 1, opEnd}
	if b, err := structure(body, nil); !bytes.Equal(b, want) {
		t.Errorf("%x, %v, want %x", b, err, want)
	}
}
