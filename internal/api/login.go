package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

const (
	linkLife   = 60 * time.Second
	loginLife  = 12 * time.Hour
	maxLinks   = 16
	maxLogins  = 256
	cookieName = "gatehouse_login"
)

// login keeps one-time links and login sessions, in memory: a restart ends
// them. Only digests are kept, so that a dump of the process opens nothing.
type login struct {
	clock func() time.Time

	mu     sync.Mutex
	links  map[[32]byte]grant
	logins map[[32]byte]grant
}

type grant struct {
	name    string
	expires time.Time
}

func newLogin(clock func() time.Time) *login {
	return &login{clock: clock, links: map[[32]byte]grant{}, logins: map[[32]byte]grant{}}
}

// mint adds a grant and returns its token, or false when too many are open.
func (l *login) mint(to map[[32]byte]grant, name string, life time.Duration, most int) (token string, expires time.Time, ok bool) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	token = base64.RawURLEncoding.EncodeToString(b)
	now := l.clock()
	for k, g := range to {
		if !now.Before(g.expires) {
			delete(to, k)
		}
	}
	if len(to) >= most {
		return "", time.Time{}, false
	}
	expires = now.Add(life)
	to[sha256.Sum256([]byte(token))] = grant{name, expires}
	return token, expires, true
}

// link makes a one-time link token.
func (l *login) link(name string) (string, time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mint(l.links, name, linkLife, maxLinks)
}

// open turns a link token into a login session. The link is spent whatever
// happens next.
func (l *login) open(token string) (session string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := sha256.Sum256([]byte(token))
	g, ok := l.links[k]
	delete(l.links, k)
	if !ok || !l.clock().Before(g.expires) {
		return "", false
	}
	session, _, ok = l.mint(l.logins, g.name, loginLife, maxLogins)
	return session, ok
}

// who returns the name of the request's login session.
func (l *login) who(r *http.Request) (string, bool) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.logins[sha256.Sum256([]byte(c.Value))]
	if !ok || !l.clock().Before(g.expires) {
		return "", false
	}
	return g.name, true
}

func (l *login) end(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.logins, sha256.Sum256([]byte(c.Value)))
	}
}

// LoginLink makes a one-time link for the operator listener: single use, 60 s.
// It is refused unless that listener is bound to loopback.
func (a *API) LoginLink(name string) (url string, expires time.Time, err error) {
	if !a.o.Loopback {
		return "", time.Time{}, problem.New(problem.Unavailable, "login links work on a loopback operator listener only",
			"Bind listen.operator to 127.0.0.1, or log in with OIDC.")
	}
	token, expires, ok := a.login.link(name)
	if !ok {
		return "", time.Time{}, problem.New(problem.Unavailable, "too many login links are open", "Wait a minute.")
	}
	return strings.TrimSuffix(a.o.URL, "/") + "/login/" + token, expires, nil
}

func (a *API) openLink(w http.ResponseWriter, r *http.Request) {
	session, ok := "", false
	if a.o.Loopback && !callerOf(r.Context()).socket {
		session, ok = a.login.open(r.PathValue("token"))
	}
	if !ok {
		refuse(w, problemOf(problem.LoginLinkInvalid, "this login link was used or is too old", "Make a new one; each works once, for a minute."))
		return
	}
	http.SetCookie(w, a.cookie(session, int(loginLife/time.Second)))
	to := "/v1/status"
	if a.o.UI != nil {
		to = "/ui/"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (a *API) logout(w http.ResponseWriter, r *http.Request) {
	a.login.end(r)
	http.SetCookie(w, a.cookie("", -1))
	w.WriteHeader(http.StatusNoContent)
}

func (a *API) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: strings.HasPrefix(a.o.URL, "https://"),
	}
}
