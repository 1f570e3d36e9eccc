package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"gatehouse/enforcers/telemetry"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Bounds of the node's own traces. A batch is a call of the node and has
// receipts of its own.
const (
	tracesEvery = 5 * time.Second
	tracesRest  = 30 * time.Second // after the collector did not take a batch
	tracesBatch = 512              // spans
	tracesQueue = 8192             // spans that wait; older ones are dropped
	tracesLimit = 15 * time.Second // of one call
)

// tracer sends spans of what the journal holds to a collector. It reads behind
// the journal's end, like whoever counts: nothing waits for it, and whatever
// happens to it is counted and forgotten.
type tracer struct {
	conn    telemetry.Connection
	exit    http.RoundTripper
	journal *journal.Journal
	from    uint64 // next position to be read
	m       *diag.Metrics
	log     *slog.Logger

	mu    sync.Mutex // guards spans
	spans *telemetry.Spans
}

// newTracer returns nil when the configuration names no collector.
func (n *node) newTracer(cfg *config.Config, up *upstream.Client, m *diag.Metrics, dev bool) (*tracer, error) {
	if cfg.Observability.Traces == "" {
		return nil, nil
	}
	conn, err := ownConnection(cfg, "traces", cfg.Observability.Traces, "otlp", "langfuse")
	if err != nil {
		return nil, err
	}
	to, err := telemetry.Host(conn)
	if err != nil {
		return nil, err
	}
	exit, err := up.Node(upstream.NodeOptions{Purpose: "telemetry.traces", To: to, Begin: n.begin("telemetry.traces", conn.Name, to, dev), Timeout: tracesLimit})
	if err != nil {
		return nil, err
	}
	providers := map[string]string{}
	for _, c := range cfg.Connections {
		if c.Kind == "model" {
			providers[c.Name] = c.Provider
		}
	}
	return &tracer{
		conn: conn, exit: countedExit{exit, "traces", m}, journal: n.journal, from: n.journal.Next(), m: m, log: n.log,
		spans: telemetry.NewSpans(cfg.Node, providers),
	}, nil
}

// ownConnection finds a telemetry connection that the node itself may use.
func ownConnection(cfg *config.Config, what, name string, providers ...string) (telemetry.Connection, error) {
	for _, c := range cfg.Connections {
		if c.Name == name && c.Kind == "telemetry" && slices.Contains(providers, c.Provider) {
			return telemetryConnection(c), nil
		}
	}
	return telemetry.Connection{}, problem.New(problem.ConfigInvalid,
		fmt.Sprintf("observability.%s names %s, which is no telemetry connection of provider %s", what, name, providers[0]), "look under connections: in the configuration")
}

// run follows the journal and sends what is ready until ctx ends, and then once
// more.
func (t *tracer) run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.follow(ctx)
	}()
	wait := time.NewTimer(tracesEvery)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			<-done
			for group, err := range t.journal.Groups(t.from) { // what was written until now
				if err != nil {
					break
				}
				t.read(group)
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesEvery)
			defer cancel()
			t.send(last)
			return nil
		case <-wait.C:
		}
		next := tracesEvery
		if !t.send(ctx) {
			next = tracesRest
		}
		wait.Reset(next)
	}
}

// during runs t until the returned function is called, which waits for the last
// of it.
func (t *tracer) during(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = t.run(ctx) // it has no error
	}()
	return func() { cancel(); <-done }
}

// follow reads the journal until ctx ends or it is closed.
func (t *tracer) follow(ctx context.Context) {
	for group, err := range t.journal.Follow(ctx, t.from) {
		if err != nil {
			return
		}
		t.read(group)
	}
}

// read makes spans of one group.
func (t *tracer) read(group []journal.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rec := range group {
		t.from = rec.Pos + 1
		switch rec.Kind {
		case journal.KindEvent:
			t.spans.Event(rec.Data)
		case journal.KindReceipt:
			if r, err := receipts.Decode(rec.Data); err == nil {
				t.spans.Receipt(receipts.Leaf(rec.Data), r)
			}
		}
	}
	for t.spans.Len() > tracesQueue {
		if _, err := t.spans.Take(tracesBatch); err != nil {
			return
		}
		if t.m != nil {
			t.m.Own.WithLabelValues("traces", "queue_full").Inc()
		}
	}
}

// send sends all that is ready. False: a batch was not taken, and is gone.
func (t *tracer) send(ctx context.Context) bool {
	for {
		t.mu.Lock()
		body, err := t.spans.Take(tracesBatch)
		t.mu.Unlock()
		if err != nil || body == nil {
			return err == nil
		}
		r, err := telemetry.TracesRequest(t.conn, body)
		if err != nil {
			return false
		}
		resp, err := t.exit.RoundTrip(r.WithContext(ctx))
		if err != nil {
			t.log.WarnContext(ctx, "spans not sent", slog.String("connection", t.conn.Name), slog.Any("err", err))
			return false
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.log.WarnContext(ctx, "spans refused", slog.String("connection", t.conn.Name), slog.Int("status", resp.StatusCode))
			return false
		}
	}
}

// countedExit counts the node's own reports.
type countedExit struct {
	exit http.RoundTripper
	what string
	m    *diag.Metrics
}

// RoundTrip sends one report.
func (c countedExit) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.exit.RoundTrip(r)
	code := ""
	switch {
	case err != nil:
		code = "failed"
		if known := problem.CodeOf(err); known != "" {
			code = string(known)
		}
	case resp.StatusCode/100 != 2:
		code = telemetry.CodeRefused
	}
	if c.m != nil {
		c.m.Own.WithLabelValues(c.what, code).Inc()
	}
	return resp, err
}
