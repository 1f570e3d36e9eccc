package github

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/go-github/v66/github"

	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// DefaultAPI is the API of github.com. An Enterprise Server has its own, which
// ends in /api/v3/.
const DefaultAPI = "https://api.github.com/"

// Times of an App's credentials: a JWT may live for ten minutes and its clock
// may be ahead of GitHub's; a token is given up a little before it ends.
const (
	jwtSkew  = time.Minute
	jwtLife  = 8 * time.Minute
	tokenEnd = 2 * time.Minute
	minRSA   = 2048
)

// App signs as a GitHub App.
type App struct {
	id  int64
	key *rsa.PrivateKey
}

// NewApp reads the App's private key as GitHub hands it out: RSA in PEM.
func NewApp(id int64, key secret.Value) (*App, error) {
	const hint = "Make a private key on the App's page and give the .pem file as it is."
	bad := func(msg string) error { return problem.New(problem.ConfigInvalid, "GitHub App: "+msg, hint) }
	block, _ := pem.Decode(key.Reveal())
	if id <= 0 {
		return nil, bad("the id is not a positive number")
	}
	if block == nil {
		return nil, bad("the key is not PEM")
	}
	k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		any8, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		pk, ok := any8.(*rsa.PrivateKey)
		if err8 != nil || !ok {
			return nil, bad("the key is not an RSA private key") // the parser's words could quote the key
		}
		k = pk
	}
	if k.N.BitLen() < minRSA {
		return nil, bad(fmt.Sprintf("the key is shorter than %d bits", minRSA))
	}
	return &App{id: id, key: k}, nil
}

// jwt signs a token that says "I am the App" for the next minutes.
func (a *App) jwt(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iat": now.Add(-jwtSkew).Unix(), "exp": now.Add(jwtLife).Unix(), "iss": strconv.FormatInt(a.id, 10)})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("sign as the App")
	}
	return signed + "." + enc.EncodeToString(sig), nil
}

// authorized adds a credential to every request of a transport that can reach
// one place only.
type authorized struct {
	base   http.RoundTripper
	bearer func() (string, error)
}

func (t authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := t.bearer()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b)
	return t.base.RoundTrip(r)
}

// API is one GitHub API with the credential that the node calls it under: an
// App, or a token. It reads and writes nothing by itself; what it mints stays in
// memory and is never given to a session.
type API struct {
	URL   *url.URL          // ends in a slash
	Base  http.RoundTripper // reaches URL's authority and no other
	App   *App              // or
	Token secret.Value      // of a person or machine account
	// Issued writes down that a token for one repository was minted, before it
	// is used. An error leaves it unused.
	Issued func(ctx context.Context, scope map[string]string, expires time.Time) error
	// Revoked writes down what became of a token that Close gave back: nil, or why
	// GitHub did not take it.
	Revoked func(ctx context.Context, scope map[string]string, expires time.Time, failed error) error
	Now     func() time.Time // time.Now by default

	mu     sync.Mutex
	minted map[string]minted // by repository and permission
}

type minted struct {
	client *github.Client
	until  time.Time // of its use here
	token  Token
}

func (a *API) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

func (a *API) client(bearer func() (string, error)) *github.Client {
	c := github.NewClient(&http.Client{Transport: authorized{a.Base, bearer}})
	c.BaseURL = a.URL
	return c
}

// AsApp returns the client that speaks as the App itself.
func (a *API) AsApp() *github.Client {
	return a.client(func() (string, error) { return a.App.jwt(a.now()) })
}

// AsUser returns the client that speaks under the configured token.
func (a *API) AsUser() *github.Client {
	return a.client(func() (string, error) { return string(a.Token.Reveal()), nil })
}

// WithToken returns a client under a token that was minted for a session.
func (a *API) WithToken(token secret.Value) *github.Client {
	return a.client(func() (string, error) { return string(token.Reveal()), nil })
}

// Permissions of the tokens that the node mints for itself.
var (
	ReadMetadata = github.InstallationPermissions{Metadata: github.String("read")}
	// WriteHooks lets the node request redeliveries: GitHub has no smaller one.
	WriteHooks = github.InstallationPermissions{Metadata: github.String("read"), RepositoryHooks: github.String("write")}
)

// Repository returns a client for one repository: under the configured token,
// or under an App's installation token that is good for this repository and
// these permissions only and is minted when it is needed.
func (a *API) Repository(ctx context.Context, id, owner, name string, want github.InstallationPermissions) (*github.Client, error) {
	if a.App == nil {
		return a.AsUser(), nil
	}
	wanted, err := granted(&want)
	if err != nil {
		return nil, err
	}
	key := id + " " + fmt.Sprint(wanted)
	a.mu.Lock()
	m, ok := a.minted[key]
	a.mu.Unlock()
	if ok && a.now().Before(m.until) {
		return m.client, nil
	}
	t, err := a.Mint(ctx, id, owner, name, want)
	if err != nil {
		return nil, err
	}
	if err := a.Issued(ctx, t.Scope, t.Expires); err != nil {
		return nil, errors.Join(fmt.Errorf("write down the token: %w", err), a.RevokeToken(ctx, t.Value))
	}
	m = minted{a.client(func() (string, error) { return string(t.Value.Reveal()), nil }), t.Expires.Add(-tokenEnd), t}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.minted == nil {
		a.minted = map[string]minted{}
	}
	a.minted[key] = m
	return m.client, nil
}

