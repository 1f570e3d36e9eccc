package telemetry_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"gatehouse/enforcers/telemetry"
	inbound "gatehouse/internal/event"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// story feeds receipts of one node, as its journal has them.
type story struct {
	t   *testing.T
	s   *telemetry.Spans
	now time.Time
	n   int
}

func newStory(t *testing.T) *story {
	return &story{t: t, s: telemetry.NewSpans("node-1", map[string]string{"claude-eu": "vertex-anthropic"}), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
}

func (w *story) receipt(r receipts.Receipt) receipts.Hash {
	w.now, w.n = w.now.Add(time.Second), w.n+1
	r.T = w.now
	leaf := receipts.Leaf(fmt.Append(nil, w.n))
	w.s.Receipt(leaf, &r)
	return leaf
}

// taken returns every span, by name.
func (w *story) taken() map[string]*trace.Span {
	w.t.Helper()
	by := map[string]*trace.Span{}
	for {
		b, err := w.s.Take(2)
		if err != nil {
			w.t.Fatal(err)
		}
		if b == nil {
			return by
		}
		var d trace.TracesData
		if err := proto.Unmarshal(b, &d); err != nil {
			w.t.Fatal(err)
		}
		if got := d.ResourceSpans[0].Resource.String(); !strings.Contains(got, "node-1") {
			w.t.Errorf("resource %s", got)
		}
		for _, s := range d.ResourceSpans[0].ScopeSpans[0].Spans {
			by[s.Name] = s
		}
	}
}

func attributes(s *trace.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.GetAttributes() {
		if v := a.Value.GetStringValue(); v != "" {
			out[a.Key] = v
		} else {
			out[a.Key] = strings.TrimSpace(a.Value.String())
		}
	}
	return out
}

// TestSpans follows one event from its arrival to the last action of the session
// that it started, and of a child.
func TestSpans(t *testing.T) {
	w := newStory(t)
	e := &inbound.Event{
		ID: "github:main:1", Source: "github", Endpoint: "main", Kind: "issues", Action: "opened", EntityPath: "repo/1/issue/2",
		Time: w.now, Received: w.now, Delivery: "d-1", Trust: "untrusted", BodySHA256: strings.Repeat("ab", 32),
		Entity: inbound.Entity{Kind: "issue", ID: "2"}, Actor: inbound.Actor{ID: "3", Kind: "user", Level: inbound.Outsider}, Auth: inbound.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Payload: []byte(`{"title":"CANARY"}`),
	}
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.s.Event(data)
	w.receipt(receipts.Receipt{Type: receipts.TypeSessionOpen, Session: "root", Open: &receipts.Open{State: "admitted", EventLeaf: receipts.Leaf(data), Bundle: "fix-ci", Mode: receipts.Hard}})
	call := w.receipt(receipts.Receipt{Type: receipts.TypeDecision, Session: "root",
		Act: &receipts.Act{Kind: "model.call", Name: "claude-opus-4-6", Connection: "claude-eu", Host: "europe-west1-aiplatform.googleapis.com", Port: 443, Units: map[string]uint64{"max_tokens": 100}},
		Dec: &receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, Rule: "models[0]", Reason: "listed", By: "spend", Dur: 20, Held: 1000}})
	w.receipt(receipts.Receipt{Type: receipts.TypeDecision, Session: "root",
		Act: &receipts.Act{Kind: "net.connect", Host: "evil.test", Port: 443},
		Dec: &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Hard, Rule: "egress", Reason: "host_not_listed", By: "egress"}})
	w.receipt(receipts.Receipt{Type: receipts.TypeOutcome, Session: "root", Out: &receipts.Out{Ref: call, Effect: "forwarded", Status: 200, Spent: 700}})
	w.receipt(receipts.Receipt{Type: receipts.TypeSessionOpen, Session: "kid", Open: &receipts.Open{State: "admitted", Parent: "root", Bundle: "lint-fix", Mode: receipts.Hard}})
	w.receipt(receipts.Receipt{Type: receipts.TypeDecision, Session: "kid",
		Act: &receipts.Act{Kind: "operation.call", Name: "scm.comment"},
		Dec: &receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, By: "egress"}})
	w.receipt(receipts.Receipt{Type: receipts.TypeSessionClose, Session: "kid", Close: &receipts.Close{Reason: "timeout"}})
	w.receipt(receipts.Receipt{Type: receipts.TypeSessionClose, Session: "root", Close: &receipts.Close{Reason: "completed", Count: 9, Spent: 700}})

	by := w.taken()
	parents := map[string]string{ // span -> the one above it
		"ingest github/main": "", "gatekeeper": "ingest github/main", "session fix-ci": "gatekeeper", "chat claude-opus-4-6": "session fix-ci",
		"verdict deny": "session fix-ci", "session lint-fix": "session fix-ci", "execute_tool scm.comment": "session lint-fix",
	}
	trace := hex.EncodeToString(by["session fix-ci"].GetTraceId())
	for name, above := range parents {
		s := by[name]
		if s == nil {
			t.Errorf("no span %q", name)
			continue
		}
		if hex.EncodeToString(s.TraceId) != trace || hex.EncodeToString(s.ParentSpanId) != hex.EncodeToString(by[above].GetSpanId()) || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s: trace %x, parent %x", name, s.TraceId, s.ParentSpanId)
		}
		if strings.Contains(s.String(), "CANARY") {
			t.Errorf("%s has content: %s", name, s)
		}
	}
	chat := attributes(by["chat claude-opus-4-6"])
	for key, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "gcp.vertex_ai", "gen_ai.request.model": "claude-opus-4-6",
		"gatehouse.receipt": call.String(), "server.address": "europe-west1-aiplatform.googleapis.com",
	} {
		if chat[key] != want {
			t.Errorf("%s is %q, want %q", key, chat[key], want)
		}
	}
	if s := by["verdict deny"]; s.GetStatus().GetMessage() != "host_not_listed" || attributes(s)["server.address"] != "evil.test" {
		t.Errorf("%s", s)
	}
	if by["session lint-fix"].GetStatus().GetMessage() != "timeout" || by["session fix-ci"].GetStatus() != nil {
		t.Error("the ends of the sessions are not their own")
	}
	if by["execute_tool scm.comment"].GetStatus().GetMessage() != "unknown" {
		t.Error("an action without outcome looks as if it had gone well")
	}
	if len(by) != len(parents)+1 { // and "verdict allow"
		t.Errorf("%d spans", len(by))
	}
}

