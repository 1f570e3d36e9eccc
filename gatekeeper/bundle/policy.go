package bundle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy compiles the bundle for one subject: the JSON that enforcers are
// configured with. Sets are resolved to the hosts that the version holds, or, in
// a version that holds none, to those of sets (nil: set_not_pinned); names to
// ids, {entity} to the subject's, defaults written out. Neither the mode nor a credential is in
// it. docs/bundles.md has an example.
func (b *Bundle) Policy(sets SetResolver, s Subject) ([]byte, error) {
	egress := []any{}
	for i := range b.Egress {
		e := &b.Egress[i]
		id := fmt.Sprintf("egress[%d]", i)
		if e.Set == "" {
			egress = append(egress, e.compiled(id))
			continue
		}
		set, err := b.ResolveSet(e.Set, sets)
		if err != nil {
			return nil, err
		}
		for k := range set.rules {
			egress = append(egress, set.rules[k].compiled(fmt.Sprintf("%s.%s[%d]", id, e.Set, k)))
		}
	}
	egress = append(egress, b.upstreams(s)...)
	p := map[string]any{
		"bundle": b.Name, "digest": fmt.Sprintf("%x", b.Digest()),
		"egress": egress, "models": treeOf(b.Models), "operations": treeOf(b.Operations), "telemetry": treeOf(b.Telemetry),
	}
	if b.Git != nil {
		p["git"] = b.Git.compiled(s)
	}
	if c := b.Session.Children; c != nil {
		p["children"] = treeOf(*c)
	}
	if b.Spend != nil {
		p["spend"] = map[string]any{"limit": int64(b.Spend.Limit), "per_day": int64(b.Spend.PerDay)}
	}
	return marshal(p), nil
}

// upstreams are the egress entries of the connections that the bundle grants.
// Without methods such an entry opens the tunnel and the name and no request.
func (b *Bundle) upstreams(s Subject) []any {
	var out []any
	add := func(id, kind, connection string) {
		for _, u := range s.Upstreams {
			if u.Kind != kind || connection != "" && u.Connection != connection {
				continue
			}
			for k, host := range u.Hosts {
				at := id
				if connection == "" {
					at += "." + u.Connection
				}
				if len(u.Hosts) > 1 {
					at += fmt.Sprintf(".hosts[%d]", k)
				}
				e := Egress{Host: host, Ports: []uint16{443}, Schemes: []string{"https"}, Up: defaultUp, Down: defaultDown, Idle: defaultIdle}
				if kind == "model" {
					e.Up = modelUp
				}
				if kind == "telemetry" {
					e.Up = telemetryUp
				}
				out = append(out, e.compiled(at))
			}
		}
	}
	for i, m := range b.Models {
		add(fmt.Sprintf("models[%d]", i), "model", m.Connection)
	}
	if b.Git != nil {
		add("git", "scm", "")
	}
	for i, name := range b.Telemetry {
		add(fmt.Sprintf("telemetry[%d]", i), "telemetry", name)
	}
	return out
}

// SetDigests returns the digests of the sets that the bundle names, resolved as
// by Policy.
func (b *Bundle) SetDigests(sets SetResolver) (map[string][32]byte, error) {
	out := map[string][32]byte{}
	for _, e := range b.Egress {
		if e.Set == "" {
			continue
		}
		s, err := b.ResolveSet(e.Set, sets)
		if err != nil {
			return nil, err
		}
		out[e.Set] = s.Digest()
	}
	return out, nil
}

// compiled is one rule of the policy. Caps (bytes, milliseconds) stand only
// where they differ from the default, which the door knows.
func (e *Egress) compiled(id string) map[string]any {
	m := map[string]any{
		"id": id, "host": e.Host + e.TCP, "ports": treeOf(e.Ports), "schemes": treeOf(e.Schemes), "methods": treeOf(e.Methods), "paths": treeOf(e.Paths),
		"connection": e.Connection, "encoded_slash": e.EncodedSlash, "blind": "", "addresses": treeOf(e.Addresses),
	}
	switch {
	case e.TCP != "":
		m["blind"], m["schemes"] = "tcp", []any{"tcp"}
	case e.TLS != "":
		m["blind"], m["schemes"] = "tls", []any{"https"}
	}
	extra := func(name string, v any, set bool) {
		if set {
			m[name] = v
		}
	}
	extra("env", e.Env, e.Env != "")
	extra("uses", int64(e.Uses), e.Uses != 0)
	extra("upgrade", e.Upgrade, e.Upgrade != "")
	extra("names", int64(e.Names), e.Names != 0)
	extra("up", int64(e.Up), e.Up != defaultUp)
	extra("down", int64(e.Down), e.Down != defaultDown)
	extra("idle", time.Duration(e.Idle).Milliseconds(), e.Idle != defaultIdle)
	return m
}

func (g *Git) compiled(s Subject) map[string]any {
	siblings := []any{}
	for _, sib := range g.Siblings {
		siblings = append(siblings, map[string]any{"repository": s.Siblings[sib.Repository], "access": sib.Access})
	}
	m := map[string]any{"repository": s.Repository, "siblings": siblings}
	if p := g.Push; p != nil {
		refs := []any{}
		for _, ref := range p.Refs {
			if strings.Contains(ref, entityMark) && s.Entity == "" {
				continue // an event about nothing has no branch of its own
			}
			refs = append(refs, strings.ReplaceAll(ref, entityMark, s.Entity))
		}
		if len(refs) == 0 {
			return m
		}
		m["push"] = map[string]any{"refs": refs, "force": p.Force, "delete": p.Delete, "deny_paths": treeOf(p.DenyPaths)}
	}
	return m
}

// clone copies a rule whose lists must not be shared.
func (e Egress) clone() Egress {
	e.Ports, e.Schemes, e.Methods = slices.Clone(e.Ports), slices.Clone(e.Schemes), slices.Clone(e.Methods)
	e.Paths, e.Addresses = slices.Clone(e.Paths), slices.Clone(e.Addresses)
	return e
}
