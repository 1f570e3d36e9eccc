package bundle_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
)

// The properties of Covers, checked against a reader of the compiled policy
// that is as plain as possible and shares no code with Covers. The universe is
// small, so that generated bundles meet often and every action can be tried.

type policyDoc struct {
	Egress []struct {
		Host, Connection, Blind, Upgrade string
		Ports                            []int
		Schemes, Methods, Paths          []string
		EncodedSlash                     bool `json:"encoded_slash"`
		Up                               int64
	}
	Git *struct {
		Repository string
		Siblings   []struct{ Repository, Access string }
		Push       *struct {
			Refs          []string
			Force, Delete bool
			DenyPaths     []string `json:"deny_paths"`
		}
	}
	Models []struct {
		Connection string
		Allow      []string
		Max        int64 `json:"max_output_tokens"`
	}
	Operations, Telemetry []string
	Spend                 *struct{ Limit int64 }
	Children              *struct {
		Bundles    []string
		Max, Depth int
	}
}

// hostIs spells the host grammar out label by label.
func hostIs(pattern, host string) bool {
	ps, hs := strings.Split(pattern, "."), strings.Split(host, ".")
	if ps[0] != "*" && ps[0] != "**" {
		return pattern == host
	}
	under := len(hs) - (len(ps) - 1)
	if under < 1 || ps[0] == "*" && under != 1 || !slices.Equal(ps[1:], hs[under:]) {
		return false
	}
	return !slices.ContainsFunc(hs[:under], func(l string) bool { return strings.HasPrefix(l, "xn--") })
}

// segmentsAre matches a slash path where ** takes the rest and * one segment.
func segmentsAre(pattern, path string) bool {
	ps, ss := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, p := range ps {
		if p == "**" {
			return len(ss) > i
		}
		if i >= len(ss) || p != ss[i] && (p != "*" || ss[i] == "") {
			return false
		}
	}
	return len(ps) == len(ss)
}

// bound is what the door makes of a host and port as a whole.
func (p policyDoc) bound(host string, port int) (connection string, blind bool) {
	for _, r := range p.Egress {
		if hostIs(r.Host, host) && slices.Contains(r.Ports, port) {
			if connection == "" {
				connection = r.Connection
			}
			blind = blind || r.Blind != ""
		}
	}
	return connection, blind
}

