package conform_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/wasm"
	"gatehouse/wasm/conform"
	"gatehouse/wasm/hostile"
	"gatehouse/wasm/policies"
)

// shared is one host for the package: compiling std.wasm takes seconds.
var shared = sync.OnceValues(func() (*wasm.Host, error) { return wasm.NewHost(context.Background(), wasm.Options{}) })

func testHost(t testing.TB) *wasm.Host {
	t.Helper()
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// native makes the native twin of a built-in.
func native(name string) conform.Maker {
	return func(_ context.Context, policy, params []byte) (enforcers.Enforcer, error) {
		return policies.Native(name, wasm.Configure(policy, params))
	}
}

// module makes enforcers from a module until the test ends.
func module(t testing.TB, m *wasm.Module) conform.Maker {
	make, done := conform.Of(m)
	t.Cleanup(done)
	return make
}

func pass(t *testing.T, set string, make conform.Maker) {
	t.Helper()
	s, err := conform.Load(set)
	if err != nil {
		t.Fatal(err)
	}
	results, err := conform.Run(t.Context(), s, make)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Errorf("WA-01 %s: %v", r.Vector.Name, r.Err)
		}
	}
	if len(results) != len(s.Vectors) || len(results) == 0 {
		t.Errorf("%d results for %d vectors", len(results), len(s.Vectors))
	}
}

// TestBuiltins is WA-01 for the built-in enforcers, native and in WebAssembly.
func TestBuiltins(t *testing.T) {
	t.Run("WA-01_golden_vectors", func(t *testing.T) {
		m, err := testHost(t).Builtin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range policies.Names() {
			t.Run(name+"/native", func(t *testing.T) { pass(t, name, native(name)) })
			t.Run(name+"/wasm", func(t *testing.T) { pass(t, name, module(t, m)) })
		}
	})
}

func TestRunTellsFailures(t *testing.T) {
	s, err := conform.Load("egress")
	if err != nil {
		t.Fatal(err)
	}
	s.Vectors = s.Vectors[:1]
	s.Vectors[0].Rule = "egress[9]"
	results, err := conform.Run(t.Context(), s, native("egress"))
	if err != nil || len(results) != 1 || results[0].Err == nil {
		t.Errorf("a wrong rule passed: %+v, %v", results, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"unknown_key":    `{"name":"x","surprise":1}`,
		"no_name":        `{"policies":{"p":{}},"vectors":[{"policy":"p","action":{},"verdict":"deny"}]}`,
		"no_policy":      `{"policies":{"p":{}},"vectors":[{"name":"a","policy":"q","action":{},"verdict":"deny"}]}`,
		"nothing_wanted": `{"policies":{"p":{}},"vectors":[{"name":"a","policy":"p","action":{}}]}`,
		"not_json":       `[`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := conform.Parse([]byte(b)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// rounds is how often the determinism test asks each vector: the full count in
// a soak, a twentieth otherwise.
func rounds() int {
	if os.Getenv("GATEHOUSE_SOAK") != "" {
		return 1000
	}
	return 50
}

// TestDeterminism is WA-02: the same bytes and the same fuel for a vector on an
// instance that has judged everything else in between, and on a fresh one.
func TestDeterminism(t *testing.T) {
	t.Run("WA-02_determinism", func(t *testing.T) {
		m, err := testHost(t).Builtin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range policies.Names() {
			t.Run(name, func(t *testing.T) {
				s, err := conform.Load(name)
				if err != nil {
					t.Fatal(err)
				}
				ask := func() []conform.Result {
					results, err := conform.Run(t.Context(), s, module(t, m))
					if err != nil {
						t.Fatal(err)
					}
					return results
				}
				worn := ask() // configures; the same policy afterwards finds the same instance
				for range rounds() {
					for i, r := range ask() {
						if r.Got != worn[i].Got || r.Fault != worn[i].Fault {
							t.Fatalf("WA-02 %s: %+v, then %+v", r.Vector.Name, worn[i].Got, r.Got)
						}
					}
				}
				// Another digest is another instance under the same rules.
				renamed := bytes.Replace(s.Policies["matrix"], []byte(`"digest": "00"`), []byte(`"digest": "01"`), 1)
				if bytes.Equal(renamed, s.Policies["matrix"]) {
					t.Fatal("the policy has no digest to change")
				}
				s.Policies["matrix"] = renamed
				for i, r := range ask() {
					if r.Got != worn[i].Got {
						t.Errorf("WA-02 %s on a fresh instance: %+v, then %+v", r.Vector.Name, worn[i].Got, r.Got)
					}
				}
			})
		}
	})
}

// TestSelfTest activates modules that carry vectors: WA-07's last check.
func TestSelfTest(t *testing.T) {
	deny := (&hostile.Guest{}).Module()
	carrying := func(verdict string) []byte {
		vectors := `{"name":"own","params":{},"policies":{"p":{}},"vectors":[{"name":"one","policy":"p","action":{},"verdict":"` + verdict + `","rule":"r","reason":"no"}]}`
		payload := hostile.Join(hostile.U32(uint32(len(conform.Section))), []byte(conform.Section), []byte(vectors))
		return hostile.Join(deny, byte(0), hostile.U32(uint32(len(payload))), payload)
	}
	l := wasm.NewLive(testHost(t), "own", wasm.Configure([]byte(`{}`), []byte(`{}`)), wasm.Limits{}, conform.SelfTest)
	defer l.Close(t.Context())
	if _, err := l.Activate(t.Context(), carrying("abstain")); err == nil || !strings.Contains(err.Error(), `vector "one"`) {
		t.Errorf("WA-07 a module that fails its own vectors was activated: %v", err)
	}
	if _, err := l.Activate(t.Context(), carrying("nonsense")[:len(deny)+10]); err == nil {
		t.Error("WA-07 a module with a torn section was activated")
	}
	if _, err := l.Activate(t.Context(), carrying("deny")); err != nil {
		t.Errorf("WA-07 a module that passes its own vectors: %v", err)
	}
	if _, err := l.Activate(t.Context(), deny); err != nil {
		t.Errorf("WA-07 a module without vectors: %v", err)
	}
}
