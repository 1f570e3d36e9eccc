package main

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/getsentry/sentry-go"

	"gatehouse/enforcers/telemetry"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// What the node logs as an error goes to a Sentry project too, when the
// configuration names one: the node's own problems, never a session's. A report
// holds the log line's fixed words, the problem's code and ids; whatever else
// stood in the line, and whatever the library would add by itself, stays here.

// Bounds of reports: each one is a call of the node and has receipts.
const (
	sameAgain     = 10 * time.Minute // before one problem is told again
	maxProblems   = 256              // that are remembered
	problemsFlush = 2 * time.Second  // at the node's end
)

// problemTags are the attributes of a log line that a report may hold, in closed
// form.
var problemTags = map[string]bool{"session": true, "bundle": true, "connection": true, "provider": true, "endpoint": true, "room": true, "code": true, "name": true}

// fixedWords is what a log line's message may be made of: nothing in it could
// be a token, an address or a path.
var fixedWords = regexp.MustCompile(`^[A-Za-z][A-Za-z' ,.:_-]{0,119}$`)

const noWords = "a problem without fixed words"

// problems sends reports.
type problems struct {
	client *sentry.Client
	node   string

	mu   sync.Mutex
	told map[string]time.Time
}

// newProblems returns nil when the configuration names no place.
func (n *node) newProblems(cfg *config.Config, up *upstream.Client, m *diag.Metrics, dev bool) (*problems, error) {
	if cfg.Observability.Errors == "" {
		return nil, nil
	}
	conn, err := ownConnection(cfg, "errors", cfg.Observability.Errors, "sentry")
	if err != nil {
		return nil, err
	}
	to, err := telemetry.Host(conn)
	if err != nil {
		return nil, err
	}
	exit, err := up.Node(upstream.NodeOptions{Purpose: "telemetry.errors", To: to, Begin: n.begin("telemetry.errors", conn.Name, to, dev), Timeout: pushLimit})
	if err != nil {
		return nil, err
	}
	return problemsTo(cfg.Node, string(conn.Credential.Reveal()), countedExit{exit, "errors", m})
}

func problemsTo(node, dsn string, exit http.RoundTripper) (*problems, error) {
	client, err := sentry.NewClient(sentry.ClientOptions{
		Dsn: dsn, HTTPTransport: exit, Release: "gatehouse@" + version, ServerName: node, DisableClientReports: true,
		MaxBreadcrumbs: -1, Integrations: func([]sentry.Integration) []sentry.Integration { return nil },
		BeforeSend: func(e *sentry.Event, _ *sentry.EventHint) *sentry.Event { return scrubbed(e, node) },
	})
	if err != nil {
		return nil, problem.New(problem.ConfigInvalid, "observability.errors: the DSN is malformed", "") // the error may quote it
	}
	return &problems{client: client, node: node, told: map[string]time.Time{}}, nil
}

// scrubbed keeps of an event what reports are made of. The library fills in much
// more: the machine, its modules, its environment.
func scrubbed(e *sentry.Event, node string) *sentry.Event {
	return &sentry.Event{
		EventID: e.EventID, Timestamp: e.Timestamp, Level: e.Level, Message: e.Message, Tags: e.Tags, Fingerprint: e.Fingerprint,
		Release: "gatehouse@" + version, ServerName: node, Platform: "go", Sdk: e.Sdk,
	}
}

// report tells of one log line.
func (p *problems) report(r slog.Record, more []slog.Attr) {
	e := sentry.NewEvent()
	e.Timestamp, e.Level, e.Message = r.Time, sentry.LevelError, noWords
	if fixedWords.MatchString(r.Message) {
		e.Message = r.Message
	}
	e.Tags = map[string]string{}
	take := func(a slog.Attr) bool {
		v := a.Value.Resolve()
		if err, ok := v.Any().(error); ok {
			if code := problem.CodeOf(err); code != "" {
				e.Tags["code"] = string(code)
			}
			return true // an error's text may quote anything
		}
		if v.Kind() == slog.KindString && problemTags[a.Key] && event.IsClosed(v.String()) && len(v.String()) <= 64 {
			e.Tags[a.Key] = v.String()
		}
		return true
	}
	for _, a := range more {
		take(a)
	}
	r.Attrs(take)
	e.Fingerprint = []string{e.Message, e.Tags["code"], cmp.Or(e.Tags["connection"], e.Tags["bundle"], e.Tags["room"])}
	if p.again(e.Fingerprint[0]+" "+e.Fingerprint[1]+" "+e.Fingerprint[2], r.Time) {
		return
	}
	p.client.CaptureEvent(e, nil, nil) // queued; when the queue is full it is dropped
}

// again reports whether a problem was told a while ago.
func (p *problems) again(key string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.told[key]; ok && now.Sub(at) < sameAgain {
		return true
	}
	if len(p.told) >= maxProblems {
		clear(p.told)
	}
	p.told[key] = now
	return false
}

// flush waits a moment for what is queued.
func (p *problems) flush() {
	if p != nil {
		p.client.Flush(problemsFlush)
		p.client.Close()
	}
}

// problemLog hands errors on to whoever reports them, from the moment on at
// which somebody does.
type problemLog struct {
	slog.Handler
	to    *atomic.Pointer[problems]
	attrs []slog.Attr
}

func newProblemLog(h slog.Handler) problemLog {
	return problemLog{Handler: h, to: &atomic.Pointer[problems]{}}
}

// Handle reports a line at level error, and logs every line.
func (h problemLog) Handle(ctx context.Context, r slog.Record) error {
	if p := h.to.Load(); p != nil && r.Level >= slog.LevelError {
		p.report(r, h.attrs)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the attributes for reports.
func (h problemLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return problemLog{h.Handler.WithAttrs(attrs), h.to, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup is for the log alone: what stands in a group is not reported.
func (h problemLog) WithGroup(name string) slog.Handler {
	return problemLog{h.Handler.WithGroup(name), h.to, h.attrs}
}
