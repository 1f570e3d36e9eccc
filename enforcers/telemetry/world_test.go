package telemetry_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
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
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/telemetry"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Credentials that no sandbox may ever see.
const (
	otlpKey     = "CANARY-otlp-0123456789"
	langfuseKey = "pk-lf-CANARY-public:sk-lf-CANARY-secret"
	sentryKey   = "caca0123456789abcdef0123456789ab"
)

var connections = []telemetry.Connection{
	{Name: "traces", Provider: "otlp", URL: "https://otlp.good.test/otlp", Scheme: "bearer", Credential: secret.FromString(otlpKey)},
	{Name: "fuse", Provider: "langfuse", Credential: secret.FromString(langfuseKey)},
	{Name: "errors", Provider: "sentry", Credential: secret.FromString("https://" + sentryKey + "@o1.ingest.good.test/42")},
}

// recorder keeps decisions and outcomes. It stands for the notary.
type recorder struct {
	mu        sync.Mutex
	n         int
	decisions []decided
	outcomes  map[receipts.Hash]enforcers.Outcome
}

type decided struct {
	Action   enforcers.Action
	Decision enforcers.Decision
	Durable  bool
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.outcomes[of] = o
}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// of returns the decisions of a kind that were made since n were.
func (r *recorder) of(n int, kind enforcers.Kind) []decided {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []decided
	for _, d := range r.decisions[n:] {
		if d.Action.Kind == kind {
			out = append(out, d)
		}
	}
	return out
}

func (r *recorder) outcome(d decided) enforcers.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[d.Decision.Receipt]
}

// fake is a counting sink for all protocols.
type fake struct {
	mu     sync.Mutex
	got    []received
	answer http.HandlerFunc // nil answers 200 with words that must not go inside
}

type received struct {
	host, path, body string
	header           http.Header
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, _ = io.ReadAll(z)
		}
	}
	f.mu.Lock()
	f.got = append(f.got, received{r.Host, r.URL.RequestURI(), string(b), r.Header.Clone()})
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	_, _ = io.WriteString(w, "words from outside")
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got)
}

func (f *fake) last() received {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.got) == 0 {
		return received{}
	}
	return f.got[len(f.got)-1]
}

func (f *fake) answers(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = h
}

// world is one session with three telemetry connections, and the outside.
type world struct {
	t      testing.TB
	fake   *fake
	evil   *outside.Site
	rec    *recorder
	gate   *enforcers.Gate
	m      *telemetry.Mediator
	env    map[string]string
	socket string
	client *http.Client

	mu    sync.Mutex
	seen  map[string]int
	clock time.Time
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

func (w *world) counted(code string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[code]
}

type setup struct {
	mode     receipts.Mode
	listed   []string
	patience time.Duration
}

func start(t testing.TB, s setup) *world {
	t.Helper()
	out, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	w := &world{t: t, fake: &fake{}, rec: &recorder{outcomes: map[receipts.Hash]enforcers.Outcome{}}, seen: map[string]int{}, clock: time.Unix(1_800_000_000, 0)}
	for i, host := range []string{"otlp.good.test", "cloud.langfuse.com", "o1.ingest.good.test"} {
		if _, err := out.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(34 + i)}), w.fake); err != nil {
			t.Fatal(err)
		}
	}
	if w.evil, err = out.HTTPS("evil.test", netip.MustParseAddr("93.184.216.50"), http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(out.CA())
	dev := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}, DNS: netip.MustParseAddrPort(out.DNS.Addr()), Roots: roots}
	for from, to := range out.Upstreams() {
		dev.Upstreams[netip.MustParseAddrPort(from)] = netip.MustParseAddrPort(to)
	}
	in := injectors{}
	for _, c := range connections {
		if in[c.Name], err = telemetry.Injector(c); err != nil {
			t.Fatal(err)
		}
	}
	up, err := upstream.New(upstream.Options{Dev: dev, Inject: in})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	w.m, err = telemetry.New(telemetry.Options{
		Session: "s-1", Bundle: "fix-ci", Connections: connections, Patience: s.patience, Clock: w.now,
		Seen: func(e telemetry.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen[e.Code]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.env = w.m.Env()
	if s.mode == "" {
		s.mode = receipts.Hard
	}
	if s.listed == nil {
		s.listed = []string{"traces", "fuse", "errors"}
	}
	w.gate = enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: s.mode, Policy: policyOf(t, s), Recorder: w.rec, Dev: true})
	ca, err := door.NewCA("s-1")
	if err != nil {
		t.Fatal(err)
	}
	w.socket = filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(context.Background(), l, w.gate, door.Options{Up: up, CA: ca, Routes: w.m.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(enforcers.CodeRevoked) })
	tr := &http.Transport{DisableCompression: true, DialContext: func(_ context.Context, _, addr string) (net.Conn, error) { return w.tunnel(addr) }}
	inside := x509.NewCertPool()
	inside.AppendCertsFromPEM(ca.Trust())
	tr.TLSClientConfig = tlsWith(inside)
	t.Cleanup(tr.CloseIdleConnections)
	w.client = &http.Client{Transport: tr}
	return w
}

type injectors map[string]upstream.Injector

func (in injectors) Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	return in[p.Action().Connection].Inject(ctx, p, r)
}

func policyOf(t testing.TB, s setup) enforcers.Policy {
	t.Helper()
	list, err := json.Marshal(s.listed)
	if err != nil {
		t.Fatal(err)
	}
	rule := func(n int, host string) string {
		return fmt.Sprintf(`{"host":%q,"id":"telemetry[%d]","methods":[],"paths":[],"ports":[443],"schemes":["https"],"up":18874368}`, host, n)
	}
	policy := fmt.Sprintf(`{"bundle":"fix-ci","digest":"00","egress":[%s,%s,%s],"models":[],"operations":[],"telemetry":%s}`,
		rule(0, "otlp.good.test"), rule(1, "cloud.langfuse.com"), rule(2, "o1.ingest.good.test"), list)
	p := enforcers.Policy{Digest: receipts.Leaf([]byte(policy))}
	e, err := policies.Native("egress", []byte(`{"abi":1,"bundle":`+policy+`,"params":{"enforcer":"egress"}}`))
	if err != nil {
		t.Fatal(err)
	}
	p.Enforcers = []enforcers.Bound{{Enforcer: e, Mode: receipts.Hard, Builtin: true}}
	if p.Grants, err = enforcers.Grants([]byte(policy)); err != nil {
		t.Fatal(err)
	}
	return p
}

// tunnel opens a CONNECT through the door.
func (w *world) tunnel(addr string) (net.Conn, error) {
	c, err := net.Dial("unix", w.socket)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
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

// ask sends one request and returns what came back.
func (w *world) ask(method, url, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

// code reads the code of a refusal.
func code(body string) string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(body), &p)
	return p.Code
}

func zip(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
