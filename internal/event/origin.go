package event

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

// unknown is the rank of what is not in the list.
const unknown = 8

// rank is 0 for the highest integrity. A value outside the closed list ranks
// below all others, so that a misspelt label can never raise anything.
func (o Origin) rank() int {
	switch o {
	case Platform:
		return 0
	case Operator:
		return 1
	case Member:
		return 2
	case Reviewed:
		return 3
	case Contributor:
		return 4
	case Outsider:
		return 5
	case Derived:
		return 6
	case Credential:
		return 7
	}
	return unknown
}

// Valid reports whether o is one of the closed list.
func (o Origin) Valid() bool { return o.rank() < unknown }

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
