package auth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
	"go.uber.org/goleak"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store that a second Auth can read again, as after a restart.
type memory struct{ records [][]byte }

func (m *memory) Append(_ context.Context, b []byte) error {
	m.records = append(m.records, b)
	return nil
}

func (m *memory) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, b := range m.records {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// world is an Auth behind a real listener and a real provider over HTTP.
type world struct {
	*auth.Auth
	t     *testing.T
	idp   *mockoidc.MockOIDC
	srv   *httptest.Server
	store *memory
	exit  *http.Transport
	notes []string
	mu    sync.Mutex
	now   time.Time
	opts  auth.Options

	// What the provider says of when somebody proved themselves: nothing, like
	// mockoidc, unless it is set.
	authTime func() int64
	says     bool // it is in the provider's description
}

// RoundTrip is the way to the provider, and back with what it says.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.exit.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	switch {
	case w.says && strings.HasSuffix(r.URL.Path, "/openid-configuration"):
		b = bytes.Replace(b, []byte(`"claims_supported":[`), []byte(`"claims_supported":["auth_time",`), 1)
	case w.authTime != nil && strings.HasSuffix(r.URL.Path, "/token"):
		if b, err = w.timed(b); err != nil {
			return nil, err
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// timed signs the ID token of a token answer anew, with auth_time.
func (w *world) timed(b []byte) ([]byte, error) {
	answer := map[string]any{}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, err
	}
	raw, _ := answer["id_token"].(string)
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return b, nil
	}
	plain, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, err
	}
	var claims struct {
		*mockoidc.IDTokenClaims
		Email         string   `json:"email"`
		EmailVerified bool     `json:"email_verified"`
		Groups        []string `json:"groups"`
		AuthTime      int64    `json:"auth_time"`
	}
	if err := json.Unmarshal(plain, &claims); err != nil {
		return nil, err
	}
	claims.AuthTime = w.authTime()
	if answer["id_token"], err = w.idp.Keypair.SignJWT(&claims); err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func newWorld(t *testing.T, change func(*auth.OIDC)) *world {
	t.Helper()
	w := &world{t: t, store: &memory{}, now: time.Now()}
	var err error
	if w.idp, err = mockoidc.Run(); err != nil {
		t.Fatal(err)
	}
	w.exit = &http.Transport{}
	mux := http.NewServeMux()
	fail := func(rw http.ResponseWriter, err error) {
		if err != nil {
			http.Error(rw, string(problem.CodeOf(err)), http.StatusForbidden)
		}
	}
	mux.HandleFunc("GET /login/oidc", func(rw http.ResponseWriter, r *http.Request) {
		fail(rw, w.Begin(rw, r, r.URL.Query().Get("to"), r.URL.Query().Has("again")))
	})
	mux.HandleFunc("GET /login/oidc/callback", func(rw http.ResponseWriter, r *http.Request) { fail(rw, w.Finish(rw, r)) })
	mux.HandleFunc("GET /login/{token}", func(rw http.ResponseWriter, r *http.Request) { fail(rw, w.OpenLink(rw, r, r.PathValue("token"))) })
	mux.HandleFunc("GET /logout", func(rw http.ResponseWriter, r *http.Request) { w.Logout(rw, r) })
	mux.HandleFunc("/who", func(rw http.ResponseWriter, r *http.Request) {
		id, err := w.Identify(r)
		if err != nil {
			fail(rw, err)
			return
		}
		if r.Method == http.MethodPost {
			if err := auth.CheckForm(id, r); err != nil {
				fail(rw, err)
				return
			}
		}
		fmt.Fprintf(rw, "%s %s %v %s", id.Person, id.Kind, id.Roles, id.CSRF)
	})
	w.srv = httptest.NewServer(mux)
	o := &auth.OIDC{
		Issuer: w.idp.Issuer(), ClientID: w.idp.ClientID, Secret: secret.FromString(w.idp.ClientSecret), Scopes: []string{"groups"}, Exit: w,
		Roles: map[string][]auth.Role{"eng": {auth.Reviewer}, "sec": {auth.Approver, auth.Operator}},
	}
	if change != nil {
		change(o)
	}
	w.opts = auth.Options{
		URL: w.srv.URL, Loopback: true, OIDC: o, Store: w.store, Log: slog.New(slog.DiscardHandler),
		Note: func(_ context.Context, step, subject string, by auth.Identity) error {
			w.notes = append(w.notes, step+" by "+by.Person)
			return nil
		},
		Clock: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
	}
	if w.Auth, err = auth.New(w.opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.srv.Close()
		_ = w.idp.Shutdown()
		w.exit.CloseIdleConnections()
	})
	return w
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// browser keeps cookies and follows redirects, as a person's does.
func (w *world) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	w.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (w *world) get(c *http.Client, path string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.srv.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.send(c, req)
}

