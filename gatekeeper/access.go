package gatekeeper

import (
	"context"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// StepAccess is a session's agent asking a reviewer for what was refused. It is
// no person's step: it counts as nobody's word, and changes nothing.
const StepAccess = "access"

// xRefusal is the receipt that a request for access is about.
const xRefusal = "review.refusal"

// agentName stands where a person's name would.
const agentName = "agent"

// maxAsked bounds the requests of one session.
const maxAsked = 8

// RequestAccess notes in the control chain that a session asks for what the
// receipt refused, for reviewers to find. The same receipt counts once. It holds
// no word of the agent's and grants nothing.
func (g *Gatekeeper) RequestAccess(ctx context.Context, id string, refusal receipts.Hash) error {
	g.mu.Lock()
	s := g.live[id]
	g.mu.Unlock()
	if s == nil {
		return problem.New(problem.NotFound, "session "+id+" does not run", "")
	}
	s.mu.Lock()
	_, again := s.asked[refusal]
	full := len(s.asked) >= maxAsked
	if !again && !full {
		if s.asked == nil {
			s.asked = map[receipts.Hash]struct{}{}
		}
		s.asked[refusal] = struct{}{}
	}
	s.mu.Unlock()
	switch {
	case again:
		return nil
	case full:
		return problem.New(problem.Conflict, "the session has asked for as much as it may", "Go on without it, or end and say what is missing.")
	}
	_, err := g.step(ctx, receipts.TypePolicyChange, receipts.Change{Bundle: s.choice.Bundle.Name, By: agentName, Via: "api", Result: ResultApplied},
		map[string]string{xStep: StepAccess, xSubject: id, xRefusal: refusal.String()})
	return err
}