// allowed lists every action of the universe that the policy allows, with what
// it may send: the first rule that allows an action caps it.
func allowed(p policyDoc) map[string]bool {
	out := map[string]bool{}
	allow := func(up int64, format string, a ...any) {
		action := fmt.Sprintf(format, a...)
		if out[action] {
			return
		}
		out[action] = true
		for _, mib := range []int64{2, 3} {
			out[fmt.Sprintf("%s, %d MiB", action, mib)] = mib<<20 <= up
		}
	}
	for _, host := range []string{"a.test", "b.a.test", "c.b.a.test", "xn--bcher-kva.a.test", "d.test"} {
		for _, r := range p.Egress {
			if !hostIs(r.Host, host) {
				continue
			}
			out["dns "+host] = true
			for _, port := range r.Ports {
				connection, blind := p.bound(host, port)
				if (r.Blind != "") != blind {
					continue // the door opens every tunnel there in the same way
				}
				up := r.Up
				if !blind {
					up = 0 // such a tunnel moves nothing: its requests have caps of their own
				}
				allow(up, "connect %s:%d blind=%v", host, port, blind)
				if r.Connection != connection {
					continue
				}
				for _, method := range r.Methods {
					for _, path := range []string{"/", "/v1", "/v1/", "/v1/x", "/v1/x/", "/v1/x/y", "/v1/z/y", "/v1/z/y/x", "/v1evil", "/z"} {
						if slices.ContainsFunc(r.Paths, func(p string) bool { return segmentsAre(p, path) }) {
							for _, s := range r.Schemes {
								allow(r.Up, "%s %s://%s:%d%s by %s", method, s, host, port, path, r.Connection)
								if r.EncodedSlash {
									allow(r.Up, "%s %s://%s:%d%s%%2f by %s", method, s, host, port, path, r.Connection)
								}
								if r.Upgrade != "" {
									allow(r.Up, "ws %s %s://%s:%d%s by %s", method, s, host, port, path, r.Connection)
								}
							}
						}
					}
				}
			}
		}
	}
	if g := p.Git; g != nil {
		out["fetch "+g.Repository] = true
		for _, s := range g.Siblings {
			out["fetch "+s.Repository] = true
		}
		if p := g.Push; p != nil {
			for _, ref := range []string{"refs/heads/main", "refs/heads/gatehouse/pr-1/x", "refs/heads/gatehouse/pr-2/x", "refs/heads/gatehouse/pr-1/x/y", "refs/heads/gatehouse", "refs/tags/v1"} {
				if !slices.ContainsFunc(p.Refs, func(r string) bool { return segmentsAre(r, ref) }) {
					continue
				}
				for _, changed := range []string{"a", "ci/a", "ci/b/c", ".github/workflows/x", ".github/x"} {
					if !slices.ContainsFunc(p.DenyPaths, func(d string) bool { return segmentsAre(d, changed) }) {
						out["push "+ref+" "+changed] = true
						out["force "+ref+" "+changed] = out["force "+ref+" "+changed] || p.Force
					}
				}
				out["delete "+ref] = p.Delete
			}
		}
	}
	for _, m := range p.Models {
		for _, name := range []string{"claude-sonnet-1", "claude-opus-1", "claude-", "x/claude-1"} {
			for _, a := range m.Allow {
				prefix, star := strings.CutSuffix(a, "*")
				if rest, ok := strings.CutPrefix(name, prefix); ok && (rest == "" || star && !strings.Contains(rest, "/")) && p.Spend != nil {
					for tokens := int64(1); tokens <= m.Max; tokens *= 10 {
						out[fmt.Sprintf("model %s %s %d", m.Connection, name, tokens)] = true
					}
				}
			}
		}
	}
	for _, o := range p.Operations {
		out["operation "+o] = true
	}
	for _, c := range p.Telemetry {
		out["telemetry "+c] = true
	}
	if s := p.Spend; s != nil {
		for n := int64(1e9); n <= s.Limit; n += 1e9 {
			out[fmt.Sprintf("spend %d", n)] = true
		}
	}
	if c := p.Children; c != nil {
		for _, name := range c.Bundles {
			for d := 1; d <= c.Depth; d++ {
				for n := 1; n <= c.Max; n++ {
					out[fmt.Sprintf("spawn %s %d %d", name, d, n)] = true
				}
			}
		}
	}
	return out
}

func some(t *rapid.T, label string, of ...string) []string {
	var out []string
	for _, s := range of {
		if rapid.Bool().Draw(t, label+" "+s) {
			out = append(out, s)
		}
	}
	return out
}

func pick(t *rapid.T, label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }

