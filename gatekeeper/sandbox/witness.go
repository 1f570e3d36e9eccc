package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
)

// Nonces returns the targets of a Plan as a door sees them: v4-mapped addresses
// as IPv4.
func Nonces(targets []string) []string {
	var out []string
	for _, t := range targets {
		if ap, err := netip.ParseAddrPort(t); err == nil {
			out = append(out, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String())
		}
	}
	return out
}

// mapped is where NewPlan's v4-mapped target lies; it belongs to the IPv6 case.
var mapped = netip.MustParsePrefix("198.51.100.0/24")

// Witnessed checks the network cases against what the door met: an attempt that
// it did not meet went elsewhere, or nowhere. A nil Witness leaves them as they
// are. It changes cases in place and returns them.
func Witnessed(w Witness, targets []string, cases []Case) []Case {
	if w == nil {
		return cases
	}
	for i := range cases {
		c := &cases[i]
		if c.Proves != DoorOnly || c.Outcome != Passed || !slices.Contains([]string{"SB-09", "SB-10"}, c.ID) {
			continue
		}
		met := 0
		for _, t := range Nonces(targets) {
			ap := netip.MustParseAddrPort(t)
			if (ap.Addr().Is6() || mapped.Contains(ap.Addr())) != (c.ID == "SB-10") {
				continue
			}
			if !w.Saw(t) {
				c.Outcome, c.Evidence = Failed, "the door did not meet "+t
				break
			}
			met++
		}
		if c.Outcome == Passed {
			c.Evidence = fmt.Sprintf("the door met all %d", met)
		}
	}
	return cases
}
