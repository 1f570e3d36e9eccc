// Package operationstest gives the tests of operations a desk with a real gate
// and a place outside that counts. It reads what an operation sends and must
// never be used but by tests.
package operationstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

// Credential is what Outside's connection would add; no answer may hold it.
const Credential = "canary-credential-0123456789"

// Seen is one request as it left.
type Seen struct {
	Method, Target string // path and query
	Header         http.Header
	Body           string
}

// Outside is a place outside. Answer is asked for every request; nil answers 200
// and {}.
type Outside struct {
	Answer func(Seen) (status int, body string)
	Err    error // instead of an answer

	mu   sync.Mutex
	seen []Seen
}

// RoundTrip notes the request and answers it.
func (o *Outside) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s := Seen{r.Method, r.URL.RequestURI(), r.Header, string(b)}
	o.mu.Lock()
	o.seen = append(o.seen, s)
	o.mu.Unlock()
	if o.Err != nil {
		return nil, o.Err
	}
	status, body := http.StatusOK, "{}"
	if o.Answer != nil {
		status, body = o.Answer(s)
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// Requests returns what left so far.
func (o *Outside) Requests() []Seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Seen(nil), o.seen...)
}

// Remote returns the way to it.
func (o *Outside) Remote(t *testing.T) *operations.Remote {
	t.Helper()
	to, err := authority.ParseHostHeader("https", "outside.test")
	if err != nil {
		t.Fatal(err)
	}
	return &operations.Remote{To: to, Exit: o, Guarded: []secret.Value{secret.FromString(Credential)}, MarkKey: secret.FromString("the node's key for marks")}
}

// Receipts stands for the notary.
type Receipts struct {
	mu        sync.Mutex
	decisions []enforcers.Decision
	outcomes  []enforcers.Outcome
}

// Decision notes a decision.
func (r *Receipts) Decision(_ context.Context, _ *enforcers.Action, d *enforcers.Decision, _ bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decisions = append(r.decisions, *d)
	return receipts.Leaf(fmt.Append(nil, len(r.decisions))), nil
}

// Outcome notes an outcome.
func (r *Receipts) Outcome(_ receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
}

// Progress is not noted: operations make none.
func (r *Receipts) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// Last returns the newest outcome.
func (r *Receipts) Last() enforcers.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outcomes) == 0 {
		return enforcers.Outcome{}
	}
	return r.outcomes[len(r.outcomes)-1]
}

// Answer is what an agent gets.
type Answer struct {
	Status        int
	Code, Receipt string
	Result        json.RawMessage
	Text          string
}

// Desk is the desk of session s-1, which may call what listed names.
type Desk struct {
	*operations.Desk
	Receipts *Receipts
}

// New opens a desk in a mode.
func New(t *testing.T, mode receipts.Mode, listed []string, ops ...operations.Operation) *Desk {
	t.Helper()
	names, err := json.Marshal(append([]string{}, listed...))
	if err != nil {
		t.Fatal(err)
	}
	e, err := policies.Native("egress", fmt.Appendf(nil, `{"abi":1,"bundle":{"bundle":"b","digest":"00","egress":[],"models":[],"operations":%s,"telemetry":[]},"params":{"enforcer":"egress"}}`, names))
	if err != nil {
		t.Fatal(err)
	}
	d := &Desk{Receipts: &Receipts{}}
	g := enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: mode, Recorder: d.Receipts,
		Policy: enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: e, Mode: receipts.Hard, Builtin: true}}}})
	if d.Desk, err = operations.New(g, ops); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// Call calls over HTTP, as an agent does.
func (d *Desk) Call(t *testing.T, name, key, args string) Answer {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, operations.Prefix+"/"+name, strings.NewReader(args))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	a := Answer{Status: w.Code, Text: w.Body.String()}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if bytes.Contains(w.Body.Bytes(), []byte("canary")) {
		t.Errorf("the answer holds what must stay outside: %s", w.Body)
	}
	if a.Receipt == "" {
		t.Errorf("no receipt: %s", w.Body)
	}
	return a
}

// Row is one call and what must come of it.
type Row struct {
	Name, Op, Key, Args string
	Status              int
	Code                string // of a refusal
	Want                string // in the answer
	Left                int    // requests that left so far
}

// Run makes the calls in order.
func (d *Desk) Run(t *testing.T, o *Outside, rows []Row) {
	t.Helper()
	for _, c := range rows {
		t.Run(c.Name, func(t *testing.T) {
			a := d.Call(t, c.Op, c.Key, c.Args)
			if a.Status != c.Status || a.Code != c.Code || !strings.Contains(a.Text, c.Want) {
				t.Errorf("%s", a.Text)
			}
			if n := len(o.Requests()); n != c.Left {
				t.Errorf("%d requests left, want %d", n, c.Left)
			}
		})
	}
}
