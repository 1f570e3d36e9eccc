package bench

import (
	"sync"
	"sync/atomic"
	"testing"

	"gatehouse/receipts"
)

// BenchmarkDoor does one task of TestBenchDoor on one way at a time, so that a
// profile shows nothing else: go test -bench Door/mitm_shadow -cpuprofile f.
// What it reports beside the time is the CPU of the whole process, client and
// outside included, which other programs on the machine disturb less.
func BenchmarkDoor(b *testing.B) {
	o := newOutsideWorld(b)
	shadow, hard := o.door(b, receipts.Shadow, nil), o.door(b, receipts.Hard, nil)
	goproxy, goproxyBlind := o.goproxy(b)
	direct := o.direct()
	for name, w := range map[string]way{
		"mitm_shadow": shadow.at(plainHost), "mitm_hard": hard, "mitm_goproxy": goproxy, "direct": direct,
		"mitm_unrecorded": o.door(b, receipts.Shadow, nil, unrecorded).at(plainHost), "mitm_bare": o.door(b, receipts.Shadow, nil, bare).at(plainHost),
		"mitm_10000_rules": o.door(b, receipts.Shadow, fillers(10_000)).at(plainHost),
	} {
		b.Run(name, func(b *testing.B) { o.keepAliveN(b, w, "/", 64) })
		b.Run(name+"_1", func(b *testing.B) { o.keepAliveN(b, w, "/", 1) })
	}
	for name, w := range map[string]way{"blind": shadow.to(passHost), "blind_goproxy": goproxyBlind, "blind_direct": direct} {
		b.Run(name, func(b *testing.B) { o.keepAliveN(b, w, "/64k", 16) })
	}
}

// BenchmarkModelStream does one round of one side of TestBenchModelStream at a
// time, and reports what it took with what the direct way takes in it.
func BenchmarkModelStream(b *testing.B) {
	w := newSSEWorld(b)
	for _, s := range []sseSide{w.direct(), w.ours(b, 50), w.reverse(b)} {
		b.Run(s.name, func(b *testing.B) {
			for range b.N {
				r := w.run(b, s, 50)
				b.ReportMetric(r.p50, "p50-us")
				b.ReportMetric(r.p99, "p99-us")
				b.ReportMetric(r.cpu, "cpu-us/event")
				b.ReportMetric(r.first, "first-ms")
				b.ReportMetric(r.rss, "KiB/stream")
			}
		})
	}
}

func (o *outsideWorld) keepAliveN(b *testing.B, w way, path string, callers int) {
	b.ReportAllocs()
	l, err := o.open(w, path, callers)
	if err != nil {
		b.Fatal(err)
	}
	defer l.close()
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := l.ask(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
