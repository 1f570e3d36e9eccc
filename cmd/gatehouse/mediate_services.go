package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/httpcall"
	"gatehouse/enforcers/operations/linear"
	"gatehouse/enforcers/operations/publish"
	"gatehouse/enforcers/operations/sentry"
	"gatehouse/enforcers/operations/webhook"
	"gatehouse/enforcers/upstream"
	"gatehouse/gatekeeper"
	"gatehouse/internal/authority"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// purposeService names the calls of operations in receipts.
const purposeService = "operation"

// serviceTimeout bounds one request of an operation: packages are large.
const serviceTimeout = 5 * time.Minute

// services are the operations over connections that are no repository's host.
type services struct {
	linear   *operations.Remote // nil = there is none
	sentry   *operations.Remote
	marks    secret.Value // under what is written at Sentry
	declared []operations.Operation
	log      *slog.Logger
}

// newServices makes the operations that the configuration declares.
func newServices(p parts) (*services, error) {
	s, n := &services{log: p.log}, &node{notary: p.notary, log: p.log}
	for _, c := range p.cfg.Connections {
		if c.Kind != "tracker" {
			continue
		}
		known := map[string]string{"linear": linear.Host, "sentry": sentry.Host}[c.Provider]
		if known == "" {
			return nil, problem.New(problem.ConfigInvalid, "connections."+c.Name+": provider of a tracker is linear or sentry", "")
		}
		c.Host, c.Scheme = orElse(c.Host, known), orElse(c.Scheme, "bearer")
		remote, err := n.remote(p, c)
		if err != nil {
			return nil, err
		}
		if c.Provider == "linear" && s.linear != nil || c.Provider == "sentry" && s.sentry != nil {
			return nil, problem.New(problem.ConfigInvalid, "connections."+c.Name+": there is a tracker of that provider already", "")
		}
		if c.Provider == "linear" {
			s.linear = remote
			continue
		}
		key := sha256.Sum256(append([]byte("gatehouse marks\x00"), c.Credential.Value().Reveal()...))
		s.sentry, s.marks = remote, secret.New(key[:])
	}
	for _, o := range p.cfg.Operations {
		op, err := n.declared(p, o)
		if err != nil {
			if problem.CodeOf(err) != problem.ConfigInvalid {
				err = problem.Wrap(err, problem.ConfigInvalid, "operations."+o.Name+": "+err.Error(), "")
			}
			return nil, err
		}
		if err := operations.Check(op); err != nil { // here, not when the first session opens
			return nil, problem.Wrap(err, problem.ConfigInvalid, err.Error(), "")
		}
		s.declared = append(s.declared, op)
	}
	return s, nil
}

// declared makes one declared operation.
func (n *node) declared(p parts, o config.Operation) (operations.Operation, error) {
	none := operations.Operation{}
	at := slices.IndexFunc(p.cfg.Connections, func(c config.Connection) bool { return c.Name == o.Connection })
	want := "http"
	if strings.HasPrefix(o.Name, webhook.Prefix) {
		want = "webhook"
	}
	if at < 0 || p.cfg.Connections[at].Kind != want {
		return none, fmt.Errorf("%s is no connection of kind %s", o.Connection, want)
	}
	c := p.cfg.Connections[at]
	remote, err := n.remote(p, c)
	if err != nil {
		return none, err
	}
	schema, err := json.Marshal(o.Arguments)
	if err != nil {
		return none, fmt.Errorf("arguments cannot be written as JSON: %w", err)
	}
	switch {
	case strings.HasPrefix(o.Name, httpcall.Prefix):
		t := &httpcall.Template{Name: o.Name, Summary: o.Summary, Remote: remote, Method: o.Method, Path: o.Path, Schema: schema, Answer: o.Answer, Calls: o.Calls}
		return t.Operation()
	case strings.HasPrefix(o.Name, webhook.Prefix):
		u, err := url.Parse(c.API)
		if err != nil {
			return none, fmt.Errorf("the connection's api: %w", err)
		}
		r := &webhook.Receiver{Name: o.Name, Summary: o.Summary, Remote: remote, Path: u.EscapedPath(), Schema: schema, Calls: o.Calls, Secret: c.Credential.Value(), Clock: time.Now}
		return r.Operation()
	case strings.HasPrefix(o.Name, publish.Prefix):
		x := &publish.Package{Name: o.Name, Summary: o.Summary, Remote: remote, Path: o.Path, Approved: map[string]string{}, File: left(p.state)}
		for _, a := range o.Approved {
			x.Approved[a.Version] = a.SHA256
		}
		return x.Operation()
	}
	return none, fmt.Errorf("a name begins with %s, %s or %s", httpcall.Prefix, webhook.Prefix, publish.Prefix)
}

