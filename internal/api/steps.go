package api

import (
	"context"
	"time"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
)

// Step is what somebody asks for. Pages, routes and commands ask the same table
// whether they may, so that no road is easier than another.
type Step string

// Steps that others than the routes ask about. The pages know these and the rest
// by their words.
const (
	StepApprove Step = "approve"
	StepPromote Step = "promote"
)

const (
	read       Step = "read"
	export     Step = "export"
	reviewing  Step = "review"
	propose    Step = "propose"
	approve         = StepApprove
	reject     Step = "reject"
	promote         = StepPromote
	narrow     Step = "narrow"
	resume     Step = "resume"
	apply      Step = "apply"
	operate    Step = "operate"
	ownTokens  Step = "own_tokens"
	makeTokens Step = "make_tokens"
)

// need is what a caller must be allowed for a step.
type need struct {
	act   auth.Act
	fresh bool // and have logged in minutes ago
}

var needs = map[Step]need{
	read:       {act: auth.Read},
	export:     {act: auth.Export},
	reviewing:  {act: auth.Review},
	propose:    {act: auth.Propose},
	approve:    {act: auth.Approve, fresh: true},
	reject:     {act: auth.Approve, fresh: true}, // a no decides as much as a yes
	promote:    {act: auth.Propose, fresh: true}, // where one person is enough, the node asks for approve too
	narrow:     {act: auth.Narrow},
	resume:     {act: auth.Narrow}, // who may not pause may not end a pause
	apply:      {act: auth.Apply},
	operate:    {act: auth.Operate},
	ownTokens:  {act: auth.Read},
	makeTokens: {act: auth.Read, fresh: true},
}

// Allow is the one rule by which API, UI and CLI let somebody take a step: it
// refuses a caller whose roles do not have the step's act, one whose login is too
// old for a step that asks for a fresh one, and a step that nobody knows.
func Allow(id auth.Identity, s Step, now time.Time) error {
	n, ok := needs[s]
	switch {
	case !ok:
		return problem.New(problem.Forbidden, "nobody may "+string(s), "")
	case !id.May(n.act):
		return problem.New(problem.Forbidden, "your roles do not allow this: it needs "+string(n.act), "Ask who administers this node.")
	case n.fresh && !id.Fresh(now):
		return problem.New(problem.LoginAgain, "this step needs a login that is minutes old", "Log in again.")
	}
	return nil
}

func (a *API) allow(c caller, s Step) error { return Allow(c.identity, s, a.o.Clock()) }

// reveal writes down that the caller is about to be shown text of strangers. The
// machine's own user on the socket can read the node's files as well.
func (a *API) reveal(ctx context.Context, bundle, subject string) error {
	c := callerOf(ctx)
	if c.socket {
		return nil
	}
	return a.o.Events.Reveal(ctx, bundle, subject, c.Actor)
}
