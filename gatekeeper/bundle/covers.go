package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Covers reports whether b allows whatever o allows, rule by rule: each rule of
// o must be covered by one single rule of b, and no union of rules is reasoned
// over. It compares what a session may do and what may start it; name, agent
// and task are not authority. why names the first thing that b does not cover.
//
// It never says yes about a field it does not know: TestCoversKnowsEveryField
// fails when a field is added without a decision here.
func (b *Bundle) Covers(o *Bundle) (ok bool, why string) {
	for _, part := range []func(o *Bundle) string{
		b.admissionLack, b.sessionLack, b.egressLack, b.gitLack, b.modelLack, b.listLack, b.enforcerLack,
	} {
		if why := part(o); why != "" {
			return false, why
		}
	}
	return true, ""
}

func (b *Bundle) admissionLack(o *Bundle) string {
	switch {
	case b.APIVersion != o.APIVersion || b.Kind != o.Kind:
		return "apiVersion differs"
	case b.Mode == Hard && o.Mode != Hard:
		return "mode is weaker"
	case b.Accepts != o.Accepts && o.Accepts.Below(b.Accepts):
		return fmt.Sprintf("accepts %s, below %s", o.Accepts, b.Accepts)
	case !b.ShadowOutsiders.covers(o.ShadowOutsiders):
		return "shadow_outsiders is new or lasts longer"
	case !b.PerEntity.covers(o.PerEntity):
		return fmt.Sprintf("per_entity %s is more than %s", o.PerEntity, b.PerEntity)
	case o.Self != nil && (b.Self == nil || o.Self.Max > b.Self.Max):
		return "self is new or higher"
	case o.Priority > b.Priority:
		return "priority is higher"
	}
	for i := range o.Triggers {
		if !slices.ContainsFunc(b.Triggers, func(t Trigger) bool { return t.Covers(&o.Triggers[i]) }) {
			return fmt.Sprintf("match[%d] starts on events that nothing there starts on", i)
		}
	}
	return b.deliverLack(o)
}

// deliverLack compares delivered text. Less of it raises the floor and so
// admits more events, more of it tells the agent more: for what an event can
// start, both lists must be the same.
func (b *Bundle) deliverLack(o *Bundle) string {
	if o.Session.Payload != b.Session.Payload && (o.Session.Payload || len(o.Triggers) > 0) {
		return "session.payload differs"
	}
	for _, t := range o.Triggers {
		for _, k := range t.Kinds {
			kind, _, _ := strings.Cut(k, ".")
			if !slices.Equal(b.deliverFor(t.Source, kind), o.deliverFor(t.Source, kind)) {
				return "session.deliver differs for " + k
			}
		}
	}
	if len(o.Triggers) == 0 {
		all := b.allDelivered()
		for _, p := range o.Session.Deliver {
			if !slices.Contains(all, p) {
				return "session.deliver adds " + p
			}
		}
	}
	return ""
}

func (b *Bundle) allDelivered() []string {
	all := slices.Clone(b.Session.Deliver)
	if b.Session.Deliver == nil {
		for _, t := range b.Triggers {
			for _, k := range t.Kinds {
				kind, _, _ := strings.Cut(k, ".")
				all = append(all, DefaultDeliver(t.Source, kind)...)
			}
		}
	}
	return all
}

func (b *Bundle) sessionLack(o *Bundle) string {
	s, t := &b.Session, &o.Session
	switch {
	case s.Provider != t.Provider:
		return "session.provider differs"
	case s.Rootfs != t.Rootfs:
		return "session.rootfs differs"
	case t.Workspace.Checkout && !s.Workspace.Checkout:
		return "session.workspace.checkout is new"
	case t.Workspace.Quota > s.Workspace.Quota:
		return "session.workspace.quota is more than " + s.Workspace.Quota.String()
	case t.Timeout > s.Timeout:
		return "session.timeout is longer than " + s.Timeout.String()
	case o.Credentials.rank() > b.Credentials.rank():
		return "credentials is weaker than " + b.Credentials.Policy
	case !b.Credentials.Weaker.covers(o.Credentials.Weaker):
		return "credentials: compatibility lasts longer"
	}
	for _, m := range t.Mounts {
		if !slices.ContainsFunc(s.Mounts, func(x Mount) bool {
			return x.Source == m.Source && x.Path == m.Path && (x.Mode == m.Mode || x.Mode == "write")
		}) {
			return "session.mounts adds " + m.Path
		}
	}
	for _, c := range t.Caches {
		if !slices.Contains(s.Caches, c) {
			return "session.caches adds " + c.Name
		}
	}
	if c := s.Concurrency; c != nil {
		d := t.Concurrency
		if d == nil || d.Key != c.Key || d.Over != c.Over || d.Max > c.Max {
			return "session.concurrency is wider"
		}
	}
	if d := t.Children; d != nil {
		c := s.Children
		if c == nil || d.Max > c.Max || d.Depth > c.Depth || !subset(d.Bundles, c.Bundles) {
			return "session.children is wider"
		}
	}
	if !subset(t.OnStart, s.OnStart) {
		return "session.on_start adds an operation"
	}
	if !subset(t.OnEnd, s.OnEnd) {
		return "session.on_end adds an operation"
	}
	return ""
}