func list(of []string) string {
	q := make([]string, len(of))
	for i, s := range of {
		q[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(q, ", ") + "]"
}

func atLeastOne(list []string, or string) []string {
	if len(list) == 0 {
		return []string{or}
	}
	return list
}

// genBundle writes a bundle over the universe.
func genBundle(t *rapid.T, label string) string {
	var b strings.Builder
	b.WriteString(minimal)
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	if n := rapid.IntRange(0, 3).Draw(t, label+" rules"); n > 0 {
		line("egress:")
		for i := range n {
			l := fmt.Sprintf("%s rule %d ", label, i)
			host := pick(t, l+"host", "a.test", "b.a.test", "*.a.test", "**.a.test", "**.b.a.test", "xn--bcher-kva.a.test", "d.test")
			switch pick(t, l+"form", "read", "read", "read", "tcp", "tls") {
			case "tcp":
				line("  - {tcp: %q, ports: %s}", host, pick(t, l+"ports", "[443]", "[80]"))
			case "tls":
				line("  - {host: %q, tls: passthrough}", host)
			default:
				con := ""
				if !strings.HasPrefix(host, "*") && rapid.Bool().Draw(t, l+"con") {
					con = ", connection: " + pick(t, l+"connection", "c", "d")
				}
				schemes := "[https]"
				if con == "" && rapid.Bool().Draw(t, l+"plain") {
					schemes = "[http, https]"
				}
				line("  - {host: %q, ports: %s, schemes: %s, methods: %s, paths: %s, encoded_slash: %v%s%s%s}", host, pick(t, l+"ports", "[443]", "[80, 443]"), schemes,
					list(atLeastOne(some(t, l+"method", "GET", "POST"), "HEAD")), list(atLeastOne(some(t, l+"path", "/v1/**", "/v1", "/v1/x", "/**", "/v1/*", "/*", "/*/*/y", "/v1/x/y", "/v1/*/**"), "/z")),
					rapid.Bool().Draw(t, l+"slash"), con, pick(t, l+"upgrade", "", ", upgrade: websocket"), pick(t, l+"up", "", "", ", up: 2MiB", ", up: 3MiB"))
			}
		}
	}
	if strings.Contains(b.String(), "egress:") && rapid.Bool().Draw(t, label+" set") {
		hosts := atLeastOne(some(t, label+" in the set", "a.test", "b.a.test", "*.a.test", "d.test"), "**.b.a.test")
		line("  - {set: s}")
		line("sets: {s: {hosts: %s, methods: %s, encoded_slash: %v}}", list(hosts), list(atLeastOne(some(t, label+" set method", "GET", "POST"), "HEAD")), rapid.Bool().Draw(t, label+" set slash"))
	}
	if rapid.Bool().Draw(t, label+" git") {
		sib := ""
		if rapid.Bool().Draw(t, label+" sibling") {
			sib = ", siblings: [{repository: acme/docs, access: read}]"
		}
		push := ""
		if rapid.Bool().Draw(t, label+" push") {
			push = fmt.Sprintf(", push: {refs: %s, force: %v, delete: %v, deny_paths: %s}",
				list(atLeastOne(some(t, label+" ref", "refs/heads/gatehouse/{entity}/*", "refs/heads/gatehouse/*/*", "refs/heads/**", "refs/heads/gatehouse/pr-1/x"), "refs/heads/main")),
				rapid.Bool().Draw(t, label+" force"), rapid.Bool().Draw(t, label+" delete"), list(some(t, label+" deny", "ci/**", "ci/a", "**", ".github/**", ".github/workflows/**")))
		}
		line("git: {repository: %s%s%s}", pick(t, label+" repository", "session", "acme/shop"), sib, push)
	}
	if rapid.Bool().Draw(t, label+" models") {
		line("models: [{connection: m, allow: %s, max_output_tokens: %s}]", list(atLeastOne(some(t, label+" model", "claude-*", "claude-sonnet-*", "claude-opus-1"), "x/*")), pick(t, label+" tokens", "1", "10", "100"))
	}
	line("operations: %s", list(some(t, label+" op", "scm.comment", "scm.pr.create")))
	line("telemetry: %s", list(some(t, label+" telemetry", "t1", "t2")))
	if rapid.Bool().Draw(t, label+" spend") {
		line("spend: {limit: %s}", pick(t, label+" limit", "1 USD", "2 USD", "3 USD"))
	}
	return b.String()
}

var subject = bundle.Subject{Repository: "1", Name: "acme/shop", Siblings: map[string]string{"acme/docs": "2"}, Entity: "pr-1"}

func compiled(t rapid.TB, b *bundle.Bundle) map[string]bool {
	raw, err := b.Policy(nil, subject)
	if err != nil {
		t.Fatal(err)
	}
	var p policyDoc
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return allowed(p)
}

func mustParse(t rapid.TB, src string) *bundle.Bundle {
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return b
}

// narrow takes something away from a bundle, or leaves it.
func narrow(t *rapid.T, label string, src string) string {
	b := mustParse(t, src)
	for name, c := range b.Sets {
		if len(c.Hosts) > 1 && rapid.Bool().Draw(t, label+" set") {
			c.Hosts = c.Hosts[1:]
			b.Sets[name] = c
		}
	}
	if len(b.Egress) > 0 && b.Egress[0].Set == "" {
		switch pick(t, label+" egress", "keep", "drop", "methods", "ports", "host", "paths") {
		case "drop":
			b.Egress = b.Egress[1:]
		case "methods":
			if len(b.Egress[0].Methods) > 1 {
				b.Egress[0].Methods = b.Egress[0].Methods[:1]
			}
		case "ports":
			b.Egress[0].Ports = b.Egress[0].Ports[:1]
		case "host":
			b.Egress[0].Host = strings.Replace(b.Egress[0].Host, "**", "*", 1)
		case "paths":
			if len(b.Egress[0].Paths) > 0 {
				b.Egress[0].Paths = []string{"/v1/x"}
			}
		}
	}
	if b.Git != nil && b.Git.Push != nil {
		switch pick(t, label+" git", "keep", "drop", "force", "deny", "refs") {
		case "drop":
			b.Git.Push = nil
		case "force":
			b.Git.Push.Force = false
		case "deny":
			b.Git.Push.DenyPaths = []string{"**"}
		case "refs":
			b.Git.Push.Refs = b.Git.Push.Refs[:1]
		}
	}
	if len(b.Operations) > 0 && rapid.Bool().Draw(t, label+" operations") {
		b.Operations = b.Operations[1:]
	}
	return string(b.Canonical())
}

func TestCoversMeansEveryActionIsAllowed(t *testing.T) {
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		src := genBundle(t, "a")
		a := mustParse(t, src)
		b := mustParse(t, rapid.SampledFrom([]func() string{
			func() string { return narrow(t, "n", src) },
			func() string { return narrow(t, "m", narrow(t, "n", src)) },
			func() string { return genBundle(t, "b") },
		}).Draw(t, "how")())
		ok, _ := a.Covers(b)
		if !ok {
			return
		}
		met++
		wide := compiled(t, a)
		for action, yes := range compiled(t, b) {
			if yes && !wide[action] {
				t.Fatalf("a covers b, and only b allows %q\na: %s\nb: %s", action, a.Canonical(), b.Canonical())
			}
		}
	})
	if met == 0 {
		t.Error("no generated bundle covered another: the property was never tried")
	}
}

