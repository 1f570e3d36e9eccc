package github

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"gatehouse/ingest"
	"gatehouse/ingest/sourcetest"
)

// BenchmarkNormalize verifies, scans, normalizes and encodes a pull request of
// about 25 KB: the CPU side of a delivery (reference section 5.7: 400 us, three
// times the body in allocations).
func BenchmarkNormalize(b *testing.B) {
	once, size := normalizing(b)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}

// normalizing returns what takes one delivery from its signature to the bytes
// of its event, and how long its body is.
func normalizing(t testing.TB) (once func(), size int64) {
	t.Helper()
	s := source(t)
	p := read(t, "pull_request__labeled_with-organization.json")
	h := header(signatureHeader, "sha256="+mac(testKey, p.Raw), "Content-Type", "application/json",
		deliveryHeader, "72d3162e-cc78-11e3-81ab-4c9367dc0958", kindHeader, p.Kind)
	ep := ingest.Endpoint{Name: "main", Source: s}
	return func() {
		d, err := s.Verify(h, p.Raw)
		if err != nil {
			t.Fatal(err)
		}
		e, err := ep.Build(d, p.Raw, sourcetest.Received)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Encode(); err != nil {
			t.Fatal(err)
		}
	}, int64(len(p.Raw))
}

// TestNormalizeMemory holds the second goal of BenchmarkNormalize: a delivery
// takes less than three times its body.
func TestNormalizeMemory(t *testing.T) {
	once, size := normalizing(t)
	once() // what is made once
	const times = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		once()
	}
	runtime.ReadMemStats(&after)
	if each := float64(after.TotalAlloc-before.TotalAlloc) / times; each >= 3*float64(size) {
		t.Errorf("%.0f bytes were allocated for a body of %d: %.2fx", each, size, each/float64(size))
	}
}

// cpu is what the process has used, the collector's share included: on a busy
// machine the clock on the wall says little.
func cpu(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// TestBenchNormalize prints the CPU time and the allocations of one delivery
// beside their goals.
func TestBenchNormalize(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	before := cpu(t)
	var n int
	r := testing.Benchmark(func(b *testing.B) {
		BenchmarkNormalize(b)
		n += b.N
	})
	micros := float64(cpu(t)-before) / 1e3 / float64(n)
	for _, x := range []struct {
		name, unit string
		ours, goal float64
	}{
		{"ingest.normalize_26KB_pull_request/goal", "us of CPU", micros, 400},
		{"ingest.normalize_26KB_pull_request.bytes_allocated_per_body/goal", "x", float64(r.AllocedBytesPerOp()) / float64(r.Bytes), 3},
	} {
		line, err := json.Marshal(map[string]any{"name": x.name, "ours": x.ours, "base": x.goal, "ratio": x.ours / x.goal, "unit": x.unit})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
}