func (b *Bundle) egressLack(o *Bundle) string {
	names := differing(b, o)
	for _, name := range names {
		_, mine := b.Sets[name]
		if _, theirs := o.Sets[name]; mine != theirs {
			return "egress set " + name + " is held by one of the two versions only, so nothing says that it is the same"
		}
	}
	b, _ = b.spread(names)
	o, at := o.spread(names)
	for i := range o.Egress {
		if slices.ContainsFunc(indices(b.Egress), func(k int) bool { return b.Egress[k].covers(&o.Egress[i]) && b.unshadowed(k, o, i) }) {
			continue
		}
		e := &o.Egress[i]
		switch set := at[i].set; {
		case set == "":
			return fmt.Sprintf("egress[%d] (%s%s%s) is covered by no single rule", at[i].rule, e.Set, e.Host, e.TCP)
		case slices.Contains(b.Sets[set].Hosts, e.Host):
			return fmt.Sprintf("egress set %s allows more of host %s", set, e.Host)
		default:
			return fmt.Sprintf("egress set %s adds host %s", set, e.Host)
		}
	}
	return b.boundLack(o)
}

// differing are the sets that both bundles name and not both with one content.
func differing(b, o *Bundle) []string {
	var out []string
	for i := range o.Egress {
		name := o.Egress[i].Set
		if name == "" || slices.Contains(out, name) || !slices.ContainsFunc(b.Egress, func(e Egress) bool { return e.Set == name }) {
			continue
		}
		mine, held := b.Sets[name]
		theirs, also := o.Sets[name]
		if held != also || held && !reflect.DeepEqual(mine.rules, theirs.rules) {
			out = append(out, name)
		}
	}
	return out
}

// origin is where a rule was written.
type origin struct {
	rule int    // of the file
	set  string // that it is of, "" if of none
}

// spread returns a bundle that has the rules of the named sets in place of their
// names: two sets of one name are compared by what the versions hold.
func (b *Bundle) spread(names []string) (*Bundle, []origin) {
	c := *b
	c.Egress = nil
	var at []origin
	for i, e := range b.Egress {
		if e.Set == "" || !slices.Contains(names, e.Set) {
			c.Egress, at = append(c.Egress, e), append(at, origin{rule: i})
			continue
		}
		for _, r := range b.Sets[e.Set].rules {
			c.Egress, at = append(c.Egress, r), append(at, origin{i, e.Set})
		}
	}
	return &c, at
}

func indices[T any](list []T) []int {
	out := make([]int, len(list))
	for i := range list {
		out[i] = i
	}
	return out
}

// unshadowed reports whether b's rule k gives a request of o's rule i all that
// o's rule gives it. The first rule that allows a request is the one whose caps
// and addresses hold: an earlier rule of b that allows some of the same requests
// under tighter ones must stand before o's rule as well.
func (b *Bundle) unshadowed(k int, o *Bundle, i int) bool {
	rule := &o.Egress[i]
	for x := range b.Egress[:k] {
		first := &b.Egress[x]
		if first.overlaps(rule) && (!first.capsCover(rule) || b.leadsElsewhere(first, o, rule)) &&
			!slices.ContainsFunc(o.Egress[:i], func(e Egress) bool { return reflect.DeepEqual(e, *first) }) {
			return false
		}
	}
	return true
}

// leadsElsewhere reports whether b's rule binds a host of o's rule to other
// addresses, where one of the two is a set that its version holds (EG-31).
func (b *Bundle) leadsElsewhere(e *Egress, o *Bundle, rule *Egress) bool {
	mine, x := b.opens(e)
	theirs, y := o.opens(rule)
	return !addressesCover(x, y) && slices.ContainsFunc(mine, func(m string) bool {
		return slices.ContainsFunc(theirs, func(t string) bool { return hostCovers(m, t) || hostCovers(t, m) })
	})
}

