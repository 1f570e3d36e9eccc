package diag_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/diag"
	"gatehouse/internal/problem"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

func serve(t *testing.T, m *diag.Metrics, h *diag.Health) func(path string) (int, string) {
	t.Helper()
	srv := httptest.NewServer(diag.Handler(m, h))
	t.Cleanup(srv.Close)
	return func(path string) (int, string) {
		t.Helper()
		r, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
}

func TestReadyNamesItsReasons(t *testing.T) {
	var h diag.Health
	var broken atomic.Bool
	h.Check("journal", func() error { return nil })
	h.Check("bus", func() error {
		if broken.Load() {
			return problem.Wrap(errors.New("timeout with Bearer Y2FuYXJ5LWNhbmFyeQ"), problem.StreamFenced, "a stream differs", "Look at it.")
		}
		return nil
	})
	get := serve(t, diag.NewMetrics("test"), &h)
	if code, body := get("/readyz"); code != http.StatusOK || strings.TrimSpace(body) != `{"ready":true,"reasons":[]}` {
		t.Fatal(code, body)
	}
	weaker := "fix-ci, lint"
	h.Note("compatibility", func() string { return weaker })
	if code, body := get("/readyz"); code != http.StatusOK || strings.TrimSpace(body) != `{"ready":true,"reasons":[],"notes":{"compatibility":"fix-ci, lint"}}` {
		t.Fatal(code, body)
	}
	weaker = ""
	broken.Store(true)
	code, body := get("/readyz")
	if code != http.StatusServiceUnavailable {
		t.Fatal(code)
	}
	var got struct {
		Ready   bool
		Reasons []diag.Reason
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := []diag.Reason{{Name: "bus", Code: problem.StreamFenced, Detail: "a stream differs (stream_fenced): timeout with [redacted]", Hint: "Look at it."}}
	if d := cmp.Diff(want, got.Reasons); d != "" || got.Ready {
		t.Fatal(d)
	}
	// A node that is not ready is still alive.
	if code, body := get("/livez"); code != http.StatusOK || body != "ok\n" {
		t.Fatal(code, body)
	}
}

func TestProfilesAreServed(t *testing.T) {
	get := serve(t, diag.NewMetrics("test"), &diag.Health{})
	for _, p := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1"} {
		if code, _ := get(p); code != http.StatusOK {
			t.Errorf("%s: %d", p, code)
		}
	}
	if code, _ := get("/other"); code != http.StatusNotFound {
		t.Errorf("unknown path: %d", code)
	}
}

// TestMetricsAreDocumented keeps docs/metrics.md and the registry in step.
func TestMetricsAreDocumented(t *testing.T) {
	m := diag.NewMetrics("test")
	m.IngestRequests.WithLabelValues("github", "accepted").Inc()
	m.IngestBytes.WithLabelValues("github").Observe(1)
	m.Admissions.WithLabelValues("b", "refused", "no_match").Inc()
	m.SessionsActive.WithLabelValues("local").Set(1)
	m.SessionSeconds.WithLabelValues("completed").Observe(1)
	m.Verdicts.WithLabelValues("egress", "shadow", "deny", "default_deny").Inc()
	m.VerdictSeconds.WithLabelValues("egress").Observe(1)
	m.Faults.WithLabelValues("egress", "trap").Inc()
	m.Receipts.WithLabelValues("decision").Inc()
	m.ModelCalls.WithLabelValues("anthropic-main", "budget_exceeded").Inc()
	m.Telemetry.WithLabelValues("traces-main", "telemetry_resting").Inc()
	m.Own.WithLabelValues("traces", "telemetry_refused").Inc()
	m.Deliveries.WithLabelValues("model", "mediated").Inc()
	m.ModelSeconds.WithLabelValues("anthropic-main").Observe(1)
	m.ModelSpent.WithLabelValues("anthropic-main").Add(1)
	m.Gauge("extra", "An extra gauge.", func() float64 { return 42 })
	_, body := serve(t, m, &diag.Health{})("/metrics")

	var lines []string
	help := regexp.MustCompile(`(?m)^# HELP (gatehouse_\S+) (.*)$`)
	for _, h := range help.FindAllStringSubmatch(body, -1) {
		if h[1] == "gatehouse_extra" {
			continue
		}
		labels := map[string]bool{}
		for _, l := range regexp.MustCompile(`(?m)^`+h[1]+`(?:_bucket|_sum|_count)?\{([^}]*)\}`).FindAllStringSubmatch(body, -1) {
			for _, kv := range strings.Split(l[1], ",") {
				if name, _, _ := strings.Cut(kv, "="); name != "le" {
					labels[name] = true
				}
			}
		}
		var names []string
		for n := range labels {
			names = append(names, "`"+n+"`")
		}
		slices.Sort(names)
		lines = append(lines, "| `"+h[1]+"` | "+strings.Join(names, ", ")+" | "+h[2]+" |")
	}
	if !strings.Contains(body, "gatehouse_extra 42") || !strings.Contains(body, "go_goroutines") {
		t.Fatal("a gauge or the Go collector is missing")
	}
	const file = "../../docs/metrics.md"
	want := "# Metrics\n\nServed at `/metrics` on the private listener, beside those of the Go runtime and the process. No label holds a session, repository, host, user or URL.\n\n" +
		"| name | labels | meaning |\n|---|---|---|\n" + strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(have)); d != "" {
		t.Fatalf("run with -update:\n%s", d)
	}
}
