package main

import (
	"context"
	"testing"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/ui"
)

// Where one person is enough, asking for hard mode is turning it on: whoever may
// only propose must not be able to.
func TestWhoMayAskForAMode(t *testing.T) {
	person := func(at time.Time, roles ...auth.Role) context.Context {
		return auth.With(t.Context(), auth.Identity{Person: "ann@example.com", Kind: auth.KindOIDC, At: at, Roles: roles})
	}
	now, old := time.Now(), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		approvers int
		ctx       context.Context
		want      problem.Code
	}{
		"two_reviewer":        {2, person(now, auth.Reviewer), ""},
		"two_viewer":          {2, person(now, auth.Viewer), problem.Forbidden},
		"two_old_login":       {2, person(old, auth.Reviewer), problem.LoginAgain},
		"alone_reviewer":      {1, person(now, auth.Reviewer), problem.Forbidden},
		"alone_approver":      {1, person(now, auth.Approver), ""},
		"alone_old_login":     {1, person(old, auth.Approver), problem.LoginAgain},
		"nobody":              {2, t.Context(), problem.Forbidden},
		"nobody_alone":        {1, t.Context(), problem.Forbidden},
		"machines_user_alone": {1, auth.With(t.Context(), auth.Identity{Person: auth.Local, Kind: auth.KindSocket, Roles: auth.Roles}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			gk, err := gatekeeper.New(gatekeeper.Options{
				Node: "n1", Dir: tempDir(t), Approvers: c.approvers, Journal: struct{ gatekeeper.Journal }{}, Notary: struct{ gatekeeper.Notary }{},
				Bundles: struct{ gatekeeper.KV }{}, Blobs: struct{ gatekeeper.Blobs }{},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = stepsOf{gk}.approves(c.ctx, api.StepPromote)
			if c.want == "" && err != nil || c.want != "" && problem.CodeOf(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A page's acts are the API's steps: who may not take one by the API may not by a
// page either, and an act that nobody wrote down is nobody's.
func TestWhoMayAskByAPage(t *testing.T) {
	now := time.Now()
	old := now.Add(-time.Hour)
	type who struct {
		role auth.Role
		at   time.Time
	}
	for act, c := range map[ui.Act]struct {
		may, mayNot who
		code        problem.Code
	}{
		ui.ActReview:  {who{auth.Reviewer, old}, who{auth.Operator, now}, problem.Forbidden},
		ui.ActPropose: {who{auth.Reviewer, old}, who{auth.Viewer, now}, problem.Forbidden},
		ui.ActPromote: {who{auth.Reviewer, now}, who{auth.Reviewer, old}, problem.LoginAgain},
		ui.ActApprove: {who{auth.Approver, now}, who{auth.Approver, old}, problem.LoginAgain},
		ui.ActReject:  {who{auth.Approver, now}, who{auth.Approver, old}, problem.LoginAgain},
		ui.ActNarrow:  {who{auth.Operator, old}, who{auth.Reviewer, now}, problem.Forbidden},
		ui.ActResume:  {who{auth.Operator, old}, who{auth.Reviewer, now}, problem.Forbidden},
		ui.ActOperate: {who{auth.Operator, old}, who{auth.Approver, now}, problem.Forbidden},
	} {
		ask := func(w who) error {
			return api.Allow(auth.Identity{Person: "ann@example.com", Kind: auth.KindOIDC, At: w.at, Roles: []auth.Role{w.role}}, api.Step(act), now)
		}
		if err := ask(c.may); err != nil {
			t.Errorf("%s: %v", act, err)
		}
		if err := ask(c.mayNot); problem.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", act, err, c.code)
		}
	}
	admin := auth.Identity{Person: "ann@example.com", Kind: auth.KindOIDC, At: now, Roles: []auth.Role{auth.Admin}}
	if err := api.Allow(admin, "anything", now); problem.CodeOf(err) != problem.Forbidden {
		t.Errorf("an unknown step: %v", err)
	}
}