// opens returns a rule's hosts and the addresses that they may have.
func (b *Bundle) opens(e *Egress) (hosts []string, addresses []netip.Prefix) {
	if c, held := b.Sets[e.Set]; held {
		return c.Hosts, c.Addresses
	}
	return []string{e.Host + e.TCP}, e.Addresses
}

// overlaps reports whether both rules may allow the same request. A set may
// hold any host.
func (e *Egress) overlaps(o *Egress) bool {
	if e.Set != "" || o.Set != "" {
		return e.TCP+e.TLS+e.Connection+o.TCP+o.TLS+o.Connection == ""
	}
	meet := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
	}
	a, b := e.Host+e.TCP, o.Host+o.TCP
	return (e.TCP != "") == (o.TCP != "") && e.TLS == o.TLS && e.Connection == o.Connection &&
		(hostCovers(a, b) || hostCovers(b, a)) && // two patterns of hosts that meet lie one in the other
		slices.ContainsFunc(e.Ports, func(p uint16) bool { return slices.Contains(o.Ports, p) }) &&
		(e.TCP != "" || e.TLS != "" || meet(e.Schemes, o.Schemes) && meet(e.Methods, o.Methods) &&
			slices.ContainsFunc(e.Paths, func(p string) bool {
				return slices.ContainsFunc(o.Paths, func(q string) bool { return pathsMeet(p, q) })
			}))
}

// capsCover reports whether a request under e may move as much, and reach the
// same addresses, as one under o.
func (e *Egress) capsCover(o *Egress) bool {
	x, y := e.caps(), o.caps()
	return y.up <= x.up && y.down <= x.down && y.idle <= x.idle && (x.names == 0 || y.names <= x.names) && addressesCover(e.Addresses, o.Addresses)
}

type caps struct {
	up, down Size
	idle     Duration
	names    int // 0 = one name, so no cap
}

// caps are a rule's caps; the rules of a set have the defaults.
func (e *Egress) caps() caps {
	if e.Set != "" {
		return caps{defaultUp, defaultDown, defaultIdle, defaultNames}
	}
	return caps{e.Up, e.Down, e.Idle, e.Names}
}

// boundLack compares what single rules do to a host as a whole. A connection
// binds every request to its host and port, and a blind rule leaves every tunnel
// there unread: a rule of b may allow less beside such a rule than the same rule
// of o allows without it (EG-75). A set may hold any host.
func (b *Bundle) boundLack(o *Bundle) string {
	for i := range o.Egress {
		rule := &o.Egress[i]
		for _, other := range slices.Concat(o.Egress[i:i+1], b.Egress, o.Egress) {
			at := other.Host + other.TCP
			if at == "" || rule.Set == "" && !hostCovers(rule.Host+rule.TCP, at) {
				continue
			}
			for _, port := range other.Ports {
				if (rule.Set != "" || slices.Contains(rule.Ports, port)) && b.boundAt(at, port) != o.boundAt(at, port) {
					return fmt.Sprintf("egress: another rule binds %s:%d as a whole", at, port)
				}
			}
		}
	}
	return ""
}

// bound is what binds a host: the first connection and the first blind rule.
type bound struct{ connection, blind string }

func (b *Bundle) boundAt(host string, port uint16) (x bound) {
	for i := range b.Egress {
		e := &b.Egress[i]
		if !slices.Contains(e.Ports, port) || !hostCovers(e.Host+e.TCP, host) {
			continue
		}
		x.connection = cmp.Or(x.connection, e.Connection)
		switch {
		case e.TCP != "":
			x.blind = cmp.Or(x.blind, "tcp")
		case e.TLS != "":
			x.blind = cmp.Or(x.blind, "tls")
		}
	}
	return x
}

func (e *Egress) covers(o *Egress) bool {
	if e.Set != "" || o.Set != "" {
		return e.Set == o.Set
	}
	return (e.TCP != "") == (o.TCP != "") && e.TLS == o.TLS &&
		hostCovers(e.Host+e.TCP, o.Host+o.TCP) &&
		subset(o.Ports, e.Ports) && subset(o.Schemes, e.Schemes) && subset(o.Methods, e.Methods) &&
		allCovered(o.Paths, e.Paths, PathCovers) &&
		// Without the credential it is another request, not a smaller one.
		e.Connection == o.Connection &&
		(o.Env == "" || o.Env == e.Env && (e.Uses == 0 || o.Uses != 0 && o.Uses <= e.Uses)) &&
		(e.EncodedSlash || !o.EncodedSlash) && (o.Upgrade == "" || e.Upgrade == o.Upgrade) &&
		e.capsCover(o)
}