// TestSpansBounded: what is never answered does not grow, and the node's own
// calls make no spans of their own.
func TestSpansBounded(t *testing.T) {
	w := newStory(t)
	w.receipt(receipts.Receipt{Type: receipts.TypeSessionOpen, Session: "s", Open: &receipts.Open{State: "admitted", Bundle: "b"}})
	for range 5000 {
		w.receipt(receipts.Receipt{Type: receipts.TypeDecision, Session: "s", Act: &receipts.Act{Kind: "net.connect"}, Dec: &receipts.Dec{Verdict: receipts.Allow, Passed: true}})
		if _, err := w.s.Take(10); err != nil {
			t.Fatal(err)
		}
	}
	if w.s.Dropped == 0 {
		t.Error("nothing was dropped")
	}
	for range 10 {
		w.receipt(receipts.Receipt{Type: receipts.TypeDecision, Session: receipts.ControlSession, Act: &receipts.Act{Kind: "http.request"}, Dec: &receipts.Dec{Verdict: receipts.Allow, Passed: true}})
	}
	if w.s.Len() != 0 {
		t.Errorf("%d spans", w.s.Len())
	}
}

// TestTracesRequest: spans go to the connection's own place, with its
// credential.
func TestTracesRequest(t *testing.T) {
	for name, c := range map[string]struct {
		conn     telemetry.Connection
		url, key string
	}{
		"otlp":     {telemetry.Connection{Name: "c", Provider: "otlp", URL: "https://otlp.good.test/otlp", Scheme: "header", Header: "x-key", Credential: secret.FromString("key-0123456789")}, "https://otlp.good.test/otlp/v1/traces", "key-0123456789"},
		"langfuse": {telemetry.Connection{Name: "c", Provider: "langfuse", Credential: secret.FromString("public:secret-0123")}, "https://cloud.langfuse.com/api/public/otel/v1/traces", "Basic cHVibGljOnNlY3JldC0wMTIz"},
		"sentry":   {telemetry.Connection{Name: "c", Provider: "sentry", Credential: secret.FromString("https://key0123@sentry.good.test/1")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := telemetry.TracesRequest(c.conn, []byte("x"))
			if c.url == "" {
				if err == nil {
					t.Error("spans to a sentry connection")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.URL.String() != c.url || r.Header.Get("Authorization")+r.Header.Get("X-Key") != c.key {
				t.Errorf("%s %v", r.URL, r.Header)
			}
		})
	}
}
