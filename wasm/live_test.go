package wasm_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

// answering returns a guest that always denies with the given reason; its
// bytes, and so its digest, differ by reason.
func answering(reason string) []byte {
	return (&hostile.Guest{Answer: `{"reason":"` + reason + `","rule":"r","verdict":"deny"}`}).Module()
}

func newHost(t testing.TB) *wasm.Host {
	t.Helper()
	h, err := wasm.NewHost(context.Background(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// shared is one host for the tests that need the built-in module.
var shared = sync.OnceValues(func() (*wasm.Host, error) {
	return wasm.NewHost(context.Background(), wasm.Options{CacheDir: os.Getenv(wasm.CacheVariable)})
})

func sharedHost(t testing.TB) *wasm.Host {
	t.Helper()
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var empty = wasm.Configure([]byte(`{}`), []byte(`{}`))

func faultCode(err error) string {
	var f *enforcers.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func TestLiveKeepsTheOldModule(t *testing.T) {
	refuse := errors.New("vector 3 failed")
	failing := false
	test := func(context.Context, []byte, *wasm.Module) error {
		if failing {
			return refuse
		}
		return nil
	}
	l := wasm.NewLive(newHost(t), "dlp", empty, wasm.Limits{}, test)
	defer l.Close(t.Context())
	if _, err := l.Decide(t.Context(), []byte(`{}`)); faultCode(err) != wasm.HostError {
		t.Errorf("before the first module: %v", err)
	}
	first, err := l.Activate(t.Context(), answering("one"))
	if err != nil || first.Old != [32]byte{} || first.New != l.Digest() {
		t.Fatalf("%+v, %v", first, err)
	}
	expect := func(reason string) {
		t.Helper()
		v, err := l.Decide(t.Context(), []byte(`{}`))
		if err != nil || v.Reason != reason || v.Module != receipts.Hash(l.Digest()) {
			t.Errorf("%+v, %v; want reason %s", v, err, reason)
		}
	}
	expect("one")
	for name, bad := range map[string][]byte{"not_wasm": []byte("x"), "refuses_policy": (&hostile.Guest{Configure: hostile.I32Const(1)}).Module()} {
		if _, err := l.Activate(t.Context(), bad); faultCode(err) == "" {
			t.Errorf("WA-07 %s: %v", name, err)
		}
		expect("one")
	}
	failing = true
	if _, err := l.Activate(t.Context(), answering("two")); !errors.Is(err, refuse) || faultCode(err) != wasm.LoadRejected {
		t.Errorf("WA-07 failing self-test: %v", err)
	}
	expect("one")
	failing = false
	second, err := l.Activate(t.Context(), answering("two"))
	if err != nil || second.Old != first.New {
		t.Fatalf("%+v, %v", second, err)
	}
	expect("two")
	l.Close(t.Context())
	if _, err := l.Decide(t.Context(), []byte(`{}`)); faultCode(err) != wasm.HostError {
		t.Errorf("after close: %v", err)
	}
}

// TestReloadUnderTraffic is WA-07: replacements under constant calls lose no
// call and leak nothing. 10,000 in a soak, a twentieth otherwise.
func TestReloadUnderTraffic(t *testing.T) {
	t.Run("WA-07_reload_under_traffic", func(t *testing.T) {
		reloads := 500
		if os.Getenv("GATEHOUSE_SOAK") != "" {
			reloads = 10_000
		}
		if testing.Short() {
			reloads = 50
		}
		l := wasm.NewLive(newHost(t), "dlp", empty, wasm.Limits{}, nil)
		defer l.Close(context.Background())
		modules := [][]byte{answering("one"), answering("two")}
		if _, err := l.Activate(t.Context(), modules[0]); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var calls atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					v, err := l.Decide(context.Background(), []byte(`{}`))
					if err != nil || v.Effect != enforcers.Deny || v.Module.IsZero() {
						t.Errorf("WA-07 call %d: %+v, %v", calls.Load(), v, err)
						return
					}
					calls.Add(1)
				}
			})
		}
		warm := reloads / 5
		var before usage
		for i := range reloads {
			if i == warm {
				before = measure(t)
			}
			if _, err := l.Activate(t.Context(), modules[(i+1)%2]); err != nil {
				t.Fatal(err)
			}
		}
		after := measure(t)
		stop()
		wg.Wait()
		t.Logf("%d reloads, %d calls; %+v, then %+v", reloads, calls.Load(), before, after)
		if after.goroutines > before.goroutines || after.files > before.files+2 {
			t.Errorf("WA-07 goroutines %d to %d, files %d to %d", before.goroutines, after.goroutines, before.files, after.files)
		}
		if after.mappings > before.mappings+50 {
			t.Errorf("WA-07 mappings %d to %d", before.mappings, after.mappings)
		}
		if grown := after.rss - before.rss; grown > 32<<20 {
			t.Errorf("WA-07 resident memory grew by %d MiB", grown>>20)
		}
	})
}

type usage struct {
	goroutines, files, mappings int
	rss                         int64
}

func measure(t *testing.T) usage {
	t.Helper()
	for range 3 { // compiled code goes with finalizers
		runtime.GC()
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages int64
	for _, c := range strings.Fields(string(statm))[1] {
		pages = pages*10 + int64(c-'0')
	}
	return usage{runtime.NumGoroutine(), len(files), strings.Count(string(maps), "\n"), pages * int64(os.Getpagesize())}
}

// TestConcurrentDecisions shares one enforcer between more callers than it has
// instances.
func TestConcurrentDecisions(t *testing.T) {
	h := newHost(t)
	m, err := h.Load(t.Context(), "g", answering("one"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.Enforcer(t.Context(), empty)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				if v, err := e.Decide(context.Background(), []byte(`{}`)); err != nil || v.Reason != "one" {
					t.Errorf("%+v, %v", v, err)
					return
				}
			}
		})
	}
	wg.Wait()
	// Closing the module waits for nobody and leaves the enforcer shut.
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.Decide(t.Context(), []byte(`{}`)); faultCode(err) != wasm.HostError {
		t.Errorf("after the module was closed: %v", err)
	}
	e.Close()
}
