package auth

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// Kinds of identities.
const (
	KindSocket = "socket" // the node's unix socket
	KindLink   = "link"   // a one-time link made on it
	KindOIDC   = "oidc"
	KindToken  = "token"
)

// Local is the person of the socket and of links: nobody in particular.
const Local = "local"

// Identity is who a request comes from.
type Identity struct {
	Person string // what receipts name: the verified claim, or Local
	Name   string // to show
	Roles  []Role
	Kind   string
	Token  string    // id of the API token used, "" if none
	At     time.Time // when the person last proved who they are; zero when nobody says so
	CSRF   string    // what a form must send back as csrf; "" for tokens and the socket

	key [32]byte // of the login or token
}

// freshFor is how old a login may be for a step that asks for a new one.
const freshFor = 10 * time.Minute

// Fresh reports whether the identity proved itself minutes ago, as promotions and
// tokens ask. A token that may approve lives no longer than an hour and counts as
// that proof; the socket proves itself with every request.
func (i Identity) Fresh(now time.Time) bool {
	switch i.Kind {
	case KindSocket:
		return true
	case KindToken:
		return now.Sub(i.At) < approverTokenLife
	}
	return now.Sub(i.At) < freshFor
}

// Options wire an Auth. Only URL is required.
type Options struct {
	URL      string // of the operator listener as people open it: http://127.0.0.1:8081
	Loopback bool   // it is bound to a loopback address: one-time links work
	OIDC     *OIDC  // nil: nobody logs in at a provider
	Store    Store  // of tokens and accounts; nil: no tokens, and no OIDC
	// Note is called before a token is made or revoked and writes the receipt.
	Note  func(ctx context.Context, step, subject string, by Identity) error
	Home  string // where a login ends, "" = /ui/
	Log   *slog.Logger
	Clock func() time.Time
}

// Auth is safe for concurrent use.
type Auth struct {
	o Options

	mu       sync.Mutex
	links    map[[32]byte]link
	logins   map[[32]byte]login
	tokens   map[[32]byte]*Token
	failures map[string]failures
	standing map[string]standing // of people of the provider
	provider *provider           // made at the first login

	sealer cipher.AEAD // of pending logins

	binding   sync.Mutex         // guards what follows
	bySubject map[string]account // of the provider
	byPerson  map[string]string  // subject
}

type link struct {
	name    string
	expires time.Time
}

type login struct {
	Identity
	expires time.Time
}

// New checks the options and reads the store.
func New(o Options) (*Auth, error) {
	if o.URL == "" {
		return nil, errors.New("auth: no URL")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Home == "" {
		o.Home = "/ui/"
	}
	if o.OIDC != nil {
		if err := o.OIDC.check(); err != nil {
			return nil, err
		}
		if o.Store == nil {
			return nil, errors.New("auth: OIDC needs a store")
		}
	}
	sealer, err := newSeal()
	if err != nil {
		return nil, err
	}
	a := &Auth{
		o: o, links: map[[32]byte]link{}, logins: map[[32]byte]login{}, tokens: map[[32]byte]*Token{}, failures: map[string]failures{}, standing: map[string]standing{},
		sealer: sealer, bySubject: map[string]account{}, byPerson: map[string]string{},
	}
	return a, a.load()
}

// Lives of what is given out, and how many there may be at a time.
const (
	linkLife  = time.Minute
	loginLife = 12 * time.Hour
	maxLinks  = 16
	maxLogins = 1024
)

// Cookies, without what hostOnly adds to their names.
const (
	cookieName  = "gatehouse_login"
	pendingName = "gatehouse_oidc"
)

// hostOnly before a cookie's name makes browsers take it only from the very host
// that they send it back to, over TLS and for every path: another host of the same
// domain can set none that passes for it. Browsers know it on https alone.
const hostOnly = "__Host-"

func (a *Auth) secure() bool { return strings.HasPrefix(a.o.URL, "https://") }

func (a *Auth) cookieNamed(name string) string {
	if a.secure() {
		return hostOnly + name
	}
	return name
}

// random returns 256 random bits as text.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func digest(s string) [32]byte { return sha256.Sum256([]byte(s)) }

// expired removes what has ended.
func expired[T any](m map[[32]byte]T, ended func(T) bool) {
	for k, v := range m {
		if ended(v) {
			delete(m, k)
		}
	}
}

// Link makes a one-time login link: single use, a minute, loopback only. Only its
// digest is kept.
func (a *Auth) Link(name string) (url string, expires time.Time, err error) {
	if !a.o.Loopback {
		return "", time.Time{}, problem.New(problem.Unavailable, "login links work on a loopback operator listener only",
			"Bind listen.operator to 127.0.0.1, or log in with OIDC.")
	}
	now := a.o.Clock()
	token := random()
	a.mu.Lock()
	defer a.mu.Unlock()
	expired(a.links, func(l link) bool { return !now.Before(l.expires) })
	if len(a.links) >= maxLinks {
		return "", time.Time{}, problem.New(problem.Unavailable, "too many login links are open", "Wait a minute.")
	}
	expires = now.Add(linkLife)
	a.links[digest(token)] = link{name, expires}
	return strings.TrimSuffix(a.o.URL, "/") + "/login/" + token, expires, nil
}

var errLink = problem.New(problem.LoginLinkInvalid, "this login link was used or is too old", "Make a new one; each works once, for a minute.")

// OpenLink turns a link's token into a login and sets its cookie. The link is
// spent whatever happens next.
func (a *Auth) OpenLink(w http.ResponseWriter, r *http.Request, token string) error {
	now := a.o.Clock()
	a.mu.Lock()
	k := digest(token)
	l, ok := a.links[k]
	delete(a.links, k)
	a.mu.Unlock()
	if !a.o.Loopback || !ok || !now.Before(l.expires) {
		return a.failed(r, errLink)
	}
	if !a.start(w, Identity{Person: l.name, Name: l.name, Roles: Roles, Kind: KindLink, At: now}) {
		return problem.New(problem.Unavailable, "too many people are logged in", "Log out somewhere.")
	}
	return nil
}

// start begins a login session.
func (a *Auth) start(w http.ResponseWriter, id Identity) bool {
	now := a.o.Clock()
	value := random()
	id.CSRF = random()
	a.mu.Lock()
	defer a.mu.Unlock()
	expired(a.logins, func(l login) bool { return !now.Before(l.expires) })
	if len(a.logins) >= maxLogins {
		return false
	}
	a.logins[digest(value)] = login{id, now.Add(loginLife)}
	http.SetCookie(w, a.cookie(cookieName, value, int(loginLife/time.Second), http.SameSiteStrictMode))
	return true
}

func (a *Auth) cookie(name, value string, age int, site http.SameSite) *http.Cookie {
	return &http.Cookie{Name: a.cookieNamed(name), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: site, Secure: a.secure()}
}

// Logout ends the request's login session.
func (a *Auth) Logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(a.cookieNamed(cookieName)); err == nil {
		a.mu.Lock()
		delete(a.logins, digest(c.Value))
		a.mu.Unlock()
	}
	http.SetCookie(w, a.cookie(cookieName, "", -1, http.SameSiteStrictMode))
}

