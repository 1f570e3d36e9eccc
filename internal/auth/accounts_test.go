package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
)

// One account is one person, and one person one account, after a restart too.
func TestOnePersonOneName(t *testing.T) {
	account := func(subject, email string) *mockoidc.MockUser {
		return &mockoidc.MockUser{Subject: subject, Email: email, EmailVerified: true, Groups: []string{"sec"}}
	}
	for name, c := range map[string]struct {
		user    *mockoidc.MockUser
		restart bool
		change  func(*auth.OIDC) // at the restart
		want    problem.Code
	}{
		"same":                       {account("sub-1", "ann@example.com"), false, nil, ""},
		"same_restarted":             {account("sub-1", "Ann@Example.com"), true, nil, ""},
		"other_person":               {account("sub-2", "bob@example.com"), true, nil, ""},
		"other_address":              {account("sub-1", "ann.smith@example.com"), false, nil, problem.PersonChanged},
		"other_address_restarted":    {account("sub-1", "ann.smith@example.com"), true, nil, problem.PersonChanged},
		"other_account":              {account("sub-2", "ann@example.com"), false, nil, problem.PersonChanged},
		"other_account_restarted":    {account("sub-2", "ANN@example.com"), true, nil, problem.PersonChanged},
		"as_the_hint_says_restarted": {account("sub-1", "ann.smith@example.com"), true, func(o *auth.OIDC) { o.Person = "sub" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.idp.QueueUser(account("sub-1", "ann@example.com"))
			if status, body := w.get(w.browser(), "/login/oidc"); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			if c.restart {
				if c.change != nil {
					c.change(w.opts.OIDC)
				}
				var err error
				if w.Auth, err = auth.New(w.opts); err != nil {
					t.Fatal(err)
				}
			}
			w.idp.QueueUser(c.user)
			b := w.browser()
			status, body := w.get(b, "/login/oidc")
			if c.want == "" && status != http.StatusOK || c.want != "" && body != string(c.want) {
				t.Errorf("%d %s, want %q", status, body, c.want)
			}
			if _, who := w.get(b, "/who"); c.want != "" && strings.Contains(who, "oidc") {
				t.Errorf("it is logged in as %s", who)
			}
		})
	}
	t.Run("kept_again_for_the_journal_lets_old_ones_go", func(t *testing.T) {
		w := newWorld(t, nil)
		for i, want := range []int{1, 1, 2} {
			w.idp.QueueUser(account("sub-1", "ann@example.com"))
			if status, body := w.get(w.browser(), "/login/oidc"); status != http.StatusOK || len(w.store.records) != want {
				t.Errorf("login %d: %d %s, %d records", i, status, body, len(w.store.records))
			}
			d := time.Hour + time.Duration(i)*24*time.Hour
			w.later(d)
			w.idp.FastForward(d)
		}
	})
	t.Run("not_kept", func(t *testing.T) {
		w := newWorld(t, nil)
		o := w.opts
		o.Store = broken{w.store}
		var err error
		if w.Auth, err = auth.New(o); err != nil {
			t.Fatal(err)
		}
		w.idp.QueueUser(account("sub-1", "ann@example.com"))
		if _, body := w.get(w.browser(), "/login/oidc"); body != string(problem.Unavailable) {
			t.Error(body)
		}
	})
	t.Run("no_store", func(t *testing.T) {
		o := newWorld(t, nil).opts
		o.Store = nil
		if _, err := auth.New(o); err == nil {
			t.Error("people log in at a node that can't know them again")
		}
	})
}

// broken is a store that keeps nothing.
type broken struct{ *memory }

func (broken) Append(context.Context, []byte) error { return errors.New("disk full") }

