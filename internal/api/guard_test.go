package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
)

// refused fails unless the answer is a problem with this status and code.
func refused(t *testing.T, r *http.Response, body string, status int, code problem.Code) {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%s %q: %v", r.Status, body, err)
	}
	if r.StatusCode != status || p.Status != status || p.Code != code || p.Type != "urn:gatehouse:problem:"+string(code) || p.Title == "" {
		t.Fatalf("got %s %s, want %d %s", r.Status, body, status, code)
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("content type %q", ct)
	}
}

func host(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }

// A page whose name was pointed at this address gets nothing, logged in or not.
func TestDNSRebindingIsRefused(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	for name, h := range map[string]string{
		"foreign": "evil.example", "foreign_with_port": "evil.example:8081", "no_port": "127.0.0.1", "other_port": "127.0.0.1:80",
		"suffix": "127.0.0.1:8081.evil.example", "userinfo": "127.0.0.1:8081@evil.example", "dot": "localhost.:8081", "other_loopback": "127.0.0.2:8081",
	} {
		t.Run(name, func(t *testing.T) {
			r, body := b.do(http.MethodGet, "/v1/sessions", "", host(h))
			if r.StatusCode == http.StatusBadRequest {
				return // net/http itself does not take this Host
			}
			refused(t, r, body, http.StatusMisdirectedRequest, problem.HostNotListed)
		})
	}
	for _, h := range []string{"127.0.0.1:8081", "localhost:8081", "LOCALHOST:8081"} {
		if r, body := b.do(http.MethodGet, "/v1/sessions", "", host(h)); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", h, r.Status, body)
		}
	}
}

func TestCrossOriginRequestsAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	kill := "/v1/sessions/" + sessionID(1) + "/kill"
	cases := map[string]struct {
		method string
		change func(*http.Request)
	}{
		"foreign_origin":  {http.MethodPost, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"other_port":      {http.MethodPost, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:9999") }},
		"other_scheme":    {http.MethodPost, func(r *http.Request) { r.Header.Set("Origin", "https://127.0.0.1:8081") }},
		"null":            {http.MethodPost, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"no_origin":       {http.MethodPost, func(r *http.Request) { r.Header.Del("Origin") }},
		"two_origins":     {http.MethodPost, func(r *http.Request) { r.Header.Add("Origin", "https://evil.example") }},
		"cross_site":      {http.MethodPost, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		"same_site":       {http.MethodPost, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }},
		"delete":          {http.MethodDelete, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"options":         {http.MethodOptions, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"get_from_script": {http.MethodGet, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, body := b.do(c.method, kill, "", c.change)
			refused(t, r, body, http.StatusForbidden, problem.OriginNotListed)
			if r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Fatal("CORS is open")
			}
		})
	}
	if got := w.did.last(); got != "" {
		t.Fatalf("a refused request did %q", got)
	}
	if r, body := b.do(http.MethodPost, kill, "", nil); r.StatusCode != http.StatusAccepted {
		t.Fatal(r.Status, body)
	}
	if got := w.did.last(); got != "kill "+sessionID(1)+" by ann via ui" {
		t.Fatal(got)
	}
}

// Nothing but the login link answers without a login.
func TestEverythingNeedsALogin(t *testing.T) {
	w := newWorld(t, func(o *api.Options) { o.UI = http.NotFoundHandler() })
	b := w.operator()
	for _, path := range []string{
		"/", "/ui/", "/v1/status", "/v1/sessions", "/v1/receipts/export", "/openapi.yaml", "/openapi.json", "/none",
		"/v1/../v1/status", "//v1/status", "/LOGIN/x", "/loginx",
	} {
		r, body := b.do(http.MethodGet, path, "", nil)
		refused(t, r, body, http.StatusUnauthorized, problem.Unauthenticated)
	}
	for _, m := range []string{http.MethodPost, http.MethodHead} {
		if r, _ := b.do(m, "/login/x", "", nil); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", m, r.Status)
		}
	}
	for name, cookie := range map[string]string{"empty": "", "guess": strings.Repeat("A", 43), "long": strings.Repeat("A", 4000)} {
		b.cookie = &http.Cookie{Name: "gatehouse_login", Value: cookie}
		if r, _ := b.do(http.MethodGet, "/v1/status", "", nil); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("cookie %s: %s", name, r.Status)
		}
	}
	if got := w.did.last(); got != "" {
		t.Fatal(got)
	}
}