// left opens what sessions left behind, by its digest.
func left(s state) func(string) (io.ReadCloser, error) { return blob.Reader(s.blobs).Get }

// remote is the way to a connection's host, with its credential added by
// upstream. A webhook's is its signature, which the operation makes.
func (n *node) remote(p parts, c config.Connection) (*operations.Remote, error) {
	o := upstream.NodeOptions{Purpose: purposeService, Timeout: serviceTimeout}
	if c.Kind == "webhook" {
		u, err := url.Parse(c.API)
		if err != nil || u.Scheme != authority.HTTPS || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, problem.New(problem.ConfigInvalid, "connections."+c.Name+": a webhook needs api, an https URL without a query", "")
		}
		if o.To, err = authority.ParseHostHeader(u.Scheme, u.Host); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, "connections."+c.Name+".api names no host", "")
		}
	} else {
		one, err := credentialOf(c)
		if err != nil {
			return nil, err
		}
		cs, err := upstream.NewConnections([]upstream.Credential{one})
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, err.Error(), "")
		}
		o.To, o.Inject = one.To, cs.Own(c.Name)
	}
	o.Begin = n.begin(purposeService, c.Name, o.To, p.dev)
	exit, err := p.up.Node(o)
	if err != nil {
		return nil, err
	}
	mark, err := markKey(p.state)
	if err != nil {
		return nil, err
	}
	return &operations.Remote{To: o.To, Exit: exit, Guarded: []secret.Value{c.Credential.Value()}, MarkKey: mark}, nil
}

// subject is what of an event says which thing in a tracker a session is about.
type subject struct {
	Source string            `json:"source"`
	Facts  map[string]string `json:"facts"`
}

func subjectOf(eventJSON []byte) subject {
	var s subject
	if json.Unmarshal(eventJSON, &s) != nil {
		return subject{} // there is no event: nothing of a tracker's
	}
	return s
}

// of returns the operations of one session: those on the thing that started it,
// and the declared ones.
func (s *services) of(spec gatekeeper.DoorSpec) []operations.Operation {
	var all []operations.Operation
	about := subjectOf(spec.Event)
	if about.Source == "linear" && s.linear != nil {
		t := &linear.Tracker{Remote: s.linear, Issue: about.Facts["issue.id"], AgentSession: about.Facts["agent_session.id"]}
		all = append(all, t.Operations()...)
	}
	if issue := about.Facts["issue.id"]; about.Source == "sentry" && issue != "" && s.sentry != nil {
		t := &sentry.Tracker{Remote: s.sentry, Issue: issue, MarkKey: s.marks}
		all = append(all, t.Operations()...)
	}
	return append(all, s.declared...)
}

// answers reports whether a session was started by an agent session in Linear
// in which its bundle lets Gatehouse speak: whoever started it, or stopped it,
// waits for a last word there.
func (s *services) answers(spec gatekeeper.DoorSpec) bool {
	about := subjectOf(spec.Event)
	return s.linear != nil && about.Source == "linear" && about.Facts["agent_session.id"] != "" && slices.Contains(spec.Bundle.Operations, linear.Activity)
}

// Linear shows an agent session as unresponsive when nothing is said in it
// within ten seconds.
const (
	firstSignLimit = 9 * time.Second
	firstSignAgain = time.Second
)

// admitted says the first word in an agent session of Linear's. The node says it
// the moment an event is admitted: a session may wait for its turn, and an agent
// takes longer to start than Linear waits.
func (s *services) admitted(ctx context.Context, a gatekeeper.Admitted) {
	id := a.Event.Facts["agent_session.id"]
	if s.linear == nil || a.Event.Source != "linear" || id == "" || !slices.Contains(a.Bundle.Operations, linear.Activity) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstSignLimit)
	defer cancel()
	t := &linear.Tracker{Remote: s.linear, AgentSession: id}
	for {
		// The key is the node's own: no agent's has a colon.
		_, err := t.Say(ctx, &operations.Call{Session: a.Session, Key: "node:first-sign"}, "thought", fmt.Sprintf("Gatehouse session `%s` starts under bundle `%s` (%s).", a.Session, a.Bundle.Name, a.Bundle.Mode))
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.log.Warn("no first sign in Linear", slog.String("session", a.Session), slog.Any("err", err))
			return
		case <-time.After(firstSignAgain):
		}
	}
}

// admittedTo returns what is told of admitted events, nil when nothing is.
func admittedTo(all []mediator) func(context.Context, gatekeeper.Admitted) {
	for _, m := range all {
		if d, ok := m.(*desks); ok && d.services.linear != nil {
			return d.services.admitted
		}
	}
	return nil
}
