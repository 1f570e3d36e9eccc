package enforcers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"gatehouse/internal/authority"
)

// TestCovering: the index finds exactly what asking every grant finds, in the
// policy's order.
func TestCovering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]string{"a.b", "c.a.b", "d.c.a.b", "xn--a.a.b", "b.a", "192.0.2.1", "2.1", "2001:db8::1"})
		port := rapid.SampledFrom([]uint16{80, 443})
		var grants []Grant
		for range rapid.IntRange(0, 30).Draw(t, "grants") {
			p, err := authority.ParsePattern(rapid.SampledFrom([]string{"", "*.", "**."}).Draw(t, "stars") + host.Draw(t, "pattern"))
			if err != nil {
				p = authority.Pattern{} // matches nothing, as the grants of git
			}
			grants = append(grants, Grant{Rule: string(rune('A' + len(grants))), Hosts: p, Ports: []uint16{port.Draw(t, "port of rule")}})
		}
		to, err := authority.New(authority.HTTPS, host.Draw(t, "host"), port.Draw(t, "port"))
		if err != nil {
			t.Skip(err)
		}
		var want, got []string
		for _, g := range grants {
			if g.Covers(to) {
				want = append(want, g.Rule)
			}
		}
		for g := range NewGate(GateOptions{Policy: Policy{Grants: grants}}).Covering(to) {
			got = append(got, g.Rule)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", to, diff)
		}
	})
}