// Token is an installation token for one repository.
type Token struct {
	Value   secret.Value
	Scope   map[string]string // repository.id, permission.<name>
	Expires time.Time
}

// Mint makes an installation token that is good for one repository and the
// wanted permissions and nothing else. An answer that grants anything more, or
// less, is an error, and its token is given up. It writes nothing down.
func (a *API) Mint(ctx context.Context, id, owner, name string, want github.InstallationPermissions) (Token, error) {
	wanted, err := granted(&want)
	if err != nil {
		return Token{}, err
	}
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return Token{}, fmt.Errorf("mint a token: repository id: %w", err)
	}
	app := a.AsApp()
	in, _, err := app.Apps.FindRepositoryInstallation(ctx, owner, name)
	if err != nil {
		return Token{}, fmt.Errorf("find the App's installation: %w", err)
	}
	r, err := app.NewRequest(http.MethodPost, fmt.Sprintf("app/installations/%d/access_tokens", in.GetID()),
		&github.InstallationTokenOptions{RepositoryIDs: []int64{number}, Permissions: &want})
	if err != nil {
		return Token{}, fmt.Errorf("mint a token: %w", err)
	}
	var t answered
	if _, err := app.Do(ctx, r, &t); err != nil {
		return Token{}, fmt.Errorf("mint a token: %w", err)
	}
	value := secret.FromString(t.Token)
	// What came back is what counts, not what was asked for.
	switch {
	case value.Empty() || !t.Expires.After(a.now()):
		return Token{}, errors.New("mint a token: there is none in the answer")
	case !maps.Equal(t.Permissions, wanted):
		err = errors.New("mint a token: it has other permissions than were asked for")
	case len(t.Repositories) != 1 || t.Repositories[0].ID != number || t.Selection != "" && t.Selection != "selected":
		err = errors.New("mint a token: it is not for the one repository that was asked for")
	}
	if err != nil {
		return Token{}, errors.Join(err, a.RevokeToken(ctx, value))
	}
	scope := map[string]string{"repository.id": id}
	for _, p := range slices.Sorted(maps.Keys(t.Permissions)) {
		scope["permission."+p] = t.Permissions[p]
	}
	return Token{Value: value, Scope: scope, Expires: t.Expires}, nil
}

// answered is GitHub's answer to a request for a token. go-github's own type
// knows only the permissions of its day: any other would be granted unseen.
type answered struct {
	Token        string    `json:"token"`
	Expires      time.Time `json:"expires_at"`
	Permissions  levels    `json:"permissions"`
	Selection    string    `json:"repository_selection"`
	Repositories []struct {
		ID int64 `json:"id"`
	} `json:"repositories"`
}

// levels are permissions by GitHub's names, also those that no version of
// go-github has heard of.
type levels map[string]string

// UnmarshalJSON takes a level in whatever form it comes: what is not understood
// has to be seen too.
func (l *levels) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*l = levels{}
	for name, level := range raw {
		var s string
		if json.Unmarshal(level, &s) != nil {
			s = string(level)
		}
		(*l)[name] = s
	}
	return nil
}

// Permissions asks what the App may do, by GitHub's names.
func (a *API) Permissions(ctx context.Context) (map[string]string, error) {
	app := a.AsApp()
	r, err := app.NewRequest(http.MethodGet, "app", nil)
	if err != nil {
		return nil, err
	}
	var got struct {
		Permissions levels `json:"permissions"`
	}
	if _, err := app.Do(ctx, r, &got); err != nil {
		return nil, fmt.Errorf("ask for the App: %w", err)
	}
	return got.Permissions, nil
}

// RevokeToken ends an installation token. One that has ended already is no error.
func (a *API) RevokeToken(ctx context.Context, token secret.Value) error {
	resp, err := a.client(func() (string, error) { return string(token.Reveal()), nil }).Apps.RevokeInstallationToken(ctx)
	if resp != nil && resp.StatusCode == http.StatusUnauthorized {
		return nil
	}
	if err != nil {
		return fmt.Errorf("revoke a token: %w", err)
	}
	return nil
}

// Close gives back what Repository minted and has not ended: an orderly stop
// leaves no token behind. It tries every one, whatever becomes of the others.
func (a *API) Close(ctx context.Context) error {
	a.mu.Lock()
	all := a.minted
	a.minted = nil
	a.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		t := all[key].token
		if !a.now().Before(t.Expires) {
			continue
		}
		failed := a.RevokeToken(ctx, t.Value)
		errs = append(errs, failed)
		if err := a.Revoked(ctx, t.Scope, t.Expires, failed); err != nil {
			errs = append(errs, fmt.Errorf("write down that a token was revoked: %w", err))
		}
	}
	return errors.Join(errs...)
}

// granted lists the permissions that are set, by GitHub's names.
func granted(p *github.InstallationPermissions) (map[string]string, error) {
	out := map[string]string{}
	b, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}
