package openinspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

const (
	maxBody   = 64 << 10 // what the webhook takes
	maxAnswer = 64 << 10
)

// Handover is the artifact of a session: what was handed over.
const Handover = "handover.json"

// Options configure a Provider.
type Options struct {
	URL         *url.URL          // of the automation's webhook, https
	Calls       http.RoundTripper // fixed to URL's authority; adds the automation's key
	Transcripts string            // holds <session>.log files: what was answered
	// Put stores what was handed over and returns its lower-hex SHA-256.
	Put func(io.Reader) (sha256 string, n int64, err error)
}

// Provider hands sessions to Open-Inspect. It is safe for concurrent use.
type Provider struct{ o Options }

// New checks the options.
func New(o Options) (*Provider, error) {
	if o.URL == nil || o.Calls == nil || o.Put == nil || o.Transcripts == "" {
		return nil, problem.New(problem.ConfigInvalid, "openinspect provider: URL, client, store and a folder for transcripts are needed", "")
	}
	if err := os.MkdirAll(o.Transcripts, 0o700); err != nil {
		return nil, fmt.Errorf("openinspect provider: %w", err)
	}
	return &Provider{o}, nil
}

// Name is "openinspect", as bundles name it.
func (p *Provider) Name() string { return "openinspect" }

// Capabilities are none: nothing of Open-Inspect's sandbox is Gatehouse's.
func (p *Provider) Capabilities() map[sandbox.Capability]bool {
	return map[sandbox.Capability]bool{}
}

// Distant marks the provider: level 0, for no attempt is made there.
func (p *Provider) Distant() {}

// message is the webhook's body. IdempotencyKey is Open-Inspect's own field.
type message struct {
	IdempotencyKey string          `json:"idempotencyKey"`
	Session        string          `json:"gatehouseSession"`
	Task           string          `json:"task"`
	Trust          string          `json:"trust"`
	Event          json.RawMessage `json:"event,omitempty"`
}

// Start prepares the one request. What the webhook would refuse is refused here.
func (p *Provider) Start(_ context.Context, s sandbox.Spec, _ net.Listener) (sandbox.Sandbox, error) {
	var event struct {
		ID string `json:"id"`
	}
	m := message{Session: s.Session, Task: s.Env["GATEHOUSE_TASK"], Trust: "untrusted", Event: s.Files["event.json"]}
	if len(m.Event) > 0 {
		if err := json.Unmarshal(m.Event, &event); err != nil {
			return nil, fmt.Errorf("openinspect: event: %w", err)
		}
	}
	if m.IdempotencyKey = event.ID; event.ID == "" {
		m.IdempotencyKey = s.Session
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("openinspect: %w", err)
	}
	if len(body) > maxBody {
		return nil, problem.New(problem.SandboxFailed, fmt.Sprintf("Open-Inspect takes %d bytes, and the delivery has %d", maxBody, len(body)), "deliver less text in session.deliver")
	}
	return &handover{p: p, spec: s, body: body, closed: make(chan struct{})}, nil
}

// handover is one session, which ends for Gatehouse when Open-Inspect has it.
type handover struct {
	p      *Provider
	spec   sandbox.Spec
	body   []byte
	mu     sync.Mutex
	ran    bool
	once   sync.Once
	closed chan struct{}
}

// Probe makes no attempt, and so proves nothing.
func (h *handover) Probe(context.Context) (sandbox.Report, error) {
	return sandbox.Report{Provider: h.p.Name(), At: time.Now().UTC()}, nil
}

// Run sends the request. It is not repeated: an answer that is lost leaves it
// open whether a session was started there, and the end says lost.
func (h *handover) Run(ctx context.Context) (sandbox.End, error) {
	h.mu.Lock()
	again := h.ran
	h.ran = true
	h.mu.Unlock()
	select {
	case <-h.closed:
		again = true
	default:
	}
	if again {
		return sandbox.End{}, errors.New("openinspect: Run after Run or Close")
	}
	began := time.Now()
	if h.spec.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.spec.Timeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-h.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	end, said := h.send(ctx)
	end.Wall = time.Since(began)
	if end.Reason == sandbox.Completed {
		// The receipts commit to the bytes that were handed over.
		sum, _, err := h.p.o.Put(bytes.NewReader(h.body))
		if err != nil {
			return end, fmt.Errorf("openinspect: %w", err)
		}
		end.Artifacts = map[string]string{Handover: sum}
	}
	end.Transcript = filepath.Join(h.p.o.Transcripts, h.spec.Session+".log")
	if err := os.WriteFile(end.Transcript, []byte(said+"\n"), 0o600); err != nil {
		return end, fmt.Errorf("transcript: %w", err)
	}
	return end, nil
}

// send makes the request and reads what became of it.
func (h *handover) send(ctx context.Context) (sandbox.End, string) {
	failed := func(reason, detail string) (sandbox.End, string) {
		return sandbox.End{Exit: 1, Reason: reason, Detail: detail}, "Open-Inspect: " + detail
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.p.o.URL.String(), bytes.NewReader(h.body))
	if err != nil {
		return failed(sandbox.Faulted, "bad URL")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.p.o.Calls.RoundTrip(req)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failed(sandbox.Timeout, "no answer in time")
	case ctx.Err() != nil:
		return failed(sandbox.Cancelled, "cancelled before an answer")
	case err != nil:
		return failed(sandbox.Lost, "no answer: whether it started a session is unknown")
	}
	defer resp.Body.Close()
	var answer struct {
		OK        bool  `json:"ok"`
		Triggered count `json:"triggered"`
		Skipped   count `json:"skipped"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted:
		return failed(sandbox.Faulted, fmt.Sprintf("it answered %d", resp.StatusCode))
	case err != nil || !answer.OK:
		return failed(sandbox.Faulted, "its answer says nothing of a session")
	case answer.Triggered < 1:
		return failed(sandbox.Faulted, fmt.Sprintf("it started nothing and skipped %d: it has this event already, or is busy", answer.Skipped))
	}
	said := fmt.Sprintf("handed over to Open-Inspect, which started %d and skipped %d; what happens there is not observed", answer.Triggered, answer.Skipped)
	return sandbox.End{Reason: sandbox.Completed, Final: said}, said
}

// count is how many, as a number or as whether at all.
type count int

func (c *count) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*c = 1
		return nil
	case "false", "null":
		*c = 0
		return nil
	}
	var n int
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*c = count(n)
	return nil
}

// Close gives up a request that is under way. A session that Open-Inspect
// started goes on there.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}
