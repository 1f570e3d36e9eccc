package door_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"gatehouse/enforcers/upstream"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

// matrixPolicy is the setup of the bypass matrix (reference: egress cases).
const matrixPolicy = `{"bundle":"matrix","digest":"00","egress":[` +
	`{"blind":"","connection":"","encoded_slash":false,"host":"api.good.test","id":"egress[0]","methods":["GET","POST"],"paths":["/items/*/comments","/v1/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"*.pkg.test","id":"egress[1]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"**.deep.test","id":"egress[2]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"git.good.test","id":"egress[3]","methods":["GET","POST"],"paths":["/org/repo/**"],"ports":[443],"schemes":["https"]},` +
	`{"connection":"bound-main","host":"bound.good.test","id":"egress[4]","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"plain.good.test","id":"egress[5]","methods":["GET","POST"],"paths":["/**"],"ports":[80],"schemes":["http"]},` +
	`{"host":"93.184.216.34","id":"egress[6]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"blind":"tcp","host":"blind.good.test","id":"egress[7]","methods":[],"paths":[],"ports":[5432],"schemes":["tcp"]},` +
	`{"blind":"tls","host":"pass.good.test","id":"egress[8]","methods":[],"paths":[],"ports":[443],"schemes":["https"]},` +
	`{"encoded_slash":true,"host":"npm.good.test","id":"egress[9]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"metadata.google.internal","id":"egress[10]","methods":["GET"],"paths":["/**"],"ports":[80,443],"schemes":["http","https"]},` +
	`{"host":"ws.good.test","id":"egress[12]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"],"upgrade":"websocket"},` +
	`{"addresses":["10.9.0.0/16"],"host":"inside.good.test","id":"egress[11]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}` +
	`],"models":[],"operations":[],"telemetry":[]}`

// recorder keeps decisions and outcomes. It stands for the notary.
type recorder struct {
	mu        sync.Mutex
	n         int
	down      bool // the receipt log is down
	decisions []decided
	outcomes  map[receipts.Hash]enforcers.Outcome
	progress  []enforcers.Outcome
	changed   chan struct{} // closed and replaced at each outcome
}

// settled waits until every decision that passed has its outcome.
func (r *recorder) settled(t testing.TB) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		open, changed := 0, r.changed
		for _, d := range r.decisions {
			if _, ok := r.outcomes[d.Receipt]; d.Decision.Passed && !ok {
				open++
			}
		}
		r.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Errorf("%d decisions have no outcome", open)
			return
		}
	}
}

// outcome waits for the outcome of one decision.
func (r *recorder) outcome(t testing.TB, of receipts.Hash) enforcers.Outcome {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		out, ok := r.outcomes[of]
		changed := r.changed
		r.mu.Unlock()
		if ok {
			return out
		}
		select {
		case <-changed:
		case <-deadline:
			t.Error("a decision has no outcome")
			return enforcers.Outcome{}
		}
	}
}

type decided struct {
	Action   enforcers.Action
	Decision enforcers.Decision
	Durable  bool
	Receipt  receipts.Hash
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return receipts.Hash{}, errors.New("receipt log is down")
	}
	r.n++
	h := receipts.Leaf(fmt.Append(nil, r.n))
	r.decisions = append(r.decisions, decided{*a, *d, durable, h})
	return h, nil
}

func (r *recorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = make(map[receipts.Hash]enforcers.Outcome)
	}
	if _, twice := r.outcomes[of]; twice {
		panic("two outcomes for one decision")
	}
	r.outcomes[of] = o
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

func (r *recorder) Progress(_ context.Context, _ receipts.Hash, o enforcers.Outcome, _ bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, o)
	return nil
}

// last returns the newest decision and its outcome.
func (r *recorder) last() (decided, enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decisions) == 0 {
		return decided{}, enforcers.Outcome{}
	}
	d := r.decisions[len(r.decisions)-1]
	return d, r.outcomes[d.Receipt]
}

func (r *recorder) all() []decided {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]decided(nil), r.decisions...)
}

// inside is one session: a gate, a door and the client's side of it.
type inside struct {
	t     testing.TB
	out   *outside
	rec   *recorder
	gate  *enforcers.Gate
	door  *door.Door
	up    *upstream.Client
	path  string
	roots *x509.CertPool // the session's CA
	mu    sync.Mutex
	conns []net.Conn // the client's
}

// end closes everything the session had and waits for the outside to notice.
func (in *inside) end() {
	in.t.Helper()
	in.hangUp()
	in.door.Close(enforcers.CodeRevoked)
	_ = in.up.Close()
	in.out.quiet(in.t)
}

// hangUp closes the client's connections and waits until the door has written
// every outcome.
func (in *inside) hangUp() {
	in.t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range in.conns {
		_ = c.Close()
	}
	in.rec.settled(in.t)
}

type setup struct {
	mode     receipts.Mode
	policy   string
	routes   []door.Route
	inject   upstream.Injector
	timeouts door.Timeouts
	clock    func() time.Time
	resolve  time.Duration // for the upstream's DNS, 0 = ample
	own      []netip.Addr
	change   func(*enforcers.Policy)
	log      *slog.Logger
	session  string             // "" = s-1
	recorder enforcers.Recorder // nil = the one that keeps what it is told
}

