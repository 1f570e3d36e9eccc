package model

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// injector adds one connection's credential.
type injector struct {
	name     string
	provider string
	to       authority.Authority
	token    func(context.Context) (secret.Value, error)
}

// Injector returns what adds the connection's credential to its model calls and
// to nothing else. token gives the key, or for Vertex a live access token.
func Injector(c Connection, token func(context.Context) (secret.Value, error)) (upstream.Injector, error) {
	_, to, err := adapterOf(c)
	if err != nil {
		return nil, err
	}
	if to.Scheme() != authority.HTTPS || to.IsIP() {
		return nil, problem.New(problem.ConfigInvalid, "connection "+c.Name+": a credential is for an https host, by name", "")
	}
	return &injector{name: c.Name, provider: c.Provider, to: to, token: token}, nil
}

// oauthToken begins an Anthropic token that stands where a bearer token stands.
var oauthToken = []byte("sk-ant-oat")

// Inject puts exactly one identity into the request.
func (i *injector) Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	if a := p.Action(); a.Kind != enforcers.ModelCall || a.Connection != i.name || p.To() != i.to {
		return nil, problem.New(enforcers.CodeWrongHost, "the connection is for model calls to its own host", "")
	}
	v, err := i.token(ctx)
	if err != nil {
		return nil, err
	}
	if len(v.Reveal()) < 8 {
		return nil, errors.New("the credential is too short to be guarded")
	}
	authenticate(i.provider, v, r.Header)
	return []secret.Value{v}, nil
}

// authenticate puts a credential where a provider wants it, and nowhere else.
func authenticate(provider string, v secret.Value, h http.Header) {
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
		delete(h, name)
	}
	key := string(v.Reveal())
	switch {
	case provider == "anthropic" && !bytes.HasPrefix(v.Reveal(), oauthToken):
		h["X-Api-Key"] = []string{key}
	case provider == "google":
		h["X-Goog-Api-Key"] = []string{key}
	default:
		h["Authorization"] = []string{"Bearer " + key}
	}
}

// Check is a request by which an operator learns whether a connection's
// credential is accepted. It costs nothing and starts nothing.
func Check(c Connection, v secret.Value) (*http.Request, error) {
	_, to, err := adapterOf(c)
	if err != nil {
		return nil, err
	}
	path := "/v1/models"
	switch c.Provider {
	case "google":
		path = "/v1beta/models?pageSize=1"
	case "vertex-gemini", "vertex-anthropic":
		publisher := strings.TrimPrefix(c.Provider, "vertex-")
		if publisher == "gemini" {
			publisher = "google"
		}
		path = "/v1beta1/publishers/" + publisher + "/models?pageSize=1"
	}
	r, err := http.NewRequest(http.MethodGet, to.String()+path, nil)
	if err != nil {
		return nil, err
	}
	authenticate(c.Provider, v, r.Header)
	if c.Provider == "anthropic" {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	if c.Project != "" {
		r.Header.Set("X-Goog-User-Project", c.Project)
	}
	return r, nil
}
