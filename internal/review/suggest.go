package review

import (
	"context"
	"fmt"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"golang.org/x/net/publicsuffix"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/authority"
	"gatehouse/internal/event"
	"gatehouse/internal/netguard"
	"gatehouse/internal/view"
)

// enough is how many independent events must want something before it is
// offered: one event may be one attacker.
const enough = 2

// Ladder offers changes of a bundle that would allow a group, the narrowest
// first, except that a set of the node comes before all when the agents asked
// for several of its hosts. None is a recommendation; each says what it gives.
type Ladder struct {
	Group  view.Group `json:"group"`
	Base   string     `json:"base" doc:"digest of the version in force that the candidates start from"`
	Events int        `json:"events" doc:"independent events of sufficient floor behind the group"`
	Rungs  []Rung     `json:"rungs"`
	Refuse string     `json:"refuse,omitempty" doc:"why nothing is offered"`
}

// Rung is one candidate.
type Rung struct {
	Kind      string   `json:"kind" enum:"exact,host,set,wildcard,model,operation"`
	Title     string   `json:"title"`
	Authority []string `json:"authority" doc:"what sessions could do that they cannot do now, in words"`
	Entry     string   `json:"entry" doc:"the YAML to add to the bundle"`
	Candidate string   `json:"candidate" doc:"the whole bundle with the entry, as YAML"`
	Digest    string   `json:"digest" doc:"of the candidate"`
	Diff      string   `json:"diff"`
	Covers    uint64   `json:"covers" doc:"past attempts of this bundle that it would allow, by their templates"`
	Groups    int      `json:"groups" doc:"groups that those attempts are in"`
	Caution   []string `json:"caution,omitempty" doc:"why this must not be one click: the name is looked at letter by letter first"`
}

// sufficient is the floor that evidence must have: whatever a bundle accepts, an
// outsider's words must not write its rules.
func sufficient(accepts event.Origin) event.Origin {
	if accepts.Below(event.Member) {
		return event.Member
	}
	return accepts
}

// Suggest returns the ladder of a group.
func (r *Review) Suggest(ctx context.Context, id string) (Ladder, error) {
	d, err := r.Group(ctx, id)
	if err != nil {
		return Ladder{}, err
	}
	f, err := r.inForce(ctx, d.Bundle)
	if err != nil {
		return Ladder{}, err
	}
	b := f.Bundle
	floor := sufficient(b.Accepts)
	strict, err := r.o.View.Group(id, func(string) event.Origin { return floor })
	if err != nil {
		return Ladder{}, err
	}
	l := Ladder{Group: d.Group, Base: fmt.Sprintf("%x", b.Digest()), Events: strict.Events, Rungs: []Rung{}}
	if l.Refuse = refusal(&d.Group, strict.Events, floor); l.Refuse != "" {
		return l, nil
	}
	all := r.o.View.GroupsOf(d.Bundle, floor)
	for _, o := range r.offers(b, &d.Group, all) {
		next, src, err := r.candidate(b, o.edit)
		if err != nil {
			continue // not a bundle: nothing to offer
		}
		rung := Rung{Kind: o.kind, Title: o.title, Candidate: string(src), Digest: fmt.Sprintf("%x", next.Digest()), Caution: o.caution, Authority: Growth(b, next)}
		if rung.Diff, err = Diff(b, next); err != nil {
			return l, err
		}
		entry, err := yaml.Marshal(map[string]any{o.key: []any{o.entry}})
		if err != nil {
			return l, err
		}
		rung.Entry = string(entry)
		rung.Covers, rung.Groups = covered(all, &d.Group, o, r.o.Sets, next)
		if rung.Covers > 0 && !slices.ContainsFunc(l.Rungs, func(have Rung) bool { return have.Digest == rung.Digest }) {
			l.Rungs = append(l.Rungs, rung)
		}
	}
	if len(l.Rungs) == 0 {
		l.Refuse = "no single entry of a bundle allows exactly this; edit the bundle and simulate it"
	}
	return l, nil
}

