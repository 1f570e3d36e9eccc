package wasm

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// TestBuiltinKeepsNothing is WA-03, and the reason why WA-02 holds without
// putting the built-in module back: after any run of other actions, an action
// leaves every byte of memory and every global as it did the first time. A
// guest that allocated, counted or remembered could not.
func TestBuiltinKeepsNothing(t *testing.T) {
	t.Run("WA-03_nothing_kept", func(t *testing.T) {
		for _, name := range []string{"egress", "git", "spend"} {
			t.Run(name, func(t *testing.T) {
				policy, actions := vectors(t, name)
				e := builtinEnforcer(t, name, policy)
				in, err := e.pool.take(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer e.pool.put(in)
				ask := func(action []byte) {
					if _, err := in.decide(action); err != nil {
						t.Fatal(err)
					}
				}
				// Every vector once: the input buffer keeps the tail of longer messages.
				first := actions[0]
				all := func() {
					for _, action := range actions {
						ask(action)
					}
					ask(first)
				}
				all()
				before := memoryOf(in)
				globals := globalsOf(in)
				for range 1000 / len(actions) {
					all()
				}
				if after := memoryOf(in); !bytes.Equal(before, after) {
					n := 0
					for i := range min(len(before), len(after)) {
						if before[i] != after[i] {
							if n < 8 {
								t.Logf("byte %#x: %d, then %d", i, before[i], after[i])
							}
							n++
						}
					}
					t.Errorf("WA-03 %d bytes of memory changed, size %d to %d", n, len(before), len(after))
				}
				for i, v := range globalsOf(in) {
					if v != globals[i] {
						t.Errorf("WA-03 global %d: %d, then %d", i, globals[i], v)
					}
				}
			})
		}
	})
}

func compacted(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func memoryOf(in *instance) []byte {
	view, _ := in.mem.Read(0, in.mem.Size())
	return bytes.Clone(view)
}

func globalsOf(in *instance) []uint64 {
	var out []uint64
	for _, name := range in.module.globals {
		out = append(out, in.mod.ExportedGlobal(name).Get())
	}
	return out
}

// vectors returns the policy and the actions of a built-in enforcer's conformance
// vectors, as they are on the wire.
func vectors(t *testing.T, name string) (policy string, actions [][]byte) {
	t.Helper()
	b, err := os.ReadFile("conform/vectors/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Policies map[string]json.RawMessage
		Vectors  []struct{ Action json.RawMessage }
	}
	if err := json.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	for _, v := range set.Vectors {
		actions = append(actions, []byte(compacted(t, v.Action)))
	}
	return compacted(t, set.Policies["matrix"]), actions
}
