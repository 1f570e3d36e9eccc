package review

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
)

// Growth says in words what sessions could do under next that they cannot do
// under b, beginning with what matters most. It is empty when b covers next.
func Growth(b, next *bundle.Bundle) []string {
	var out []string
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	for i := range next.Egress {
		e := &next.Egress[i]
		if e.Set != "" {
			growthOfSet(b, next, e.Set, say)
			continue
		}
		if !slices.ContainsFunc(b.Egress, func(have bundle.Egress) bool { return sameRule(&have, e) }) {
			growthOfRule(b, e, "", say)
		}
	}
	for _, m := range next.Models {
		for _, name := range m.Allow {
			if !slices.ContainsFunc(b.Models, func(h bundle.Model) bool { return h.Connection == m.Connection && slices.Contains(h.Allow, name) }) {
				say("model %s can be paid on connection %s", name, m.Connection)
			}
		}
	}
	for _, op := range next.Operations {
		if !slices.Contains(b.Operations, op) {
			say("operation %s can be run", op)
		}
	}
	for _, t := range next.Telemetry {
		if !slices.Contains(b.Telemetry, t) {
			say("telemetry connection %s can be written to", t)
		}
	}
	if next.Git != nil {
		for _, s := range next.Git.Siblings {
			if b.Git == nil || !slices.Contains(b.Git.Siblings, s) {
				say("repository %s can be read with the node's credential", s.Repository)
			}
		}
		if p := next.Git.Push; p != nil {
			for _, ref := range p.Refs {
				if b.Git == nil || b.Git.Push == nil || !slices.Contains(b.Git.Push.Refs, ref) {
					say("refs %s can be pushed", ref)
				}
			}
		}
	}
	if next.Spend != nil && (b.Spend == nil || next.Spend.Limit > b.Spend.Limit) {
		say("a session may cost up to %s", next.Spend.Limit)
	}
	if next.Accepts.Below(b.Accepts) {
		say("words of %s may start it", next.Accepts)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Enforcers)) {
		if _, ok := next.Enforcers[name]; !ok {
			say("enforcer %s no longer judges", name)
		}
	}
	if ok, why := b.Covers(next); !ok && len(out) == 0 {
		say("%s", why)
	}
	return out
}

// growthOfSet says what a set that next names adds: all of it when b does not
// name it, else what is in the one content and not in the other.
func growthOfSet(b, next *bundle.Bundle, name string, say func(string, ...any)) {
	theirs, held := next.Sets[name]
	mine, had := b.Sets[name]
	named := slices.ContainsFunc(b.Egress, func(e bundle.Egress) bool { return e.Set == name })
	switch {
	case !named && !held:
		say("every host of the set %s becomes reachable", name)
	case !named:
		say("every host of the set %s becomes reachable: %s", name, some(theirs.Hosts))
	case held && !had:
		say("nothing says which hosts the set %s had in the version before; from now on: %s", name, some(theirs.Hosts))
	default:
		for _, r := range theirs.Rules() {
			if !slices.ContainsFunc(mine.Rules(), func(have bundle.Egress) bool { return sameRule(&have, &r) }) {
				growthOfRule(b, &r, "set "+name+": ", say)
			}
		}
	}
}

// manyHosts is how many hosts a sentence names; the difference shows them all.
const manyHosts = 20

func some(hosts []string) string {
	if more := len(hosts) - manyHosts; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(hosts[:manyHosts], ", "), more)
	}
	return strings.Join(hosts, ", ")
}

// growthOfRule says what one new rule gives. of is the set that it is of.
func growthOfRule(b *bundle.Bundle, e *bundle.Egress, of string, say func(string, ...any)) {
	host := e.Host + e.TCP
	if knowsHost(b, host) {
		say("%smore of host %s, which is listed already", of, host)
	} else {
		say("%sa new host: %s", of, host)
	}
	if strings.HasPrefix(host, "*") {
		say("a wildcard: names that nobody has asked for so far are reached too")
	}
	if e.Connection != "" {
		say("the credential of connection %s now reaches %s", e.Connection, host)
	} else {
		say("no credential goes there; what the agent can read, it can send there")
	}
	var writes []string
	for _, m := range e.Methods {
		if m != "GET" && m != "HEAD" && m != "OPTIONS" {
			writes = append(writes, m)
		}
	}
	if len(writes) > 0 {
		say("writing methods: %s, up to %s a request", strings.Join(writes, ", "), e.Up)
	}
	if len(e.Paths) == 0 || slices.Contains(e.Paths, "/**") {
		say("every path of the host")
	} else {
		say("only paths %s", strings.Join(e.Paths, ", "))
	}
	if e.TCP != "" || e.TLS != "" {
		say("the traffic is not looked into")
	}
	if len(e.Addresses) > 0 {
		say("internal addresses are reached")
	}
}

func sameRule(a, b *bundle.Egress) bool {
	return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

func knowsHost(b *bundle.Bundle, host string) bool {
	return slices.ContainsFunc(rules(b, nil), func(r rule) bool { return r.host == host || r.pat.MatchHost(host) })
}
