package telemetry_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"gatehouse/enforcers"
	"gatehouse/enforcers/telemetry"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

func tlsWith(roots *x509.CertPool) *tls.Config { return &tls.Config{RootCAs: roots} }

const (
	base     = "http://gatehouse.internal/t/"
	jsonType = "application/json"
	pbType   = "application/x-protobuf"
)

func text(key, v string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}}
}

// forged is a trace of an agent that says it is somebody else's session.
func forged() *trace.TracesData {
	return &trace.TracesData{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "billing"), text("session.id", "s-forged"), text("gatehouse.session.id", "s-forged"), text("host.arch", "amd64"),
		}},
		ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), Name: "work", StartTimeUnixNano: 1, EndTimeUnixNano: 2,
			Attributes: []*common.KeyValue{text("langfuse.session.id", "s-forged"), text("langfuse.trace.public", "true"), text("step", "task-with-a-long-hyphenated-name")},
		}}}},
	}}}
}

func protobuf(t testing.TB) string {
	t.Helper()
	b, err := proto.Marshal(forged())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const forgedJSON = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"billing"}},{"key":"session.id","value":{"stringValue":"s-forged"}}]},
"scopeSpans":[{"spans":[{"traceId":"30313233343536373839616263646566","spanId":"3031323334353637","name":"work","attributes":[{"key":"gatehouse.x","value":{"stringValue":"s-forged"}},{"key":"step","value":{"stringValue":"one"}}]}]}]}]}`

const batch = `{"batch":[{"id":"1","type":"trace-create","timestamp":"2026-11-30T00:00:00Z","body":{"id":"t","sessionId":"s-forged","public":true,"name":"work"}},` +
	`{"id":"2","type":"generation-create","timestamp":"2026-11-30T00:00:00Z","body":{"traceId":"t","model":"m"}}],"metadata":{"public_key":"pk","sdk_name":"x"}}`

// event is an envelope of one event, after the head that is given.
func event(head string, more ...string) string {
	body := `{"event_id":"a","message":"it broke","tags":{"gatehouse.session.id":"s-forged","area":"cart"}}`
	return head + "\n" + fmt.Sprintf(`{"type":"event","length":%d}`, len(body)) + "\n" + body + "\n" + strings.Join(more, "")
}

// TestDelivers: every protocol, by base URL and by the sink's own host, reaches
// its one destination under the connection's credential, with the session's
// own ids, and the answer holds nothing of the sink's.
func TestDelivers(t *testing.T) {
	w := start(t, setup{})
	ph := w.env["LANGFUSE_PUBLIC_KEY"]
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(ph+":"+ph))
	dsn := strings.TrimPrefix(w.env["SENTRY_DSN"], "http://")
	sentryPH, _, _ := strings.Cut(dsn, "@")
	for name, c := range map[string]struct {
		url, body  string
		header     []string
		host, path string
		status     int
		answer     string
		auth       string // name and value of the credential outside
	}{
		"otlp_protobuf": {base + "traces/v1/traces", protobuf(t), []string{"Content-Type", pbType}, "otlp.good.test", "/otlp/v1/traces", 200, "", "Authorization: Bearer " + otlpKey},
		"otlp_gzip":     {base + "traces/v1/traces", zip(t, protobuf(t)), []string{"Content-Type", pbType, "Content-Encoding", "gzip"}, "otlp.good.test", "/otlp/v1/traces", 200, "", "Authorization: Bearer " + otlpKey},
		"otlp_json":     {base + "traces/v1/traces", forgedJSON, []string{"Content-Type", jsonType}, "otlp.good.test", "/otlp/v1/traces", 200, "{}", "Authorization: Bearer " + otlpKey},
		"otlp_own_host": {"https://otlp.good.test/otlp/v1/traces", protobuf(t), []string{"Content-Type", pbType}, "otlp.good.test", "/otlp/v1/traces", 200, "", "Authorization: Bearer " + otlpKey},
		"langfuse_ingestion": {base + "fuse/api/public/ingestion", batch, []string{"Content-Type", jsonType, "Authorization", basic, "X-Langfuse-Public-Key", ph},
			"cloud.langfuse.com", "/api/public/ingestion", 207, `{"successes":[],"errors":[]}`, "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(langfuseKey))},
		"langfuse_otlp": {base + "fuse/api/public/otel/v1/traces", protobuf(t), []string{"Content-Type", pbType, "Authorization", basic},
			"cloud.langfuse.com", "/api/public/otel/v1/traces", 200, "", "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(langfuseKey))},
		"sentry": {base + "errors/api/1/envelope/?sentry_version=7&sentry_key=" + sentryPH, event(`{"event_id":"a","dsn":"` + w.env["SENTRY_DSN"] + `","trace":{"public_key":"x"}}`),
			[]string{"Content-Type", "text/plain"}, "o1.ingest.good.test", "/api/42/envelope/", 200, "{}", "X-Sentry-Auth: Sentry sentry_version=7, sentry_client=gatehouse/1, sentry_key=" + sentryKey},
		"sentry_own_host": {"https://o1.ingest.good.test/api/42/envelope/", event(`{}`),
			[]string{"X-Sentry-Auth", "Sentry sentry_version=7,sentry_key=" + sentryPH}, "o1.ingest.good.test", "/api/42/envelope/", 200, "{}", "X-Sentry-Auth: Sentry sentry_version=7, sentry_client=gatehouse/1, sentry_key=" + sentryKey},
	} {
		t.Run(name, func(t *testing.T) {
			w.pass(time.Minute)
			before := w.rec.n
			resp, body := w.ask("POST", c.url, c.body, c.header...)
			if resp.StatusCode != c.status || body != c.answer {
				t.Fatalf("client saw %d %q", resp.StatusCode, body)
			}
			got := w.fake.last()
			if got.host != c.host || got.path != c.path {
				t.Errorf("it went to %s%s", got.host, got.path)
			}
			field, value, _ := strings.Cut(c.auth, ": ")
			if got.header.Get(field) != value {
				t.Errorf("%s: %s", field, got.header.Get(field))
			}
			all := fmt.Sprint(got.header, got.body)
			for _, not := range []string{"s-forged", "gatehouse_ph_", "billing", "public_key", `"public"`, "langfuse.trace.public"} {
				if strings.Contains(all, not) {
					t.Errorf("outside saw %s in %s", not, all)
				}
			}
			if !strings.Contains(got.body, "s-1") || !strings.Contains(got.body, "fix-ci") {
				t.Errorf("the session is not named in %s", got.body)
			}
			d := w.rec.of(before, enforcers.TelemetryEmit)
			if len(d) != 1 || !d[0].Decision.Passed || !d[0].Durable {
				t.Fatalf("decisions %+v", d)
			}
			if o := w.rec.outcome(d[0]); o.Effect != enforcers.Forwarded || o.Status != 200 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
	t.Run("the_rest_of_a_span_stays", func(t *testing.T) {
		w.ask("POST", base+"traces/v1/traces", protobuf(t), "Content-Type", pbType)
		var got trace.TracesData
		if err := proto.Unmarshal([]byte(w.fake.last().body), &got); err != nil {
			t.Fatal(err)
		}
		want := forged()
		r := want.ResourceSpans[0]
		r.Resource.Attributes = []*common.KeyValue{
			text("host.arch", "amd64"), text("service.name", "fix-ci"), text("session.id", "s-1"), text("gatehouse.session.id", "s-1"), text("gatehouse.bundle", "fix-ci"),
		}
		r.ScopeSpans[0].Spans[0].Attributes = []*common.KeyValue{text("step", "task-with-a-long-hyphenated-name")}
		if diff := cmp.Diff(protojson.Format(want), protojson.Format(&got)); diff != "" && !proto.Equal(want, &got) {
			t.Error(diff)
		}
	})
	if n := w.counted(""); n != 9 {
		t.Errorf("%d counted as delivered", n)
	}
}

// TestRefused: ME-21 and its kin. Nothing reaches the sink, and each refusal has
// a receipt.
func TestRefused(t *testing.T) {
	w := start(t, setup{})
	other := start(t, setup{})
	sentryPH, _, _ := strings.Cut(strings.TrimPrefix(w.env["SENTRY_DSN"], "http://"), "@")
	theirs := other.env["LANGFUSE_SECRET_KEY"]
	envelope := base + "errors/api/1/envelope/?sentry_key=" + sentryPH
	pb := []string{"Content-Type", pbType}
	js := []string{"Content-Type", jsonType}
	replay := "{\"type\":\"replay_recording\",\"length\":3}\nabc\n"
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, c := range map[string]struct {
		method, url, body string
		header            []string
		status            int
		code              string
		kind              enforcers.Kind
	}{
		"ME-21_gzip_bomb":          {"POST", base + "traces/v1/traces", zip(t, strings.Repeat("\x00", 32<<20)), []string{"Content-Type", pbType, "Content-Encoding", "gzip"}, 413, telemetry.CodeSize, enforcers.TelemetryEmit},
		"ME-21_ratio":              {"POST", base + "traces/v1/traces", zip(t, strings.Repeat(" ", 8<<20)), []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}, 413, telemetry.CodeSize, enforcers.TelemetryEmit},
		"ME-21_many_parts":         {"POST", base + "traces/v1/traces", strings.Repeat("\x0a\x00", 300_000), pb, 413, telemetry.CodeSize, enforcers.TelemetryEmit},
		"ME-21_too_large":          {"POST", base + "traces/v1/traces", strings.Repeat(" ", 4<<20+1), js, 413, telemetry.CodeSize, enforcers.TelemetryEmit},
		"ME-21_attachment":         {"POST", envelope, "{}\n{\"type\":\"attachment\",\"length\":3,\"filename\":\"x\"}\nabc\n", nil, 403, telemetry.CodeItem, enforcers.TelemetryEmit},
		"ME-21_replay":             {"POST", envelope, "{}\n" + replay, nil, 403, telemetry.CodeItem, enforcers.TelemetryEmit},
		"ME-21_read_langfuse":      {"GET", base + "fuse/api/public/traces", "", nil, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_read_own_host":      {"GET", "https://cloud.langfuse.com/api/public/traces", "", nil, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_media":              {"POST", base + "fuse/api/public/media", "{}", js, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_otlp_get":           {"GET", base + "traces/v1/traces", "", nil, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_sentry_store":       {"POST", base + "errors/api/1/store/", "{}", js, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_sentry_project":     {"POST", base + "errors/api/43/envelope/", event("{}"), nil, 403, telemetry.CodeRoute, enforcers.HTTPRequest},
		"ME-21_dsn_key":            {"POST", base + "errors/api/1/envelope/?sentry_key=feed0123456789abcdef0123456789ab", event("{}"), nil, 403, telemetry.CodeDSN, enforcers.TelemetryEmit},
		"ME-21_dsn_in_envelope":    {"POST", envelope, event(`{"dsn":"https://feed0123@o9.ingest.sentry.io/9"}`), nil, 403, telemetry.CodeDSN, enforcers.TelemetryEmit},
		"ME-21_dsn_other_host":     {"POST", envelope, event(`{"dsn":"https://` + sentryPH + `@evil.test/t/errors/1"}`), nil, 403, telemetry.CodeDSN, enforcers.TelemetryEmit},
		"foreign_key":              {"POST", base + "fuse/api/public/ingestion", batch, append([]string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("pk-lf-1:sk-lf-1"))}, js...), 403, enforcers.CodeForeignCredential, enforcers.TelemetryEmit},
		"foreign_bearer":           {"POST", base + "traces/v1/traces", forgedJSON, append([]string{"Authorization", "Bearer mine"}, js...), 403, enforcers.CodeForeignCredential, enforcers.TelemetryEmit},
		"NE-14_other_placeholder":  {"POST", base + "fuse/api/public/ingestion", batch, append([]string{"Authorization", "Bearer " + theirs}, js...), 403, enforcers.CodePlaceholder, enforcers.TelemetryEmit},
		"secret_in_span":           {"POST", base + "traces/v1/traces", strings.Replace(forgedJSON, `"one"`, `"ghp_0123456789abcdef0123456789"`, 1), js, 403, telemetry.CodeSecret, enforcers.TelemetryEmit},
		"secret_behind_escapes":    {"POST", base + "traces/v1/traces", strings.Replace(forgedJSON, `"one"`, `"\u0067hp_0123456789abcdef0123456789"`, 1), js, 403, telemetry.CodeSecret, enforcers.TelemetryEmit},
		"secret_model_key":         {"POST", base + "traces/v1/traces", strings.Replace(forgedJSON, `"one"`, `"key sk-ant-api03-0123456789"`, 1), js, 403, telemetry.CodeSecret, enforcers.TelemetryEmit},
		"placeholder_in_span":      {"POST", base + "traces/v1/traces", strings.Replace(forgedJSON, `"one"`, `"`+sentryPH+`"`, 1), js, 403, telemetry.CodeSecret, enforcers.TelemetryEmit},
		"otlp_other_list":          {"POST", base + "traces/v1/metrics", forgedJSON, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_both_spellings":      {"POST", base + "traces/v1/traces", `{"resourceSpans":[],"resource_spans":[]}`, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_key_twice":           {"POST", base + "traces/v1/traces", `{"resourceSpans":[],"resourceSpans":[]}`, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_unknown_beside":      {"POST", base + "traces/v1/traces", `{"resourceSpans":[{"Resource":{}}]}`, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_deep":                {"POST", base + "traces/v1/traces", deep, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_not_protobuf":        {"POST", base + "traces/v1/traces", "\xff\xff\xff", pb, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"otlp_content_type":        {"POST", base + "traces/v1/traces", forgedJSON, []string{"Content-Type", "text/plain"}, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"encoding":                 {"POST", base + "traces/v1/traces", "x", []string{"Content-Type", jsonType, "Content-Encoding", "br"}, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"langfuse_unknown_type":    {"POST", base + "fuse/api/public/ingestion", `{"batch":[{"type":"prompt-create","body":{}}]}`, js, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"envelope_length":          {"POST", envelope, "{}\n{\"type\":\"event\",\"length\":99}\n{}\n", nil, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"envelope_negative_length": {"POST", envelope, "{}\n{\"type\":\"event\",\"length\":-1}\n{}\n", nil, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
		"envelope_empty":           {"POST", envelope, "{}\n", nil, 400, telemetry.CodeBody, enforcers.TelemetryEmit},
	} {
		t.Run(name, func(t *testing.T) {
			w.pass(time.Minute)
			before, sent := w.rec.n, w.fake.count()
			resp, body := w.ask(c.method, c.url, c.body, c.header...)
			if resp.StatusCode != c.status || code(body) != c.code {
				t.Errorf("client saw %d %s", resp.StatusCode, body)
			}
			d := w.rec.of(before, c.kind)
			if len(d) != 1 || d[0].Decision.Passed || d[0].Decision.Reason != c.code {
				t.Errorf("decisions %+v", d)
			}
			if resp.Header.Get("Gatehouse-Receipt") == "" {
				t.Error("no receipt is named")
			}
			if w.fake.count() != sent {
				t.Errorf("the sink saw %+v", w.fake.last())
			}
			if w.counted(c.code) == 0 {
				t.Error("nobody counted it")
			}
		})
	}
	t.Run("attachment_beside_an_event", func(t *testing.T) {
		w.pass(time.Minute)
		before := w.rec.n
		resp, _ := w.ask("POST", envelope, event("{}", "{\"type\":\"attachment\",\"length\":5}\nsteal\n"))
		d := w.rec.of(before, enforcers.TelemetryEmit)
		if resp.StatusCode != 200 || len(d) != 2 || d[0].Decision.Reason != telemetry.CodeItem || d[0].Action.Telemetry.Size != 5 || !d[1].Decision.Passed {
			t.Errorf("%d %+v", resp.StatusCode, d)
		}
		if got := w.fake.last().body; strings.Contains(got, "steal") || !strings.Contains(got, "it broke") {
			t.Errorf("the sink saw %s", got)
		}
	})
}

// TestUnlisted: what the bundle does not list is refused in both modes: it would
// use a credential.
func TestUnlisted(t *testing.T) {
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run("NE-17_"+string(mode), func(t *testing.T) {
			w := start(t, setup{mode: mode, listed: []string{"fuse"}})
			resp, body := w.ask("POST", base+"traces/v1/traces", forgedJSON, "Content-Type", jsonType)
			if resp.StatusCode != 403 || w.fake.count() != 0 {
				t.Errorf("%d %s, the sink saw %d", resp.StatusCode, body, w.fake.count())
			}
		})
	}
}

// TestFailures: a sink that fails, refuses or hangs never blocks the agent, and
// each failure is counted and stands in a receipt.
func TestFailures(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		code    string // counted
		outcome string // code of the outcome receipt
		rests   bool
	}{
		"error":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, telemetry.CodeRefused, "", true},
		"refusal": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, telemetry.CodeRefused, "", false},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}, enforcers.CodeTimeout, enforcers.CodeTimeout, true},
		"breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, enforcers.CodeProtocol, enforcers.CodeProtocol, true},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/", http.StatusTemporaryRedirect)
		}, telemetry.CodeRefused, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, setup{patience: 300 * time.Millisecond})
			w.fake.answers(c.answer)
			send := func() {
				t.Helper()
				if resp, body := w.ask("POST", base+"traces/v1/traces", forgedJSON, "Content-Type", jsonType); resp.StatusCode != 200 || body != "{}" {
					t.Fatalf("client saw %d %s", resp.StatusCode, body)
				}
			}
			send()
			d := w.rec.of(0, enforcers.TelemetryEmit)
			if w.counted(c.code) != 1 {
				t.Errorf("counted %v", w.seen)
			}
			if o := w.rec.outcome(d[0]); o.Code != c.outcome {
				t.Errorf("outcome %+v", o)
			}
			before := w.fake.count()
			send()
			if rested := w.fake.count() == before; rested != c.rests {
				t.Errorf("rested: %t", rested)
			}
			if c.rests {
				d = w.rec.of(0, enforcers.TelemetryEmit)
				if o := w.rec.outcome(d[1]); o.Code != telemetry.CodeResting || o.Effect != enforcers.NotForwarded {
					t.Errorf("outcome while it rests %+v", o)
				}
				w.pass(11 * time.Second)
				w.fake.answers(nil)
				send()
				if w.counted("") != 1 {
					t.Errorf("after the rest: %v", w.seen)
				}
			}
			if w.evil.Accepts() != 0 {
				t.Error("a redirect was followed")
			}
		})
	}
}

// TestLimits: a session reports so often and so much, and no more.
func TestLimits(t *testing.T) {
	t.Run("rate", func(t *testing.T) {
		w := start(t, setup{})
		for range 20 {
			if resp, body := w.ask("POST", base+"traces/v1/traces", forgedJSON, "Content-Type", jsonType); resp.StatusCode != 200 {
				t.Fatal(body)
			}
		}
		if resp, body := w.ask("POST", base+"traces/v1/traces", forgedJSON, "Content-Type", jsonType); resp.StatusCode != 429 || code(body) != telemetry.CodeRate {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		w.pass(time.Second)
		if resp, body := w.ask("POST", base+"traces/v1/traces", forgedJSON, "Content-Type", jsonType); resp.StatusCode != 200 {
			t.Error(body)
		}
	})
	t.Run("session", func(t *testing.T) {
		w := start(t, setup{})
		filler, err := json.Marshal(strings.Repeat("words ", 600_000))
		if err != nil {
			t.Fatal(err)
		}
		big := strings.Replace(forgedJSON, `"one"`, string(filler), 1)
		var last string
		for range 20 {
			_, last = w.ask("POST", base+"traces/v1/traces", big, "Content-Type", jsonType)
		}
		if code(last) != telemetry.CodeLimit {
			t.Errorf("the last of 20: %s", last)
		}
		if n := w.fake.count(); n == 0 || n > 19 {
			t.Errorf("the sink saw %d", n)
		}
	})
}

// TestConnections: what a connection must be.
func TestConnections(t *testing.T) {
	key := secret.FromString("0123456789abcdef")
	for name, c := range map[string]telemetry.Connection{
		"provider":       {Name: "c", Provider: "datadog", URL: "https://x.test", Credential: key},
		"plain_http":     {Name: "c", Provider: "otlp", URL: "http://x.test", Scheme: "bearer", Credential: key},
		"address":        {Name: "c", Provider: "otlp", URL: "https://93.184.216.34", Scheme: "bearer", Credential: key},
		"query":          {Name: "c", Provider: "otlp", URL: "https://x.test/?a=b", Scheme: "bearer", Credential: key},
		"no_credential":  {Name: "c", Provider: "otlp", URL: "https://x.test", Scheme: "bearer"},
		"no_scheme":      {Name: "c", Provider: "otlp", URL: "https://x.test", Credential: key},
		"langfuse_half":  {Name: "c", Provider: "langfuse", Credential: key},
		"sentry_not_dsn": {Name: "c", Provider: "sentry", Credential: key},
		"sentry_project": {Name: "c", Provider: "sentry", Credential: secret.FromString("https://0123456789@x.test/name")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := telemetry.Injector(c)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "0123456789") {
				t.Errorf("the error names the credential: %v", err)
			}
		})
	}
}
