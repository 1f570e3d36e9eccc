package model_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/leak"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

const patience = 20 * time.Second

// key is what no sandbox may ever see.
const key = "sk-ant-api03-canary-0123456789abcdef"

// recorder keeps decisions and outcomes. It stands for the notary.
type recorder struct {
	mu        sync.Mutex
	n         int
	down      bool
	decisions []decided
	outcomes  map[receipts.Hash]enforcers.Outcome
	changed   chan struct{}
}

type decided struct {
	Action   enforcers.Action
	Decision enforcers.Decision
	Durable  bool
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return receipts.Hash{}, errors.New("receipt log is down")
	}
	r.n++
	h := receipts.Leaf(fmt.Append(nil, r.n))
	c := *d
	c.Receipt = h
	r.decisions = append(r.decisions, decided{*a, c, durable})
	return h, nil
}

func (r *recorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.outcomes[of]; twice {
		panic("two outcomes for one decision")
	}
	r.outcomes[of] = o
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// count returns how many decisions of a kind there were.
func (r *recorder) count(kind enforcers.Kind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.decisions {
		if r.decisions[i].Action.Kind == kind {
			n++
		}
	}
	return n
}

// settled waits until every decision that passed has its outcome, and returns
// the last decision of a kind with it.
func (r *recorder) last(t testing.TB, kind enforcers.Kind) (decided, enforcers.Outcome) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		var found *decided
		open, changed := 0, r.changed
		for i := range r.decisions {
			d := &r.decisions[i]
			if _, ok := r.outcomes[d.Decision.Receipt]; d.Decision.Passed && !ok {
				open++
			}
			if d.Action.Kind == kind {
				found = d
			}
		}
		if open == 0 {
			defer r.mu.Unlock()
			if found == nil {
				return decided{}, enforcers.Outcome{}
			}
			return *found, r.outcomes[found.Decision.Receipt]
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%d decisions have no outcome", open)
		}
	}
}

// fake is a counting provider.
type fake struct {
	*outside.Site
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	paths   []string
	serve   http.HandlerFunc
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.bodies = append(f.bodies, string(b))
	f.headers = append(f.headers, r.Header.Clone())
	f.paths = append(f.paths, r.URL.RequestURI())
	serve := f.serve
	f.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(b))
	serve(w, r)
}

func (f *fake) last() (string, http.Header, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.bodies) - 1
	if n < 0 {
		return "", nil, ""
	}
	return f.bodies[n], f.headers[n], f.paths[n]
}

// world is one session with one model connection, and the outside.
type world struct {
	t      testing.TB
	out    *outside.World
	fake   *fake
	cdn    *outside.Site
	rec    *recorder
	gate   *enforcers.Gate
	door   *door.Door
	model  *model.Mediator
	ledger *spend.Ledger
	socket string
	roots  *x509.CertPool
	client *http.Client
	inside ear // what came in
}

type setup struct {
	conn   model.Connection
	host   string // of the provider
	key    string
	allow  []string
	max    int64
	limit  spend.Nano
	mode   receipts.Mode
	serve  http.HandlerFunc
	cdn    http.HandlerFunc // nil: it has nothing
	drain  time.Duration
	ledger *spend.Ledger
	id     string
}

func anthropicSetup() setup {
	return setup{
		conn: model.Connection{Name: "main", Provider: "anthropic", Aliases: map[string]string{"fast": "claude-haiku-4-5"}},
		host: "api.anthropic.com", key: key, allow: []string{"claude-sonnet-4-5*", "claude-haiku-4-5"}, max: 16384,
		limit: 5e9, mode: receipts.Hard, serve: anthropicUnary(10, 5),
	}
}

func orNothing(h http.HandlerFunc) http.Handler {
	if h == nil {
		return http.NotFoundHandler()
	}
	return h
}

