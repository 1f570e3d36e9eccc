package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/internal/api"
	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

func TestMain(m *testing.M) {
	var err error
	if testDir, err = os.MkdirTemp("", "gatehouse-api-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(testDir)
		os.Exit(code)
	}))
}

var testDir string // of the journal and the streams that all tests share

// world is an API over real streams that a real notary wrote.
type world struct {
	*api.API
	t    testing.TB
	view *view.View
	did  *commands
	logs *strings.Builder
	now  time.Time
	mu   sync.Mutex
}

const sessions = 12 // one of them refused

func sessionID(n int) string { return fmt.Sprintf("01JCA%021d", n) }
func eventID(n int) string   { return fmt.Sprintf("github:main:d%d", n) }

var testKeys = sync.OnceValue(func() *notary.Keys {
	k, err := notary.NewKeys("gatehouse.example/node-1")
	if err != nil {
		panic(err)
	}
	return k
})

// streams writes the sessions once for all tests and returns what they hold.
var streams = sync.OnceValues(func() (tape, error) {
	dir := testDir
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := notary.New(notary.Options{Node: "n1", Keys: testKeys()})
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal()})
	if err != nil {
		return nil, err
	}
	if err := n.Start(ctx, j); err != nil {
		return nil, err
	}
	for i := range sessions {
		if err := write(ctx, n, j, i); err != nil {
			return nil, err
		}
	}
	if _, err := n.Control().Append(ctx, receipts.Receipt{Type: receipts.TypeBundleApply, Change: &receipts.Change{
		Bundle: "fix", Digest: receipts.Hash{1}, To: receipts.Shadow, By: "config", Via: "config", Result: "applied",
	}}); err != nil {
		return nil, err
	}
	b, err := bus.Open(ctx, bus.Options{Node: "n1", Dir: filepath.Join(dir, "nats"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if err := j.Close(); err != nil {
		return nil, err
	}
	if j, err = journal.Open(filepath.Join(dir, "journal"), journal.Options{PrivateKey: testKeys().NodeKey().Reveal()}); err != nil {
		return nil, err
	}
	pump, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.Pump(pump, j, encode) }()
	for b.Status().Stored < j.Next()-1 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := errors.Join(ctx.Err(), <-done); err != nil {
		return nil, err
	}
	var out tape
	for _, s := range []string{bus.Events, bus.Sessions, bus.Log} {
		for m, err := range b.Read(ctx, s, "", 0) {
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, errors.Join(b.Close(), j.Close())
})

func write(ctx context.Context, n *notary.Notary, j *journal.Journal, i int) error {
	at := time.Date(2026, 11, 20, 10, 0, i, 0, time.UTC)
	e := &event.Event{
		ID: eventID(i), Source: "github", Endpoint: "main", Kind: "issue_comment", Action: "created", EntityPath: "repo/501/issue/11",
		Time: at, Received: at, Delivery: fmt.Sprint("d", i), Trust: event.TrustUntrusted, BodySHA256: strings.Repeat("ab", 32),
		Entity: event.Entity{Kind: "issue", ID: "9001"}, Actor: event.Actor{ID: "77", Kind: "user", Level: event.Member},
		Auth: event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}}, Payload: []byte(`{}`),
		Text: []event.Passage{event.NewPassage("/issue/title", "title", "<script>alert(1)</script>", event.Outsider, "88")},
		Prov: map[string]event.Origin{"/issue/title": event.Outsider},
	}
	b, err := e.Encode()
	if err != nil {
		return err
	}
	if _, err := j.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: b}).Wait(ctx); err != nil {
		return err
	}
	o := receipts.Open{State: "admitted", Event: e.ID, Bundle: "fix", Digest: receipts.Hash{1}, Mode: receipts.Shadow, Policy: "credential_free", Provider: "local", Floor: "member"}
	if i == 0 {
		o = receipts.Open{State: "refused", Code: "no_match", Event: e.ID}
	}
	c, err := n.Open(ctx, sessionID(i), o, receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		return err
	}
	reason := "refused"
	if i > 0 {
		reason = "completed"
		_, err = c.Append(ctx, receipts.Receipt{
			Type: receipts.TypeDecision, Obs: &receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"},
			Act: &receipts.Act{ID: sessionID(i) + "-1", Kind: "http.request", Scheme: "https", Host: "packages.example.com", Port: 443, Method: "GET"},
			Dec: &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Rule: "egress.default_deny", Reason: "default_deny", By: "egress"},
		})
		if err != nil {
			return err
		}
	}
	_, err = c.Close(ctx, receipts.Close{Reason: reason})
	return err
}

func encode(group []journal.Record) ([]bus.Msg, error) {
	sealed, err := notary.Encode(group)
	var out []bus.Msg
	for _, s := range sealed {
		out = append(out, bus.Msg{Subject: s.Subject, Data: s.Data, Header: s.Header})
	}
	return out, err
}

// commands stand for the node behind the API.
type commands struct {
	mu    sync.Mutex
	calls []string
	err   error
	late  error // after the first bytes of an export
	mute  error // of the receipt that text is shown
}

func (c *commands) note(format string, a ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, a...))
	return c.err
}

func (c *commands) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) == 0 {
		return ""
	}
	return c.calls[len(c.calls)-1]
}

func (c *commands) Kill(_ context.Context, s string, by api.Actor) error {
	return c.note("kill %s by %s via %s", s, by.Name, by.Via)
}

func (c *commands) Retry(_ context.Context, s string, by api.Actor) (string, error) {
	return "NEW", c.note("retry %s by %s via %s", s, by.Name, by.Via)
}

