package notary_test

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

	"gatehouse/enforcers"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestBench prints one JSON line a comparison when GATEHOUSE_BENCH=1: durable
// receipts a second at several numbers of sessions, each waiting for its own,
// against the obvious writer: encode, sign each, append, sync each. Rounds
// alternate, medians are printed.
func TestBench(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	const rounds = 5
	for _, sessions := range []int{1, 64, 1000} {
		var ours, base []float64
		for range rounds {
			ours = append(ours, receiptRate(t, sessions, time.Second))
			base = append(base, loneRate(t, time.Second))
		}
		line, err := json.Marshal(map[string]any{
			"name": fmt.Sprintf("notary.decision/%d", sessions), "unit": "1/s",
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

// decisions writes durable decisions from every session while more says so. It
// calls begin when the sessions are open and returns how many it wrote.
func decisions(t testing.TB, sessions int, begin func(), more func() bool) int64 {
	n := start(t, journal.OS(), t.TempDir(), newClock())
	type worker struct {
		rec enforcers.Recorder
		a   *enforcers.Action
		d   *enforcers.Decision
	}
	var ws []worker
	for s := range sessions {
		c := n.open(fmt.Sprintf("S%d", s))
		a, d := get(t, c, 1, "/acme/left-pad/-/left-pad-1.3.0.tgz")
		d.Effect, d.Passed = enforcers.Deny, false
		ws = append(ws, worker{c.Recorder(doorObs), a, d})
	}
	begin()
	var done atomic.Int64
	var g sync.WaitGroup
	for _, w := range ws {
		g.Go(func() {
			for more() {
				if _, err := w.rec.Decision(context.Background(), w.a, w.d, true); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	g.Wait()
	return done.Load()
}

func receiptRate(t testing.TB, sessions int, d time.Duration) float64 {
	var start time.Time
	n := decisions(t, sessions, func() { start = time.Now() }, func() bool { return time.Since(start) < d })
	return float64(n) / time.Since(start).Seconds()
}

// loneRate signs and syncs each receipt by itself.
func loneRate(t testing.TB, d time.Duration) float64 {
	n, _ := fresh(t)
	c := n.open("S1")
	decide(t, c, 1)
	n.event("behind")
	r := n.chainOf("S1")[1]
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a benchmark
	key := testSigner()
	count := 0
	start := time.Now()
	for time.Since(start) < d {
		r.Seq++
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		s, err := receipts.SealGroup(key, "k+00000000", origin, 0, receipts.Hash{}, []receipts.Hash{receipts.Leaf(b)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(append(b, s.Encode()...)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			t.Fatal(err)
		}
		count++
	}
	return float64(count) / time.Since(start).Seconds()
}

func BenchmarkDecision(b *testing.B) {
	for _, sessions := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			decisions(b, sessions, b.ResetTimer, func() bool { return left.Add(-1) >= 0 })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		})
	}
}

// BenchmarkSeal is the CPU that sealing adds to a group on the writer goroutine,
// a leaf.
func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			n, _ := fresh(b)
			group := make([]journal.Record, size)
			for i := range group {
				group[i] = journal.Record{Pos: uint64(i + 1), Kind: journal.KindEvent, Data: make([]byte, 800)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.Seal(group); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/leaf")
		})
	}
}

func BenchmarkStart(b *testing.B) {
	n, disk := fresh(b)
	c := n.open("S1")
	for i := range 20_000 {
		a, d := get(b, c, uint64(i), "/x")
		d.Effect, d.Passed = "deny", false
		if _, err := c.Recorder(doorObs).Decision(context.Background(), a, d, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := n.j.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := start(b, disk, "journal", newClock())
		if err := n.j.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
}

// BenchmarkRequest is what the receipts of one request cost: a decision and its
// outcome, from the action to the sealed group. Run it with -cpu 1, so that the
// writer's work counts, and with TMPDIR in memory, so that the disk does not.
func BenchmarkRequest(b *testing.B) {
	n := &node{t: b, clock: newClock()}
	n.Notary = notary.New(notary.Options{Node: "node-1", Keys: testKeys(), Budget: notary.Budget{Receipts: 1 << 40}})
	var err error
	n.j, err = journal.Open(b.TempDir(), journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), Linger: time.Millisecond})
	if err == nil {
		err = n.Start(context.Background(), n.j)
	}
	if err != nil {
		b.Fatal(err)
	}
	c := n.open("S1")
	rec := c.Recorder(doorObs)
	a, d := get(b, c, 1, "/acme/left-pad/-/left-pad-1.3.0.tgz")
	a.HTTP.Headers = map[string][]string{"accept": {"*/*"}, "user-agent": {"curl/8.5.0"}}
	o := enforcers.Outcome{Effect: enforcers.Forwarded, Address: "93.184.216.34", Status: 200, Up: 100, Down: 2000}
	b.ReportAllocs()
	for b.Loop() {
		leaf, err := rec.Decision(context.Background(), a, d, false)
		if err != nil {
			b.Fatal(err)
		}
		rec.Outcome(leaf, o)
	}
	if err := n.j.Close(); err != nil {
		b.Fatal(err)
	}
}
