package review

import (
	"fmt"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/authority"
)

// target is what a rule is compared with.
type target struct {
	kind, scheme, host, method, path string
	port                             int
}

// rule is one egress rule with the id that verdicts name.
type rule struct {
	id   string
	pat  authority.Pattern
	host string
	e    bundle.Egress
}

// rules returns the egress rules of a bundle, sets resolved: to what the version
// holds, and to what sets has for one that holds none.
func rules(b *bundle.Bundle, sets bundle.SetResolver) []rule {
	var out []rule
	add := func(id, host string, e bundle.Egress) {
		pat, err := authority.ParsePattern(host)
		if err == nil {
			out = append(out, rule{id, pat, host, e})
		}
	}
	for i, e := range b.Egress {
		id := fmt.Sprintf("egress[%d]", i)
		if e.Set == "" {
			add(id, e.Host+e.TCP, e)
			continue
		}
		set, err := b.ResolveSet(e.Set, sets)
		if err != nil {
			continue
		}
		for k, host := range set.Hosts {
			add(fmt.Sprintf("%s.%s[%d]", id, e.Set, k), host, bundle.Egress{
				Host: host, Ports: set.Ports, Schemes: set.Schemes, Methods: set.Methods, Paths: set.Paths, Addresses: set.Addresses,
			})
		}
	}
	return out
}

// lacks says what of the target a rule does not admit, in the order in which it
// is judged; nothing means that the rule admits it.
func (r *rule) lacks(t target) []string {
	if !r.pat.MatchHost(t.host) {
		return []string{"host " + r.host}
	}
	var out []string
	ports, schemes, methods, paths := r.e.Ports, r.e.Schemes, r.e.Methods, r.e.Paths
	if len(ports) == 0 {
		ports = []uint16{443}
	}
	if t.kind != "dns.query" && t.port != 0 && !slices.Contains(ports, uint16(t.port)) {
		out = append(out, "port "+join(ports))
	}
	if t.kind != "http.request" {
		return out
	}
	if len(schemes) == 0 {
		schemes = []string{"https"}
	}
	if len(methods) == 0 {
		methods = []string{"GET", "HEAD"}
	}
	if t.scheme != "" && !slices.Contains(schemes, t.scheme) {
		out = append(out, "scheme "+strings.Join(schemes, " or "))
	}
	if !slices.Contains(methods, t.method) {
		out = append(out, "method "+strings.Join(methods, ", "))
	}
	if t.path != "" && len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool { return bundle.PathCovers(p, t.path) }) {
		out = append(out, "path "+strings.Join(paths, ", "))
	}
	return out
}

func join(ports []uint16) string {
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprint(p))
	}
	return strings.Join(out, " or ")
}
