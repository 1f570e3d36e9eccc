package gatekeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/openinspect"
	"gatehouse/internal/problem"
)

// elsewhere is a room on another machine.
type elsewhere struct{ *room }

func (elsewhere) Distant() {}

// TestDistantProvider: a provider whose probe this node cannot see is hard only
// with a conformance report that holds, and is observed at level 2 at most.
func TestDistantProvider(t *testing.T) {
	cases := map[string]struct {
		mode   string
		report Report
		names  string // of the refusal; "" = it runs
	}{
		"shadow_needs_no_report":   {"shadow", nil, ""},
		"hard_without_reports":     {"hard", nil, "no conformance report"},
		"hard_with_an_ended_one":   {"hard", func(sandbox.Provider) error { return errors.New("ended yesterday") }, "ended yesterday"},
		"hard_with_one_that_holds": {"hard", func(sandbox.Provider) error { return nil }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &doors{}
			w := newWorld(t, []string{strings.Replace(fixCI, "accepts:", "mode: "+c.mode+"\naccepts:", 1)}, withDoors(d), func(w *world) {
				w.opts.Providers, w.opts.Report, w.opts.Unlimited = map[string]sandbox.Provider{"local": elsewhere{w.room}}, c.report, true
			})
			id := w.take(failedRun("this"))
			if c.names != "" {
				w.wantStory(id, "open refused provider_capability_missing, close refused")
				if len(w.room.specs) != 0 {
					t.Error("a sandbox started")
				}
				if _, code, why := w.prepare(bundle.Choice{Bundle: w.registry.known()[0]}); code != problem.ProviderCapabilityMissing || !strings.Contains(why, c.names) {
					t.Errorf("%s %q, want %q", code, why, c.names)
				}
				return
			}
			w.ended(id)
			w.wantStory(id, happy)
			for _, rec := range w.log.receipts(id) {
				if rec.State != nil && rec.State.To == "running" && rec.State.Level != 2 {
					t.Errorf("observed at level %d, want 2", rec.State.Level)
				}
			}
		})
	}
}

// TestOpenInspect: a provider that proves nothing is there for compatibility
// alone. Every other bundle that names it is refused before anything is sent.
func TestOpenInspect(t *testing.T) {
	const compatibility = "credentials: {compatibility: {reason: moving over, expires: 2027-01-31}}\n"
	const connection = "egress: [{host: api.example.com, connection: api}]\n"
	cases := map[string]struct {
		bundle string
		code   problem.Code
	}{
		"compatibility":      {compatibility + connection, ""},
		"credential_free":    {"credentials: credential_free\n", problem.ProviderCapabilityMissing},
		"required":           {"credentials: required\n" + connection, problem.ConnectionUnmediated},
		"hard":               {"mode: hard\n", problem.ProviderCapabilityMissing},
		"hard_compatibility": {"mode: hard\n" + compatibility, problem.ProviderCapabilityMissing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := &automation{}
			p, err := openinspect.New(openinspect.Options{URL: &url.URL{Scheme: "https", Host: "inspect.example.com", Path: "/webhooks/automation/7"}, Calls: h, Put: h.put, Transcripts: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			source := strings.Replace(plus("fix-ci", c.bundle), "session: {", "session: {provider: openinspect, ", 1)
			w := newWorld(t, []string{source}, withDoors(&doors{}), func(w *world) {
				w.opts.Providers, w.opts.Unlimited = map[string]sandbox.Provider{"openinspect": p}, true
				w.opts.Mediated = func(string) bool { return true }
			})
			id := w.take(failedRun("this"))
			if c.code != "" {
				w.wantStory(id, "open refused "+string(c.code)+", close refused")
				if h.calls != 0 {
					t.Errorf("%d requests were sent", h.calls)
				}
				return
			}
			r := w.ended(id)
			w.wantStory(id, happy)
			if h.calls != 1 || r.Reason != sandbox.Completed {
				t.Errorf("%d requests, %+v", h.calls, r)
			}
			for _, rec := range w.log.receipts(id) {
				switch {
				case rec.Open != nil && (rec.Open.Policy != "compatibility" || rec.Open.Facts["credential.api"] != DeliveryRaw):
					t.Errorf("session.open hides it: %s %v", rec.Open.Policy, rec.Open.Facts)
				case rec.State != nil && rec.State.To == stateRunning && rec.State.Level != 0:
					t.Errorf("observed at level %d, want 0", rec.State.Level)
				case rec.Close != nil && len(rec.Close.Out) != 1:
					t.Errorf("the close commits to %d files", len(rec.Close.Out))
				}
			}
			if got := w.Weaker(); len(got) != 1 || got[0] != "fix-ci" {
				t.Errorf("compatibility is shown of %v", got)
			}
		})
	}
}

// automation is an Open-Inspect that starts a session for everything.
type automation struct{ calls int }

func (a *automation) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"ok":true,"triggered":1,"skipped":0}`))}, nil
}

func (a *automation) put(r io.Reader) (string, int64, error) {
	b, err := io.ReadAll(r)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), int64(len(b)), err
}
