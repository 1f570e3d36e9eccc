package auth_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
)

// T-15: a token has of its roles those that its owner has now. Whoever was removed
// or put lower keeps nothing that was made while they were higher.
func TestTokensFollowTheirOwner(t *testing.T) {
	const ann = "ann@example.com"
	day := 24 * time.Hour
	again := func(w *world, change func(*auth.OIDC)) {
		w.t.Helper()
		if change != nil {
			change(w.opts.OIDC)
		}
		var err error
		if w.Auth, err = auth.New(w.opts); err != nil {
			w.t.Fatal(err)
		}
	}
	refused := func(w *world, want problem.Code, groups ...string) {
		w.t.Helper()
		w.idp.QueueUser(user(ann, groups...))
		if _, body := w.get(w.browser(), "/login/oidc"); body != string(want) {
			w.t.Fatalf("the login: %s, want %s", body, want)
		}
	}
	cases := map[string]struct {
		roles []auth.Role // of the token
		then  func(w *world)
		want  string // roles left, "" = it does not hold
	}{
		"nothing_happens":             {[]auth.Role{auth.Reviewer, auth.Operator}, func(*world) {}, "[reviewer operator]"},
		"restarted":                   {[]auth.Role{auth.Reviewer, auth.Operator}, func(w *world) { again(w, nil) }, "[reviewer operator]"},
		"logs_in_again":               {[]auth.Role{auth.Reviewer, auth.Operator}, func(w *world) { w.met(ann, "eng", "sec") }, "[reviewer operator]"},
		"gains":                       {[]auth.Role{auth.Reviewer}, func(w *world) { w.met(ann, "eng", "sec", "root") }, "[reviewer]"},
		"becomes_admin":               {[]auth.Role{auth.Operator}, func(w *world) { w.met(ann, "root") }, "[operator]"},
		"T-15_loses_a_group":          {[]auth.Role{auth.Reviewer, auth.Operator}, func(w *world) { w.met(ann, "eng") }, "[reviewer]"},
		"T-15_loses_it_restarted":     {[]auth.Role{auth.Reviewer, auth.Operator}, func(w *world) { w.met(ann, "eng"); again(w, nil) }, "[reviewer]"},
		"T-15_loses_the_tokens_group": {[]auth.Role{auth.Operator}, func(w *world) { w.met(ann, "eng") }, ""},
		"T-15_loses_every_group":      {[]auth.Role{auth.Reviewer}, func(w *world) { refused(w, problem.LoginRefused, "sales") }, ""},
		"T-15_loses_all_restarted":    {[]auth.Role{auth.Reviewer}, func(w *world) { refused(w, problem.LoginRefused); again(w, nil) }, ""},
		"T-15_group_loses_its_role": {[]auth.Role{auth.Reviewer, auth.Operator}, func(w *world) {
			again(w, func(o *auth.OIDC) { o.Roles["sec"] = []auth.Role{auth.Viewer} })
		}, "[reviewer]"},
		"T-15_group_is_gone": {[]auth.Role{auth.Operator}, func(w *world) { again(w, func(o *auth.OIDC) { delete(o.Roles, "sec") }) }, ""},
		"T-15_provider_is_gone": {[]auth.Role{auth.Reviewer}, func(w *world) {
			w.opts.OIDC = nil
			again(w, nil)
		}, ""},
		"T-15_not_seen_for_30_days": {[]auth.Role{auth.Reviewer}, func(w *world) { w.later(30 * day) }, ""},
		"seen_within_30_days": {[]auth.Role{auth.Reviewer}, func(w *world) {
			w.later(29 * day)
			w.idp.FastForward(29 * day)
			w.met(ann, "eng")
			w.later(29 * day)
		}, "[reviewer]"},
		"back_again":                {[]auth.Role{auth.Reviewer}, func(w *world) { refused(w, problem.LoginRefused, "sales"); w.met(ann, "eng") }, "[reviewer]"},
		"T-15_somebody_elses_login": {[]auth.Role{auth.Operator}, func(w *world) { w.met("bob@example.com", "sec"); w.met(ann, "eng") }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *auth.OIDC) { o.Roles["root"] = []auth.Role{auth.Admin} })
			w.met(ann, "eng", "sec")
			text, _, err := w.NewToken(t.Context(), person(ann, w.now, auth.Reviewer, auth.Operator), "ci", c.roles, 90*day)
			if err != nil {
				t.Fatal(err)
			}
			first, err := w.Identify(bearer(text))
			if err != nil {
				t.Fatal(err)
			}
			c.then(w)
			id, err := w.Identify(bearer(text))
			if c.want == "" && problem.CodeOf(err) != problem.Unauthenticated || c.want != "" && (err != nil || fmt.Sprint(id.Roles) != c.want) {
				t.Errorf("it has %v, %v; want %q", id.Roles, err, c.want)
			}
			if id, err := w.Still(first); (err != nil) != (c.want == "") || err == nil && fmt.Sprint(id.Roles) != c.want {
				t.Errorf("what goes on has %v, %v; want %q", id.Roles, err, c.want)
			}
		})
	}
	t.Run("local_needs_no_provider", func(t *testing.T) {
		w := newWorld(t, nil)
		text, _, err := w.NewToken(t.Context(), auth.Identity{Person: auth.Local, Kind: auth.KindSocket, Roles: auth.Roles}, "backup", []auth.Role{auth.Auditor}, 90*day)
		if err != nil {
			t.Fatal(err)
		}
		w.later(60 * day)
		if id, err := w.Identify(bearer(text)); err != nil || fmt.Sprint(id.Roles) != "[auditor]" {
			t.Errorf("%v, %v", id.Roles, err)
		}
	})
	// The same of another login of theirs, and of what goes on under it.
	t.Run("T-15_other_logins", func(t *testing.T) {
		w := newWorld(t, nil)
		b := w.browser()
		w.idp.QueueUser(user(ann, "eng", "sec"))
		w.get(b, "/login/oidc")
		was := w.identity(b)
		if len(was.Roles) != 3 {
			t.Fatalf("%+v", was)
		}
		w.met(ann, "eng")
		if _, who := w.get(b, "/who"); !strings.Contains(who, "oidc [reviewer]") {
			t.Errorf("the other login is %s", who)
		}
		if id, err := w.Still(was); err != nil || fmt.Sprint(id.Roles) != "[reviewer]" {
			t.Errorf("what goes on has %v, %v", id.Roles, err)
		}
		refused(w, problem.LoginRefused, "sales")
		if status, who := w.get(b, "/who"); status == http.StatusOK {
			t.Errorf("the other login is %s", who)
		}
		if _, err := w.Still(was); problem.CodeOf(err) != problem.Unauthenticated {
			t.Errorf("what goes on: %v", err)
		}
	})
	t.Run("T-15_still_logged_in", func(t *testing.T) {
		w := newWorld(t, nil)
		for name, end := range map[string]func(b *http.Client, was auth.Identity){
			"expired": func(*http.Client, auth.Identity) { w.later(13 * time.Hour) },
			"logged_out": func(b *http.Client, _ auth.Identity) {
				w.get(b, "/logout")
			},
		} {
			b := w.browser()
			link, _, err := w.Link(auth.Local)
			if err != nil {
				t.Fatal(err)
			}
			w.get(b, strings.TrimPrefix(link, w.srv.URL))
			was := w.identity(b)
			if _, err := w.Still(was); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			end(b, was)
			if _, err := w.Still(was); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
