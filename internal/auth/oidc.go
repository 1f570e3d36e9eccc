package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// OIDC is the provider at which people log in: authorization code with PKCE.
type OIDC struct {
	Issuer   string
	ClientID string
	Secret   secret.Value // empty for a public client
	Groups   string       // claim that lists groups, "" = groups
	Person   string       // claim that receipts name people by: email (default, must be verified), sub or preferred_username
	Roles    map[string][]Role
	Scopes   []string          // asked for besides openid, email and profile; some providers send groups only for one
	Exit     http.RoundTripper // every call to the provider leaves through it; required
}

func (o *OIDC) check() error {
	if o.Issuer == "" || o.ClientID == "" {
		return errors.New("auth: OIDC needs an issuer and a client id")
	}
	if o.Groups == "" {
		o.Groups = "groups"
	}
	if o.Person == "" {
		o.Person = "email"
	}
	if o.Exit == nil {
		return errors.New("auth: OIDC needs an exit")
	}
	if len(o.Roles) == 0 {
		return errors.New("auth: no group of the provider has a role")
	}
	return nil
}

// provider is what discovery found.
type provider struct {
	verifier *oidc.IDTokenVerifier
	config   oauth2.Config
	says     atomic.Bool // it says when a person proved themselves (auth_time)
}

// HasOIDC reports whether people can log in at a provider.
func (a *Auth) HasOIDC() bool { return a.o.OIDC != nil }

// client returns a context in which the libraries call the provider through the
// given exit. No redirect is followed: the exit knows its places.
func (a *Auth) client(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Transport: a.o.OIDC.Exit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
}

// discovered returns the provider, found at the first login: a node whose provider
// is away still starts.
func (a *Auth) discovered(ctx context.Context) (*provider, error) {
	a.mu.Lock()
	p := a.provider
	a.mu.Unlock()
	if p != nil {
		return p, nil
	}
	// The keys are fetched with the context of discovery for as long as the
	// provider is used, so it must not be a request's.
	found, err := oidc.NewProvider(a.client(context.WithoutCancel(ctx)), a.o.OIDC.Issuer)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the identity provider does not answer", "try again; the operator's log says more")
	}
	var known struct {
		Claims []string `json:"claims_supported"`
	}
	if err := found.Claims(&known); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the identity provider's description can't be read", "the operator's log says more")
	}
	p = &provider{
		verifier: found.Verifier(&oidc.Config{ClientID: a.o.OIDC.ClientID, Now: a.o.Clock}),
		config: oauth2.Config{
			ClientID: a.o.OIDC.ClientID, ClientSecret: string(a.o.OIDC.Secret.Reveal()), Endpoint: found.Endpoint(),
			RedirectURL: strings.TrimSuffix(a.o.URL, "/") + "/login/oidc/callback", Scopes: append([]string{oidc.ScopeOpenID, "email", "profile"}, a.o.OIDC.Scopes...),
		},
	}
	p.says.Store(slices.Contains(known.Claims, authTime))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.provider == nil {
		a.provider = p
	}
	return a.provider, nil
}

// Begin sends a browser to the provider. to is the page to come back to; again
// asks the provider to have the person prove themselves anew: the one who is logged
// in, or whoever it is when nobody is.
func (a *Auth) Begin(w http.ResponseWriter, r *http.Request, to string, again bool) error {
	if a.o.OIDC == nil {
		return problem.New(problem.NotFound, "this node has no identity provider", "run gatehouse login on its machine")
	}
	p, err := a.discovered(r.Context())
	if err != nil {
		return err
	}
	x := pending{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), To: a.local(to), Prompted: again, Began: a.o.Clock()}
	options := []oauth2.AuthCodeOption{oidc.Nonce(x.Nonce), oauth2.S256ChallengeOption(x.Verifier)}
	if again {
		if id, err := a.Identify(r); err == nil && id.Kind == KindOIDC {
			x.Again = id.Person
		}
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	sealed, err := a.seal(x)
	if err != nil {
		return err
	}
	// Lax, because the provider's redirect back is a navigation from another site.
	http.SetCookie(w, a.cookie(pendingName, sealed, int(pendingLife/time.Second), http.SameSiteLaxMode))
	http.Redirect(w, r, p.config.AuthCodeURL(x.State, options...), http.StatusSeeOther)
	return nil
}

// maxTo bounds the page to come back to: browsers take cookies of 4 KiB.
const maxTo = 2000

// local returns a page of this listener, whatever a link asked for.
func (a *Auth) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > maxTo || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/ui/") || strings.ContainsAny(to, "\\\r\n") || strings.HasPrefix(to, "//") {
		return a.o.Home
	}
	return to
}

var errLogin = problem.New(problem.LoginRefused, "the login does not hold", "begin again from the login page")

