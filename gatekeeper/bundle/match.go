package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Match is the answer of matching an event. Why is for people and made of
// facts and the bundle's own words only.
type Match struct {
	Trigger int    // index in match of the first trigger that holds, -1 if none
	Why     string // what the nearest trigger lacked, "" when it matches
}

// Match reports whether the bundle may be started by an event with these
// facts. It needs one trigger that holds whole.
func (b *Bundle) Match(f Facts) (Match, bool) {
	why := "starts only as a child"
	nearest := -1
	for i := range b.Triggers {
		depth, lack := b.Triggers[i].lack(f)
		if lack == "" {
			return Match{Trigger: i}, true
		}
		if depth > nearest {
			nearest, why = depth, fmt.Sprintf("match[%d]: %s", i, lack)
		}
	}
	return Match{Trigger: -1, Why: why}, false
}

// lack says what a trigger misses in the facts, "" if nothing, and how many of
// its parts held before that.
func (t *Trigger) lack(f Facts) (depth int, lack string) {
	if t.Source != f.Source {
		return 0, "source is " + f.Source
	}
	if t.Endpoint != "" && t.Endpoint != f.Endpoint {
		return 1, "endpoint is " + f.Endpoint
	}
	if !slices.ContainsFunc(t.Kinds, func(k string) bool { return kindMatch(k, f.Kind, f.Action) }) {
		return 2, "kind is " + strings.TrimSuffix(f.Kind+"."+f.Action, ".")
	}
	depth = 3
	for _, name := range slices.Sorted(maps.Keys(t.Where)) {
		values, ok := f.Lookup(name)
		if !ok {
			return depth, "the event has no fact " + name
		}
		if !t.Where[name].holds(values) {
			return depth, fmt.Sprintf("%s is %s", name, strings.Join(values, ", "))
		}
		depth++
	}
	return depth, ""
}

// kindMatch compares a written kind with an event's. A bare kind is a kind
// without action, so that "issues" cannot silently mean every action.
func kindMatch(written, kind, action string) bool {
	k, a, dotted := strings.Cut(written, ".")
	switch {
	case k != kind:
		return false
	case !dotted:
		return action == ""
	case a == "*":
		return true
	}
	return a == action
}

// kindCovers reports whether a matches whatever b matches.
func kindCovers(a, b string) bool {
	ka, aa, _ := strings.Cut(a, ".")
	kb, _, _ := strings.Cut(b, ".")
	return a == b || ka == kb && aa == "*"
}

// holds reports whether a fact with these values satisfies the condition.
func (c Condition) holds(values []string) bool {
	for _, v := range values {
		if slices.Contains(c.Not, v) {
			return false
		}
	}
	return slices.ContainsFunc(values, c.holdsFor)
}

func (c Condition) holdsFor(v string) bool {
	if len(c.Any) > 0 && !slices.Contains(c.Any, v) {
		return false
	}
	if !strings.HasPrefix(v, c.Prefix) || c.Glob != "" && !globMatch(c.Glob, v) {
		return false
	}
	if c.Min == nil && c.Max == nil {
		return true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && (c.Min == nil || n >= *c.Min) && (c.Max == nil || n <= *c.Max)
}

// implies reports whether every value that satisfies c satisfies o too, part
// by part. It may say no where a cleverer reader would say yes.
func (c Condition) implies(o Condition) bool {
	if len(c.Any) > 0 && len(o.Not) == 0 {
		return !slices.ContainsFunc(c.Any, func(v string) bool { return !o.holdsFor(v) })
	}
	switch {
	case len(o.Any) > 0:
		return false
	case o.Prefix != "" && !strings.HasPrefix(c.Prefix, o.Prefix):
		return false
	case o.Glob != "" && c.Glob != o.Glob:
		return false
	case o.Min != nil && (c.Min == nil || *c.Min < *o.Min):
		return false
	case o.Max != nil && (c.Max == nil || *c.Max > *o.Max):
		return false
	}
	for _, v := range o.Not {
		// {any: [x]} does not imply {not: y} for a list fact, which may hold both.
		if !slices.Contains(c.Not, v) {
			return false
		}
	}
	return true
}

// Covers reports whether every event that starts o starts t.
func (t *Trigger) Covers(o *Trigger) bool {
	if t.Source != o.Source || t.Endpoint != "" && t.Endpoint != o.Endpoint {
		return false
	}
	for _, k := range o.Kinds {
		if !slices.ContainsFunc(t.Kinds, func(mine string) bool { return kindCovers(mine, k) }) {
			return false
		}
	}
	for name, mine := range t.Where {
		theirs, ok := o.Where[name]
		if !ok || !theirs.implies(mine) {
			return false
		}
	}
	return true
}
