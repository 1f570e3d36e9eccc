package receipts_test

import (
	"testing"

	"gatehouse/receipts"
)

// RC-33: an observation is one for many receipts, so what is redacted in one of
// them is a copy.
func TestRedactorLeavesObs(t *testing.T) {
	t.Run("RC-33_observation", func(t *testing.T) {
		r := sample(t)
		obs := *r.Obs
		obs.Point = canary
		r.Obs = &obs
		d := receipts.NewRedactor([]byte(canary))
		b, err := d.Append(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		if d.Found(b) || r.Obs.Point != receipts.Redacted || obs.Point != canary {
			t.Errorf("written %q, shared %q", r.Obs.Point, obs.Point)
		}
	})
}