// Finish takes the provider's answer, sets the cookie and shows a page that goes
// on by itself: a redirect would still count as the provider's, and browsers keep
// strict cookies from those.
func (a *Auth) Finish(w http.ResponseWriter, r *http.Request) error {
	if a.o.OIDC == nil {
		return problem.New(problem.NotFound, "this node has no identity provider", "")
	}
	x, id, err := a.answer(r)
	if err != nil {
		a.o.Log.WarnContext(r.Context(), "login refused", slog.Any("err", err))
		return err
	}
	if x.Again != "" {
		a.Logout(w, r)
	}
	if !a.start(w, id) {
		return problem.New(problem.Unavailable, "too many people are logged in", "log out somewhere")
	}
	http.SetCookie(w, a.cookie(pendingName, "", -1, http.SameSiteLaxMode))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	to := html.EscapeString(x.To)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=%s"><title>Logged in</title><p><a href="%s">Go on</a></p></html>`, to, to)
	return nil
}

func (a *Auth) answer(r *http.Request) (x pending, id Identity, err error) {
	q := r.URL.Query()
	c, err := r.Cookie(a.cookieNamed(pendingName))
	if err != nil {
		return x, id, a.failed(r, errLogin)
	}
	now := a.o.Clock()
	x, ok := a.unseal(c.Value)
	// The browser that comes back must be the one that left (login CSRF).
	if !ok || now.Sub(x.Began) >= pendingLife || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(x.State)) != 1 {
		return x, id, a.failed(r, errLogin)
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return x, id, errLogin
	}
	p, err := a.discovered(r.Context())
	if err != nil {
		return x, id, err
	}
	ctx := a.client(r.Context())
	got, err := p.config.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(x.Verifier))
	if err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	raw, _ := got.Extra("id_token").(string)
	t, err := p.verifier.Verify(ctx, raw)
	if err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	if t.Nonce != x.Nonce {
		return x, id, errLogin
	}
	claims := map[string]any{}
	if err := t.Claims(&claims); err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	id, groups, err := a.identity(claims)
	if err == nil && len(id.Roles) == 0 {
		a.dropped(r.Context(), t.Subject, id.Person)
		err = problem.New(problem.LoginRefused, "none of your groups has a role here", "ask who administers this node")
	}
	if err != nil {
		return x, id, err
	}
	if x.Again != "" && id.Person != x.Again {
		return x, id, problem.New(problem.LoginRefused, "that is another person than the one who is logged in", "log out first")
	}
	if id.At, err = p.proved(claims, x, now); err != nil {
		return x, id, err
	}
	return x, id, a.bind(r.Context(), t.Subject, id.Person, groups)
}

const (
	authTime = "auth_time" // claim: when the person proved who they are
	maxSkew  = time.Minute // of the provider's clock
)

// proved returns when the person proved who they are. A provider that knows them
// from an earlier visit answers at once, so a login alone says nothing of that: the
// provider says when, or it was asked to have them do it anew. One that can say when
// must then (OpenID Connect Core, 3.1.2.1: max_age); of one that can't, it is no
// earlier than the login's beginning. Zero is unknown, and never fresh.
func (p *provider) proved(claims map[string]any, x pending, now time.Time) (time.Time, error) {
	said, there := claims[authTime]
	seconds, _ := said.(float64)
	at := time.Unix(int64(min(max(seconds, 0), 1<<40)), 0)
	switch {
	case seconds > 0 && !at.After(now.Add(maxSkew)):
		p.says.Store(true)
		if at.After(now) {
			at = now
		}
		if x.Prompted && now.Sub(at) >= freshFor {
			return at, problem.New(problem.LoginRefused, "the identity provider did not ask again", "log out there and log in again")
		}
		return at, nil
	case !x.Prompted:
		return time.Time{}, nil
	case there || p.says.Load():
		return time.Time{}, problem.New(problem.LoginRefused, "the identity provider does not say when it asked", "have it send auth_time in ID tokens, and look at its clock")
	}
	return x.Began, nil
}

// identity turns a verified token's claims into a person with roles, none if no
// group of theirs has one, and returns the groups that have.
func (a *Auth) identity(claims map[string]any) (Identity, []string, error) {
	o := a.o.OIDC
	person, _ := claims[o.Person].(string)
	if o.Person == "email" {
		if verified, _ := claims["email_verified"].(bool); !verified {
			return Identity{}, nil, problem.New(problem.LoginRefused, "the identity provider has not verified the address", "verify it there, or configure oidc.person: sub")
		}
		person = strings.ToLower(person) // one mailbox, one person
	}
	switch {
	case person == "" || len(person) > 200 || strings.ContainsFunc(person, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return Identity{}, nil, problem.New(problem.LoginRefused, "the identity provider names nobody", "configure oidc.person")
	case person == Local || person == "config":
		// These names stand for nobody in receipts.
		return Identity{}, nil, problem.New(problem.LoginRefused, "a person cannot be called "+person, "configure oidc.person: sub")
	}
	in := []string{}
	for _, g := range groups(claims[o.Groups]) {
		if len(o.Roles[g]) > 0 {
			in = append(in, g)
		}
	}
	shown, _ := claims["name"].(string)
	if shown == "" {
		shown = person
	}
	return Identity{Person: person, Name: shown, Roles: o.rolesOf(in), Kind: KindOIDC}, in, nil
}

func groups(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, g := range v {
			if s, ok := g.(string); ok {
				out = append(out, s)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return nil
}
