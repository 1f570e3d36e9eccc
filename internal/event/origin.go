package event

import "slices"

// Origin says who chose the bytes of a value. The order is the integrity
// order: a join takes the lowest.
type Origin string

// Origins, highest integrity first: DESIGN.md section 5.
const (
	Platform    Origin = "platform"    // the vendor: ids, enums, counters, times
	Operator    Origin = "operator"    // this node's own configuration
	Member      Origin = "member"      // an identity with proven write access
	Reviewed    Origin = "reviewed"    // reachable from the default branch
	Contributor Origin = "contributor" // identified, but without proven access
	Outsider    Origin = "outsider"    // anyone else, unknown, deleted
	Derived     Origin = "derived"     // built by a vendor or model out of lower values
	Credential  Origin = "credential"  // a secret in the body; never passed on
)

var integrity = []Origin{Platform, Operator, Member, Reviewed, Contributor, Outsider, Derived, Credential}

// rank is 0 for the highest integrity. A value outside the closed list ranks
// below all others, so that a misspelt label can never raise anything.
func (o Origin) rank() int {
	if i := slices.Index(integrity, o); i >= 0 {
		return i
	}
	return len(integrity)
}

// Valid reports whether o is one of the closed list.
func (o Origin) Valid() bool { return o.rank() < len(integrity) }

// Below reports whether o has less integrity than p.
func (o Origin) Below(p Origin) bool { return o.rank() > p.rank() }

// Join returns the lowest of its arguments. Of nothing it is Platform, the
// neutral element: no text lowers nothing.
func Join(a ...Origin) Origin {
	low := Platform
	for _, o := range a {
		if o.Below(low) {
			low = o
		}
	}
	return low
}
