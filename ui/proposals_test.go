package ui_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"gatehouse/gatekeeper"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/ui"
)

// asked is a node on which one change waits.
type asked struct {
	changes
	p gatekeeper.Proposal
}

func (a asked) Proposal(string) (gatekeeper.Proposal, error) { return a.p, nil }

func (asked) Version(string) ([]byte, error) {
	return []byte("apiVersion: gatehouse/v1\nkind: Bundle\nname: b\naccepts: member\nsession: {agent: codex, task: go}\n"), nil
}

// unsimulated judges nothing.
type unsimulated struct{ reviewer }

func (unsimulated) Simulate(context.Context, []byte, review.Window) (review.Simulation, error) {
	return review.Simulation{}, problem.New(problem.Unavailable, "not now", "")
}

// T-14: the page says what a change was judged beside, and before anybody asks for
// it that an approval is refused because that changed.
func TestProposalNamesItsNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		p          gatekeeper.Proposal
		says, hush string
	}{
		"alone":          {gatekeeper.Proposal{}, "Made against", "Judged beside"},
		"beside":         {gatekeeper.Proposal{Beside: map[string]string{"other": "1", "third": "2"}}, "<dd>other, third</dd>", "Changed since"},
		"T-14_drifted":   {gatekeeper.Proposal{Beside: map[string]string{"other": "1"}, Drifted: []string{"other"}}, "Changed since this was proposed: other. An approval is refused", "zzz"},
		"T-14_many":      {gatekeeper.Proposal{Beside: map[string]string{"": "1"}, Drifted: []string{""}}, "Changed since this was proposed: one of many bundles.", "zzz"},
		"T-14_come_anew": {gatekeeper.Proposal{Drifted: []string{"new"}}, "Changed since this was proposed: new.", "Judged beside"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.p
			p.ID, p.Bundle, p.Kind, p.State, p.Digest, p.Base = "p1", "b", gatekeeper.ProposeVersion, gatekeeper.ProposalOpen, strings.Repeat("a", 64), strings.Repeat("b", 64)
			u, _ := pages(t, func(o *ui.Options) {
				o.Changes, o.Review = asked{p: p}, unsimulated{reviewer{view: o.View}}
			})
			r, body := ask(t, u, http.MethodGet, "/ui/proposals/p1")
			if r.StatusCode != http.StatusOK || !strings.Contains(body, c.says) || strings.Contains(body, c.hush) {
				t.Errorf("%d without %q or with %q:\n%s", r.StatusCode, c.says, c.hush, body)
			}
		})
	}
}
