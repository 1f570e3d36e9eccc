package receipts_test

import (
	"testing"

	"gatehouse/receipts"
)

func TestMayBe(t *testing.T) {
	all := oneOfEach()
	for typ, r := range all {
		t.Run(string(typ), func(t *testing.T) {
			b, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			for other := range all {
				if got := receipts.MayBe(b, other); got != (other == typ) {
					t.Errorf("may be %s: %t", other, got)
				}
			}
			if !receipts.MayBe(b, "no such type", typ) || receipts.MayBe(b) || receipts.MayBe(b[:len(b)/20], typ) {
				t.Error("types are not looked for as they are given")
			}
		})
	}
	t.Run("named in a fact", func(t *testing.T) {
		r := all[receipts.TypeSessionOpen]
		open := *r.Open
		open.Facts = map[string]string{"type": "decision"}
		r.Open = &open
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if !receipts.MayBe(b, receipts.TypeSessionOpen) || !receipts.MayBe(b, receipts.TypeDecision) {
			t.Error("a fact hides the type")
		}
	})
}
