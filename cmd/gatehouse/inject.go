package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// injectors are the connections by name, each with what adds its credential.
// They are filled while a node is wired and only read afterwards.
type injectors map[string]upstream.Injector

// Inject hands the request to the Permit's connection.
func (in injectors) Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	one, ok := in[p.Action().Connection]
	if !ok {
		return nil, errors.New("no such connection")
	}
	return one.Inject(ctx, p, r)
}

// mediates reports whether a connection's credential is added here, outside. It
// is asked once the node is wired.
func (in injectors) mediates(connection string) bool { return in[connection] != nil }

// injectorsOf returns the connections of kind http. Those of other kinds are
// added by their mediators.
func injectorsOf(cfg *config.Config) (injectors, error) {
	var cs []upstream.Credential
	for _, c := range cfg.Connections {
		if c.Kind != "http" {
			continue
		}
		one, err := credentialOf(c)
		if err != nil {
			return nil, err
		}
		cs = append(cs, one)
	}
	in := injectors{}
	http, err := upstream.NewConnections(cs)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "connections: "+err.Error(), "")
	}
	for _, c := range cs {
		in[c.Name] = http
	}
	return in, nil
}

// credentialOf reads a connection that has a host and a scheme.
func credentialOf(c config.Connection) (upstream.Credential, error) {
	at := "connections." + c.Name
	if c.Credential.Ref() == "" || c.Host == "" || c.Scheme == "" {
		return upstream.Credential{}, problem.New(problem.ConfigInvalid, at+": an "+c.Kind+" connection needs host, scheme and credential", "")
	}
	hostport := c.Host
	if !strings.Contains(hostport, ":") {
		hostport += ":443"
	}
	to, err := authority.ParseHostPort(authority.HTTPS, hostport)
	if err != nil {
		return upstream.Credential{}, problem.Wrap(err, problem.ConfigInvalid, at+".host: want a host name, with a port if it is not 443", "")
	}
	field := c.Header
	if c.Scheme == "query" {
		field = c.Query
	}
	value := c.Credential.Value()
	return upstream.Credential{
		Name: c.Name, To: to, Scheme: c.Scheme, Field: field,
		Secret: func(context.Context) (secret.Value, error) { return value, nil },
	}, nil
}
