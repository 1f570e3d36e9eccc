package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/strictyaml"
)

// Codes of lint problems, a closed list (docs/bundles.md explains each).
const (
	LintTemplateNamesText     = "template_names_text"    // `where`, the task, a key or `by` names a value that somebody wrote; the message says its pointer
	LintUnknownFact           = "unknown_fact"           // `where`, the task, a key or `by` names something that the kind does not have
	LintUnknownKind           = "unknown_kind"           // no session starts from this kind of event
	LintUnknownEndpoint       = "unknown_endpoint"       // the node has no such endpoint, or it has another source
	LintUnknownProvider       = "unknown_provider"       // the node has no such provider
	LintUnknownConnection     = "unknown_connection"     // the node has no such connection
	LintConnectionKind        = "connection_kind"        // the connection is of a kind that does not belong here
	LintConnectionHost        = "connection_host"        // the connection is bound to another host than the rule names
	LintUnknownSet            = "unknown_set"            // there is no such egress set, or its file is wrong
	LintSetDiffers            = "set_differs"            // warning: `sets` holds another content than the node's file of that name
	LintUnknownBundle         = "unknown_bundle"         // `children` names a bundle that is not there
	LintBundleNotCovered      = "bundle_not_covered"     // a child may do something that this bundle may not
	LintUnknownModule         = "unknown_module"         // the node does not have the module with this digest
	LintBuiltinName           = "builtin_name"           // an added enforcer is called like a built-in one
	LintRepositoryNotListed   = "repository_not_listed"  // the repository is not in the node's `repositories`
	LintNoRepositoryFact      = "no_repository_fact"     // `git.repository: session`, and the kind carries no repository
	LintDeliverUnknown        = "deliver_unknown"        // warning: `deliver` names text that the kind is not known to have
	LintWildcardPublicSuffix  = "wildcard_public_suffix" // a wildcard stands directly under a suffix where anybody can have a name
	LintAddressNotInternal    = "address_not_internal"   // `addresses` lies outside the node's `internal_networks`
	LintExpired               = "expired"                // an exception has ended
	LintModelsWithoutSpend    = "models_without_spend"   // models are listed and no money may be spent
	LintSharedWritableMount   = "shared_writable_mount"  // a child mounts something for writing
	LintPrivateMount          = "private_mount"          // a mount holds the node's own secrets or lies among them
	LintCheckoutWithoutGit    = "checkout_without_git"   // `workspace.checkout` without `git`
	LintCheckoutWithoutSCM    = "checkout_without_scm"   // warning: `workspace.checkout`, and the node has no connection of kind scm to check out by
	LintOnEndNotListed        = "on_end_not_listed"      // `on_start` or `on_end` names an operation that `operations` does not
	LintNeverStarts           = "never_starts"           // warning: nothing in `match`, so only a parent can start it
	LintPreferSet             = "prefer_set"             // warning: three hosts or more are listed one by one that one egress set of the node holds
	LintAcceptsBelowMember    = "accepts_below_member"   // warning: `accepts` is below member, which shadow mode does not admit without `shadow_outsiders`
	LintEntityWithoutIdentity = "entity_missing"         // a ref holds `{entity}`, and the event is about nothing
)

// Problem is one finding. Error findings keep a bundle from being applied;
// the others are said once and left to the author.
type Problem struct {
	Code    string
	Pointer string // JSON pointer into the bundle
	Line    int    // in the file, 0 if unknown
	Msg     string
	Hint    string
	Warning bool
}

// String is the line that lint prints.
func (p Problem) String() string {
	s := fmt.Sprintf("line %d: %s: %s (%s)", p.Line, p.Pointer, p.Msg, p.Code)
	if p.Hint != "" {
		s += "; " + p.Hint
	}
	return s
}

// Connection is what lint must know of a named connection.
type Connection struct {
	Kind string // model | scm | http | telemetry
	Host string // the host it may be added for, "" if it has no fixed one
	API  string // of kind scm: the other host it may be added for
}

