package enforcers

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
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
	Env         string            // variable that holds the connection's placeholder inside, "" none
	Uses        int               // how often the placeholder may be used, 0 = no limit
	Blind       string            // "" | "tcp" | "tls": the tunnel is relayed unread
	Addresses   []netip.Prefix    // the only addresses the name may resolve to; nil = public ones
	Names       int               // distinct names under a wildcard, 0 = DefaultNames
	EncodedPath bool              // %2F in a path is let through
	WebSocket   bool              // that upgrade is let through
	Limits      Limits
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

// What one git transfer may move: a fetch brings whole histories, and a push is
// bounded by what is looked into.
const (
	gitUp   = 1<<30 + 1<<20
	gitDown = 4 << 30
)

// Grants reads what the rules of a compiled policy v1 grant: the egress rules in
// the policy's order, then those of git.
func Grants(policy []byte) ([]Grant, error) {
	var p struct {
		Egress []struct {
			ID           string         `json:"id"`
			Pattern      string         `json:"host"`
			Ports        []uint16       `json:"ports"`
			Connection   string         `json:"connection"`
			Env          string         `json:"env"`
			Uses         int            `json:"uses"`
			Blind        string         `json:"blind"`
			Schemes      []string       `json:"schemes"`
			Addresses    []netip.Prefix `json:"addresses"`
			Names        int            `json:"names"`
			EncodedSlash bool           `json:"encoded_slash"`
			Upgrade      string         `json:"upgrade"`
			Up           int64          `json:"up"`
			Down         int64          `json:"down"`
			Idle         int64          `json:"idle"` // milliseconds
		} `json:"egress"`
		Git *struct {
			Siblings []struct{} `json:"siblings"`
		} `json:"git"`
	}
	if err := json.Unmarshal(policy, &p); err != nil {
		return nil, fmt.Errorf("compiled policy: %w", err)
	}
	grants := make([]Grant, 0, len(p.Egress))
	for _, r := range p.Egress {
		hosts, err := authority.ParsePattern(r.Pattern)
		if err != nil {
			return nil, fmt.Errorf("compiled policy, rule %s: %w", r.ID, err)
		}
		if r.Connection != "" && (r.Blind != "" || !slices.Equal(r.Schemes, []string{authority.HTTPS})) {
			// EG-66: a credential goes over verified TLS or nowhere.
			return nil, fmt.Errorf("compiled policy, rule %s: a rule with a connection is for https alone", r.ID)
		}
		grants = append(grants, Grant{
			Rule: r.ID, Hosts: hosts, Ports: r.Ports, Connection: r.Connection, Env: r.Env, Uses: r.Uses,
			Blind: r.Blind, Addresses: r.Addresses, Names: r.Names, EncodedPath: r.EncodedSlash,
			WebSocket: r.Upgrade == "websocket",
			Limits:    Limits{Up: r.Up, Down: r.Down, Idle: time.Duration(r.Idle) * time.Millisecond},
		})
	}
	if p.Git != nil {
		limits := Limits{Up: gitUp, Down: gitDown}
		grants = append(grants, Grant{Rule: "git.repository", Limits: limits}, Grant{Rule: "git.push", Limits: limits})
		for i := range p.Git.Siblings {
			grants = append(grants, Grant{Rule: fmt.Sprintf("git.siblings[%d]", i), Limits: limits})
		}
	}
	return grants, nil
}

// Covers reports whether the grant is for a host and port.
func (g *Grant) Covers(to authority.Authority) bool {
	return g.Hosts.Match(to) && slices.Contains(g.Ports, to.Port())
}

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
