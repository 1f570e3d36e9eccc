package bundle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"gatehouse/internal/authority"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/strictyaml"
)

// Defaults that Parse writes into a bundle.
const (
	defaultTimeout = Duration(45 * time.Minute)
	maxTimeout     = Duration(24 * time.Hour)
	defaultQuota   = Size(10 << 30)
	defaultNames   = 32
	defaultUp      = Size(1 << 20)
	telemetryUp    = Size(8 << 20)  // a report of 4 MiB, rewritten
	modelUp        = Size(32 << 20) // conversations grow, and hold images; the mediator reads them whole
	defaultDown    = Size(256 << 20)
	defaultIdle    = Duration(10 * time.Minute)
	maxWindow      = 30 * 24 * time.Hour
)

var defaultPerEntity = Rate{N: 3, Per: 24 * time.Hour}

// factsPrefix may stand before a fact's name and means nothing.
const factsPrefix = "facts."

// Parse reads one bundle file. An unknown key, a wrong value or a second
// document is a *problem.Error with code config_invalid that names the line.
// The result has every default filled and is not changed afterwards.
//
// Canonical bytes are YAML too: Parse(b.Canonical()) has b's digest.
func Parse(src []byte) (*Bundle, error) {
	b, err := parse(src)
	if err != nil {
		return nil, err
	}
	// A version is kept as its canonical bytes and read again at every start. A
	// string that YAML escapes may hold but plain text may not would only show then.
	if again, err := parse(b.Canonical()); err != nil || again.Digest() != b.Digest() {
		return nil, invalid("bundle: holds characters that cannot be written out plainly", "remove control and invisible characters")
	}
	return b, nil
}

func parse(src []byte) (*Bundle, error) {
	b := &Bundle{}
	if err := strictyaml.Decode("bundle", src, b); err != nil {
		return nil, err
	}
	b.lines = linesOf(src)
	if err := b.validate(); err != nil {
		return nil, err
	}
	if err := b.normalize(); err != nil {
		return nil, err
	}
	return b, nil
}

// defaultDenyPaths are what a push must not change where deny_paths is left out:
// what runs by being there, what brings other repositories in, and who must be
// asked. Whoever lists paths lists all of them.
var defaultDenyPaths = []string{".github/CODEOWNERS", ".github/workflows/**", ".gitmodules", "CODEOWNERS", "docs/CODEOWNERS"}

// normalize fills defaults and writes names, hosts and sets of words in their
// only form, so that equal meaning is equal bytes.
func (b *Bundle) normalize() error {
	def(&b.Mode, Shadow)
	def(&b.PerEntity, defaultPerEntity)
	def(&b.Credentials.Policy, CredentialFree)
	for i := range b.Triggers {
		t := &b.Triggers[i]
		slices.Sort(t.Kinds)
		where := make(map[string]Condition, len(t.Where))
		for name, c := range t.Where {
			short := strings.TrimPrefix(name, factsPrefix)
			if _, twice := where[short]; twice {
				return b.bad("/match/"+strconv.Itoa(i)+"/where", short+" is written twice, with and without facts.", "keep one")
			}
			where[short] = c
		}
		if t.Where = where; len(where) == 0 {
			t.Where = nil
		}
	}
	b.Session.normalize()
	for i := range b.Egress {
		if err := b.Egress[i].normalize(); err != nil {
			return b.bad("/egress/"+strconv.Itoa(i), err.Error(), "")
		}
	}
	for name, c := range b.Sets {
		if msg, hint := c.normalize(); msg != "" {
			return b.bad("/sets/"+name, "sets."+name+": "+msg, hint)
		}
		b.Sets[name] = c
	}
	if g := b.Git; g != nil && g.Push != nil {
		if len(g.Push.DenyPaths) == 0 {
			g.Push.DenyPaths = slices.Clone(defaultDenyPaths)
		}
		slices.Sort(g.Push.Refs)
		slices.Sort(g.Push.DenyPaths)
	}
	for i := range b.Models {
		slices.Sort(b.Models[i].Allow)
	}
	slices.Sort(b.Operations)
	slices.Sort(b.Telemetry)
	for name, e := range b.Enforcers {
		def(&e.Mode, Shadow)
		b.Enforcers[name] = e
	}
	return nil
}

