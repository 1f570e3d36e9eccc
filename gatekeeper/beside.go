package gatekeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
)

// A change of a bundle is judged beside others: those that may take the same
// events, those that start it and those that it starts. A proposal is pinned to
// them as it is to its own version: people said yes to what it gives there.

// mostBeside is how many bundles a proposal names one by one; all of more stand
// in one digest.
const mostBeside = 200

// beside returns the state of the bundles that a change of the named one is
// judged beside, before being in force and next coming into it.
func beside(all map[string]*desired, before, next *bundle.Bundle) map[string]string {
	out := map[string]string{}
	for name, d := range all {
		if name != next.Name && (neighbours(d.bundle, before) || neighbours(d.bundle, next)) {
			out[name] = d.state()
		}
	}
	if len(out) <= mostBeside {
		return out
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(out)) {
		fmt.Fprintln(h, name, out[name])
	}
	return map[string]string{"": hex.EncodeToString(h.Sum(nil))}
}

// neighbours reports whether both may match one event, or one starts the other.
func neighbours(a, b *bundle.Bundle) bool {
	starts := func(parent, child *bundle.Bundle) bool {
		c := parent.Session.Children
		return c != nil && slices.Contains(c.Bundles, child.Name)
	}
	return meets(a, b) || starts(a, b) || starts(b, a)
}

// state is a digest of all that is in force of a bundle: its version, which its
// sets are in, its modes and whether it is paused.
func (d *desired) state() string {
	h := sha256.New()
	fmt.Fprintln(h, d.Digest, d.Mode, d.Paused)
	for _, name := range slices.Sorted(maps.Keys(d.bundle.Enforcers)) {
		fmt.Fprintln(h, name, d.bundle.Enforcers[name].Mode)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// withBeside adds what a proposal was judged beside to its receipt's extensions.
func withBeside(x map[string]string, of map[string]string) map[string]string {
	if x == nil && len(of) > 0 {
		x = map[string]string{}
	}
	for name, state := range of {
		x[xBeside+name] = state
	}
	return x
}

// besideOf reads it back.
func besideOf(x map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range x {
		if name, ok := strings.CutPrefix(k, xBeside); ok {
			out[name] = v
		}
	}
	return out
}

// drifted lists the bundles that are not as they were when the proposal was made,
// have gone, or are beside it only since then.
func (p *Proposal) drifted(now map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if p.Beside[name] != now[name] {
			out = append(out, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Beside)) {
		if _, still := now[name]; !still {
			out = append(out, name)
		}
	}
	return out
}

// drift lists the neighbours of an open proposal that are others by now.
func (g *Gatekeeper) drift(p *Proposal, all map[string]*desired) ([]string, error) {
	have := all[p.Bundle]
	if have == nil || p.State != ProposalOpen {
		return nil, nil
	}
	next := have.bundle
	if p.Kind == ProposeVersion {
		raw, err := g.registry.version(p.Digest)
		if err != nil {
			return nil, err
		}
		if next, err = bundle.Parse(raw); err != nil {
			return nil, err
		}
	}
	return p.drifted(beside(all, have.bundle, next)), nil
}

// standing refuses a proposal whose neighbours are others by now.
func (g *Gatekeeper) standing(p *Proposal, all map[string]*desired) error {
	changed, err := g.drift(p, all)
	if err != nil || len(changed) == 0 {
		return err
	}
	which := strings.Join(changed, ", ")
	if which == "" {
		which = "one of many"
	}
	return problem.New(problem.NeighbourChanged,
		"what "+p.Bundle+" was judged beside changed since the proposal was made: "+which+" may take the same events, start it or be started by it",
		"look at both, then propose it again")
}

// shown completes a proposal for those who look at it.
func (g *Gatekeeper) shown(p Proposal) Proposal {
	p.Needs = g.approvers()
	// What cannot be read is found by the approval; here it is only not said.
	p.Drifted, _ = g.drift(&p, g.registry.read())
	return p
}
