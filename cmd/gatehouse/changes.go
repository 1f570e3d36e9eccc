package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// by is a caller as the gatekeeper's receipts name one.
func by(a api.Actor) gatekeeper.By { return gatekeeper.By{Name: a.Name, Via: a.Via, Token: a.Token} }

// reviews is the review in the words of the API.
type reviews struct{ *review.Review }

// Mark says what a group means.
func (r reviews) Mark(ctx context.Context, id, status, reason string, expires time.Time, who api.Actor) (view.Mark, error) {
	return r.Review.Mark(ctx, id, status, reason, expires, by(who))
}

// changes are the ways to change a bundle. Each ends in the gatekeeper, whoever
// asks and through whatever.
type changes struct {
	gk     stepsOf
	review *review.Review
}

// stepsOf are the gatekeeper's steps for people whose roles are known: where one
// person is enough, what would wait for an approval comes into force at once, so
// that person must be one who may approve.
type stepsOf struct{ *gatekeeper.Gatekeeper }

// ProposeMode asks for another mode, with a login that is minutes old.
func (s stepsOf) ProposeMode(ctx context.Context, name, enforcer string, to bundle.Mode, reason string, who gatekeeper.By) (gatekeeper.Proposal, error) {
	if err := s.approves(ctx, api.StepPromote); err != nil {
		return gatekeeper.Proposal{}, err
	}
	return s.Gatekeeper.ProposeMode(ctx, name, enforcer, to, reason, who)
}

// Resume ends a pause.
func (s stepsOf) Resume(ctx context.Context, name, reason string, who gatekeeper.By) (gatekeeper.Proposal, error) {
	if s.Alone() {
		if err := s.approves(ctx, api.StepApprove); err != nil {
			return gatekeeper.Proposal{}, err
		}
	}
	return s.Gatekeeper.Resume(ctx, name, reason, who)
}

func (s stepsOf) approves(ctx context.Context, step api.Step) error {
	if s.Alone() {
		step = api.StepApprove
	}
	id, ok := auth.From(ctx)
	if !ok {
		return problem.New(problem.Forbidden, "nobody asks", "")
	}
	return api.Allow(id, step, time.Now())
}

// Bundle returns one bundle in force. Its tag changes with its version, modes,
// pause and what waits.
func (c changes) Bundle(ctx context.Context, name string) (api.BundleDetail, error) {
	all, err := c.gk.Bundles(ctx)
	if err != nil {
		return api.BundleDetail{}, err
	}
	i := slices.IndexFunc(all, func(f gatekeeper.InForce) bool { return f.Bundle.Name == name })
	if i < 0 {
		return api.BundleDetail{}, noBundle(name)
	}
	f := all[i]
	src, err := review.Source(f.Bundle)
	if err != nil {
		return api.BundleDetail{}, err
	}
	d := api.BundleDetail{
		Name: name, Digest: fmt.Sprintf("%x", f.Bundle.Digest()), Mode: string(f.Bundle.Mode), Waiting: f.Waiting, Paused: f.Paused,
		Accepts: string(f.Bundle.Accepts), Source: string(src), Modes: map[string]string{},
	}
	text := fmt.Sprintf("%s %s %s %v", d.Digest, d.Mode, d.Waiting, d.Paused)
	for _, e := range slices.Sorted(maps.Keys(f.Bundle.Enforcers)) {
		d.Modes[e] = string(f.Bundle.Enforcers[e].Mode)
		text += " " + e + "=" + d.Modes[e]
	}
	sum := sha256.Sum256([]byte(text))
	d.Tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	return d, nil
}

func (c changes) Version(_ context.Context, digest string) ([]byte, error) {
	return c.gk.Version(digest)
}

func (c changes) Proposals(context.Context) ([]review.Proposal, error) {
	out := []review.Proposal{}
	for _, p := range c.gk.Proposals() {
		out = append(out, review.Row(p))
	}
	return out, nil
}

func (c changes) Proposal(_ context.Context, id string) (review.Proposal, error) {
	return c.detail(c.gk.Proposal(id))
}

func (c changes) detail(p gatekeeper.Proposal, err error) (review.Proposal, error) {
	if err != nil {
		return review.Proposal{}, err
	}
	return c.review.Detail(p)
}

func (c changes) Propose(ctx context.Context, yaml []byte, reason string, who api.Actor) (review.Proposal, error) {
	return c.detail(c.gk.Propose(ctx, yaml, reason, by(who)))
}

func (c changes) ProposeMode(ctx context.Context, name, enforcer, to, reason string, who api.Actor) (review.Proposal, error) {
	return c.detail(c.gk.ProposeMode(ctx, name, enforcer, bundle.Mode(to), reason, by(who)))
}

func (c changes) Approve(ctx context.Context, id, digest string, who api.Actor) (review.Proposal, error) {
	return c.detail(c.gk.Approve(ctx, id, digest, by(who)))
}

func (c changes) Reject(ctx context.Context, id, reason string, who api.Actor) (review.Proposal, error) {
	return c.detail(c.gk.Reject(ctx, id, reason, by(who)))
}

func (c changes) Rollback(ctx context.Context, name, digest, reason string, who api.Actor) error {
	return c.gk.Rollback(ctx, name, digest, reason, by(who))
}

func (c changes) Pause(ctx context.Context, name, reason string, who api.Actor) error {
	return c.gk.Pause(ctx, name, reason, by(who))
}

func (c changes) Resume(ctx context.Context, name, reason string, who api.Actor) (review.Proposal, error) {
	p, err := c.gk.Resume(ctx, name, reason, by(who))
	if err != nil || p.ID == "" {
		return review.Proposal{Approvals: []review.Approval{}}, err
	}
	return c.detail(p, nil)
}