// LintContext is the node that a bundle is to run on. Every field says what the
// node has: an absent name is a problem, not an unknown.
type LintContext struct {
	Endpoints    map[string]string     // name -> source
	Connections  map[string]Connection // by name
	Providers    []string
	Repositories map[string]string  // id -> owner/name
	Bundles      map[string]*Bundle // by name, for children
	Sets         SetResolver
	SetNames     []string                 // every set that Sets resolves
	Modules      func(module string) bool // whether the node has name@sha256:digest; nil = none
	Internal     []netip.Prefix           // internal_networks
	// Private reports whether a host path holds the node's own secrets, or lies in
	// a folder of them; nil = none does.
	Private func(path string) bool
	// Kinds returns what a source states about a kind of event, false for a kind
	// without a table. The kinds of webhook, standard-webhooks and cron are the
	// operator's own and are not asked for.
	Kinds func(source, kind string) (Vocabulary, bool)
	Now   time.Time
}

type linter struct {
	b   *Bundle
	c   LintContext
	out []Problem
}

// Lint judges the bundle against a node. The findings are in the file's order.
func Lint(b *Bundle, c LintContext) []Problem {
	l := &linter{b: b, c: c}
	l.triggers()
	l.templates()
	l.session()
	l.egress()
	l.preferSet()
	l.heldSets()
	l.grants()
	l.git()
	slices.SortStableFunc(l.out, func(x, y Problem) int { return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Pointer, y.Pointer)) })
	// A name is judged once for each trigger.
	return slices.Compact(l.out)
}

// Blocks reports whether any finding keeps the bundle from being applied.
func Blocks(found []Problem) bool {
	return slices.ContainsFunc(found, func(p Problem) bool { return !p.Warning })
}

func (l *linter) add(code, pointer, hint, format string, args ...any) {
	l.out = append(l.out, Problem{Code: code, Pointer: pointer, Line: l.b.line(pointer), Msg: fmt.Sprintf(format, args...), Hint: hint})
}

func (l *linter) warn(code, pointer, hint, format string, args ...any) {
	l.add(code, pointer, hint, format, args...)
	l.out[len(l.out)-1].Warning = true
}

func (l *linter) hasSCM() bool {
	for _, c := range l.c.Connections {
		if c.Kind == "scm" {
			return true
		}
	}
	return false
}

