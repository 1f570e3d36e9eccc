package telemetry

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"net/url"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Spans turns what a node wrote down into OpenTelemetry spans, outside every
// sandbox: an event's way through the node (ingest, gatekeeper, session,
// verdict) and each action of the session with what came of it. Names of a
// trace and its spans follow from ids and leaf hashes, so that a span and its
// receipt find each other.
//
// A span holds closed forms only: ids, enums, counts, host names and names from
// the node's own configuration, as the receipts have them. There is no content:
// no prompt, no answer, no path, no query, no text of the event.
//
// It is not safe for concurrent use.
type Spans struct {
	node     string
	systems  map[string]string // model connection -> gen_ai.provider.name
	done     []*trace.Span
	events   map[receipts.Hash]arrival
	sessions map[string]*traced
	Dropped  uint64 // spans that were not made because too much was open
}

// Bounds of what is open at once. What is over them has no span.
const (
	maxEvents   = 4096 // that no session has answered yet
	maxSessions = 4096
	maxActions  = 4096 // of one session
)

// arrival is an event that was accepted.
type arrival struct {
	name string // its source and endpoint
	id   string
	at   time.Time
}

// traced is a session under way.
type traced struct {
	trace   []byte
	span    []byte
	parent  []byte
	begun   time.Time
	open    *receipts.Open
	actions map[receipts.Hash]*receipts.Receipt // decisions without outcome
}

// providerNames are the providers of model connections as the conventions for
// generative AI call them.
var providerNames = map[string]string{
	"anthropic": "anthropic", "openai": "openai", "google": "gcp.gemini", "vertex-gemini": "gcp.vertex_ai", "vertex-anthropic": "gcp.vertex_ai",
}

// NewSpans returns the spans of one node. providers tells the provider of each
// model connection.
func NewSpans(node string, providers map[string]string) *Spans {
	systems := map[string]string{}
	for connection, p := range providers {
		systems[connection] = providerNames[p]
	}
	return &Spans{node: node, systems: systems, events: map[receipts.Hash]arrival{}, sessions: map[string]*traced{}}
}

func traceID(name string) []byte { h := sha256.Sum256([]byte("trace " + name)); return h[:16] }
func spanID(name string) []byte  { h := sha256.Sum256([]byte("span " + name)); return h[:8] }

// Event reads an event record of the node's journal.
func (s *Spans) Event(data []byte) {
	h, err := event.ReadHead(data)
	if err != nil {
		return
	}
	if len(s.events) >= maxEvents { // most events start nothing, and nobody says so
		for leaf, e := range s.events {
			if h.Received.Sub(e.at) > time.Minute {
				delete(s.events, leaf)
			}
		}
		if len(s.events) >= maxEvents {
			s.Dropped++
			return
		}
	}
	s.events[receipts.Leaf(data)] = arrival{h.Source + "/" + h.Endpoint, h.ID, h.Received}
}

// Receipt reads a receipt of the node's journal; leaf is its own hash. The
// node's control chain makes no spans: sending them would write to it.
func (s *Spans) Receipt(leaf receipts.Hash, r *receipts.Receipt) {
	if r.Session == receipts.ControlSession {
		return
	}
	if r.Open != nil {
		s.open(r)
		return
	}
	t := s.sessions[r.Session]
	if t == nil {
		return // opened before this process
	}
	switch {
	case r.Dec != nil:
		s.decision(t, leaf, r)
	case r.Out != nil && r.Type == receipts.TypeOutcome:
		if d := t.actions[r.Out.Ref]; d != nil {
			delete(t.actions, r.Out.Ref)
			s.action(t, r.Out.Ref, d, r)
		}
	case r.Close != nil:
		s.close(t, r)
	}
}

