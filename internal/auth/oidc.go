package auth

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
}

// pending is a login that has gone to the provider.
type pending struct {
	browser  [32]byte // digest of the cookie of the browser that began it
	nonce    string
	verifier string
	to       string
	again    string // person who must prove themselves again, "" for a new login
	expires  time.Time
}

const pendingLife = 10 * time.Minute

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
	p = &provider{
		verifier: found.Verifier(&oidc.Config{ClientID: a.o.OIDC.ClientID, Now: a.o.Clock}),
		config: oauth2.Config{
			ClientID: a.o.OIDC.ClientID, ClientSecret: string(a.o.OIDC.Secret.Reveal()), Endpoint: found.Endpoint(),
			RedirectURL: strings.TrimSuffix(a.o.URL, "/") + "/login/oidc/callback", Scopes: append([]string{oidc.ScopeOpenID, "email", "profile"}, a.o.OIDC.Scopes...),
		},
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.provider == nil {
		a.provider = p
	}
	return a.provider, nil
}

// Begin sends a browser to the provider. to is the page to come back to; again
// asks the provider to have the person prove themselves anew.
func (a *Auth) Begin(w http.ResponseWriter, r *http.Request, to string, again bool) error {
	if a.o.OIDC == nil {
		return problem.New(problem.NotFound, "this node has no identity provider", "run gatehouse login on its machine")
	}
	if err := a.attempt(r); err != nil {
		return err
	}
	p, err := a.discovered(r.Context())
	if err != nil {
		return err
	}
	now := a.o.Clock()
	state, browser := random(), random()
	x := pending{browser: digest(browser), nonce: random(), verifier: oauth2.GenerateVerifier(), to: a.local(to), expires: now.Add(pendingLife)}
	options := []oauth2.AuthCodeOption{oidc.Nonce(x.nonce), oauth2.S256ChallengeOption(x.verifier)}
	if again {
		id, err := a.Identify(r)
		if err != nil || id.Kind != KindOIDC {
			return problem.New(problem.Unauthenticated, "nobody is logged in here who could log in again", "log in")
		}
		x.again = id.Person
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	a.mu.Lock()
	expired(a.pending, func(y pending) bool { return !now.Before(y.expires) })
	full := len(a.pending) >= maxPending
	if !full {
		a.pending[digest(state)] = x
	}
	a.mu.Unlock()
	if full {
		return problem.New(problem.Unavailable, "too many logins are under way", "wait a minute")
	}
	// Lax, because the provider's redirect back is a navigation from another site.
	http.SetCookie(w, a.cookie(pendingName, browser, int(pendingLife/time.Second), http.SameSiteLaxMode))
	http.Redirect(w, r, p.config.AuthCodeURL(state, options...), http.StatusSeeOther)
	return nil
}

// local returns a page of this listener, whatever a link asked for.
func (a *Auth) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/ui/") || strings.ContainsAny(to, "\\\r\n") || strings.HasPrefix(to, "//") {
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
	if err := a.attempt(r); err != nil {
		return err
	}
	x, id, err := a.answer(r)
	if err != nil {
		a.failed(r)
		a.o.Log.WarnContext(r.Context(), "login refused", slog.Any("err", err))
		return err
	}
	if x.again != "" {
		a.Logout(w, r)
	}
	if !a.start(w, id) {
		return problem.New(problem.Unavailable, "too many people are logged in", "log out somewhere")
	}
	http.SetCookie(w, a.cookie(pendingName, "", -1, http.SameSiteLaxMode))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	to := html.EscapeString(x.to)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=%s"><title>Logged in</title><p><a href="%s">Go on</a></p></html>`, to, to)
	return nil
}

func (a *Auth) answer(r *http.Request) (x pending, id Identity, err error) {
	q := r.URL.Query()
	c, err := r.Cookie(pendingName)
	if err != nil {
		return x, id, errLogin
	}
	now := a.o.Clock()
	a.mu.Lock()
	k := digest(q.Get("state"))
	x, ok := a.pending[k]
	delete(a.pending, k) // once, whatever happens next
	a.mu.Unlock()
	// The browser that comes back must be the one that left (login CSRF).
	if !ok || !now.Before(x.expires) || digest(c.Value) != x.browser {
		return x, id, errLogin
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return x, id, errLogin
	}
	p, err := a.discovered(r.Context())
	if err != nil {
		return x, id, err
	}
	ctx := a.client(r.Context())
	got, err := p.config.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(x.verifier))
	if err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	raw, _ := got.Extra("id_token").(string)
	t, err := p.verifier.Verify(ctx, raw)
	if err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	if t.Nonce != x.nonce {
		return x, id, errLogin
	}
	claims := map[string]any{}
	if err := t.Claims(&claims); err != nil {
		return x, id, problem.Wrap(err, problem.LoginRefused, errLogin.Msg, errLogin.Hint)
	}
	id, err = a.identity(claims, now)
	if err == nil && x.again != "" && id.Person != x.again {
		err = problem.New(problem.LoginRefused, "that is another person than the one who is logged in", "log out first")
	}
	if at, ok := claims["auth_time"].(float64); err == nil && x.again != "" && ok && now.Sub(time.Unix(int64(at), 0)) > freshFor {
		err = problem.New(problem.LoginRefused, "the identity provider did not ask again", "log out there and log in again")
	}
	return x, id, err
}

// identity turns a verified token's claims into a person with roles.
func (a *Auth) identity(claims map[string]any, now time.Time) (Identity, error) {
	o := a.o.OIDC
	person, _ := claims[o.Person].(string)
	if o.Person == "email" {
		if verified, _ := claims["email_verified"].(bool); !verified {
			return Identity{}, problem.New(problem.LoginRefused, "the identity provider has not verified the address", "verify it there, or configure oidc.person: sub")
		}
		person = strings.ToLower(person) // one mailbox, one person
	}
	switch {
	case person == "" || len(person) > 200 || strings.ContainsFunc(person, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return Identity{}, problem.New(problem.LoginRefused, "the identity provider names nobody", "configure oidc.person")
	case person == Local || person == "config":
		// These names stand for nobody in receipts.
		return Identity{}, problem.New(problem.LoginRefused, "a person cannot be called "+person, "configure oidc.person: sub")
	}
	var roles []Role
	for _, g := range groups(claims[o.Groups]) {
		roles = append(roles, o.Roles[g]...)
	}
	if roles = known(roles); len(roles) == 0 {
		return Identity{}, problem.New(problem.LoginRefused, "none of your groups has a role here", "ask who administers this node")
	}
	shown, _ := claims["name"].(string)
	if shown == "" {
		shown = person
	}
	return Identity{Person: person, Name: shown, Roles: roles, Kind: KindOIDC, At: now}, nil
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
