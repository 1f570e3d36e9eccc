package bus_test

import (
	"testing"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
)

// BenchmarkPump carries receipts of many sessions from a journal that is
// already written to an embedded store.
func BenchmarkPump(b *testing.B) {
	for name, sessions := range map[string]int{"1_session": 1, "64_sessions": 64, "1000_sessions": 1000} {
		b.Run(name, func(b *testing.B) {
			j := openJournal(b, b.TempDir())
			var last journal.Ticket
			for i := range b.N {
				last = j.Append(receipt(i%sessions, i/sessions))
			}
			if _, err := last.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			bb := open(b, bus.Options{Dir: b.TempDir()})
			want := end(b, j)
			b.ResetTimer()
			pumping(b, bb, j)
			until(b, func() bool { return bb.Status().Stored >= want })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		})
	}
}