// refusal says why nothing is offered for a group.
func refusal(g *view.Group, events int, floor event.Origin) string {
	switch {
	case g.Host == "*":
		return "more targets were tried than groups are kept; look at the sessions"
	case g.Implied:
		return "the requests to this host are groups of their own: decide there, the name and the tunnel follow"
	case events < enough:
		return fmt.Sprintf("independent events of floor %s or higher behind it: %d, and %d are needed: what one event asks for may be what one attacker asks for", floor, events, enough)
	}
	switch g.Reason {
	case enforcers.CodeIPLiteral, enforcers.CodeRelay, enforcers.CodeMetadata, enforcers.CodeSpecialName, enforcers.CodeAddressNotPublic, enforcers.CodeLoop:
		return closed[g.Reason]
	}
	switch g.Kind {
	case "http.request", "model.call", "operation.call":
	case "net.connect", "dns.query":
		return "only a name or a tunnel was asked for; nothing shows what for"
	default:
		return "authority over " + g.Kind + " is written by hand, not offered"
	}
	if g.Host != "" {
		if class, ok := netguard.Name(g.Host); !ok {
			return "the name is of class " + string(class) + ", which no rule opens"
		}
		if netguard.Relay(g.Host) {
			return closed[enforcers.CodeRelay]
		}
	}
	return ""
}

// offer is one entry that a bundle could have.
type offer struct {
	kind, title string
	key         string // list of the bundle
	entry       any
	edit        func(tree) error
	caution     []string
	host        string // pattern of an egress entry
}

// offers are the entries for a group, narrow to wide.
func (r *Review) offers(b *bundle.Bundle, g *view.Group, all []view.Group) []offer {
	switch g.Kind {
	case "model.call":
		return []offer{{kind: "model", title: "this model on connection " + g.Connection, key: "models", entry: map[string]any{"connection": g.Connection, "allow": []any{g.Name}}, edit: allowModel(g.Connection, g.Name)}}
	case "operation.call":
		return []offer{{kind: "operation", title: "operation " + g.Name, key: "operations", entry: g.Name, edit: addTo("operations", g.Name)}}
	}
	host := ruleHost(g.Host)
	caution := r.lookalike(b, g.Host)
	entry := func(host string, methods, paths []string) map[string]any {
		e := map[string]any{"host": host, "methods": methods}
		if len(paths) > 0 {
			e["paths"] = paths
		}
		if g.Scheme == "http" {
			e["schemes"] = []string{"http"}
		}
		if g.Port != 443 && g.Port != 0 {
			e["ports"] = []int{g.Port}
		}
		return e
	}
	egress := func(kind, title, host string, e map[string]any, caution []string) offer {
		return offer{kind: kind, title: title, key: "egress", entry: e, edit: addTo("egress", e), caution: caution, host: host}
	}
	if strings.Contains(host, "*") {
		caution = append(caution, "a machine makes these names up, so the rule is a wildcard: whoever can have a name under "+strings.TrimLeft(host, "*.")+" can receive what the agent sends")
		if publicSuffix(host) {
			return nil
		}
	}
	var out []offer
	// A template's stars stand for one segment each, as a rule's do.
	if g.Path != "" {
		out = append(out, egress("exact", g.Method+" "+host+g.Path, host, entry(host, []string{g.Method}, []string{g.Path}), caution))
	}
	methods := []string{g.Method}
	for _, o := range all {
		if o.Kind == g.Kind && o.Host == g.Host && !slices.Contains(methods, o.Method) && o.Events >= enough {
			methods = append(methods, o.Method)
		}
	}
	slices.Sort(methods)
	out = append(out, egress("host", strings.Join(methods, ", ")+" "+host+", every path", host, entry(host, methods, nil), caution))
	for _, name := range r.o.Names() {
		if set, err := r.o.Sets.Set(name); err == nil && setHolds(set, g) {
			e := map[string]any{"set": name}
			at := len(out)
			if hostsIn(set, all) >= severalHosts {
				at = 0
			}
			o := offer{kind: "set", title: fmt.Sprintf("the node's set %s, %d hosts", name, len(set.Hosts)), key: "egress", entry: e, edit: addTo("egress", e)}
			if _, held := b.Sets[name]; held {
				o.title, o.edit = fmt.Sprintf("the node's set %s as it is now, %d hosts", name, len(set.Hosts)), readAgain(name)
			}
			out = slices.Insert(out, at, o)
		}
	}
	if parent := "*." + after(g.Host); !strings.Contains(host, "*") && siblings(all, g) > 0 && !publicSuffix(parent) {
		out = append(out, egress("wildcard", strings.Join(methods, ", ")+" "+parent, parent, entry(parent, methods, nil),
			append(slices.Clone(caution), "every name one level under "+after(g.Host)+" is reached, those that nobody has asked for too")))
	}
	return out
}

func after(host string) string {
	_, rest, _ := strings.Cut(host, ".")
	return rest
}

// siblings counts other hosts beside a group's, under one parent.
func siblings(all []view.Group, g *view.Group) int {
	hosts := map[string]bool{}
	for _, o := range all {
		if o.Host != g.Host && after(o.Host) == after(g.Host) && o.Events >= enough {
			hosts[o.Host] = true
		}
	}
	return len(hosts)
}