// What holds is not refused because others behind the same address failed.
func TestStrangersLockNobodyOut(t *testing.T) {
	w := newWorld(t, nil)
	w.met("ann@example.com", "sec")
	text, _, err := w.NewToken(t.Context(), person("ann@example.com", w.now, auth.Operator), "ci", []auth.Role{auth.Operator}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	link, _, err := w.Link(auth.Local)
	if err != nil {
		t.Fatal(err)
	}
	stranger := w.browser()
	bad := func(path, token string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		_, body := w.send(stranger, req)
		return body
	}
	for i := range 30 {
		bad("/who", fmt.Sprint("gatehouse_at_", i))
	}
	for what, got := range map[string]string{"token": bad("/who", "x"), "link": bad("/login/x", ""), "callback": bad("/login/oidc/callback?state=x&code=y", "")} {
		if got != string(problem.RateLimited) {
			t.Errorf("a bad %s: %s", what, got)
		}
	}
	if got := bad("/who", text); !strings.HasPrefix(got, "ann@example.com token ") {
		t.Errorf("a good token: %s", got)
	}
	if status, body := w.get(w.browser(), strings.TrimPrefix(link, w.srv.URL)); status != http.StatusOK {
		t.Errorf("a good link: %d %s", status, body)
	}
	w.idp.QueueUser(user("ann@example.com", "eng"))
	if status, body := w.get(w.browser(), "/login/oidc"); status != http.StatusOK {
		t.Errorf("a good login: %d %s", status, body)
	}
}

// Logins that others only begin take nobody's place, before or after.
func TestBegunLoginsTakeNoPlace(t *testing.T) {
	w := newWorld(t, nil)
	left := w.browser()
	var callback string
	left.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			callback = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	w.idp.QueueUser(user("ann@example.com", "eng"))
	w.get(left, "/login/oidc")
	stranger := w.browser()
	stranger.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 300 {
		if status, body := w.get(stranger, "/login/oidc"); status != http.StatusSeeOther {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := w.get(left, callback); status != http.StatusOK {
		t.Errorf("who had begun before: %d %s", status, body)
	}
	w.idp.QueueUser(user("bob@example.com", "eng"))
	if status, body := w.get(w.browser(), "/login/oidc"); status != http.StatusOK {
		t.Errorf("who begins after: %d %s", status, body)
	}
}

// A login that went on too long, or came back with a cookie that was not sealed
// here, does not hold.
func TestPendingLoginIsSealed(t *testing.T) {
	for name, change := range map[string]func(w *world, c *http.Cookie){
		"late":     func(w *world, _ *http.Cookie) { w.later(10 * time.Minute) },
		"changed":  func(_ *world, c *http.Cookie) { c.Value = c.Value[:len(c.Value)-8] + "AAAAAAAA" },
		"nonsense": func(_ *world, c *http.Cookie) { c.Value = "x" },
		"another_process": func(w *world, _ *http.Cookie) {
			var err error
			if w.Auth, err = auth.New(w.opts); err != nil {
				w.t.Fatal(err)
			}
		},
		"": func(*world, *http.Cookie) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			b := w.browser()
			var callback string
			var sealed *http.Cookie
			b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
				if strings.HasSuffix(r.URL.Path, "/callback") {
					callback = r.URL.String()
					for _, c := range b.Jar.Cookies(r.URL) {
						sealed = c
					}
					return http.ErrUseLastResponse
				}
				return nil
			}
			w.idp.QueueUser(user("ann@example.com", "eng"))
			w.get(b, "/login/oidc?to=/ui/"+strings.Repeat("&", 1990))
			if sealed == nil || len(sealed.String()) > 4000 {
				t.Fatalf("the cookie: %v", sealed)
			}
			change(w, sealed)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, callback, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.AddCookie(sealed)
			if status, body := w.send(w.browser(), req); (status == http.StatusOK) != (name == "") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// A login is fresh when somebody says that the person proved themselves minutes ago.
func TestFreshNeedsProof(t *testing.T) {
	ago := func(d time.Duration) func(*world) {
		return func(w *world) { w.authTime = func() int64 { return w.opts.Clock().Add(-d).Unix() } }
	}
	for name, c := range map[string]struct {
		provider func(*world)
		again    bool
		code     problem.Code
		fresh    bool
	}{
		"says_now":                   {ago(0), false, "", true},
		"says_an_hour_ago":           {ago(time.Hour), false, "", false},
		"says_an_hour_ahead":         {ago(-time.Hour), false, "", false},
		"says_nothing":               {func(*world) {}, false, "", false},
		"again_says_now":             {ago(0), true, "", true},
		"again_says_an_hour_ago":     {ago(time.Hour), true, problem.LoginRefused, false},
		"again_says_an_hour_ahead":   {ago(-time.Hour), true, problem.LoginRefused, false},
		"again_cannot_say":           {func(*world) {}, true, "", true},
		"again_can_say_and_does_not": {func(w *world) { w.says = true }, true, problem.LoginRefused, false},
		"again_said_once": {func(w *world) {
			ago(0)(w)
			w.idp.QueueUser(user("bob@example.com", "sec"))
			w.get(w.browser(), "/login/oidc")
			w.authTime = nil
		}, true, problem.LoginRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.provider(w)
			w.idp.QueueUser(user("ann@example.com", "sec"))
			b := w.browser()
			path := "/login/oidc"
			if c.again {
				path += "?again"
			}
			status, body := w.get(b, path)
			if c.code != "" {
				if body != string(c.code) {
					t.Errorf("%d %s, want %s", status, body, c.code)
				}
				return
			}
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			id := w.identity(b)
			if got := id.Fresh(w.opts.Clock()); got != c.fresh {
				t.Errorf("fresh: %v", got)
			}
			if _, _, err := w.NewToken(t.Context(), id, "ci", []auth.Role{auth.Approver}, time.Hour); (err == nil) != c.fresh {
				t.Errorf("a token: %v", err)
			}
			w.later(10 * time.Minute)
			if w.identity(b).Fresh(w.opts.Clock()) {
				t.Error("fresh ten minutes later")
			}
		})
	}
}