func (w *world) send(c *http.Client, req *http.Request) (int, string) {
	w.t.Helper()
	r, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.StatusCode, strings.TrimSpace(string(b))
}

func user(email string, groups ...string) *mockoidc.MockUser {
	return &mockoidc.MockUser{Subject: "sub-" + email, Email: email, EmailVerified: true, PreferredUsername: email, Groups: groups}
}

func TestLoginAtAProvider(t *testing.T) {
	cases := map[string]struct {
		user   *mockoidc.MockUser
		change func(*auth.OIDC)
		who    string // person kind roles
		code   problem.Code
	}{
		"reviewer":         {user("Ann@example.com", "eng"), nil, "ann@example.com oidc [reviewer]", ""},
		"two_groups":       {user("bob@example.com", "sec", "eng"), nil, "bob@example.com oidc [reviewer approver operator]", ""},
		"no_role":          {user("eve@example.com", "sales"), nil, "", problem.LoginRefused},
		"no_group":         {user("eve@example.com"), nil, "", problem.LoginRefused},
		"by_subject":       {user("ann@example.com", "eng"), func(o *auth.OIDC) { o.Person = "sub" }, "sub-ann@example.com oidc [reviewer]", ""},
		"unverified_email": {&mockoidc.MockUser{Subject: "x", Email: "x@example.com", Groups: []string{"eng"}}, nil, "", problem.LoginRefused},
		"called_local":     {&mockoidc.MockUser{Subject: "local", Groups: []string{"eng"}}, func(o *auth.OIDC) { o.Person = "sub" }, "", problem.LoginRefused},
		"called_config":    {&mockoidc.MockUser{Subject: "config", Groups: []string{"eng"}}, func(o *auth.OIDC) { o.Person = "sub" }, "", problem.LoginRefused},
		"wrong_client":     {user("ann@example.com", "eng"), func(o *auth.OIDC) { o.Secret = secret.FromString("wrong") }, "", problem.LoginRefused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.change)
			w.idp.QueueUser(c.user)
			b := w.browser()
			status, body := w.get(b, "/login/oidc?to=/ui/bundles")
			if c.code != "" {
				if status != http.StatusForbidden || body != string(c.code) {
					t.Errorf("%d %s, want %s", status, body, c.code)
				}
				if status, _ := w.get(b, "/who"); status == http.StatusOK {
					t.Error("it is logged in all the same")
				}
				return
			}
			if status != http.StatusOK || !strings.Contains(body, `content="0;url=/ui/bundles"`) {
				t.Fatalf("%d %s", status, body)
			}
			if _, who := w.get(b, "/who"); !strings.HasPrefix(who, c.who+" ") {
				t.Errorf("who: %s, want %s", who, c.who)
			}
		})
	}
}

func TestLoginStaysOnThisListener(t *testing.T) {
	w := newWorld(t, nil)
	for _, to := range []string{"https://evil.example/ui/", "//evil.example/ui/", "/ui/../../x\\evil", "javascript:alert(1)", "/v1/status", "/ui/\r\nSet-Cookie: x=y", ""} {
		w.idp.QueueUser(user("ann@example.com", "eng"))
		if _, body := w.get(w.browser(), "/login/oidc?to="+url.QueryEscape(to)); !strings.Contains(body, `content="0;url=/ui/"`) {
			t.Errorf("%q: %s", to, body)
		}
	}
}

// The browser that comes back must be the one that left, with the state it was
// given, once.
func TestCallbackIsBound(t *testing.T) {
	w := newWorld(t, nil)
	w.idp.QueueUser(user("ann@example.com", "eng"))
	left := w.browser()
	var callback string
	left.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			callback = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	w.get(left, "/login/oidc")
	if callback == "" {
		t.Fatal("no callback")
	}
	if status, body := w.get(w.browser(), callback); status != http.StatusForbidden || body != string(problem.LoginRefused) {
		t.Errorf("another browser: %d %s", status, body)
	}
	follow := *left
	follow.CheckRedirect = nil
	if status, body := w.get(&follow, callback); status != http.StatusOK {
		t.Errorf("the one that left: %d %s", status, body)
	}
	if status, _ := w.get(&follow, callback); status != http.StatusForbidden {
		t.Error("a state holds twice")
	}
	if status, _ := w.get(left, "/login/oidc/callback?state=x&code=y"); status != http.StatusForbidden {
		t.Error("an unknown state holds")
	}
}

