package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
)

const policy = `{"egress":[{"host":"api.good.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}]}`

func action(t testing.TB) []byte {
	t.Helper()
	a := enforcers.Action{ID: "s-1", Session: "s", Kind: enforcers.DNSQuery, At: time.Unix(1, 0), DNS: &enforcers.DNS{Name: "api.good.test", Type: "A"}}
	b, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func code(err error) string {
	var f *enforcers.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// attack loads, configures and asks a module twice, and returns where and how
// it ended.
func attack(ctx context.Context, h *wasm.Host, module, action []byte) (hostile.Stage, string, enforcers.Verdict) {
	m, err := h.Load(ctx, "hostile", module)
	if err != nil {
		return hostile.AtLoad, code(err), enforcers.Verdict{}
	}
	defer m.Close(ctx)
	e, err := m.Enforcer(ctx, wasm.Configure([]byte(`{}`), []byte(`{}`)))
	if err != nil {
		return hostile.AtSetUp, code(err), enforcers.Verdict{}
	}
	defer e.Close()
	v, err := e.Decide(ctx, action)
	again, err2 := e.Decide(ctx, action)
	if code(err) != code(err2) || v != again {
		return hostile.AtDecide, "two calls differ: " + code(err) + " " + code(err2), v
	}
	return hostile.AtDecide, code(err), v
}

// TestCorpus runs every attack beside a healthy session.
func TestCorpus(t *testing.T) {
	ctx := context.Background()
	h, err := wasm.NewHost(ctx, wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(ctx)
	builtin, err := h.Builtin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other, err := builtin.Enforcer(ctx, wasm.Configure([]byte(policy), wasm.BuiltinParams("egress")))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	act := action(t)

	for _, c := range hostile.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			watch := watchGC()
			memory := watchMemory(t)
			start := time.Now()
			stage, got, v := attack(ctx, h, c.Module, act)
			wall := time.Since(start)
			stall := watch()
			growth := memory()
			if stage != c.Stage || got != c.Fault {
				t.Errorf("ended at %s with %q, want %s with %q", stage, got, c.Stage, c.Fault)
			}
			if c.Fault == "" && (v.Effect != enforcers.Deny || v.Rule != "r" || v.Fuel == 0) {
				t.Errorf("verdict %+v", v)
			}
			// The goals are 1 s and 50 ms; a shared machine gets ten times that.
			if wall > 10*time.Second || stall > 500*time.Millisecond {
				t.Errorf("took %v, held up the garbage collector for %v", wall, stall)
			}
			if growth > 64<<20 {
				t.Errorf("memory grew by %d MiB", growth>>20)
			}
			t.Logf("%v, collector %v, %d KiB", wall, stall, growth>>10)
			if v, err := other.Decide(ctx, act); err != nil || v.Effect != enforcers.Allow {
				t.Errorf("another session was harmed: %+v, %v", v, err)
			}
		})
	}
}

// watchGC collects garbage in the background; the returned function ends it
// and returns the longest collection. A guest that native code cannot preempt
// would hold one up for as long as it runs.
func watchGC() func() time.Duration {
	stop, done := make(chan struct{}), make(chan struct{})
	var worst atomic.Int64
	go func() {
		defer close(done)
		for {
			start := time.Now()
			runtime.GC()
			worst.Store(max(worst.Load(), int64(time.Since(start))))
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		<-done
		return time.Duration(worst.Load())
	}
}

// watchMemory resets the peak of the process's memory; the returned function
// tells how far above the start it rose.
func watchMemory(t *testing.T) func() int64 {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skipf("no peak of memory to be had here: %v", err)
	}
	before := status(t, "VmRSS:")
	return func() int64 { return status(t, "VmHWM:") - before }
}

func status(t *testing.T, field string) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == field {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no %s", field)
	return 0
}
