package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/ingest"
	"gatehouse/ingest/cron"
	"gatehouse/ingest/github"
	"gatehouse/ingest/linear"
	"gatehouse/ingest/sentry"
	"gatehouse/ingest/webhook"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// endpointOf builds the endpoint that a configuration entry describes.
func endpointOf(e config.Endpoint, secrets []secret.Value) (ingest.Endpoint, error) {
	trust := e.Trust
	if trust == nil {
		trust = &config.Trust{}
	}
	var src ingest.Source
	var err error
	switch e.Source {
	case github.Name:
		o := github.Options{Secrets: secrets, Bots: levels(trust.Bots), Apps: levels(trust.Apps)}
		if e.Commands != nil {
			o.Commands = github.Commands{Mention: e.Commands.Mention, Words: e.Commands.Words}
		}
		src, err = github.New(o)
	case sentry.Name:
		src, err = sentry.New(sentry.Options{Secrets: secrets})
	case linear.Name:
		src, err = linear.New(linear.Options{Secrets: secrets, Services: levels(trust.Services), Clients: levels(trust.Clients)})
	case webhook.Name, webhook.NameStandard:
		src, err = webhook.New(webhookOptions(e, secrets))
	default:
		return ingest.Endpoint{}, problem.New(problem.ConfigInvalid, fmt.Sprintf("endpoint %s: unknown source %s", e.Name, e.Source), "")
	}
	if err != nil {
		return ingest.Endpoint{}, fmt.Errorf("endpoint %s: %w", e.Name, err)
	}
	return ingest.Endpoint{Name: e.Name, Source: src}, nil
}

func levels(list map[string]string) map[string]event.Origin {
	out := map[string]event.Origin{}
	for id, level := range list {
		out[id] = event.Origin(level)
	}
	return out
}

func webhookOptions(e config.Endpoint, secrets []secret.Value) webhook.Options {
	o := webhook.Options{Name: e.Source, Secrets: secrets, Entity: e.Entity, Challenge: true}
	switch {
	case e.Source == webhook.NameStandard:
		o.Scheme = webhook.Standard{}
	case e.HMAC != nil:
		o.Scheme = webhook.HMAC{Header: e.HMAC.Header, Prefix: e.HMAC.Prefix, Hash: e.HMAC.Hash, Base64: e.HMAC.Encoding == "base64",
			Signed: e.HMAC.Signed, TimeHeader: e.HMAC.Time, IDHeader: e.HMAC.ID}
	case e.Token != nil:
		o.Scheme = webhook.Token{Header: e.Token.Header, Prefix: e.Token.Prefix}
	}
	if e.ID != nil {
		o.IDHeader, o.IDPath, o.ByBody = e.ID.Header, e.ID.Path, e.ID.Body
	}
	if e.Kind != nil {
		o.KindPath, o.Kinds = e.Kind.Path, e.Kind.Values
	}
	for _, d := range e.Declare {
		o.Facts = append(o.Facts, webhook.Declared(d))
	}
	return o
}

// schedules makes the runner of every cron entry. Before it makes up for a slot
// that this node missed it asks the stream whether another node was there.
func (n *node) schedules(ctx context.Context, cfg *config.Config) (*cron.Runner, error) {
	var jobs []cron.Job
	for _, e := range cfg.Endpoints {
		if e.Source != cron.Name {
			continue
		}
		s, err := cron.Parse(e.Schedule, e.Zone)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", e.Name, err)
		}
		jobs = append(jobs, cron.Job{Endpoint: e.Name, Schedule: s, Facts: e.Facts, Missed: cron.Missed(e.Missed)})
	}
	known := func(ctx context.Context, subject string) (bool, error) {
		for _, err := range n.bus.Read(ctx, bus.Events, subject, 0) {
			return err == nil, err
		}
		return false, nil
	}
	return cron.New(ctx, cron.Options{Journal: n.journal, Jobs: jobs, Known: known, Log: n.log})
}

// endpointsOf builds every webhook endpoint; cron entries have no URL.
func endpointsOf(cfg *config.Config) ([]ingest.Endpoint, error) {
	var out []ingest.Endpoint
	for _, e := range cfg.Endpoints {
		if e.Source == cron.Name {
			continue
		}
		secrets := make([]secret.Value, len(e.Secrets))
		for i, s := range e.Secrets {
			secrets[i] = s.Value()
		}
		ep, err := endpointOf(e, secrets)
		if err != nil {
			return nil, err
		}
		out = append(out, ep)
	}
	return out, nil
}

// seen counts what senders were answered. Labels are closed lists: no name that
// a stranger chose becomes one.
func seen(m *diag.Metrics) func(ingest.Observation) {
	return func(o ingest.Observation) {
		m.IngestRequests.WithLabelValues(o.Source, o.Result).Inc()
		if o.Status == http.StatusOK {
			m.IngestBytes.WithLabelValues(o.Source).Observe(float64(o.Bytes))
		}
	}
}

// vocabulary is what lint may know of one kind of event: the source's own tables.
func vocabulary(source, kind string) (bundle.Vocabulary, bool) {
	words := map[string]func(string) (facts, text, passages []string, ok bool){
		github.Name: github.Vocabulary, sentry.Name: sentry.Vocabulary, linear.Name: linear.Vocabulary,
	}[source]
	if words == nil {
		return bundle.Vocabulary{}, false
	}
	facts, text, passages, ok := words(kind)
	return bundle.Vocabulary{Facts: facts, Text: text, Passages: passages}, ok
}

// payload is one file that stands for an event: a normalized event, or a raw
// body with the endpoint and kind it would have come with.
type payload struct {
	path     string
	endpoint string // of a raw body
	source   string
	kind     string // "" = the file's name up to "__"
}

// event reads the file. A raw body is normalized by the same code as a
// delivery; its signature is not checked, because there is none, and the event
// says so.
func (p payload) event(received time.Time) (*event.Event, error) {
	raw, err := os.ReadFile(p.path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Usage, "couldn't read "+p.path, "")
	}
	if bytes.Contains(raw, []byte(`"specversion"`)) {
		e, err := event.Decode(bytes.TrimSpace(raw))
		if err != nil {
			return nil, problem.Wrap(err, problem.Usage, p.path+" is not a normalized event", "give a raw body with --endpoint and --kind")
		}
		return e, nil
	}
	kind := p.kind
	if kind == "" {
		kind, _, _ = strings.Cut(filepath.Base(p.path), "__")
	}
	// The source wants a secret to be built; nothing is verified with this one.
	ep, err := endpointOf(config.Endpoint{Name: p.endpoint, Source: p.source}, []secret.Value{secret.FromString(strings.Repeat("unused-", 8))})
	if err != nil {
		return nil, err
	}
	e, err := ep.Build(ingest.Delivery{Kind: kind, JSON: raw, Auth: event.Auth{Scheme: "none"}}, raw, received)
	if err != nil {
		return nil, problem.Wrap(err, problem.Usage, p.path+" is not a body that "+p.source+" sends", "")
	}
	return e, nil
}
