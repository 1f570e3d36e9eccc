package gatekeeper

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Results of an Apply, as receipts have them.
const (
	ResultApplied    = "applied"
	ResultWaiting    = "waiting"
	ResultRejected   = "rejected"
	ResultRolledBack = "rolled_back"
	ResultPaused     = "paused"
	ResultUnchanged  = "unchanged" // never a receipt: nothing happened
)

// File is one bundle file. Name is for messages.
type File struct {
	Name   string
	Source []byte
}

// Applied is what became of one bundle.
type Applied struct {
	File   string
	Bundle string
	Digest [32]byte
	Result string           // applied | waiting | rejected | unchanged
	Mode   bundle.Mode      // in force afterwards, "" if the bundle is not
	Why    string           // of waiting and rejected
	Found  []bundle.Problem // of rejected
}

// Apply makes bundle versions the desired ones. by names the person or token
// ("config" for the files that serve applies at start), via is config, cli, api
// or ui.
//
// A name that the node does not know starts in its file's mode, hard included.
// Afterwards modes come from the control chain alone. A new version of a
// shadow bundle is applied; one of a hard bundle, or under a hard enforcer, is
// applied and stays hard when the version in force covers it and no events are
// left to other bundles. Otherwise it waits for approval and the version in force
// stays. Nothing is ever put back to shadow.
//
// A version holds the egress sets that it names as the node's files have them
// now: another file is another version of every bundle that names the set.
func (g *Gatekeeper) Apply(ctx context.Context, files []File, by, via string) ([]Applied, error) {
	parsed := make([]*bundle.Bundle, len(files))
	unpinned := map[string]error{}
	all := map[string]*bundle.Bundle{}
	for i, f := range files {
		b, err := bundle.Parse(f.Source)
		if err != nil {
			var p *problem.Error
			if errors.As(err, &p) {
				return nil, problem.New(p.Code, f.Name+": "+p.Msg, p.Hint)
			}
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if all[b.Name] != nil {
			return nil, problem.New(problem.ConfigInvalid, f.Name+": a second bundle is named "+b.Name, "rename one of them")
		}
		if pinned, err := b.Pin(g.o.Sets); err != nil {
			unpinned[b.Name] = err
		} else {
			b = pinned
		}
		parsed[i], all[b.Name] = b, b
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	have, err := g.registry.refresh(ctx)
	if err != nil {
		return nil, err
	}
	for name, d := range have {
		if all[name] == nil {
			all[name] = d.bundle
		}
	}
	out := make([]Applied, len(files))
	for i, b := range parsed {
		if out[i], err = g.apply(ctx, b, unpinned[b.Name], have[b.Name], all, by, via); err != nil {
			return nil, fmt.Errorf("%s: %w", files[i].Name, err)
		}
		out[i].File = files[i].Name
	}
	// A version waits beside all that came with it, not beside what that replaced.
	now, err := g.registry.refresh(ctx)
	for i, b := range parsed {
		if have := now[b.Name]; err == nil && out[i].Result == ResultWaiting && have != nil {
			out[i], err = g.applyWaiting(ctx, out[i], b, have, changeOf(b, have, by, via), out[i].Why)
		}
	}
	return out, err
}

// changeOf is the receipt's body of a version that takes the place of another.
func changeOf(b *bundle.Bundle, have *desired, by, via string) receipts.Change {
	return receipts.Change{
		Bundle: b.Name, Digest: b.Digest(), By: by, Via: via, Result: ResultApplied,
		Old: decodeHash(have.Digest), From: receipts.Mode(have.Mode), To: receipts.Mode(have.Mode),
	}
}

// apply applies one bundle that holds its sets, or, with unpinned, one whose sets
// could not be read.
func (g *Gatekeeper) apply(ctx context.Context, b *bundle.Bundle, unpinned error, have *desired, all map[string]*bundle.Bundle, by, via string) (Applied, error) {
	digest := b.Digest()
	a := Applied{Bundle: b.Name, Digest: digest}
	if g.o.Lint != nil {
		lc := *g.o.Lint
		lc.Bundles, lc.Now = all, g.o.Clock()
		if found := bundle.Lint(b, lc); bundle.Blocks(found) {
			a.Result, a.Found, a.Why = ResultRejected, found, "lint found errors"
			if have != nil {
				a.Mode = have.Mode
			}
			return a, nil
		}
	}
	if unpinned != nil {
		a.Result, a.Why = ResultRejected, unpinned.Error()
		if have != nil {
			a.Mode = have.Mode
		}
		return a, nil
	}
	if have == nil {
		change := receipts.Change{Bundle: b.Name, Digest: digest, By: by, Via: via, Result: ResultApplied}
		if why := makesWay(g.registry.read(), b.Name, &desired{Mode: b.Mode, bundle: b}); why != "" {
			a.Result, a.Why = ResultRejected, why+"; "+proposeRest
			return a, nil
		}
		return g.applyNew(ctx, a, b, change)
	}
	a.Mode = have.Mode
	if have.Digest == hex.EncodeToString(digest[:]) {
		a.Result = ResultUnchanged
		return a, nil
	}
	next := b.WithModes(have.Mode, have.Modes)
	change := changeOf(b, have, by, via)
	if hardened(have) {
		if ok, why := have.bundle.Covers(next); !ok {
			return g.applyWaiting(ctx, a, b, have, change, why)
		}
	}
	if why := makesWay(g.registry.read(), b.Name, &desired{Mode: have.Mode, Modes: have.Modes, Paused: have.Paused, bundle: next}); why != "" {
		if hardened(have) {
			return g.applyWaiting(ctx, a, b, have, change, why)
		}
		a.Result, a.Why = ResultRejected, why+"; "+proposeRest
		return a, nil
	}
	state := *have
	state.Bytes, state.Digest, state.Waiting = string(b.Canonical()), hex.EncodeToString(digest[:]), ""
	state.Modes = map[string]bundle.Mode{}
	maps.Copy(state.Modes, have.Modes)
	a.Result = ResultApplied
	return a, g.commit(ctx, b, &state, change, newEnforcers(next, have))
}

const proposeRest = "apply it without what does that and propose the rest: that needs a second person"

// hardened reports whether anything of a bundle stops actions.
func hardened(d *desired) bool {
	return d.Mode == bundle.Hard || slices.Contains(slices.Collect(maps.Values(d.Modes)), bundle.Hard)
}

// newEnforcers are the enforcers that the version in force does not have; they
// start in their file's mode, as a new bundle does.
func newEnforcers(b *bundle.Bundle, have *desired) map[string]bundle.Mode {
	out := map[string]bundle.Mode{}
	for name, e := range b.Enforcers {
		if _, known := have.Modes[name]; !known {
			out[name] = e.Mode
		}
	}
	return out
}

func (g *Gatekeeper) applyNew(ctx context.Context, a Applied, b *bundle.Bundle, change receipts.Change) (Applied, error) {
	change.To = receipts.Mode(b.Mode)
	a.Result, a.Mode = ResultApplied, b.Mode
	modes := map[string]bundle.Mode{}
	for name, e := range b.Enforcers {
		modes[name] = e.Mode
	}
	digest := b.Digest()
	state := desired{Bytes: string(b.Canonical()), Digest: hex.EncodeToString(digest[:]), Mode: b.Mode, Modes: map[string]bundle.Mode{}}
	return a, g.commit(ctx, b, &state, change, modes)
}

func (g *Gatekeeper) applyWaiting(ctx context.Context, a Applied, b *bundle.Bundle, have *desired, change receipts.Change, why string) (Applied, error) {
	a.Result, a.Why = ResultWaiting, why
	digest := b.Digest()
	now := beside(g.registry.read(), have.bundle, b)
	if have.Waiting == hex.EncodeToString(digest[:]) && g.fold.waitsBeside(b.Name, now) {
		return a, nil // it waits already: a restart is no second request
	}
	change.Result = ResultWaiting
	state := *have
	state.Waiting = hex.EncodeToString(digest[:])
	if err := g.registry.keep(b); err != nil {
		return a, err
	}
	return a, g.enforce(ctx, b.Name, &state, receipts.TypeBundleApply, change, withBeside(withSets(nil, b), now), nil)
}

// commit keeps the version, makes the receipts durable and then writes the
// bucket, so that no state is ever in force that the control chain does not
// show. modes are of enforcers that are new.
func (g *Gatekeeper) commit(ctx context.Context, b *bundle.Bundle, state *desired, c receipts.Change, modes map[string]bundle.Mode) error {
	if err := g.registry.keep(b); err != nil {
		return err
	}
	return g.enforce(ctx, b.Name, state, receipts.TypeBundleApply, c, withSets(nil, b), modes)
}

// withSets adds the digests of the sets that a version holds to a receipt's
// extensions.
func withSets(x map[string]string, b *bundle.Bundle) map[string]string {
	digests, err := b.SetDigests(nil)
	if err != nil || len(digests) == 0 {
		return x
	}
	if x == nil {
		x = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		if len(x) == maxDeliveries {
			break // the version's own digest speaks for all of them
		}
		x[xSet+name] = fmt.Sprintf("sha256:%x", digests[name])
	}
	return x
}

// Change is one step in a bundle's history.
type Change struct {
	At       time.Time
	Type     receipts.Type // bundle.apply | mode.change
	Digest   [32]byte
	Enforcer string // of a mode.change that concerns one
	From, To bundle.Mode
	By, Via  string
	Result   string
	Single   bool // one person was enough
	Receipt  receipts.Hash
}

// History returns the control chain's receipts about a bundle, oldest first.
func (g *Gatekeeper) History(name string) []Change {
	var out []Change
	for _, c := range g.fold.history(name) {
		out = append(out, Change{
			At: c.At, Type: c.Type, Digest: c.Digest, Enforcer: c.Enforcer, From: bundle.Mode(c.From), To: bundle.Mode(c.To),
			By: c.By, Via: c.Via, Result: c.Result, Single: c.Single, Receipt: c.Leaf,
		})
	}
	return out
}

// InForce is one bundle in force.
type InForce struct {
	Bundle  *bundle.Bundle // in its effective modes
	Waiting string         // digest of the version that waits for approval, "" if none
	Paused  bool           // starts nothing
}

// Bundles returns the bundles in force, by name.
func (g *Gatekeeper) Bundles(ctx context.Context) ([]InForce, error) {
	have, err := g.registry.refresh(ctx)
	if err != nil {
		return nil, err
	}
	var out []InForce
	for _, name := range slices.Sorted(maps.Keys(have)) {
		out = append(out, InForce{Bundle: have[name].bundle, Waiting: have[name].Waiting, Paused: have[name].Paused})
	}
	return out, nil
}

func decodeHash(lowerHex string) receipts.Hash {
	var h receipts.Hash
	b, err := hex.DecodeString(lowerHex)
	if err == nil && len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}
