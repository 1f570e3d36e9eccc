package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"testing"

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

// BenchmarkVerify reads an export of one long session in groups of different
// size; raw_ed25519 is what one signature check per receipt alone would cost.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("group_of_%d", n), func(b *testing.B) {
			const total = 4096
			w := newWorld(b)
			w.admit(sessionA, digest("event"))
			for i := range total / 2 {
				ref := w.decide(sessionA, fmt.Sprintf("a-%d", i), receipts.Allow, true)
				w.outcome(sessionA, ref, "forwarded")
				if len(w.pending) >= n {
					w.flush()
				}
			}
			w.close(sessionA, "completed", 0)
			file := w.export(cut{sessions: []string{sessionA}})
			o := w.options()
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
		k := key("seal")
		msg := bytes.Repeat([]byte("x"), 791)
		sig := ed25519.Sign(k, msg)
		for b.Loop() {
			if !ed25519.Verify(public(k), msg, sig) {
				b.Fatal("signature")
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		b.ReportMetric(0, "ns/op")
	})
}