func start(t testing.TB, s setup) *world {
	t.Helper()
	out, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	w := &world{t: t, out: out, fake: &fake{serve: s.serve}, rec: &recorder{outcomes: map[receipts.Hash]enforcers.Outcome{}, changed: make(chan struct{})}}
	if w.fake.Site, err = out.HTTPS(s.host, netip.MustParseAddr("93.184.216.34"), w.fake); err != nil {
		t.Fatal(err)
	}
	if w.cdn, err = out.HTTPS("cdn.good.test", netip.MustParseAddr("93.184.216.35"), orNothing(s.cdn)); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(out.CA())
	dev := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}, DNS: netip.MustParseAddrPort(out.DNS.Addr()), Roots: roots}
	for from, to := range out.Upstreams() {
		dev.Upstreams[netip.MustParseAddrPort(from)] = netip.MustParseAddrPort(to)
	}
	inject, err := model.Injector(s.conn, func(context.Context) (secret.Value, error) { return secret.FromString(s.key), nil })
	if err != nil {
		t.Fatal(err)
	}
	up, err := upstream.New(upstream.Options{Dev: dev, Inject: inject})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	if s.id == "" {
		s.id = "s-1"
	}
	if w.ledger = s.ledger; w.ledger == nil {
		w.ledger = spend.New(spend.Options{})
	}
	if err := w.ledger.Open(spend.Session{ID: s.id, Bundle: "b", Limit: s.limit}); err != nil {
		t.Fatal(err)
	}
	prices, err := spend.Prices()
	if err != nil {
		t.Fatal(err)
	}
	w.model, err = model.New(model.Options{
		Session: s.id, Connections: []model.Connection{s.conn}, Ledger: w.ledger, Prices: prices, Drain: s.drain,
		Allowed: []model.Allowed{{Connection: s.conn.Name, Models: s.allow, MaxOutput: s.max}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.gate = enforcers.NewGate(enforcers.GateOptions{Session: s.id, Mode: s.mode, Policy: policyOf(t, s), Recorder: w.rec, Dev: true})
	ca, err := door.NewCA(s.id)
	if err != nil {
		t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(ca.Trust())
	w.socket = filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	w.door, err = door.Open(context.Background(), l, w.gate, door.Options{Up: up, CA: ca, Routes: w.model.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.door.Close(enforcers.CodeRevoked)
		w.leaks(s.key)
	})
	w.client = w.base()
	return w
}

func policyOf(t testing.TB, s setup) enforcers.Policy {
	t.Helper()
	list, err := json.Marshal(s.allow)
	if err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf(`{"bundle":"b","digest":"00","egress":[`+
		`{"host":"cdn.good.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},`+
		`{"host":%q,"id":"models[0]","methods":[],"paths":[],"ports":[443],"schemes":["https"],"up":33554432}],`+
		`"models":[{"allow":%s,"connection":%q,"max_output_tokens":%d}],"operations":[],"spend":{"limit":%d,"per_day":0},"telemetry":[]}`,
		s.host, list, s.conn.Name, s.max, s.limit)
	p := enforcers.Policy{Digest: receipts.Leaf([]byte(policy))}
	for _, name := range []string{"egress", "spend"} {
		e, err := policies.Native(name, []byte(`{"abi":1,"bundle":`+policy+`,"params":{"enforcer":"`+name+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		p.Enforcers = append(p.Enforcers, enforcers.Bound{Enforcer: e, Mode: receipts.Hard, Builtin: true})
	}
	var err2 error
	if p.Grants, err2 = enforcers.Grants([]byte(policy)); err2 != nil {
		t.Fatal(err2)
	}
	return p
}

// base is a client that reaches the base URL as clients inside do: its name
// leads to the door, over plain HTTP.
func (w *world) base() *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) { return w.tunnel(addr) },
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: heard{t, w}}
}

// heard keeps what comes in of every answer.
type heard struct {
	http.RoundTripper
	w *world
}

func (h heard) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := h.RoundTripper.RoundTrip(r)
	if err == nil {
		fmt.Fprintln(&h.w.inside, res.Status, res.Header)
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(res.Body, &h.w.inside), res.Body}
	}
	return res, err
}

// ear is what was heard, by many at once.
type ear struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (e *ear) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.buf.Write(b)
}

// leaks searches everything that came in, and every decision and outcome, for the
// connection's credential in every form.
func (w *world) leaks(key string) {
	w.t.Helper()
	var s leak.Set
	s.Add("credential", []byte(key))
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	for _, d := range w.rec.decisions {
		b, err := d.Action.Canonical()
		fmt.Fprintf(&w.inside, "%s %v %+v %+v\n", b, err, d.Decision, w.rec.outcomes[d.Decision.Receipt])
	}
	w.inside.mu.Lock()
	defer w.inside.mu.Unlock()
	for _, hit := range s.In("what came in or is kept", w.inside.buf.Bytes()) {
		w.t.Error(hit)
	}
}

// tunnel opens a CONNECT through the door.
func (w *world) tunnel(addr string) (net.Conn, error) {
	c, err := net.Dial("unix", w.socket)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if resp.StatusCode != 200 {
		_ = c.Close()
		return nil, errors.New(resp.Status)
	}
	return c, nil
}

const baseURL = "http://gatehouse.internal/m/main"

// post sends one request to the base URL.
func (w *world) post(path, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	resp := w.open(w.t.Context(), path, body, header...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("read the answer: %v", err)
	}
	return resp, string(b)
}

func (w *world) open(ctx context.Context, path, body string, header ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// code reads the code of a refusal.
func code(body string) string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(body), &p)
	return p.Code
}

// anthropicUnary answers whole, with these tokens.
func anthropicUnary(in, out int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":%d,"service_tier":"standard"}}`, in, out)
	}
}

// anthropicStream streams n pieces. hold, if not nil, is waited on before the
// end.
func anthropicStream(in, out, n int, hold <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(name, data string) {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
			w.(http.Flusher).Flush()
		}
		event("message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_1","model":"claude-sonnet-4-5-20250929","usage":{"input_tokens":%d,"output_tokens":1}}}`, in))
		for range n {
			event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}`)
		}
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				panic(http.ErrAbortHandler) // no end of message to somebody who hung up
			}
		}
		// The numbers are running totals, and may come twice.
		for range 2 {
			event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":%d,"output_tokens":%d}}`, in, out))
		}
		event("message_stop", `{"type":"message_stop"}`)
	}
}
