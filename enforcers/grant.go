package enforcers

import (
	"net/netip"
	"time"

	"gatehouse/internal/authority"
	"gatehouse/receipts"
)

// Policy is what a Gate judges by, swapped as one value: a bundle's digest,
// the enforcers configured from it, and what its rules grant.
type Policy struct {
	Digest    receipts.Hash
	Enforcers []Bound
	Grants    []Grant
}

// Bound is an enforcer with its place in a bundle.
type Bound struct {
	Enforcer
	Mode    receipts.Mode // a shadow enforcer takes no part in a hard session's verdict
	Builtin bool          // decides from the bundle; only a built-in may allow
}

// Grant is what a rule gives an action that an enforcer allowed by it. It
// never widens a verdict: without an allow that names Rule it does nothing.
type Grant struct {
	Rule        string            // the rule's id, as in Verdict.Rule
	Hosts       authority.Pattern //
	Ports       []uint16          //
	Connection  string            // named connection whose credential is added, "" none
	Blind       string            // "" | "tcp" | "tls": the tunnel is relayed unread
	Addresses   []AddressRange    // non-public addresses the name may resolve to
	Names       int               // distinct names under a wildcard, 0 = DefaultNames
	EncodedPath bool              // %2F in a path is let through
	WebSocket   bool
	Limits      Limits
}

// AddressRange is an exact prefix with its ports. It opens nothing outside the
// node's internal_networks and never loopback.
type AddressRange struct {
	Prefix netip.Prefix
	Ports  []uint16
}

// Limits bound one permitted exchange. A zero field means the default.
type Limits struct {
	Up   int64         // bytes sent outside, 0 = DefaultUp
	Down int64         // bytes received, 0 = DefaultDown
	Idle time.Duration // without a byte either way, 0 = DefaultIdle
}

// Defaults of Limits and of Grant.Names: DESIGN.md section 8.
const (
	DefaultUp    = 1 << 20
	DefaultDown  = 256 << 20
	DefaultIdle  = 10 * time.Minute
	DefaultNames = 32
)

// Or returns l with its zero fields replaced by the defaults.
func (l Limits) Or() Limits {
	if l.Up == 0 {
		l.Up = DefaultUp
	}
	if l.Down == 0 {
		l.Down = DefaultDown
	}
	if l.Idle == 0 {
		l.Idle = DefaultIdle
	}
	return l
}