// open begins a session's trace: the event's arrival and the decision to start
// are over by then.
func (s *Spans) open(r *receipts.Receipt) {
	if len(s.sessions) >= maxSessions {
		s.Dropped++
		return
	}
	t := &traced{trace: traceID(r.Session), span: spanID(r.Session), begun: r.T, open: r.Open, actions: map[receipts.Hash]*receipts.Receipt{}}
	s.sessions[r.Session] = t
	if p := s.sessions[r.Open.Parent]; p != nil {
		t.trace, t.parent = p.trace, p.span
		return
	}
	e, ok := s.events[r.Open.EventLeaf]
	if !ok {
		return // a session that no delivery started
	}
	delete(s.events, r.Open.EventLeaf)
	root := spanID("ingest " + r.Session)
	admit := spanID("gatekeeper " + r.Session)
	t.parent = admit
	s.done = append(s.done,
		s.span(t.trace, root, nil, "ingest "+e.name, trace.Span_SPAN_KIND_CONSUMER, e.at, r.T, "", attribute("gatehouse.event.id", e.id)),
		s.span(t.trace, admit, root, "gatekeeper", trace.Span_SPAN_KIND_INTERNAL, e.at, r.T, r.Open.Code,
			attribute("gatehouse.bundle", r.Open.Bundle), attribute("gatehouse.session.state", r.Open.State), attribute("gatehouse.floor", r.Open.Floor)))
}

func (s *Spans) close(t *traced, r *receipts.Receipt) {
	for leaf, d := range t.actions {
		s.action(t, leaf, d, nil)
	}
	failed := ""
	switch r.Close.Reason {
	case "completed", "no_effect":
	default:
		failed = r.Close.Reason
	}
	attributes := []*common.KeyValue{
		attribute("gen_ai.operation.name", "invoke_agent"), attribute("gen_ai.agent.name", t.open.Bundle), attribute("gen_ai.conversation.id", r.Session),
		attribute("gatehouse.bundle", t.open.Bundle), attribute("gatehouse.mode", string(t.open.Mode)), attribute("gatehouse.credentials", t.open.Policy),
		attribute("gatehouse.provider", t.open.Provider), attribute("gatehouse.session.reason", r.Close.Reason),
		number64("gatehouse.receipts", int64(r.Close.Count)), number64("gatehouse.spent.nanodollars", r.Close.Spent),
	}
	for verdict, n := range r.Close.Verdicts {
		attributes = append(attributes, number64("gatehouse.verdicts."+verdict, int64(n)))
	}
	s.done = append(s.done, s.span(t.trace, t.span, t.parent, "session "+t.open.Bundle, trace.Span_SPAN_KIND_INTERNAL, t.begun, r.T, failed, attributes...))
	delete(s.sessions, r.Session)
}

// decision makes the verdict's span, and keeps the action open when it went on.
func (s *Spans) decision(t *traced, leaf receipts.Hash, r *receipts.Receipt) {
	d := r.Dec
	failed := ""
	if d.Verdict != receipts.Allow {
		failed = d.Reason
	}
	parent := t.span
	if d.Passed {
		parent = leaf[:8]
	}
	s.done = append(s.done, s.span(t.trace, spanID("verdict "+leaf.String()), parent, "verdict "+string(d.Verdict), trace.Span_SPAN_KIND_INTERNAL,
		r.T.Add(-time.Duration(d.Dur)*time.Microsecond), r.T, failed,
		attribute("gatehouse.action", r.Act.Kind), attribute("server.address", r.Act.Host), attribute("gatehouse.enforcer", d.By), attribute("gatehouse.mode", string(d.Mode)),
		attribute("gatehouse.rule", d.Rule), attribute("gatehouse.reason", d.Reason), attribute("gatehouse.fault", d.Fault),
		attribute("gatehouse.receipt", leaf.String()), boolean("gatehouse.would_block", d.Passed && d.Verdict != receipts.Allow)))
	switch {
	case !d.Passed:
	case len(t.actions) >= maxActions:
		s.Dropped++
	default:
		t.actions[leaf] = r
	}
}