func (l *linter) triggers() {
	if len(l.b.Triggers) == 0 {
		l.warn(LintNeverStarts, "/match", "", "no event starts this bundle; it can only be a child's")
	}
	if l.b.Accepts.Below(event.Member) && l.b.Mode == Shadow && l.b.ShadowOutsiders == nil {
		l.warn(LintAcceptsBelowMember, "/accepts", "write shadow_outsiders: {reason, expires}, or start in hard mode",
			"accepts %s, but in shadow mode only member or higher is admitted", l.b.Accepts)
	}
	l.expiry("/shadow_outsiders", l.b.ShadowOutsiders)
	l.expiry("/credentials/compatibility", l.b.Credentials.Weaker)
	for i, t := range l.b.Triggers {
		at := "/match/" + strconv.Itoa(i)
		if source, ok := l.c.Endpoints[t.Endpoint]; t.Endpoint != "" && (!ok || source != t.Source) {
			l.add(LintUnknownEndpoint, at+"/endpoint", near(t.Endpoint, maps.Keys(l.c.Endpoints)), "there is no %s endpoint %q", t.Source, t.Endpoint)
		}
		for k, written := range t.Kinds {
			kind, _, _ := strings.Cut(written, ".")
			if !l.knows(t.Source, kind) {
				l.add(LintUnknownKind, at+"/kinds/"+strconv.Itoa(k), near(kind, maps.Keys(deliverByDefault[t.Source])), "no session starts from %s events of kind %q", t.Source, kind)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(t.Where)) {
			l.name(&t, name, at+"/where/"+event.Escape(name))
		}
	}
}

// knows reports whether sessions can start from the kind.
func (l *linter) knows(source, kind string) bool {
	_, ok := l.vocabulary(source, kind)
	return event.Startable(kind) && (ok || named(source))
}

// named reports whether operators name the source's kinds themselves.
func named(source string) bool {
	return source == "webhook" || source == "standard-webhooks" || source == "cron"
}

func (l *linter) vocabulary(source, kind string) (Vocabulary, bool) {
	if l.c.Kinds == nil || named(source) {
		return Vocabulary{}, false
	}
	return l.c.Kinds(source, kind)
}

// name judges one fact's name for one trigger.
func (l *linter) name(t *Trigger, name, pointer string) {
	if name == nameOfRepository || name == nameOfEntity {
		return
	}
	for _, written := range t.Kinds {
		kind, _, _ := strings.Cut(written, ".")
		known, ok := l.vocabulary(t.Source, kind)
		if !ok || slices.Contains(known.Facts, name) {
			continue
		}
		// What names text would let somebody's words steer a session: WA-03 asks for the pointer.
		if text := textAt(known, name); text != "" {
			l.add(LintTemplateNamesText, pointer, "use a fact; text reaches the agent only in /gatehouse/event.md", "%s names text (%s), which somebody outside may have written", name, text)
		} else {
			l.add(LintUnknownFact, pointer, near(name, slices.Values(slices.Concat(known.Facts, []string{nameOfRepository, nameOfEntity}))), "%s events have no fact %s", written, name)
		}
		return
	}
}

// textAt returns the text pointer that a dotted name spells, whole or from its end.
func textAt(k Vocabulary, name string) string {
	spelled := "/" + strings.ReplaceAll(name, ".", "/")
	for _, p := range k.Text {
		if p == spelled || strings.HasSuffix(p, spelled) || strings.HasPrefix(p, spelled+"/") || strings.HasPrefix(spelled, "/text/") && strings.HasSuffix(p, spelled[len("/text"):]) {
			return p
		}
	}
	return ""
}

func (l *linter) templates() {
	for i := range l.b.Triggers {
		t := &l.b.Triggers[i]
		for _, name := range templateNames(l.b.Session.Task) {
			l.name(t, name, "/session/task")
		}
		if c := l.b.Session.Concurrency; c != nil {
			l.name(t, c.Key, "/session/concurrency/key")
		}
		if g := l.b.Git; g != nil && g.Repository.By != "" {
			l.name(t, g.Repository.By, "/git/repository/by")
		}
		for _, written := range t.Kinds {
			kind, _, _ := strings.Cut(written, ".")
			known, ok := l.vocabulary(t.Source, kind)
			if !ok {
				continue
			}
			for k, p := range l.b.Session.Deliver {
				if !slices.Contains(known.Passages, p) {
					l.warn(LintDeliverUnknown, "/session/deliver/"+strconv.Itoa(k), near(p, slices.Values(known.Passages)), "%s events are not known to have text at %s", written, p)
				}
			}
			if g := l.b.Git; g != nil && g.Repository.Name == SessionRepository && !slices.Contains(known.Facts, idOfRepository) {
				l.add(LintNoRepositoryFact, "/git/repository", "name it, or map a fact to it", "%s events carry no repository, so git.repository cannot be session", written)
			}
		}
	}
}

func (l *linter) session() {
	s := &l.b.Session
	if !slices.Contains(l.c.Providers, s.Provider) {
		l.add(LintUnknownProvider, "/session/provider", near(s.Provider, slices.Values(l.c.Providers)), "the node has no provider %q", s.Provider)
	}
	if s.Workspace.Checkout && l.b.Git == nil {
		l.add(LintCheckoutWithoutGit, "/session/workspace/checkout", "add git.repository", "there is nothing to check out")
	} else if s.Workspace.Checkout && !l.hasSCM() {
		l.warn(LintCheckoutWithoutSCM, "/session/workspace/checkout", "add one under connections: in the configuration", "the node has no connection of kind scm, so every session of the bundle will fail")
	}
	for i, m := range s.Mounts {
		// An ordinary user's sessions run under the node's own user, who may read them.
		if l.c.Private != nil && l.c.Private(m.Source) {
			l.add(LintPrivateMount, "/session/mounts/"+strconv.Itoa(i), "mount a folder that has none of them", "%s holds the node's own secrets", m.Source)
		}
	}
	l.listed("on_start", s.OnStart)
	l.listed("on_end", s.OnEnd)
	if s.Children == nil {
		return
	}
	for i, name := range s.Children.Bundles {
		at := "/session/children/bundles/" + strconv.Itoa(i)
		child, ok := l.c.Bundles[name]
		if !ok {
			l.add(LintUnknownBundle, at, near(name, maps.Keys(l.c.Bundles)), "there is no bundle %q", name)
			continue
		}
		if ok, why := l.b.Covers(child); !ok {
			l.add(LintBundleNotCovered, at, "narrow the child or widen this bundle", "%s is not covered: %s", name, why)
		}
		for _, m := range child.Session.Mounts {
			if m.Mode == "write" {
				l.add(LintSharedWritableMount, at, "mount it for reading", "%s writes %s, which its parent shares", name, m.Source)
			}
		}
	}
}

func (l *linter) egress() {
	for i := range l.b.Egress {
		e, at := &l.b.Egress[i], "/egress/"+strconv.Itoa(i)
		if e.Set != "" {
			if held, ok := l.b.Sets[e.Set]; ok {
				for k := range held.rules {
					l.host(&held.rules[k], at+"/set")
				}
			} else if l.c.Sets == nil {
				l.add(LintUnknownSet, at+"/set", "make it with gatehouse set add "+e.Set, "there is no egress set %q", e.Set)
			} else if set, err := l.c.Sets.Set(e.Set); err != nil {
				l.add(LintUnknownSet, at+"/set", problem.HintOf(err), "%v", err)
			} else {
				for k := range set.rules {
					l.host(&set.rules[k], at+"/set")
				}
			}
			continue
		}
		l.host(e, at)
		if e.Connection == "" {
			continue
		}
		if c, ok := l.connection(e.Connection, at+"/connection", "http", "scm"); ok && c.Host != "" && c.Host != e.Host && (c.API == "" || c.API != e.Host) {
			l.add(LintConnectionHost, at+"/host", "the credential is only ever added for its own host", "connection %s is bound to another host", e.Connection)
		}
	}
}

// manyHosts is how many hosts of one set a bundle lists before the set is said
// to be what was meant.
const manyHosts = 3

// preferSet says which entries one set would stand for: what the client's
// configuration names can change, and a set is made from it again.
func (l *linter) preferSet() {
	if l.c.Sets == nil {
		return
	}
	for _, name := range l.c.SetNames {
		set, err := l.c.Sets.Set(name)
		if err != nil {
			continue // said where a bundle names it
		}
		first, hosts := -1, map[string]bool{}
		for i := range l.b.Egress {
			e := &l.b.Egress[i]
			if e.Set == "" && slices.ContainsFunc(indices(set.rules), func(k int) bool { return set.rules[k].covers(e) }) {
				if hosts[e.Host] = true; first < 0 {
					first = i
				}
			}
		}
		if len(hosts) >= manyHosts {
			l.warn(LintPreferSet, "/egress/"+strconv.Itoa(first), "write {set: "+name+"} for them", "%d hosts that are listed one by one are in the set %s", len(hosts), name)
		}
	}
}

// heldSets says where a file that holds its sets itself differs from the node's:
// making a set again does not reach it.
func (l *linter) heldSets() {
	if l.c.Sets == nil {
		return
	}
	for _, c := range l.b.SetChanges(l.c.Sets) {
		if c.Unreadable == "" {
			l.warn(LintSetDiffers, "/sets/"+c.Set, "remove sets to take the node's", "the node's %s", c)
		}
	}
}

func (l *linter) host(e *Egress, at string) {
	host := e.Host + e.TCP
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(host, "*"), "*."); ok || strings.HasPrefix(host, "*.") {
		if !ok {
			rest = host[2:]
		}
		// Anybody can have a name under a public suffix: the rule would list nobody in particular.
		if suffix, icann := publicsuffix.PublicSuffix(rest); suffix == rest && (icann || strings.Contains(suffix, ".")) {
			l.add(LintWildcardPublicSuffix, at+"/host", "name the hosts", "%s is a wildcard over a public suffix", host)
		}
	}
	for k, p := range e.Addresses {
		if !slices.ContainsFunc(l.c.Internal, func(n netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Contains(p.Addr()) }) {
			l.add(LintAddressNotInternal, at+"/addresses/"+strconv.Itoa(k), "add the network to internal_networks", "%s lies in none of the node's internal networks", p)
		}
	}
}

