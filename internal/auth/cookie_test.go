package auth_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
)

// T-16: on https the login's cookie is one that no other host can set, and no
// other name passes for it. On http, which is loopback, browsers would not take it.
func TestCookieIsTheHosts(t *testing.T) {
	for name, c := range map[string]struct {
		url, cookie, other string
		secure             bool
	}{
		"T-16_https":    {"https://gatehouse.example.com", "__Host-gatehouse_login", "gatehouse_login", true},
		"loopback_http": {"http://127.0.0.1:8081", "gatehouse_login", "__Host-gatehouse_login", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := auth.New(auth.Options{URL: c.url, Loopback: true})
			if err != nil {
				t.Fatal(err)
			}
			link, _, err := a.Link(auth.Local)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			if err := a.OpenLink(w, httptest.NewRequest(http.MethodGet, "/", nil), link[strings.LastIndexByte(link, '/')+1:]); err != nil {
				t.Fatal(err)
			}
			set := w.Result().Cookies()
			if len(set) != 1 || set[0].Name != c.cookie || set[0].Path != "/" || set[0].Domain != "" || set[0].Secure != c.secure || !set[0].HttpOnly || set[0].SameSite != http.SameSiteStrictMode {
				t.Fatalf("%+v", set)
			}
			who := func(name string) error {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.AddCookie(&http.Cookie{Name: name, Value: set[0].Value})
				_, err := a.Identify(r)
				return err
			}
			if err := who(c.cookie); err != nil {
				t.Error(err)
			}
			if err := who(c.other); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("%s passes for it: %v", c.other, err)
			}
			w = httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/logout", nil)
			r.AddCookie(set[0])
			a.Logout(w, r)
			if out := w.Result().Cookies(); len(out) != 1 || out[0].Name != c.cookie || out[0].MaxAge >= 0 {
				t.Errorf("logging out: %+v", out)
			}
			if err := who(c.cookie); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("it outlives its logout: %v", err)
			}
		})
	}
}
