package receipts_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// What Encode gave stays as it is, whatever is encoded later and wherever, and
// whatever is appended to it.
func TestEncodeKeeps(t *testing.T) {
	one := sample(t)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			type kept struct{ got, want []byte }
			var all []kept
			for i := range 300 {
				r := one
				r.Seq = uint64(i + 1)
				if i%50 == 7 {
					r.X = map[string]string{}
					for c := range 30 {
						r.X["acme."+string(rune('a'+c))] = strings.Repeat("x", 1000)
					}
				}
				want, err := r.Append(nil)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := r.Encode()
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 0 {
					_ = append(got, "something behind it"...)
				}
				bad := r
				bad.Log = "no origin of a log"
				if _, err := bad.Encode(); err == nil {
					t.Error("a bad receipt was encoded")
				}
				all = append(all, kept{got, want})
			}
			for i, k := range all {
				if !bytes.Equal(k.got, k.want) {
					t.Errorf("receipt %d is now %.80s", i, k.got)
				}
			}
		})
	}
	g.Wait()
}
