package telemetry

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// injector adds one connection's credential.
type injector struct{ s *sink }

// Injector returns what adds the connection's credential to its reports and to
// nothing else.
func Injector(c Connection) (upstream.Injector, error) {
	s, err := sinkOf(c)
	if err != nil {
		return nil, err
	}
	return injector{s}, nil
}

// Inject puts exactly one identity into the request.
func (i injector) Inject(_ context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	s := i.s
	if a := p.Action(); a.Kind != enforcers.TelemetryEmit || a.Connection != s.Name || p.To() != s.to {
		return nil, problem.New(enforcers.CodeWrongHost, "the connection is for reports to its own host", "")
	}
	return s.authenticate(r.Header)
}

// authenticate puts the connection's credential into a head, and returns what
// of it must not come back.
func (s *sink) authenticate(h http.Header) ([]secret.Value, error) {
	text := string(s.Credential.Reveal())
	delete(h, "Authorization")
	switch {
	case s.Provider == "sentry":
		dsn, err := url.Parse(text)
		if err != nil {
			return nil, problem.New(enforcers.CodeCredential, "the DSN is malformed", "")
		}
		key := dsn.User.Username()
		h["X-Sentry-Auth"] = []string{"Sentry sentry_version=7, sentry_client=gatehouse/1, sentry_key=" + key}
		return []secret.Value{secret.FromString(key)}, nil
	case s.Provider == "langfuse":
		_, private, _ := strings.Cut(text, ":")
		h["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(text))}
		return []secret.Value{s.Credential, secret.FromString(private)}, nil
	case s.Scheme == "basic":
		h["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(text))}
	case s.Scheme == "header":
		h[http.CanonicalHeaderKey(s.Header)] = []string{text}
	default:
		h["Authorization"] = []string{"Bearer " + text}
	}
	return []secret.Value{s.Credential}, nil
}
