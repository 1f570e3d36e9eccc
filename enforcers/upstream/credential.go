package upstream

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// Injector adds a connection's credential to a request. It is called last,
// after the connection is up and its certificate verified, and only for a
// Permit whose action names the connection and was allowed, never for a
// would-block. It returns the secrets that must not come back in the answer.
// An error stops the request before its first byte.
type Injector interface {
	Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) (watch []secret.Value, err error)
}

// Credential says how one connection of kind http authenticates.
type Credential struct {
	Name   string              // of the connection
	To     authority.Authority // the only place it is for, https
	Scheme string              // bearer | basic | header | query
	Field  string              // header: the field's name; query: the key; basic: the user, "" = "x-access-token"
	Secret func(context.Context) (secret.Value, error)
}

// minSecret is the shortest secret that the tripwire can tell from chance.
const minSecret = 8

// Connections is the Injector of connections of kind http.
type Connections struct{ by map[string]Credential }

// NewConnections checks the credentials and returns their Injector.
func NewConnections(cs []Credential) (*Connections, error) {
	by := make(map[string]Credential, len(cs))
	for _, c := range cs {
		switch {
		case c.Name == "" || by[c.Name].Name != "":
			return nil, fmt.Errorf("connection %q: names must be set and differ", c.Name)
		case c.To.Scheme() != authority.HTTPS || c.To.IsIP():
			return nil, fmt.Errorf("connection %s: a credential is for an https host, by name", c.Name)
		case c.Scheme != "bearer" && c.Scheme != "basic" && c.Scheme != "header" && c.Scheme != "query":
			return nil, fmt.Errorf("connection %s: unknown scheme", c.Name)
		case (c.Scheme == "header" || c.Scheme == "query") && c.Field == "":
			return nil, fmt.Errorf("connection %s: scheme %s needs a name", c.Name, c.Scheme)
		case c.Secret == nil:
			return nil, fmt.Errorf("connection %s: no credential", c.Name)
		}
		by[c.Name] = c
	}
	return &Connections{by}, nil
}

// Inject adds the credential of the Permit's connection, to its own host only.
func (cs *Connections) Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	c, ok := cs.by[p.Action().Connection]
	switch {
	case !ok:
		return nil, errors.New("no such connection")
	case p.To() != c.To:
		return nil, fail(enforcers.CodeWrongHost, "the connection is for another host", nil)
	}
	return c.add(ctx, r)
}

// Own returns the NodeOptions.Inject of one connection: what a Node fixed to the
// connection's host adds to the node's own calls.
func (cs *Connections) Own(name string) func(context.Context, *http.Request) error {
	c, ok := cs.by[name]
	return func(ctx context.Context, r *http.Request) error {
		if to, err := authority.ParseHostHeader(r.URL.Scheme, r.URL.Host); !ok || err != nil || to != c.To {
			return fail(enforcers.CodeWrongHost, "the connection is for another host", err)
		}
		_, err := c.add(ctx, r)
		return err
	}
}

func (c Credential) add(ctx context.Context, r *http.Request) ([]secret.Value, error) {
	v, err := c.Secret(ctx)
	if err != nil {
		return nil, err
	}
	if len(v.Reveal()) < minSecret {
		return nil, errors.New("the credential is too short to be guarded")
	}
	switch c.Scheme {
	case "bearer":
		r.Header["Authorization"] = []string{"Bearer " + string(v.Reveal())}
	case "basic":
		user := c.Field
		if user == "" {
			user = "x-access-token"
		}
		r.Header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+string(v.Reveal())))}
	case "header":
		r.Header[http.CanonicalHeaderKey(c.Field)] = []string{string(v.Reveal())}
	case "query":
		if r.URL.RawQuery != "" {
			r.URL.RawQuery += "&"
		}
		r.URL.RawQuery += url.QueryEscape(c.Field) + "=" + url.QueryEscape(string(v.Reveal()))
	}
	return []secret.Value{v}, nil
}