func (s *Session) normalize() {
	def(&s.Provider, "local")
	def(&s.Rootfs.Kind, "host")
	def(&s.Workspace.Quota, defaultQuota)
	def(&s.Timeout, defaultTimeout)
	slices.Sort(s.Deliver)
	for i := range s.Mounts {
		def(&s.Mounts[i].Mode, "read")
	}
	for i := range s.Caches {
		def(&s.Caches[i].Mode, "read")
	}
	if c := s.Concurrency; c != nil {
		c.Key = strings.TrimPrefix(c.Key, factsPrefix)
		def(&c.Max, 1)
		def(&c.Over, "queue")
	}
	if c := s.Children; c != nil {
		slices.Sort(c.Bundles)
		def(&c.Max, 1)
		def(&c.Depth, 1)
	}
	slices.Sort(s.OnStart)
	slices.Sort(s.OnEnd)
}

func (e *Egress) normalize() error {
	if e.Set != "" {
		return nil
	}
	for _, host := range []*string{&e.Host, &e.TCP} {
		if *host == "" {
			continue
		}
		p, err := authority.ParsePattern(*host)
		if err != nil {
			return err
		}
		*host = p.String()
		if p.Wildcard() {
			def(&e.Names, defaultNames)
		}
	}
	def(&e.Up, defaultUp)
	def(&e.Down, defaultDown)
	def(&e.Idle, defaultIdle)
	for i, p := range e.Addresses {
		e.Addresses[i] = p.Masked()
	}
	defList(&e.Ports, 443)
	if !e.blind() {
		defList(&e.Schemes, "https")
		defList(&e.Methods, "GET", "HEAD")
		defList(&e.Paths, "/**")
	}
	slices.Sort(e.Ports)
	slices.Sort(e.Schemes)
	slices.Sort(e.Methods)
	slices.Sort(e.Paths)
	return nil
}

// blind reports whether the rule's bytes are not looked into.
func (e *Egress) blind() bool { return e.TCP != "" || e.TLS != "" }

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func defList[T any](p *[]T, v ...T) {
	if len(*p) == 0 {
		*p = v
	}
}

// AcceptsIn returns the lowest origin that the bundle admits in mode: in shadow
// nothing stops an outsider's words from acting, so member is the least unless
// somebody wrote the exception down (DESIGN.md section 6).
func (b *Bundle) AcceptsIn(mode Mode, now time.Time) event.Origin {
	if mode == Shadow && b.Accepts.Below(event.Member) && b.ShadowOutsiders.over(now) {
		return event.Member
	}
	return b.Accepts
}

// linesOf maps each JSON pointer of the file to its line. The file has been
// decoded before, so that an error here only loses line numbers.
func linesOf(src []byte) map[string]int {
	lines := map[string]int{}
	var doc yaml.Node
	if yaml.Unmarshal(src, &doc) != nil || len(doc.Content) == 0 {
		return lines
	}
	var walk func(n *yaml.Node, at string)
	walk = func(n *yaml.Node, at string) {
		lines[at] = n.Line
		for i, c := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				walk(c, at+"/"+strconv.Itoa(i))
			case n.Kind == yaml.MappingNode && i%2 == 1:
				walk(c, at+"/"+event.Escape(n.Content[i-1].Value))
				lines[at+"/"+event.Escape(n.Content[i-1].Value)] = n.Content[i-1].Line
			}
		}
	}
	walk(doc.Content[0], "")
	return lines
}

// line returns the line of the nearest written ancestor of pointer, 0 if unknown.
func (b *Bundle) line(pointer string) int {
	for {
		if n, ok := b.lines[pointer]; ok {
			return n
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return 0
		}
		pointer = pointer[:i]
	}
}

func (b *Bundle) bad(pointer, msg, hint string) *problem.Error {
	if n := b.line(pointer); n > 0 {
		msg = "line " + strconv.Itoa(n) + ": " + msg
	}
	return invalid("bundle: "+msg, hint)
}
