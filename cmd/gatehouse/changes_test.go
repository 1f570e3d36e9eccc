package main

import (
	"context"
	"testing"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
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
				Node: "n1", Dir: t.TempDir(), Approvers: c.approvers, Journal: struct{ gatekeeper.Journal }{}, Notary: struct{ gatekeeper.Notary }{},
				Bundles: struct{ gatekeeper.KV }{}, Blobs: struct{ gatekeeper.Blobs }{},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = stepsOf{gk}.approves(c.ctx, auth.Propose)
			if c.want == "" && err != nil || c.want != "" && problem.CodeOf(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