func (l *linter) grants() {
	for i, m := range l.b.Models {
		l.connection(m.Connection, "/models/"+strconv.Itoa(i)+"/connection", "model")
	}
	if len(l.b.Models) > 0 && l.b.Spend == nil {
		l.add(LintModelsWithoutSpend, "/models", "add spend.limit", "no money may be spent, so every model call would be refused")
	}
	for i, name := range l.b.Telemetry {
		l.connection(name, "/telemetry/"+strconv.Itoa(i), "telemetry")
	}
	for _, name := range slices.Sorted(maps.Keys(l.b.Enforcers)) {
		if slices.Contains(builtins, name) {
			l.add(LintBuiltinName, "/enforcers/"+name, "rename it", "%s is a built-in enforcer, which every session has", name)
		}
		if m := l.b.Enforcers[name].Module; l.c.Modules == nil || !l.c.Modules(m) {
			l.add(LintUnknownModule, "/enforcers/"+name+"/module", "add it with gatehouse enforcer add FILE", "the node does not have %s", m)
		}
	}
}

// builtins are the enforcers that decide from the bundle. Receipts tell enforcers
// by name, so that no other may have theirs.
var builtins = []string{"egress", "git", "spend"}

func (l *linter) connection(name, pointer string, kinds ...string) (Connection, bool) {
	c, ok := l.c.Connections[name]
	switch {
	case !ok:
		l.add(LintUnknownConnection, pointer, near(name, maps.Keys(l.c.Connections)), "the node has no connection %q", name)
	case !slices.Contains(kinds, c.Kind):
		l.add(LintConnectionKind, pointer, "", "connection %s is of kind %s, not %s", name, c.Kind, strings.Join(kinds, " or "))
	default:
		return c, true
	}
	return c, false
}