func TestCoversIsAnOrder(t *testing.T) {
	chains := 0
	rapid.Check(t, func(t *rapid.T) {
		src := genBundle(t, "a")
		mid := narrow(t, "b", src)
		a, b, c := mustParse(t, src), mustParse(t, mid), mustParse(t, narrow(t, "c", mid))
		for _, x := range []*bundle.Bundle{a, b, c} {
			if ok, why := x.Covers(x); !ok {
				t.Fatalf("not reflexive: %s\n%s", why, x.Canonical())
			}
		}
		ab, _ := a.Covers(b)
		bc, _ := b.Covers(c)
		if !ab || !bc {
			return
		}
		chains++
		if ok, why := a.Covers(c); !ok {
			t.Fatalf("not transitive: %s\na: %s\nb: %s\nc: %s", why, a.Canonical(), b.Canonical(), c.Canonical())
		}
	})
	if chains == 0 {
		t.Error("no chain of three was generated")
	}
}

func TestCoversMeansEveryEventIsMatched(t *testing.T) {
	condition := func(t *rapid.T, l string) string {
		return pick(t, l, "", "a", "[a, b]", "{prefix: a}", "{prefix: ab}", "{glob: 'a*'}", "{not: a}", "{not: [a, b]}", "{min: 1}", "{min: 2, max: 3}", "2", "[1, 3]", "ab")
	}
	gen := func(t *rapid.T, l string) string {
		var w []string
		for _, fact := range []string{"x", "y"} {
			if c := condition(t, l+fact); c != "" {
				w = append(w, fact+": "+c)
			}
		}
		return minimal + fmt.Sprintf("match: [{source: github, kinds: [%s], where: {%s}}]\n", pick(t, l+"kind", "k", "'k.*'", "k.a"), strings.Join(w, ", "))
	}
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		src := gen(t, "a")
		a := mustParse(t, src)
		b := mustParse(t, rapid.SampledFrom([]func() string{
			func() string { return gen(t, "b") },
			func() string { return src },
			func() string { return strings.Replace(src, "where: {", "where: {z: 1, ", 1) },
		}).Draw(t, "how")())
		if ok, _ := a.Covers(b); !ok {
			return
		}
		met++
		values := []string{"", "a", "b", "ab", "1", "2", "3"}
		for _, action := range []string{"", "a", "b"} {
			for _, x := range values {
				for _, y := range values {
					e := &event.Event{Source: "github", Kind: "k", Action: action, Facts: map[string]string{}, Lists: map[string][]string{}}
					if x != "" {
						e.Facts["x"] = x
					}
					if y != "" {
						e.Lists["y"] = []string{y, "a"}
					}
					f := bundle.FactsOf(e, nil)
					if _, starts := b.Match(f); !starts {
						continue
					}
					if m, starts := a.Match(f); !starts {
						t.Fatalf("a covers b, and only b starts on x=%q y=%q: %s\na: %s\nb: %s", x, y, m.Why, a.Canonical(), b.Canonical())
					}
				}
			}
		}
	})
	if met == 0 {
		t.Error("no generated trigger covered another")
	}
}
