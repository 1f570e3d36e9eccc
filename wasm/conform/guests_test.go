package conform_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/wasm"
	"gatehouse/wasm/conform"
)

// buildGo compiles a Go guest of this repository.
func buildGo(t testing.TB, pkg string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoGuest is WA-01 for the Go SDK's example, and WA-02 for a guest that
// allocates: the same verdicts and the same fuel, call after call.
func TestGoGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a guest")
	}
	guest(t, buildGo(t, "gatehouse/wasm/sdk/go/denylist"))
}

// TestExampleDLP runs the example that reads bodies, under raised limits.
func TestExampleDLP(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a guest")
	}
	m, err := testHost(t).LoadLimited(t.Context(), "dlp", buildGo(t, "gatehouse/wasm/sdk/go/dlp"), wasm.Limits{FuelDecide: 20e6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	pass(t, "dlp", module(t, m))
	e, err := m.Enforcer(t.Context(), wasm.Configure([]byte(`{}`), []byte(`{"max_body":100,"patterns":[{"name":"x","regexp":"y"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if mode, most := e.Body(); mode != "whole" || most != 100 || len(e.Kinds()) != 1 {
		t.Errorf("wants bodies %q up to %d, kinds %v", mode, most, e.Kinds())
	}
}

func guest(t *testing.T, code []byte) {
	t.Helper()
	m, err := testHost(t).Load(t.Context(), "denylist", code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	pass(t, "denylist", module(t, m))

	s, err := conform.Load("denylist")
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]enforcers.Verdict{}
	total, worst := uint64(0), uint64(0)
	for range 5 {
		results, err := conform.Run(t.Context(), s, module(t, m))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if v, seen := first[r.Vector.Name]; seen && v != r.Got {
				t.Errorf("WA-02 %s: %+v, then %+v", r.Vector.Name, v, r.Got)
			}
			first[r.Vector.Name] = r.Got
			worst = max(worst, r.Got.Fuel)
			total += r.Got.Fuel
		}
	}
	t.Logf("%d bytes, fuel %d on average, %d at most", len(code), total/uint64(5*len(s.Vectors)), worst)
}

// TestBuiltGuests is WA-01 for the Rust, C and AssemblyScript guests, which
// wasm/sdk/test builds into the folder that GATEHOUSE_GUESTS names.
func TestBuiltGuests(t *testing.T) {
	dir := os.Getenv("GATEHOUSE_GUESTS")
	if dir == "" {
		t.Skip("`make sdk-test` builds the guests of other toolchains")
	}
	for _, language := range []string{"rust", "c", "assemblyscript"} {
		t.Run(language, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(dir, language+".wasm"))
			if err != nil {
				t.Fatal(err)
			}
			guest(t, b)
		})
	}
}