// identity is who a browser's cookie says it is.
func (w *world) identity(b *http.Client) auth.Identity {
	w.t.Helper()
	u, err := url.Parse(w.srv.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range b.Jar.Cookies(u) {
		r.AddCookie(c)
	}
	id, err := w.Identify(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestLogInAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.authTime = func() int64 { return w.opts.Clock().Unix() }
	b := w.browser()
	w.idp.QueueUser(user("ann@example.com", "eng"))
	w.get(b, "/login/oidc")
	identity := func() auth.Identity { return w.identity(b) }
	if !identity().Fresh(w.now) {
		t.Error("a new login is stale")
	}
	w.later(11 * time.Minute)
	w.idp.FastForward(11 * time.Minute)
	if identity().Fresh(w.now) {
		t.Error("an old login is fresh")
	}
	w.idp.QueueUser(user("bob@example.com", "eng"))
	if status, body := w.get(b, "/login/oidc?again"); status != http.StatusForbidden || body != string(problem.LoginRefused) {
		t.Errorf("another person: %d %s", status, body)
	}
	w.idp.QueueUser(user("ann@example.com", "eng"))
	if status, body := w.get(b, "/login/oidc?again"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if !identity().Fresh(w.now) {
		t.Error("the new login is stale")
	}
}

func TestForms(t *testing.T) {
	w := newWorld(t, nil)
	b := w.browser()
	link, _, err := w.Link(auth.Local)
	if err != nil {
		t.Fatal(err)
	}
	w.get(b, strings.TrimPrefix(link, w.srv.URL))
	_, who := w.get(b, "/who")
	csrf := who[strings.LastIndexByte(who, ' ')+1:]
	if !strings.HasPrefix(who, "local link ") || len(csrf) < 43 {
		t.Fatal(who)
	}
	for name, c := range map[string]struct {
		field, header string
		status        int
	}{
		"field": {csrf, "", 200}, "header": {"", csrf, 200}, "none": {"", "", 403}, "wrong": {csrf + "x", "", 403}, "other_login": {strings.Repeat("A", 43), "", 403},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.srv.URL+"/who", strings.NewReader(url.Values{"csrf": {c.field}}.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if c.header != "" {
				req.Header.Set("X-Gatehouse-CSRF", c.header)
			}
			if status, body := w.send(b, req); status != c.status {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func person(name string, at time.Time, roles ...auth.Role) auth.Identity {
	return auth.Identity{Person: name, Kind: auth.KindOIDC, At: at, Roles: roles}
}

func bearer(text string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	return r
}

// met has a person log in once with those groups.
func (w *world) met(email string, groups ...string) {
	w.t.Helper()
	w.idp.QueueUser(user(email, groups...))
	if status, body := w.get(w.browser(), "/login/oidc"); status != http.StatusOK {
		w.t.Fatalf("%d %s", status, body)
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, nil)
	w.met("ann@example.com", "eng", "sec")
	ann := person("ann@example.com", w.now, auth.Reviewer, auth.Approver)
	text, made, err := w.NewToken(t.Context(), ann, "ci", []auth.Role{auth.Reviewer}, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range w.store.records {
		if strings.Contains(string(r), text) || strings.Contains(string(r), strings.TrimPrefix(text, "gatehouse_at_")) {
			t.Error("the record holds the token")
		}
	}
	id, err := w.Identify(bearer(text))
	if err != nil || id.Person != "ann@example.com" || id.Token != made.ID || !id.May(auth.Propose) || id.May(auth.Approve) {
		t.Errorf("%+v %v", id, err)
	}
	// After a restart it still holds; a revoked one does not.
	again, err := auth.New(w.opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Identify(bearer(text)); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := again.Revoke(t.Context(), person("eve@example.com", w.now, auth.Reviewer), made.ID); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("somebody else revoked it: %v", err)
	}
	if err := again.Revoke(t.Context(), ann, made.ID); err != nil {
		t.Fatal(err)
	}
	if again, err = auth.New(w.opts); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*auth.Auth{"restarted": again} {
		if _, err := a.Identify(bearer(text)); problem.CodeOf(err) != problem.Unauthenticated {
			t.Errorf("%s: revoked and it holds: %v", name, err)
		}
	}
	if got := strings.Join(w.notes, "; "); got != "token.add by ann@example.com; token.revoke by ann@example.com" {
		t.Errorf("receipts: %s", got)
	}
	for name, c := range map[string]struct {
		by    auth.Identity
		roles []auth.Role
		life  time.Duration
		want  problem.Code
	}{
		"more_than_its_owner":  {ann, []auth.Role{auth.Admin}, time.Hour, problem.Forbidden},
		"no_role":              {ann, nil, time.Hour, problem.Forbidden},
		"unknown_role":         {ann, []auth.Role{"god"}, time.Hour, problem.Forbidden},
		"approver_for_a_day":   {ann, []auth.Role{auth.Approver}, 24 * time.Hour, problem.Usage},
		"for_ever":             {ann, []auth.Role{auth.Reviewer}, 91 * 24 * time.Hour, problem.Usage},
		"stale_login":          {person("ann@example.com", w.now.Add(-time.Hour), auth.Reviewer), []auth.Role{auth.Reviewer}, time.Hour, problem.LoginAgain},
		"by_a_token":           {auth.Identity{Person: "ann@example.com", Kind: auth.KindToken, At: w.now, Roles: auth.Roles}, []auth.Role{auth.Reviewer}, time.Hour, problem.Forbidden},
		"approver_for_an_hour": {ann, []auth.Role{auth.Approver}, time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.NewToken(t.Context(), c.by, "x", c.roles, c.life)
			if c.want == "" && err != nil || c.want != "" && problem.CodeOf(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("expires", func(t *testing.T) {
		text, _, err := w.NewToken(t.Context(), ann, "short", []auth.Role{auth.Reviewer}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w.later(time.Minute)
		if _, err := w.Identify(bearer(text)); problem.CodeOf(err) != problem.Unauthenticated {
			t.Errorf("%v", err)
		}
	})
	t.Run("beside_a_good_cookie", func(t *testing.T) {
		b := w.browser()
		link, _, err := w.Link(auth.Local)
		if err != nil {
			t.Fatal(err)
		}
		w.get(b, strings.TrimPrefix(link, w.srv.URL))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.srv.URL+"/who", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer gatehouse_at_wrong")
		if status, body := w.send(b, req); status != http.StatusForbidden {
			t.Errorf("a wrong token fell back to the cookie: %s", body)
		}
	})
}

func TestGuessingIsSlowed(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 20 {
		if _, err := w.Identify(bearer("gatehouse_at_" + fmt.Sprint(i))); problem.CodeOf(err) != problem.Unauthenticated {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if _, err := w.Identify(bearer("gatehouse_at_x")); problem.CodeOf(err) != problem.RateLimited {
		t.Errorf("%v", err)
	}
	other := bearer("gatehouse_at_x")
	other.RemoteAddr = "192.0.2.77:1"
	if _, err := w.Identify(other); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("another peer: %v", err)
	}
	w.later(time.Minute)
	if _, err := w.Identify(bearer("gatehouse_at_x")); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("a minute later: %v", err)
	}
}

func TestRoles(t *testing.T) {
	for role, want := range map[auth.Role]string{
		auth.Viewer: "read", auth.Reviewer: "read review propose", auth.Approver: "read review propose approve narrow",
		auth.Operator: "read propose narrow apply operate", auth.Auditor: "read export",
		auth.Admin: "read export review propose approve narrow apply operate administer",
	} {
		var got []string
		for _, a := range []auth.Act{auth.Read, auth.Export, auth.Review, auth.Propose, auth.Approve, auth.Narrow, auth.Apply, auth.Operate, auth.Administer} {
			if (auth.Identity{Roles: []auth.Role{role}}).May(a) {
				got = append(got, string(a))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", role, got)
		}
	}
	if (auth.Identity{}).May(auth.Read) {
		t.Error("nobody may read")
	}
}

func TestUnreadableTokensStopTheNode(t *testing.T) {
	w := newWorld(t, nil)
	o := w.opts
	o.Store = &memory{records: [][]byte{[]byte("{")}}
	if _, err := auth.New(o); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}
