package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gowebpki/jcs"

	"gatehouse/receipts"
)

// sample is a decision of usual size.
func sample(t testing.TB) receipts.Receipt {
	w, _ := story(t)
	return w.fill(sessionC, decision("c-9", receipts.Dec{Verdict: receipts.Allow, Passed: true}))
}

func BenchmarkEncode(b *testing.B) {
	r := sample(b)
	raw, err := r.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		buf := make([]byte, 0, 2048)
		for b.Loop() {
			if _, err := r.Append(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The library takes JSON; a struct would have to be marshalled first.
	b.Run("jcs_library", func(b *testing.B) {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			j, err := json.Marshal(v)
			if err == nil {
				_, err = jcs.Transform(j)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	r := sample(b)
	raw, err := r.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := receipts.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// longSession is an export of one session of total receipts in groups of n.
func longSession(t testing.TB, total, n int) ([]byte, receipts.Options) {
	w := newWorld(t)
	w.admit(sessionA, digest("event"))
	for i := range total / 2 {
		ref := w.decide(sessionA, fmt.Sprintf("a-%d", i), receipts.Allow, true)
		if len(w.pending) >= n {
			w.flush()
		}
		w.outcome(sessionA, ref, "forwarded")
		if len(w.pending) >= n {
			w.flush()
		}
	}
	w.close(sessionA, "completed", 0)
	return w.export(cut{sessions: []string{sessionA}}), w.options()
}

// BenchmarkVerify reads an export of one long session in groups of different
// size; raw_ed25519 is what one signature check per receipt alone would cost.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("group_of_%d", n), func(b *testing.B) {
			file, o := longSession(b, 4096, n)
			count := 0
			b.ReportAllocs()
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				r := receipts.Verify(bytes.NewReader(file), o)
				if r.Exit != 0 {
					b.Fatal(r.Findings)
				}
				count += int(r.Integrity.Receipts)
			}
			b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "receipts/s")
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("raw_ed25519", func(b *testing.B) {
		check := rawCheck(b)
		for b.Loop() {
			check()
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		b.ReportMetric(0, "ns/op")
	})
}

// rawCheck returns one Ed25519 verification of a receipt's bytes.
func rawCheck(t testing.TB) func() {
	k := key("seal")
	msg := bytes.Repeat([]byte("x"), 791)
	sig := ed25519.Sign(k, msg)
	return func() {
		if !ed25519.Verify(public(k), msg, sig) {
			t.Fatal("signature")
		}
	}
}

// TestBench prints one JSON line a comparison when GATEHOUSE_BENCH=1. Rounds of
// ours and the base alternate; medians are printed.
func TestBench(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	r := sample(t)
	raw, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 2048)
	compare(t, "receipts.encode/jcs_library", func() float64 {
		return rate(time.Second/2, func() int {
			if _, err := r.Append(buf); err != nil {
				t.Fatal(err)
			}
			return 1
		})
	}, func() float64 {
		return rate(time.Second/2, func() int {
			j, err := json.Marshal(v)
			if err == nil {
				_, err = jcs.Transform(j)
			}
			if err != nil {
				t.Fatal(err)
			}
			return 1
		})
	})
	check := rawCheck(t)
	for _, n := range []int{1, 256} {
		file, o := longSession(t, 4096, n)
		compare(t, fmt.Sprintf("receipts.verify/group_of_%d/raw_ed25519", n), func() float64 {
			return rate(time.Second, func() int { return int(receipts.Verify(bytes.NewReader(file), o).Integrity.Matching) })
		}, func() float64 {
			return rate(time.Second/2, func() int { check(); return 1 })
		})
	}
}

func rate(d time.Duration, f func() int) float64 {
	start, n := time.Now(), 0
	for time.Since(start) < d {
		n += f()
	}
	return float64(n) / time.Since(start).Seconds()
}

func compare(t *testing.T, name string, ours, base func() float64) {
	t.Helper()
	var o, b []float64
	for range 5 {
		o, b = append(o, ours()), append(b, base())
	}
	slices.Sort(o)
	slices.Sort(b)
	line, err := json.Marshal(map[string]any{"name": name, "ours": o[2], "base": b[2], "ratio": o[2] / b[2], "unit": "1/s"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}