func TestLoginLink(t *testing.T) {
	open := func(t *testing.T, b *browser, url string) (*http.Response, string) {
		t.Helper()
		return b.do(http.MethodGet, strings.TrimPrefix(url, "http://127.0.0.1:8081"), "", nil)
	}
	link := func(t *testing.T, w *world) string {
		t.Helper()
		url, expires, err := w.LoginLink("ann")
		if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:8081/login/") || !expires.Equal(w.now.Add(time.Minute)) {
			t.Fatal(url, expires, err)
		}
		return url
	}
	t.Run("opens_once", func(t *testing.T) {
		w := newWorld(t, nil)
		url := link(t, w)
		first := w.operator()
		r, body := open(t, first, url)
		if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/v1/status" {
			t.Fatal(r.Status, body)
		}
		c := r.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 12*3600 || c.Secure || len(c.Value) < 43 {
			t.Fatalf("cookie %+v", c)
		}
		if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Fatalf("headers %v", r.Header)
		}
		if strings.Contains(url, c.Value) {
			t.Fatal("the link is the cookie")
		}
		second := w.operator()
		r, body = open(t, second, url)
		refused(t, r, body, http.StatusForbidden, problem.LoginLinkInvalid)
		if second.cookie != nil {
			t.Fatal("the second use gave a cookie")
		}
		if r, _ := first.do(http.MethodGet, "/v1/status", "", nil); r.StatusCode != http.StatusOK {
			t.Fatal("the first login ended:", r.Status)
		}
	})
	t.Run("dies_after_a_minute", func(t *testing.T) {
		w := newWorld(t, nil)
		url := link(t, w)
		w.later(time.Minute)
		r, body := open(t, w.operator(), url)
		refused(t, r, body, http.StatusForbidden, problem.LoginLinkInvalid)
	})
	t.Run("lives_for_a_minute", func(t *testing.T) {
		w := newWorld(t, nil)
		url := link(t, w)
		w.later(time.Minute - time.Nanosecond)
		if r, body := open(t, w.operator(), url); r.StatusCode != http.StatusSeeOther {
			t.Fatal(r.Status, body)
		}
	})
	t.Run("wrong_token", func(t *testing.T) {
		w := newWorld(t, nil)
		link(t, w)
		r, body := w.operator().do(http.MethodGet, "/login/"+strings.Repeat("A", 43), "", nil)
		refused(t, r, body, http.StatusForbidden, problem.LoginLinkInvalid)
	})
	t.Run("not_off_loopback", func(t *testing.T) {
		w := newWorld(t, func(o *api.Options) { o.Loopback = false })
		if _, _, err := w.LoginLink("ann"); problem.CodeOf(err) != problem.Unavailable {
			t.Fatal(err)
		}
	})
	t.Run("not_with_a_foreign_host", func(t *testing.T) {
		w := newWorld(t, nil)
		url := link(t, w)
		b := w.operator()
		r, body := b.do(http.MethodGet, strings.TrimPrefix(url, "http://127.0.0.1:8081"), "", host("evil.example"))
		refused(t, r, body, http.StatusMisdirectedRequest, problem.HostNotListed)
		if r, _ := open(t, b, url); r.StatusCode != http.StatusSeeOther {
			t.Fatal("the refused request spent the link")
		}
	})
	t.Run("made_on_the_socket_only", func(t *testing.T) {
		w := newWorld(t, nil)
		b := w.operator().login()
		r, body := b.do(http.MethodPost, "/v1/login-links", "", nil)
		refused(t, r, body, http.StatusForbidden, problem.OriginNotListed)
		var l api.Link
		if err := w.socket().Post(t.Context(), "/v1/login-links", nil, &l); err != nil {
			t.Fatal(err)
		}
		// The socket itself opens no link: its cookie would be of no use there.
		if err := w.socket().Get(t.Context(), strings.TrimPrefix(l.URL, "http://127.0.0.1:8081"), nil, nil); problem.CodeOf(err) != problem.LoginLinkInvalid {
			t.Fatal(err)
		}
		if r, body := open(t, w.operator(), l.URL); r.StatusCode != http.StatusSeeOther {
			t.Fatal(r.Status, body)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		w := newWorld(t, nil)
		for range 16 {
			link(t, w)
		}
		if _, _, err := w.LoginLink("ann"); problem.CodeOf(err) != problem.Unavailable {
			t.Fatal(err)
		}
		w.later(time.Minute)
		link(t, w)
	})
	t.Run("login_ends", func(t *testing.T) {
		w := newWorld(t, nil)
		b := w.operator().login()
		w.later(12*time.Hour - time.Nanosecond)
		if r, _ := b.do(http.MethodGet, "/v1/status", "", nil); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
		w.later(time.Nanosecond)
		if r, _ := b.do(http.MethodGet, "/v1/status", "", nil); r.StatusCode != http.StatusUnauthorized {
			t.Fatal(r.Status)
		}
	})
	t.Run("logout", func(t *testing.T) {
		w := newWorld(t, nil)
		b := w.operator().login()
		stolen := *b.cookie
		if r, body := b.do(http.MethodPost, "/logout", "", nil); r.StatusCode != http.StatusNoContent || b.cookie.MaxAge >= 0 {
			t.Fatal(r.Status, body)
		}
		b.cookie = &stolen
		if r, _ := b.do(http.MethodGet, "/v1/status", "", nil); r.StatusCode != http.StatusUnauthorized {
			t.Fatal(r.Status)
		}
	})
	t.Run("secure_cookie_over_TLS", func(t *testing.T) {
		w := newWorld(t, func(o *api.Options) { o.URL = "https://127.0.0.1:8081" })
		url, _, err := w.LoginLink("ann")
		if err != nil {
			t.Fatal(err)
		}
		b := w.operator()
		r, _ := b.do(http.MethodGet, strings.TrimPrefix(url, "https://127.0.0.1:8081"), "", nil)
		if c := r.Cookies(); len(c) != 1 || !c[0].Secure {
			t.Fatalf("%v", c)
		}
	})
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	b := newWorld(t, nil).operator()
	check := func(path string, change func(*http.Request)) {
		t.Helper()
		r, _ := b.do(http.MethodGet, path, "", change)
		for k, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
		} {
			if got := r.Header.Get(k); got != want {
				t.Errorf("%s: %s is %q", path, k, got)
			}
		}
	}
	check("/v1/status", nil)
	check("/v1/status", host("evil.example"))
	b.login()
	for _, p := range []string{"/v1/status", "/none", "/v1/sessions/" + sessionID(1) + "/logs", "/v1/receipts/export", "/openapi.yaml"} {
		check(p, nil)
	}
}
