package gatekeeper

import (
	"maps"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
)

// makesWay says why a change, after which bundle name is next, is none for one
// person: it would let another bundle have events of a hard one that does not
// cover it. "" means that it may be made. Nobody widens a hard bundle alone, so
// nobody puts a wider one in its place alone either, by whichever of the two
// bundles, or of a third. What the bundles in force do already is no news.
func makesWay(before map[string]*desired, name string, next *desired) string {
	after := maps.Clone(before)
	if after == nil {
		after = map[string]*desired{}
	}
	after[name] = next
	for _, hard := range slices.Sorted(maps.Keys(before)) {
		h := before[hard]
		if !hardened(h) {
			continue
		}
		// What no hard bundle takes is open to anybody's bundle in shadow mode, to
		// one of tomorrow too: it does not matter whether one waits for it now.
		if hard == name && drops(h.bundle, next.bundle) {
			return "events that hard bundle " + hard + " takes would be open to others"
		}
		for _, other := range slices.Sorted(maps.Keys(after)) {
			if other != hard && newlyTakes(before, after, other, hard) {
				return other + " would take events from " + hard + ", which is hard and does not cover it"
			}
		}
	}
	return ""
}

// newlyTakes reports whether the named bundle may start sessions from events of
// the hard one, and could not before.
func newlyTakes(before, after map[string]*desired, name, hard string) bool {
	was, h := before[name], before[hard].bundle
	s, now := after[name], after[hard].bundle
	if s.Paused || !passes(s.bundle, now, h) {
		return false
	}
	if was == nil || was.Paused || !passes(was.bundle, h, h) || wider(s.bundle, was.bundle, now) {
		return true
	}
	if stands(was.bundle, h) {
		return false
	}
	// The hard bundle is asked first all the same while every other one covers it:
	// then it is the most specific one. A pause takes no bundle out of that.
	for _, x := range slices.Sorted(maps.Keys(after)) {
		old := before[x]
		if x != hard && stands(after[x].bundle, now) &&
			(old == nil || !stands(old.bundle, h) || wider(after[x].bundle, old.bundle, now)) {
			return true
		}
	}
	return false
}

// passes reports whether s stands before h by its priority and may do what
// authority, the version of h in force, does not cover.
func passes(s, h, authority *bundle.Bundle) bool {
	if !before(s, h) {
		return false
	}
	level := *s
	level.Priority = authority.Priority // what it may do is compared, not which is asked first
	ok, _ := authority.Covers(&level)
	return !ok
}

// stands reports whether x keeps h from being the most specific bundle of events
// that both match.
func stands(x, h *bundle.Bundle) bool {
	ok, _ := x.Covers(h)
	return !ok && meets(x, h)
}

// drops reports whether b starts on events that next may not start on.
func drops(b, next *bundle.Bundle) bool {
	return slices.ContainsFunc(b.Triggers, func(t bundle.Trigger) bool { return !starts(next, t) })
}

// wider reports whether s may start on events of h that it did not start on as
// it was.
func wider(s, was, h *bundle.Bundle) bool {
	return slices.ContainsFunc(s.Triggers, func(t bundle.Trigger) bool {
		return !starts(was, t) && slices.ContainsFunc(h.Triggers, func(y bundle.Trigger) bool { return meet(t, y) })
	})
}

// starts reports whether one trigger of b takes all that t takes.
func starts(b *bundle.Bundle, t bundle.Trigger) bool {
	return slices.ContainsFunc(b.Triggers, func(mine bundle.Trigger) bool { return mine.Covers(&t) })
}

// before reports whether a may win events of b by its priority.
func before(a, b *bundle.Bundle) bool { return a.Priority > b.Priority && meets(a, b) }

// meets reports whether both bundles may match one event. Two triggers are apart
// only when their sources, endpoints or kinds are.
func meets(a, b *bundle.Bundle) bool {
	return slices.ContainsFunc(a.Triggers, func(x bundle.Trigger) bool {
		return slices.ContainsFunc(b.Triggers, func(y bundle.Trigger) bool { return meet(x, y) })
	})
}

// meet reports whether one event may start both.
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
