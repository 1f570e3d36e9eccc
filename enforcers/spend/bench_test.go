package spend_test

import (
	"fmt"
	"testing"

	"gatehouse/enforcers/spend"
)

// BenchmarkHoldSettle is one call at the bottom of a tree five deep.
func BenchmarkHoldSettle(b *testing.B) {
	l := spend.New(spend.Options{PerDay: 1 << 50})
	parent := ""
	for level := range 5 {
		id := fmt.Sprint("s", level)
		open(b, l, spend.Session{ID: id, Parent: parent, Bundle: "b", Limit: 1 << 50, PerDay: 1 << 50})
		parent = id
	}
	b.ReportAllocs()
	for b.Loop() {
		h, refused := l.Hold(parent, spend.Exactly(100))
		if refused != nil {
			b.Fatal(refused)
		}
		h.Settle(1)
	}
}
