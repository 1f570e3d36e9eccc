package gatekeeper

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Rollback puts an earlier version back in force. One person may, because under
// hard mode the version in force must cover it: it takes away and
// gives nothing, to other bundles neither.
func (g *Gatekeeper) Rollback(ctx context.Context, name, digest, reason string, by By) error {
	if err := CheckReason(reason); err != nil {
		return err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	all, have, err := g.known(ctx, name)
	if err != nil {
		return err
	}
	if digest == have.Digest {
		return problem.New(problem.Conflict, "that version is in force", "")
	}
	if !slices.ContainsFunc(g.fold.history(name), func(c change) bool {
		return c.Type == receipts.TypeBundleApply && inForceNow(c.Result) && hex.EncodeToString(c.Digest[:]) == digest
	}) {
		return problem.New(problem.NotFound, "bundle "+name+" never had that version in force", "`gatehouse bundle history "+name+"` shows those it had")
	}
	raw, err := g.registry.version(digest)
	if err != nil {
		return err
	}
	b, err := bundle.Parse(raw)
	if err != nil {
		return err
	}
	next := b.WithModes(have.Mode, have.Modes)
	if hardened(have) {
		if ok, why := have.bundle.Covers(next); !ok {
			return problem.New(problem.NotCovered, "that version would widen what is in force: "+why, "propose it: a widening needs a second person")
		}
	}
	if why := makesWay(all, name, &desired{Mode: have.Mode, Modes: have.Modes, Paused: have.Paused, bundle: next}); why != "" {
		return problem.New(problem.NotCovered, "that version cannot come back by one person: "+why, "propose it: that needs a second person")
	}
	state := *have
	state.Modes = maps.Clone(have.Modes)
	if state.Modes == nil {
		state.Modes = map[string]bundle.Mode{}
	}
	state.Bytes, state.Digest, state.Waiting = string(raw), digest, ""
	c := receipts.Change{
		Bundle: name, Digest: decodeHash(digest), Old: decodeHash(have.Digest), From: receipts.Mode(have.Mode), To: receipts.Mode(have.Mode),
		By: by.Name, Via: by.Via, Result: ResultRolledBack,
	}
	return g.enforce(ctx, name, &state, receipts.TypeBundleApply, c, withSets(by.extensions(map[string]string{xReason: reason}), b), newEnforcers(b, have))
}

func inForceNow(result string) bool { return result == ResultApplied || result == ResultRolledBack }

// Pause stops a bundle from starting sessions. One person may: events that it
// would have taken are refused, and no wider bundle takes its place.
func (g *Gatekeeper) Pause(ctx context.Context, name, reason string, by By) error {
	if err := CheckReason(reason); err != nil {
		return err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	_, have, err := g.known(ctx, name)
	if err != nil {
		return err
	}
	if have.Paused {
		return problem.New(problem.Conflict, "bundle "+name+" is paused already", "")
	}
	state := *have
	state.Paused = true
	digest := decodeHash(have.Digest)
	return g.enforce(ctx, name, &state, receipts.TypeModeChange, receipts.Change{
		Bundle: name, Digest: digest, By: by.Name, Via: by.Via, Result: ResultPaused,
	}, by.extensions(map[string]string{xStep: stepPause, xReason: reason}), nil)
}

// Resume ends a pause. Under hard mode that gives authority back, and elsewhere it
// may take events from a bundle that became hard meanwhile: then it waits for
// approval like any widening. The Proposal is empty when nothing waits.
func (g *Gatekeeper) Resume(ctx context.Context, name, reason string, by By) (Proposal, error) {
	if err := CheckReason(reason); err != nil {
		return Proposal{}, err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	all, have, err := g.known(ctx, name)
	if err != nil {
		return Proposal{}, err
	}
	if !have.Paused {
		return Proposal{}, problem.New(problem.Conflict, "bundle "+name+" is not paused", "")
	}
	digest := decodeHash(have.Digest)
	c := receipts.Change{Bundle: name, Digest: digest, Old: digest, From: receipts.Mode(have.Mode), To: receipts.Mode(have.Mode)}
	state := *have
	state.Paused = false
	if hardened(have) || makesWay(all, name, &state) != "" {
		p, err := g.ask(ctx, have, c, ProposeResume, reason, by, have.bundle)
		if err != nil || g.approvers() > 1 {
			return p, err
		}
		return g.approve(ctx, p.ID, p.Digest, by)
	}
	c.By, c.Via, c.Result = by.Name, by.Via, ResultApplied
	return Proposal{}, g.enforce(ctx, name, &state, receipts.TypeModeChange, c, by.extensions(map[string]string{xStep: stepResume, xReason: reason}), nil)
}
