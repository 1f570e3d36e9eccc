package gatekeeper

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// How a connection's credential gets to the requests that need it: all that is
// ever written down of a credential beside the connection's name (M-16).
const (
	DeliveryMediated    = "mediated"    // added outside, at the door; nothing of it is inside
	DeliveryPlaceholder = "placeholder" // the same, and inside stands a placeholder that is worth nothing elsewhere
	DeliveryAbsent      = "absent"      // nothing adds it: requests leave without
	DeliveryRaw         = "raw"         // the provider's own environment is not proven clean: it may be inside
)

// Delivery is the redacted evidence about one credential of a session.
type Delivery struct {
	Connection string
	Kind       string // http | model | scm | telemetry
	Mode       string // a Delivery constant
}

// factCredential begins the facts of session.open that hold the deliveries.
const factCredential = "credential."

// deliveries says of every connection that a bundle names how its credential
// is delivered on this node, by this provider. What the node does not know how
// to mediate is absent, never left out.
func (g *Gatekeeper) deliveries(b *bundle.Bundle, p sandbox.Provider) []Delivery {
	byName := map[string]Delivery{}
	note := func(connection, kind, mode string) {
		switch {
		case p != nil && !p.Capabilities()[sandbox.EnvironmentClean]:
			mode = DeliveryRaw
		case g.o.Mediated == nil || !g.o.Mediated(connection):
			mode = DeliveryAbsent
		}
		if have, ok := byName[connection]; !ok || have.Mode == DeliveryMediated {
			byName[connection] = Delivery{connection, kind, mode}
		}
	}
	for _, e := range b.Egress {
		switch {
		case e.Connection == "":
		case e.Env != "":
			note(e.Connection, "http", DeliveryPlaceholder)
		default:
			note(e.Connection, "http", DeliveryMediated)
		}
	}
	for _, m := range b.Models {
		note(m.Connection, "model", DeliveryMediated)
	}
	if b.Git != nil {
		for _, u := range g.o.Upstreams {
			if u.Kind == "scm" {
				note(u.Connection, "scm", DeliveryMediated)
			}
		}
	}
	for _, name := range b.Telemetry {
		note(name, "telemetry", DeliveryMediated)
	}
	var out []Delivery
	for _, d := range byName {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Delivery) int { return cmp.Compare(a.Connection, b.Connection) })
	return out
}

// unmediated names the first credential that a bundle's policy does not allow
// to be delivered as it would be. Only compatibility, which is written with a
// reason and an end, goes on without mediation; nothing falls back to it.
func unmediated(b *bundle.Bundle, ds []Delivery) (why string) {
	if b.Credentials.Weaker != nil {
		return ""
	}
	for _, d := range ds {
		if d.Mode == DeliveryAbsent || d.Mode == DeliveryRaw {
			return fmt.Sprintf("credentials: %s of bundle %s, and connection %s would be %s", b.Credentials.Policy, b.Name, d.Connection, d.Mode)
		}
	}
	return ""
}

// withDeliveries adds the evidence to the facts of session.open.
func withDeliveries(facts map[string]string, ds []Delivery) {
	for _, d := range ds {
		facts[factCredential+d.Connection] = d.Mode
	}
}

// Credentials returns why a bundle in force could start nothing for want of a
// mediator, nil when every one could. It reads memory only.
func (g *Gatekeeper) Credentials() error {
	var all []string
	for _, b := range g.registry.known() {
		if why := unmediated(b, g.deliveries(b, g.o.Providers[b.Session.Provider])); why != "" {
			all = append(all, why)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return problem.New(problem.ConnectionUnmediated, strings.Join(all, "; "), "name another connection, or write compatibility with a reason and an expiry")
}

// Weaker names the bundles in force that are under compatibility.
func (g *Gatekeeper) Weaker() []string {
	var out []string
	for _, b := range g.registry.known() {
		if b.Credentials.Weaker != nil {
			out = append(out, b.Name)
		}
	}
	return out
}

// known returns the bundles in force as they were last read.
func (r *registry) known() []*bundle.Bundle {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*bundle.Bundle
	for _, d := range r.byName {
		out = append(out, d.bundle)
	}
	slices.SortFunc(out, func(a, b *bundle.Bundle) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// delivered tells the node of a session's deliveries, for its metrics.
func (g *Gatekeeper) delivered(ds []Delivery) {
	if g.o.Delivered == nil {
		return
	}
	for _, d := range ds {
		g.o.Delivered(d)
	}
}
