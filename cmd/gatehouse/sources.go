package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/ingest"
	"gatehouse/ingest/github"
	"gatehouse/internal/config"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// endpointOf builds the endpoint that a configuration entry describes.
func endpointOf(e config.Endpoint, secrets []secret.Value) (ingest.Endpoint, error) {
	var src ingest.Source
	var err error
	switch e.Source {
	case github.Name:
		o := github.Options{Secrets: secrets}
		if e.Commands != nil {
			o.Commands = github.Commands{Mention: e.Commands.Mention, Words: e.Commands.Words}
		}
		src, err = github.New(o)
	default:
		return ingest.Endpoint{}, problem.New(problem.ConfigInvalid,
			fmt.Sprintf("endpoint %s: source %s is not built yet", e.Name, e.Source), "this version reads github")
	}
	if err != nil {
		return ingest.Endpoint{}, fmt.Errorf("endpoint %s: %w", e.Name, err)
	}
	return ingest.Endpoint{Name: e.Name, Source: src}, nil
}

// endpointsOf builds every webhook endpoint; cron entries have no URL.
func endpointsOf(cfg *config.Config) ([]ingest.Endpoint, error) {
	var out []ingest.Endpoint
	for _, e := range cfg.Endpoints {
		if e.Source == "cron" {
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

// vocabulary is what lint may know of one kind of event: the source's own tables.
func vocabulary(source, kind string) (bundle.Vocabulary, bool) {
	if source != github.Name {
		return bundle.Vocabulary{}, false
	}
	facts, text, passages, ok := github.Vocabulary(kind)
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