// Identify returns who sent a request: a bearer token's owner, or the person of a
// login session. A request with a token that does not hold is nobody's, whatever
// its cookie says.
func (a *Auth) Identify(r *http.Request) (Identity, error) {
	nobody := problem.New(problem.Unauthenticated, "no login session", "Run gatehouse login on the node's machine and open the link, or log in.")
	if h := r.Header.Values("Authorization"); len(h) > 0 {
		token, ok := strings.CutPrefix(h[0], "Bearer ")
		if !ok || len(h) > 1 {
			return Identity{}, a.failed(r, nobody)
		}
		a.mu.Lock()
		id, ok := a.bearer(digest(token))
		a.mu.Unlock()
		if !ok {
			return Identity{}, a.failed(r, problem.New(problem.Unauthenticated, "the token does not hold", "It may have expired or been revoked, its owner may have lost the role, or not have logged in for 30 days."))
		}
		return id, nil
	}
	c, err := r.Cookie(a.cookieNamed(cookieName))
	if err != nil {
		return Identity{}, nobody
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.loggedIn(digest(c.Value))
	if !ok {
		return Identity{}, nobody
	}
	return id, nil
}

// loggedIn returns the person of a login, with the roles that they still have. The
// caller holds mu.
func (a *Auth) loggedIn(key [32]byte) (Identity, bool) {
	l, ok := a.logins[key]
	if !ok || !a.o.Clock().Before(l.expires) {
		return Identity{}, false
	}
	id := l.Identity
	id.key = key
	if id.Kind == KindOIDC {
		id.Roles = a.left(id.Person, id.Roles, 0)
	}
	return id, len(id.Roles) > 0
}

// Still returns an identity as it is now: an answer that goes on for long asks it
// again, since a login ends, a token is revoked and a person loses a role meanwhile.
func (a *Auth) Still(id Identity) (Identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := true
	switch id.Kind {
	case KindSocket:
	case KindToken:
		id, ok = a.bearer(id.key)
	default:
		id, ok = a.loggedIn(id.key)
	}
	if !ok {
		return Identity{}, problem.New(problem.Unauthenticated, "the login or token has ended", "Log in again.")
	}
	return id, nil
}

// CheckForm refuses a form that the identity's own page did not make. Exact
// Origins are checked before; this holds where a browser sends none.
func CheckForm(id Identity, r *http.Request) error {
	sent := r.Header.Get("X-Gatehouse-CSRF")
	if sent == "" {
		sent = r.PostFormValue("csrf")
	}
	if id.CSRF == "" || subtle.ConstantTimeCompare([]byte(sent), []byte(id.CSRF)) != 1 {
		return problem.New(problem.OriginNotListed, "the form is not one of this login's pages", "Load the page again and send it anew.")
	}
	return nil
}

// failures are the failed attempts of one peer.
type failures struct {
	n     int
	since time.Time
}

// Bounds of failed logins of one peer in a minute. The address is for counting
// only; nothing is allowed or refused by it.
const (
	maxFailures = 20
	maxPeers    = 4096
)

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// failed counts a failed attempt and returns what to answer: err, or for a peer that
// has failed too often that it has. What holds is never counted and never refused
// for the failures of others behind the same address: 256 random bits are not
// guessed, however often one may try.
func (a *Auth) failed(r *http.Request, err error) error {
	now := a.o.Clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.failures[peer(r)]
	if now.Sub(f.since) >= time.Minute {
		f = failures{since: now}
	}
	if f.n >= maxFailures {
		return problem.New(problem.RateLimited, "too many failed logins", "Wait a minute.")
	}
	f.n++
	if len(a.failures) >= maxPeers {
		clear(a.failures) // a flood from everywhere is not what this bounds
	}
	a.failures[peer(r)] = f
	return err
}

type identityKey struct{}

// With returns a context that carries who asks.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// From returns who asks, and false when nobody was identified.
func From(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}