// addressesCover: no prefixes means public addresses only, which no prefix of
// an internal network covers or is covered by.
func addressesCover(a, b []netip.Prefix) bool {
	if (len(a) == 0) != (len(b) == 0) {
		return false
	}
	return allCovered(b, a, func(p, q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Contains(q.Addr()) })
}

func (b *Bundle) gitLack(o *Bundle) string {
	g, h := b.Git, o.Git
	switch {
	case h == nil && g != nil && len(o.Egress) > 0:
		// What goes to a forge is judged by git: only while there is one; without
		// it a rule for that host would allow whatever its paths allow.
		return "git is gone: egress alone would judge what goes to its host"
	case h == nil:
		return ""
	case g == nil:
		return "git is new"
	case g.Repository.Name != h.Repository.Name || g.Repository.By != h.Repository.By:
		return "git.repository differs"
	case !subset(h.Siblings, g.Siblings):
		return "git.siblings adds a repository"
	}
	for value, name := range h.Repository.Map {
		if g.Repository.Map[value] != name {
			return "git.repository.map adds " + value
		}
	}
	p, q := g.Push, h.Push
	switch {
	case q == nil:
		return ""
	case p == nil:
		return "git.push is new"
	case q.Force && !p.Force:
		return "git.push.force is new"
	case q.Delete && !p.Delete:
		return "git.push.delete is new"
	case !allCovered(q.Refs, p.Refs, refCovers):
		return "git.push.refs is wider"
	case !allCovered(p.DenyPaths, q.DenyPaths, denyCovers):
		return "git.push.deny_paths denies less"
	}
	return ""
}

func (b *Bundle) modelLack(o *Bundle) string {
	for i, m := range o.Models {
		if !slices.ContainsFunc(b.Models, func(x Model) bool {
			return x.Connection == m.Connection && m.MaxOutputTokens <= x.MaxOutputTokens && allCovered(m.Allow, x.Allow, modelCovers)
		}) {
			return fmt.Sprintf("models[%d] is covered by no single entry", i)
		}
	}
	switch s, t := b.Spend, o.Spend; {
	case t == nil:
	case s == nil:
		return "spend is new"
	case t.Limit > s.Limit:
		return "spend.limit is more than " + s.Limit.String()
	case s.PerDay != 0 && (t.PerDay == 0 || t.PerDay > s.PerDay):
		return "spend.per_day is more than " + s.PerDay.String()
	}
	return ""
}

func (b *Bundle) listLack(o *Bundle) string {
	switch {
	case !subset(o.Operations, b.Operations):
		return "operations adds one"
	case !subset(o.Telemetry, b.Telemetry):
		return "telemetry adds a connection"
	}
	return ""
}

// enforcerLack: an enforcer can only refuse, so o must have all of b's, as hard
// as there, and may have more.
func (b *Bundle) enforcerLack(o *Bundle) string {
	for _, name := range slices.Sorted(maps.Keys(b.Enforcers)) {
		mine, theirs := b.Enforcers[name], o.Enforcers[name]
		switch {
		case mine.Module != theirs.Module || !reflect.DeepEqual(mine.Params, theirs.Params):
			return "enforcers." + name + " is missing or another module"
		case mine.Mode == Hard && theirs.Mode != Hard:
			return "enforcers." + name + ".mode is weaker"
		}
	}
	return ""
}

// allCovered reports whether each of list is covered by a single one of by.
func allCovered[T any](list, by []T, covers func(a, b T) bool) bool {
	for _, x := range list {
		if !slices.ContainsFunc(by, func(y T) bool { return covers(y, x) }) {
			return false
		}
	}
	return true
}

func subset[T comparable](list, of []T) bool {
	return allCovered(list, of, func(a, b T) bool { return a == b })
}

// MostSpecific returns the index of the one bundle that all others cover. If
// there is none, the one with the highest priority; -1 when that is a tie.
func MostSpecific(candidates []*Bundle) int {
	narrowest := -1
	for i, b := range candidates {
		byAll := true
		for j, other := range candidates {
			if ok, _ := other.Covers(b); i != j && !ok {
				byAll = false
			}
		}
		if byAll && narrowest >= 0 {
			narrowest = -1 // two that cover each other: neither is the smaller
			break
		}
		if byAll {
			narrowest = i
		}
	}
	if narrowest >= 0 {
		return narrowest
	}
	best, tie := -1, true
	for i, b := range candidates {
		switch {
		case best < 0 || b.Priority > candidates[best].Priority:
			best, tie = i, false
		case b.Priority == candidates[best].Priority:
			tie = true
		}
	}
	if tie {
		return -1
	}
	return best
}
