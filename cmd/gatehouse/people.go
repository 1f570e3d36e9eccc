package main

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/authority"
	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

func noBundle(name string) error {
	return problem.New(problem.NotFound, "no bundle is called "+name, "list them with `gatehouse status`")
}

// accessSubject is the subject of the private records of API tokens: digests,
// never tokens.
const accessSubject = "access.tokens"

// newAuth says who may use the operator listener: people of the identity provider,
// their tokens, and links of this machine.
func (n *node) newAuth(cfg *config.Config, up *upstream.Client, dev bool) (*auth.Auth, error) {
	o := auth.Options{
		URL: cfg.OperatorURL(), Loopback: cfg.TLS == nil, Store: tokens{n.journal}, Log: n.log,
		Note: func(ctx context.Context, step, subject string, who auth.Identity) error {
			return n.gk.Note(ctx, step, "", subject, gatekeeper.By{Name: who.Person, Via: "ui", Token: who.Token})
		},
	}
	if c := cfg.OIDC; c != nil {
		exits, err := n.providerExits(c, up, dev)
		if err != nil {
			return nil, err
		}
		o.OIDC = &auth.OIDC{
			Issuer: c.Issuer, ClientID: c.ClientID, Secret: c.Secret.Value(), Groups: c.Groups, Person: c.Person, Scopes: c.Scopes,
			Roles: map[string][]auth.Role{}, Exit: exits,
		}
		for group, roles := range c.Roles {
			for _, r := range roles {
				o.OIDC.Roles[group] = append(o.OIDC.Roles[group], auth.Role(r))
			}
		}
	}
	return auth.New(o)
}

// providerExits reach the identity provider and nobody else: each listed place has
// a checked exit of its own.
func (n *node) providerExits(c *config.OIDC, up *upstream.Client, dev bool) (providerExits, error) {
	issuer, err := url.Parse(c.Issuer)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "oidc.issuer is not a URL", "")
	}
	// Plain HTTP is for tests, where development substitutions are in force.
	if issuer.Scheme != authority.HTTPS && !(dev && issuer.Scheme == authority.HTTP) {
		return nil, problem.New(problem.ConfigInvalid, "oidc.issuer must be an https URL", "")
	}
	places := []string{issuer.Host}
	if issuer.Port() == "" {
		places[0] = net.JoinHostPort(issuer.Hostname(), map[string]string{authority.HTTPS: "443", authority.HTTP: "80"}[issuer.Scheme])
	}
	exits := providerExits{}
	for _, p := range append(places, c.Hosts...) {
		host, port, err := net.SplitHostPort(p)
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "oidc.hosts: want host:port", "")
		}
		at, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "oidc.hosts: want host:port", "")
		}
		to, err := authority.New(issuer.Scheme, host, uint16(at))
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "oidc: "+p+" is no place to call", "")
		}
		if exits[to], err = up.Node(upstream.NodeOptions{Purpose: "oidc", To: to, Begin: n.begin("oidc", "oidc", to, dev)}); err != nil {
			return nil, err
		}
	}
	return exits, nil
}

// providerExits are the places that the provider is at.
type providerExits map[authority.Authority]*upstream.Node

// RoundTrip leaves through the exit of the request's place.
func (e providerExits) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := authority.ParseHostHeader(r.URL.Scheme, r.URL.Host)
	if err == nil {
		if exit := e[to]; exit != nil {
			return exit.RoundTrip(r)
		}
	}
	return nil, fmt.Errorf("the identity provider names %s, which is not under oidc.hosts", r.URL.Host)
}

// tokens keeps records of API tokens in the journal, encrypted with the node key.
type tokens struct{ j *journal.Journal }

// Append returns when the record is durable.
func (t tokens) Append(ctx context.Context, record []byte) error {
	return keepPrivate(t.j, accessSubject)(ctx, record)
}

// All yields the records that the journal still has.
func (t tokens) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for group, err := range t.j.Groups(0) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range group {
				if r.Kind == journal.KindPrivate && r.Subject == accessSubject && !yield(r.Data, nil) {
					return
				}
			}
		}
	}
}

// callerOf is who asks, in the words of receipts.
func callerOf(ctx context.Context) gatekeeper.By {
	a := api.ActorOf(ctx)
	return gatekeeper.By{Name: a.Name, Via: a.Via, Token: a.Token}
}