// action makes the span of what passed. out is nil when the session ended
// before anybody knew.
func (s *Spans) action(t *traced, leaf receipts.Hash, r, out *receipts.Receipt) {
	a, ended, failed := r.Act, r.T, "unknown"
	attributes := []*common.KeyValue{
		attribute("gatehouse.action", a.Kind), attribute("gatehouse.connection", a.Connection), attribute("gatehouse.receipt", leaf.String()),
		attribute("server.address", a.Host), number64("server.port", int64(a.Port)), attribute("http.request.method", a.Method),
		attribute("gatehouse.repository.id", a.Repository),
	}
	name := a.Kind
	switch a.Kind {
	case "model.call":
		name = "chat " + a.Name
		attributes = append(attributes, attribute("gen_ai.operation.name", "chat"), attribute("gen_ai.request.model", a.Name),
			attribute("gen_ai.provider.name", s.systems[a.Connection]), number64("gen_ai.request.max_tokens", int64(a.Units["max_tokens"])),
			number64("gatehouse.held.nanodollars", r.Dec.Held))
	case "operation.call":
		name = "execute_tool " + a.Name
		attributes = append(attributes, attribute("gen_ai.operation.name", "execute_tool"), attribute("gen_ai.tool.name", a.Name))
	}
	if out != nil {
		o := out.Out
		ended, failed = out.T, o.Code
		attributes = append(attributes, attribute("gatehouse.effect", o.Effect), number64("http.response.status_code", int64(o.Status)),
			number64("gatehouse.bytes.up", int64(o.Up)), number64("gatehouse.bytes.down", int64(o.Down)), number64("gatehouse.spent.nanodollars", o.Spent))
	}
	s.done = append(s.done, s.span(t.trace, leaf[:8], t.span, name, trace.Span_SPAN_KIND_CLIENT, r.T, ended, failed, attributes...))
}

func (s *Spans) span(traceID, id, parent []byte, name string, kind trace.Span_SpanKind, from, to time.Time, failed string, attributes ...*common.KeyValue) *trace.Span {
	if to.Before(from) {
		from = to
	}
	sp := &trace.Span{
		TraceId: traceID, SpanId: bytes.Clone(id), ParentSpanId: bytes.Clone(parent), Name: name, Kind: kind,
		StartTimeUnixNano: uint64(from.UnixNano()), EndTimeUnixNano: uint64(to.UnixNano()),
	}
	for _, a := range attributes {
		if a != nil {
			sp.Attributes = append(sp.Attributes, a)
		}
	}
	if failed != "" {
		sp.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: failed}
	}
	return sp
}

// attribute is nil for an empty value.
func attribute(key, value string) *common.KeyValue {
	if value == "" {
		return nil
	}
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func number64(key string, n int64) *common.KeyValue {
	if n == 0 {
		return nil
	}
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}}
}

func boolean(key string, b bool) *common.KeyValue {
	if !b {
		return nil
	}
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}}
}

// Len is how many spans are ready to be taken.
func (s *Spans) Len() int { return len(s.done) }

// Take returns an OTLP export request of the spans that are ready, at most n,
// nil when there are none.
func (s *Spans) Take(n int) ([]byte, error) {
	n = min(n, len(s.done))
	if n == 0 {
		return nil, nil
	}
	spans := s.done[:n:n]
	s.done = append([]*trace.Span(nil), s.done[n:]...)
	return proto.Marshal(&trace.TracesData{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			attribute("service.name", "gatehouse"), attribute("service.instance.id", s.node),
		}},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "gatehouse"}, Spans: spans}},
	}}})
}

// TracesRequest is the node's own report of spans to an otlp or a langfuse
// connection, with the connection's credential: it is sent from outside every
// sandbox.
func TracesRequest(c Connection, body []byte) (*http.Request, error) {
	s, err := sinkOf(c)
	if err != nil {
		return nil, err
	}
	path := "/v1/traces"
	switch c.Provider {
	case "langfuse":
		path = "/api/public/otel/v1/traces"
	case "otlp":
	default:
		return nil, problem.New(problem.ConfigInvalid, "connection "+c.Name+": spans go to a connection of provider otlp or langfuse", "")
	}
	r, err := http.NewRequest(http.MethodPost, (&url.URL{Scheme: s.to.Scheme(), Host: s.to.HostHeader(), Path: s.base + path}).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if _, err := s.authenticate(r.Header); err != nil {
		return nil, err
	}
	return r, nil
}
