package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// purposeModelMint names the node's calls that mint access tokens for Vertex.
const purposeModelMint = "model.mint"

const (
	cloudScope   = "https://www.googleapis.com/auth/cloud-platform"
	tokenHost    = "oauth2.googleapis.com"
	iamHost      = "iamcredentials.googleapis.com"
	mintLimit    = 30 * time.Second
	refreshEarly = 5 * time.Minute // a call that begins now may last a while
)

// mintCalls is how a connection's token is minted: by whom, and what is written
// of it.
type mintCalls struct {
	up     *upstream.Client
	begin  func(to authority.Authority) func(context.Context, string) (func(enforcers.Outcome), error)
	issued func(context.Context, map[string]string, time.Time) error
}

// mintCallsOf writes what is minted for a connection to the control chain.
func mintCallsOf(p parts, c config.Connection) (mintCalls, error) {
	to, err := authority.New(authority.HTTPS, tokenHost, 443)
	n := &node{notary: p.notary, log: p.log}
	return mintCalls{
		up: p.up, issued: n.issued(c.Name, to),
		begin: func(to authority.Authority) func(context.Context, string) (func(enforcers.Outcome), error) {
			return n.begin(purposeModelMint, c.Name, to, p.dev)
		},
	}, err
}

// modelToken returns what gives a connection's credential: the key as it is, or
// for Vertex a live access token that is minted here, outside.
func modelToken(calls mintCalls, c config.Connection) (func(context.Context) (secret.Value, error), error) {
	if c.Credential.Ref() == "" {
		return nil, problem.New(problem.ConfigInvalid, "connections."+c.Name+": a model connection needs a credential", "")
	}
	value := c.Credential.Value()
	if c.Provider != "vertex-gemini" && c.Provider != "vertex-anthropic" {
		return func(context.Context) (secret.Value, error) { return value, nil }, nil
	}
	source, err := newMint(calls, c, value)
	if err != nil {
		return nil, err
	}
	return source.token, nil
}

// mint keeps one connection's access token fresh. One caller mints; the others
// wait for it.
type mint struct {
	source oauth2.TokenSource // of the credential's own account
	become *http.Client       // mints for another account, nil = none
	target string             // that account
	issued func(context.Context, map[string]string, time.Time) error

	mu   sync.Mutex // held while minting
	live *oauth2.Token
}

// newMint reads a service account's key or a person's refresh token. Other
// kinds of credential files may name programs to run and places to call.
func newMint(calls mintCalls, c config.Connection, key secret.Value) (*mint, error) {
	bad := func(why string) error {
		return problem.New(problem.ConfigInvalid, "connections."+c.Name+".credential: "+why, "want the JSON key of a service account, or an authorized_user file")
	}
	var file struct {
		Type     google.CredentialsType `json:"type"`
		TokenURI string                 `json:"token_uri"`
	}
	if err := json.Unmarshal(key.Reveal(), &file); err != nil {
		return nil, bad("not a credential file in JSON")
	}
	if file.Type != google.ServiceAccount && file.Type != google.AuthorizedUser {
		return nil, bad("the type is neither service_account nor authorized_user")
	}
	if file.TokenURI != "" && file.TokenURI != "https://"+tokenHost+"/token" {
		return nil, bad("token_uri leads elsewhere than to " + tokenHost)
	}
	client, err := mintClient(calls, tokenHost)
	if err != nil {
		return nil, err
	}
	// The context carries the client: it reaches one place and no other.
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, client)
	creds, err := google.CredentialsFromJSONWithType(ctx, key.Reveal(), file.Type, cloudScope)
	if err != nil {
		return nil, bad("couldn't be read") // the error may quote the file
	}
	m := &mint{source: creds.TokenSource, issued: calls.issued}
	if c.Impersonate == "" {
		return m, nil
	}
	m.target = c.Impersonate
	m.become, err = mintClient(calls, iamHost)
	return m, err
}

// mintClient returns a client that reaches one host.
func mintClient(calls mintCalls, host string) (*http.Client, error) {
	to, err := authority.New(authority.HTTPS, host, 443)
	if err != nil {
		return nil, err
	}
	transport, err := calls.up.Node(upstream.NodeOptions{Purpose: purposeModelMint, To: to, Begin: calls.begin(to), Timeout: mintLimit})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// token returns an access token that lives for a while.
func (m *mint) token(ctx context.Context) (secret.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live != nil && time.Until(m.live.Expiry) > refreshEarly {
		return secret.FromString(m.live.AccessToken), nil
	}
	t, err := m.source.Token()
	if err == nil && m.become != nil {
		t, err = m.impersonate(ctx, t)
	}
	if err != nil {
		// What the token server said may hold what it was asked with.
		return secret.Value{}, problem.New(problem.Unreachable, "couldn't mint an access token", "look at the node's own calls with purpose "+purposeModelMint)
	}
	if err := m.issued(ctx, map[string]string{"scope": "cloud-platform"}, t.Expiry); err != nil {
		return secret.Value{}, err
	}
	m.live = t
	return secret.FromString(t.AccessToken), nil
}

// impersonate turns the token into one of the target's.
func (m *mint) impersonate(ctx context.Context, own *oauth2.Token) (*oauth2.Token, error) {
	body, err := json.Marshal(map[string]any{"scope": []string{cloudScope}, "lifetime": "3600s"})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+iamHost+"/v1/projects/-/serviceAccounts/"+m.target+":generateAccessToken", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	own.SetAuthHeader(r)
	resp, err := m.become.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var got struct {
		AccessToken string    `json:"accessToken"`
		ExpireTime  time.Time `json:"expireTime"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(b, &got) != nil || got.AccessToken == "" {
		return nil, fmt.Errorf("the server answered %d", resp.StatusCode)
	}
	return &oauth2.Token{AccessToken: got.AccessToken, Expiry: got.ExpireTime}, nil
}
