package openinspect_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/openinspect"
)

// webhook answers as the automation does and keeps what it was sent.
type webhook struct {
	status int
	answer string
	err    error
	sent   []byte
	path   string
}

func (w *webhook) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent, _ = io.ReadAll(r.Body)
	w.path = r.Method + " " + r.URL.Path
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{StatusCode: w.status, Body: io.NopCloser(strings.NewReader(w.answer))}, nil
}

func provider(t *testing.T, w *webhook) *openinspect.Provider {
	t.Helper()
	at, err := url.Parse("https://inspect.example.com/webhooks/automation/7")
	if err != nil {
		t.Fatal(err)
	}
	put := func(r io.Reader) (string, int64, error) {
		b, err := io.ReadAll(r)
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:]), int64(len(b)), err
	}
	p, err := openinspect.New(openinspect.Options{URL: at, Calls: w, Put: put, Transcripts: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var spec = sandbox.Spec{Session: "s-1", Env: map[string]string{"GATEHOUSE_TASK": "fix it"}, Files: map[string][]byte{"event.json": []byte(`{"id":"github:main:9"}`)}}

func TestHandover(t *testing.T) {
	cases := map[string]struct {
		w      webhook
		reason string
		detail string
	}{
		"started":         {webhook{status: 200, answer: `{"ok":true,"triggered":1,"skipped":0}`}, sandbox.Completed, ""},
		"started_as_bool": {webhook{status: 200, answer: `{"ok":true,"triggered":true,"skipped":false}`}, sandbox.Completed, ""},
		"skipped":         {webhook{status: 200, answer: `{"ok":true,"triggered":0,"skipped":2}`}, sandbox.Faulted, "skipped 2"},
		"not_ok":          {webhook{status: 200, answer: `{"ok":false,"triggered":1}`}, sandbox.Faulted, "nothing of a session"},
		"no_answer":       {webhook{status: 200, answer: `<html>`}, sandbox.Faulted, "nothing of a session"},
		"bad_key":         {webhook{status: 401, answer: `{}`}, sandbox.Faulted, "401"},
		"cut":             {webhook{err: errors.New("reset")}, sandbox.Lost, "unknown"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := provider(t, &c.w)
			b, err := p.Start(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			report, err := b.Probe(t.Context())
			if err != nil || len(report.Cases) != 0 || len(p.Capabilities()) != 0 {
				t.Errorf("a probe that proves something: %+v %v", report, err)
			}
			end, err := b.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if end.Reason != c.reason || !strings.Contains(end.Detail, c.detail) || (end.Exit == 0) != (c.reason == sandbox.Completed) {
				t.Errorf("%+v, want %s %s", end, c.reason, c.detail)
			}
			sum := sha256.Sum256(c.w.sent)
			if c.reason == sandbox.Completed && end.Artifacts[openinspect.Handover] != hex.EncodeToString(sum[:]) {
				t.Errorf("the receipts would commit to other bytes: %v", end.Artifacts)
			}
			if said, err := os.ReadFile(end.Transcript); err != nil || len(said) == 0 {
				t.Errorf("transcript %q %v", said, err)
			}
			var m map[string]any
			if err := json.Unmarshal(c.w.sent, &m); err != nil {
				t.Fatal(err)
			}
			if c.w.path != "POST /webhooks/automation/7" || m["idempotencyKey"] != "github:main:9" || m["task"] != "fix it" || m["trust"] != "untrusted" || m["gatehouseSession"] != "s-1" {
				t.Errorf("%s %s", c.w.path, c.w.sent)
			}
			if _, err := b.Run(t.Context()); err == nil {
				t.Error("a second Run was sent")
			}
		})
	}
}

func TestWhatIsTooLargeIsNotSent(t *testing.T) {
	w := &webhook{}
	s := spec
	s.Files = map[string][]byte{"event.json": append(append([]byte(`{"id":"x","text":"`), bytes.Repeat([]byte("a"), 64<<10)...), `"}`...)}
	if _, err := provider(t, w).Start(t.Context(), s, nil); err == nil || w.sent != nil {
		t.Errorf("%v, sent %d bytes", err, len(w.sent))
	}
}

func TestCancelled(t *testing.T) {
	w := &webhook{err: context.Canceled}
	b, err := provider(t, w).Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if end, err := b.Run(ctx); err != nil || end.Reason != sandbox.Cancelled {
		t.Errorf("%+v %v", end, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