// policyOf configures the native built-in egress enforcer.
func policyOf(t testing.TB, policy string) enforcers.Policy {
	t.Helper()
	e, err := policies.Native("egress", []byte(`{"abi":1,"bundle":`+policy+`,"params":{"enforcer":"egress"}}`))
	if err != nil {
		t.Fatal(err)
	}
	grants, err := enforcers.Grants([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	return enforcers.Policy{
		Digest:    receipts.Leaf([]byte(policy)),
		Enforcers: []enforcers.Bound{{Enforcer: e, Mode: receipts.Hard, Builtin: true}},
		Grants:    grants,
	}
}

func open(t testing.TB, o *outside, s setup) *inside {
	t.Helper()
	if s.policy == "" {
		s.policy = matrixPolicy
	}
	if s.resolve == 0 {
		s.resolve = 5 * time.Second
	}
	up, err := upstream.New(upstream.Options{
		Own:      s.own,
		Dev:      &upstream.Dev{Upstreams: publicOnly(o.sites), DNS: o.dnsAddr, Roots: o.roots},
		Internal: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
		Inject:   s.inject,
		Timeouts: upstream.Timeouts{Resolve: s.resolve, Connect: 5 * time.Second, Handshake: 5 * time.Second, Header: 5 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.session == "" {
		s.session = "s-1"
	}
	ca, err := door.NewCA(s.session)
	if err != nil {
		t.Fatal(err)
	}
	in := &inside{t: t, out: o, rec: &recorder{}, up: up, path: filepath.Join(t.TempDir(), "door.sock"), roots: x509.NewCertPool()}
	in.roots.AppendCertsFromPEM(ca.Trust())
	policy := policyOf(t, s.policy)
	if s.change != nil {
		s.change(&policy)
	}
	if s.recorder == nil {
		s.recorder = in.rec
	}
	in.gate = enforcers.NewGate(enforcers.GateOptions{Session: s.session, Mode: s.mode, Policy: policy, Recorder: s.recorder, Dev: true})
	l, err := net.Listen("unix", in.path)
	if err != nil {
		t.Fatal(err)
	}
	in.door, err = door.Open(context.Background(), l, in.gate, door.Options{Up: up, CA: ca, Routes: s.routes, Timeouts: s.timeouts, Clock: s.clock, Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.door.Close(enforcers.CodeRevoked); _ = up.Close() })
	return in
}

// publicOnly leaves out the fakes behind addresses that dev mode may not
// redirect.
func publicOnly(m map[netip.AddrPort]netip.AddrPort) map[netip.AddrPort]netip.AddrPort {
	out := make(map[netip.AddrPort]netip.AddrPort)
	for k, v := range m {
		if !k.Addr().IsPrivate() {
			out[k] = v
		}
	}
	return out
}

const patience = 10 * time.Second // safety deadline of every exchange

func (in *inside) dial() net.Conn {
	in.t.Helper()
	c, err := net.Dial("unix", in.path)
	if err != nil {
		in.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	in.mu.Lock()
	in.conns = append(in.conns, c)
	in.mu.Unlock()
	in.t.Cleanup(func() { _ = c.Close() })
	return c
}

// answer is what a client saw: a status, or 0 for a connection that ended
// without one.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// raw sends bytes and reads one response.
func (in *inside) raw(method, text string) reply {
	in.t.Helper()
	c := in.dial()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return reply{err: err}
	}
	return read(bufio.NewReader(c), method)
}

func read(r *bufio.Reader, method string) reply {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// tunnel opens a CONNECT tunnel; the reply is the door's answer to it.
func (in *inside) tunnel(target string) (net.Conn, *bufio.Reader, reply) {
	in.t.Helper()
	c := in.dial()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return c, r, reply{err: err}
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return c, r, reply{status: resp.StatusCode, header: resp.Header, body: string(body)}
	}
	return c, r, reply{status: resp.StatusCode}
}

// secure opens a tunnel and speaks TLS inside.
func (in *inside) secure(target, sni string) (*tls.Conn, *bufio.Reader, reply) {
	in.t.Helper()
	c, _, re := in.tunnel(target)
	if re.status != http.StatusOK {
		return nil, nil, re
	}
	conf := &tls.Config{ServerName: sni, RootCAs: in.roots}
	if sni == "" {
		conf = &tls.Config{InsecureSkipVerify: true} // sends no server name
	}
	t := tls.Client(c, conf)
	if err := t.Handshake(); err != nil {
		return nil, nil, reply{err: err}
	}
	return t, bufio.NewReader(t), re
}

// https sends one request through a new tunnel; head is everything up to the
// empty line without its line ends' carriage returns.
func (in *inside) https(target, sni, text string) reply {
	in.t.Helper()
	c, r, re := in.secure(target, sni)
	if c == nil {
		return re
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return reply{err: err}
	}
	method, _, _ := strings.Cut(text, " ")
	return read(r, method)
}

// get is the ordinary request of a client that means no harm.
func get(host, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

// fetch does what a normal HTTPS client with a proxy does.
func (in *inside) fetch(host, path string) reply {
	in.t.Helper()
	return in.https(host+":443", strings.ToLower(strings.TrimSuffix(host, ".")), get(host, path))
}

// ask sends one request on an open connection.
func ask(c net.Conn, text string) reply {
	if _, err := io.WriteString(c, text); err != nil {
		return reply{err: err}
	}
	method, _, _ := strings.Cut(text, " ")
	return read(bufio.NewReader(c), method)
}
