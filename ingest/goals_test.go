package ingest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestBenchDedupe prints how long a look-up among 10 million keys takes, beside
// the 20 us of IN-34.
func TestBenchDedupe(t *testing.T) {
	r := Measure(t, "", BenchmarkDedupe)
	Goal(t, "ingest.dedupe_10M_keys/goal", "us", float64(r.NsPerOp())/1e3/2, 20) // two look-ups an iteration
}

// Measure runs a benchmark when GATEHOUSE_BENCH=1; at is -benchtime, "" for the
// standard.
func Measure(t *testing.T, at string, f func(*testing.B)) testing.BenchmarkResult {
	t.Helper()
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	if at != "" {
		if err := flag.Set("test.benchtime", at); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set("test.benchtime", "1s") }()
	}
	return testing.Benchmark(f)
}

// Goal prints one JSON line: what was measured beside the goal. It judges
// nothing.
func Goal(t *testing.T, name, unit string, ours, goal float64) {
	t.Helper()
	line, err := json.Marshal(map[string]any{"name": name, "ours": ours, "base": goal, "ratio": ours / goal, "unit": unit})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}
