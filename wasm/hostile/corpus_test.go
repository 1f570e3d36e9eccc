package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
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
// it ended, and the longest that a guest ran in one go: native code cannot be
// preempted, so that is how long it can hold up the garbage collector.
func attack(t *testing.T, h *wasm.Host, module, action []byte) (stage hostile.Stage, fault string, v enforcers.Verdict, longest time.Duration) {
	t.Helper()
	ctx := context.Background()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	timed := func(f func()) {
		start := threadTime(t)
		f()
		longest = max(longest, threadTime(t)-start)
	}
	m, err := h.Load(ctx, "hostile", module)
	if err != nil {
		return hostile.AtLoad, code(err), v, 0
	}
	defer m.Close(ctx)
	var e *wasm.Enforcer
	timed(func() { e, err = m.Enforcer(ctx, wasm.Configure([]byte(`{}`), []byte(`{}`))) })
	if err != nil {
		return hostile.AtSetUp, code(err), v, longest
	}
	defer e.Close()
	var again enforcers.Verdict
	var err2 error
	timed(func() { v, err = e.Decide(ctx, action) })
	timed(func() { again, err2 = e.Decide(ctx, action) })
	if code(err) != code(err2) || v != again {
		return hostile.AtDecide, "two calls differ: " + code(err) + " " + code(err2), v, longest
	}
	return hostile.AtDecide, code(err), v, longest
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
			stop := collect()
			memory := watchMemory(t)
			start := time.Now()
			stage, got, v, longest := attack(t, h, c.Module, act)
			wall := time.Since(start)
			stop()
			growth := memory()
			if stage != c.Stage || got != c.Fault {
				t.Errorf("ended at %s with %q, want %s with %q", stage, got, c.Stage, c.Fault)
			}
			if c.Fault == "" && (v.Effect != enforcers.Deny || v.Rule != "r" || v.Fuel == 0) {
				t.Errorf("verdict %+v", v)
			}
			// The goals are 1 s and 50 ms; a shared machine gets ten times that.
			if wall > 10*time.Second || longest > 500*time.Millisecond {
				t.Errorf("took %v, a guest ran for %v in one go", wall, longest)
			}
			if growth > 64<<20 {
				t.Errorf("memory grew by %d MiB", growth>>20)
			}
			t.Logf("%v, longest run %v, %d KiB", wall, longest, growth>>10)
			if v, err := other.Decide(ctx, act); err != nil || v.Effect != enforcers.Allow {
				t.Errorf("another session was harmed: %+v, %v", v, err)
			}
		})
	}
}

// collect collects garbage until the returned function is called, which waits
// for the collection under way: a guest that never gave its thread back would
// hang it.
func collect() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			runtime.GC()
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	return func() {
		close(quit)
		<-done
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