func (c *commands) Logs(_ context.Context, s string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("<script>transcript of " + s + "</script>")), c.note("logs %s", s)
}

func (c *commands) Artifacts(_ context.Context, s string) ([]api.Artifact, error) {
	return []api.Artifact{{Name: "<script>report of " + s, SHA256: strings.Repeat("ab", 32)}}, c.note("artifacts %s", s)
}

func (c *commands) Artifact(_ context.Context, s, sha256 string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("artifact of " + s)), c.note("artifact %s %s", s, sha256)
}

func (c *commands) Redeliver(_ context.Context, e string, by api.Actor) (string, error) {
	return "NEW", c.note("redeliver %s by %s via %s", e, by.Name, by.Via)
}

func (c *commands) Reveal(_ context.Context, bundle, subject string, by api.Actor) error {
	return errors.Join(c.note("reveal %q %s by %s via %s", bundle, subject, by.Name, by.Via), c.mute)
}

func (c *commands) Apply(_ context.Context, yaml []byte, by api.Actor) (api.Applied, error) {
	return api.Applied{Name: "fix", Digest: "ab", Mode: "shadow", Result: "applied"}, c.note("apply %q by %s via %s", yaml, by.Name, by.Via)
}

func (c *commands) Envelope(_ context.Context, w io.Writer, session string, by api.Actor) error {
	if err := c.note("envelope %s by %s via %s", session, by.Name, by.Via); err != nil {
		return err
	}
	_, err := io.WriteString(w, `{"payload":""}`)
	return err
}

func (c *commands) Prove(_ context.Context, session string, seq uint64) (api.LogProof, error) {
	return api.LogProof{Session: session, Seq: seq, Receipt: `{"a":"<&>"}`, Proof: "proof"}, c.note("prove %s %d", session, seq)
}

func (c *commands) Consistency(_ context.Context, from, to uint64) (api.Consistency, error) {
	return api.Consistency{From: from, To: to, Path: []string{}}, c.note("consistency %d %d", from, to)
}

func (c *commands) Keyset() string { return "keyset" }

func (c *commands) Export(_ context.Context, w io.Writer, what api.ExportOf, by api.Actor) error {
	if err := c.note("export %q %d:%d %v by %s via %s", what.Session, max(0, what.Since.Unix()), max(0, what.Until.Unix()), what.Open, by.Name, by.Via); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.Repeat("receipt\n", 10000))
	return errors.Join(err, c.late)
}

// newWorld builds an API. Its Host list is that of an operator listener which
// operator starts.
func newWorld(t testing.TB, change func(*api.Options)) *world {
	t.Helper()
	data, err := streams()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, did: &commands{}, logs: &strings.Builder{}, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	w.view = view.New(data, view.Options{Keyset: testKeys().Keyset()})
	if err := w.view.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := api.Options{
		View: w.view, Review: w.did, Proposals: w.did, Sessions: w.did, Events: w.did, Bundles: w.did, Receipts: w.did,
		Status: func() api.Status {
			return api.Status{Node: "n1", Version: "test", Ready: false, Reasons: []api.Reason{{Name: "bus", Code: problem.StreamFenced, Detail: "x"}}}
		},
		URL: "http://127.0.0.1:8081", Hosts: []string{"127.0.0.1:8081", "localhost:8081"},
		Origins: []string{"http://127.0.0.1:8081", "http://localhost:8081"}, Loopback: true,
		Log:   slog.New(slog.NewTextHandler(w.logs, nil)),
		Clock: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
	}
	if change != nil {
		change(&o)
	}
	if w.API, err = api.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// browser talks to the operator listener over real HTTP and keeps cookies.
type browser struct {
	w      *world
	srv    *httptest.Server
	cookie *http.Cookie
}

func (w *world) operator() *browser {
	srv := httptest.NewServer(w.Operator())
	w.t.Cleanup(srv.Close)
	return &browser{w: w, srv: srv}
}

// do sends a request as a page of the operator's own origin would, changed by
// change, and returns the answer with its body read.
func (b *browser) do(method, path, body string, change func(*http.Request)) (*http.Response, string) {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.srv.URL+path, strings.NewReader(body))
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Host = "127.0.0.1:8081"
	if method != http.MethodGet && method != http.MethodHead {
		r.Header.Set("Origin", "http://127.0.0.1:8081")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	if change != nil {
		change(r)
	}
	client := *b.srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		b.w.t.Fatal(err)
	}
	for _, c := range resp.Cookies() {
		b.cookie = c
	}
	return resp, string(data)
}

// login opens a one-time link.
func (b *browser) login() *browser {
	b.w.t.Helper()
	url, _, err := b.w.LoginLink("ann")
	if err != nil {
		b.w.t.Fatal(err)
	}
	if r, body := b.do(http.MethodGet, strings.TrimPrefix(url, "http://127.0.0.1:8081"), "", nil); r.StatusCode != http.StatusSeeOther {
		b.w.t.Fatal(r.Status, body)
	}
	return b
}

// socket serves the unix socket and returns a client of it.
func (w *world) socket() *api.Client {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "s")
	l, err := api.ListenSocket(path)
	if err != nil {
		w.t.Fatal(err)
	}
	serve(w.t, l, w.Socket())
	c := api.NewClient(path)
	w.t.Cleanup(c.Close)
	return c
}

func serve(t testing.TB, l net.Listener, h http.Handler) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() { _ = srv.Close(); wg.Wait() })
}
