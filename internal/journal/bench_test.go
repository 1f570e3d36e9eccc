package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/journal"
)

// payload is about the size of a receipt.
var payload = func() []byte {
	b := make([]byte, 860)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	return b
}()

// TestBench prints one JSON line a comparison when GATEHOUSE_BENCH=1: durable
// appends a second at several numbers of writers against one goroutine that
// writes and syncs the same bytes alone. Rounds alternate, medians are printed.
func TestBench(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	const rounds = 5
	for _, writers := range []int{1, 64, 1024} {
		var ours, base []float64
		for range rounds {
			ours = append(ours, appendRate(t, writers, time.Second))
			base = append(base, loneRate(t, time.Second))
		}
		line, err := json.Marshal(map[string]any{
			"name": fmt.Sprintf("journal.append/%d", writers), "unit": "1/s",
			"ours": median(ours), "base": median(base), "ratio": median(ours) / median(base),
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// appendRate measures durable appends a second of many callers.
func appendRate(t testing.TB, writers int, d time.Duration) float64 {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	var g sync.WaitGroup
	start := time.Now()
	for range writers {
		g.Go(func() {
			for time.Since(start) < d {
				if _, err := j.Append(journal.Record{Kind: journal.KindReceipt, Subject: "bench", Data: payload}).Wait(context.Background()); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	g.Wait()
	rate := float64(done.Load()) / time.Since(start).Seconds()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return rate
}

// loneRate measures the loop everybody would write: append, fdatasync, again.
func loneRate(t testing.TB, d time.Duration) float64 {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a benchmark
	n := 0
	start := time.Now()
	for time.Since(start) < d {
		if _, err := f.Write(payload); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds()
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			j, err := journal.Open(b.TempDir(), journal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close() //nolint:errcheck // a benchmark
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var g sync.WaitGroup
			for range writers {
				g.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := j.Append(journal.Record{Kind: journal.KindReceipt, Subject: "bench", Data: payload}).Wait(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			g.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	j, err := journal.Open(b.TempDir(), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // a benchmark
	const records = 20000
	var last journal.Ticket
	for range records {
		last = j.Append(journal.Record{Kind: journal.KindReceipt, Subject: "bench", Data: payload})
	}
	if _, err := last.Wait(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(records * len(payload)))
	for b.Loop() {
		for _, err := range j.Groups(0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
