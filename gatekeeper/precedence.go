package gatekeeper

import (
	"maps"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
)

// takesOver returns the hard bundle whose events a version that needs nobody's
// approval would take, "" if there is none. Nobody widens a hard bundle alone, so
// nobody puts a wider one before it alone either: a bundle that a hard one does not
// cover wins its events only by a higher priority. A precedence that the version in
// force has already is no news.
func (g *Gatekeeper) takesOver(b *bundle.Bundle, have *desired) string {
	g.registry.mu.Lock()
	known := g.registry.byName
	g.registry.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(known)) {
		h := known[name]
		if name == b.Name || !hardened(h) || !before(b, h.bundle) {
			continue
		}
		if have != nil && before(have.bundle, h.bundle) {
			continue
		}
		level := b.WithModes(b.Mode, nil)
		level.Priority = h.bundle.Priority // what it may do is compared, not which is asked first
		if ok, _ := h.bundle.Covers(level); !ok {
			return name
		}
	}
	return ""
}

// before reports whether a may win events of b by its priority. Two triggers are
// apart only when their sources, endpoints or kinds are.
func before(a, b *bundle.Bundle) bool {
	return a.Priority > b.Priority && slices.ContainsFunc(a.Triggers, func(x bundle.Trigger) bool {
		return slices.ContainsFunc(b.Triggers, func(y bundle.Trigger) bool { return meet(x, y) })
	})
}

func meet(x, y bundle.Trigger) bool {
	if x.Source != y.Source || x.Endpoint != "" && y.Endpoint != "" && x.Endpoint != y.Endpoint {
		return false
	}
	return slices.ContainsFunc(x.Kinds, func(k string) bool {
		return slices.ContainsFunc(y.Kinds, func(l string) bool {
			kind, action, some := strings.Cut(k, ".")
			other, second, also := strings.Cut(l, ".")
			return kind == other && (!some || !also || action == "*" || second == "*" || action == second)
		})
	})
}