func (l *linter) git() {
	g := l.b.Git
	if g == nil {
		return
	}
	listed := func(name, pointer string) {
		for _, n := range l.c.Repositories {
			if strings.EqualFold(n, name) {
				return
			}
		}
		l.add(LintRepositoryNotListed, pointer, "add its id and name to repositories: in the configuration", "the node does not list %s", name)
	}
	switch {
	case g.Repository.By != "":
		for _, value := range slices.Sorted(maps.Keys(g.Repository.Map)) {
			listed(g.Repository.Map[value], "/git/repository/map/"+event.Escape(value))
		}
	case g.Repository.Name != SessionRepository:
		listed(g.Repository.Name, "/git/repository")
	}
	for i, s := range g.Siblings {
		listed(s.Repository, "/git/siblings/"+strconv.Itoa(i)+"/repository")
	}
	if len(l.b.Triggers) == 0 || g.Push == nil {
		return
	}
	for i, ref := range g.Push.Refs {
		if strings.Contains(ref, entityMark) && slices.ContainsFunc(l.b.Triggers, func(t Trigger) bool { return t.Source == "cron" }) {
			l.add(LintEntityWithoutIdentity, "/git/push/refs/"+strconv.Itoa(i), "write a ref without {entity}", "a cron event is about nothing, so {entity} stands for nothing")
		}
	}
}

func (l *linter) expiry(pointer string, e *Exception) {
	if e != nil && e.over(l.c.Now) {
		l.add(LintExpired, pointer+"/expires", "remove it, or have it renewed", "ended at %s", e.Expires)
	}
}

// near words a did-you-mean.
func near(s string, known func(func(string) bool)) string {
	if n := strictyaml.Nearest(s, slices.Sorted(known)); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return ""
}

// listed finds operations of a field that operations does not list.
func (l *linter) listed(field string, all []string) {
	for i, op := range all {
		if !slices.Contains(l.b.Operations, op) {
			l.add(LintOnEndNotListed, "/session/"+field+"/"+strconv.Itoa(i), "add it to operations", "%s is not among the bundle's operations", op)
		}
	}
}