// publicSuffix reports whether a wildcard stands directly under a suffix where
// anybody can have a name.
func publicSuffix(pattern string) bool {
	rest := strings.TrimLeft(pattern, "*.")
	suffix, _ := publicsuffix.PublicSuffix(rest)
	return suffix == rest
}

// ruleHost turns a host's template into the narrowest host pattern of a rule.
func ruleHost(template string) string {
	at := strings.LastIndex(template, "*")
	if at < 0 {
		return template
	}
	if at == 0 {
		return template // *.rest
	}
	return "**" + template[at+1:]
}

func setHolds(set *bundle.Set, g *view.Group) bool {
	for _, host := range set.Hosts {
		p, err := authority.ParsePattern(host)
		if err == nil && p.MatchHost(strings.ReplaceAll(g.Host, "*", "x")) {
			x := rule{pat: p, host: host, e: bundle.Egress{Ports: set.Ports, Schemes: set.Schemes, Methods: set.Methods, Paths: set.Paths}}
			return len(x.lacks(targetOfGroup(g))) == 0
		}
	}
	return false
}

// severalHosts is how many hosts of one set agents ask for before the set is
// offered first: one entry that was made from the client's own configuration,
// not ten that somebody collects refusal by refusal.
const severalHosts = 2

// hostsIn counts the hosts that a set would open of those that enough
// independent events asked for. One event names hosts as it likes, so that it
// does not move the set.
func hostsIn(set *bundle.Set, all []view.Group) int {
	hosts := map[string]bool{}
	for i := range all {
		o := &all[i]
		if o.Kind == "http.request" && o.Events >= enough && o.WouldBlock+o.Refused > 0 && setHolds(set, o) {
			hosts[o.Host] = true
		}
	}
	return len(hosts)
}

func targetOfGroup(g *view.Group) target {
	return target{kind: g.Kind, scheme: g.Scheme, host: strings.ReplaceAll(g.Host, "*", "x"), method: g.Method, path: g.Path, port: g.Port}
}

// covered counts the past attempts that a candidate allows and the bundle in
// force does not, by their templates.
func covered(all []view.Group, g *view.Group, o offer, sets bundle.SetResolver, next *bundle.Bundle) (attempts uint64, groups int) {
	if o.key != "egress" {
		return g.WouldBlock + g.Refused, 1
	}
	have := rules(next, sets)
	for i := range all {
		x := &all[i]
		if x.Rule != g.Rule || x.Reason != g.Reason || x.Kind != g.Kind {
			continue
		}
		t := targetOfGroup(x)
		if slices.ContainsFunc(have, func(r rule) bool { return len(r.lacks(t)) == 0 }) {
			attempts, groups = attempts+x.WouldBlock+x.Refused, groups+1
		}
	}
	return attempts, groups
}

// lookalike says what is suspicious about a name: letters outside ASCII, or a
// registrable name that is nearly one that the bundle or a set has already.
func (r *Review) lookalike(b *bundle.Bundle, host string) []string {
	var out []string
	if strings.Contains(host, "xn--") {
		out = append(out, "the name holds letters outside ASCII, which may look like others")
	}
	mine := registrable(host)
	var known []string
	for _, x := range rules(b, r.o.Sets) {
		known = append(known, registrable(strings.TrimLeft(x.host, "*.")))
	}
	for _, name := range r.o.Names() {
		if set, err := r.o.Sets.Set(name); err == nil {
			for _, h := range set.Hosts {
				known = append(known, registrable(strings.TrimLeft(h, "*.")))
			}
		}
	}
	slices.Sort(known)
	for _, have := range slices.Compact(known) {
		if have != "" && have != mine && (skeleton(have) == skeleton(mine) || len(mine) > 5 && distance1(have, mine)) {
			out = append(out, "the name is nearly "+have+", which is listed already")
		}
	}
	return out
}

func registrable(host string) string {
	d, err := publicsuffix.EffectiveTLDPlusOne(strings.TrimLeft(strings.ReplaceAll(host, "*", ""), "."))
	if err != nil {
		return ""
	}
	return d
}

var confusable = strings.NewReplacer("rn", "m", "vv", "w", "cl", "d", "0", "o", "1", "l", "i", "l", "5", "s", "-", "")

// skeleton is a name as an eye in a hurry reads it.
func skeleton(s string) string { return confusable.Replace(s) }

// distance1 reports whether two names differ by one letter: another one, one
// more, or two neighbours changed about.
func distance1(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		if i == len(a) {
			return false
		}
		return a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}
