package door_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

// matrixPolicy is the setup of the bypass matrix (reference: egress cases).
const matrixPolicy = `{"bundle":"matrix","digest":"00","egress":[` +
	`{"blind":"","connection":"","encoded_slash":false,"host":"api.good.test","id":"egress[0]","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]},` +
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

// outside is the fake world: an authority for every name, and listeners that
// count what reaches them. It is shared by the cases of one test; each case
// reads differences.
type outside struct {
	dnsAddr netip.AddrPort
	roots   *x509.CertPool
	ca      *issuer
	sites   map[netip.AddrPort]netip.AddrPort // public address -> listener

	mu      sync.Mutex
	queries []dns.Question
	zone    map[string]func(q dns.Question) *dns.Msg // nil entry: default address
	handler http.Handler
	chain   func(*issuer) (*tls.Certificate, error) // nil: the right one
	seen    []*http.Request                         // requests that reached a fake, bodies read
	bodies  []string

	accepts atomic.Int64
	bytes   atomic.Int64

	liveMu sync.Mutex
	live   int           // connections of the fakes
	idle   chan struct{} // closed when live falls to 0; nil while nobody waits
}

func (o *outside) count(n int) {
	o.liveMu.Lock()
	defer o.liveMu.Unlock()
	if o.live += n; o.live == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

// quiet waits until no connection of the fakes is left, so that what they
// counted belongs to what was before.
func (o *outside) quiet(t testing.TB) {
	t.Helper()
	o.liveMu.Lock()
	if o.live == 0 {
		o.liveMu.Unlock()
		return
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	done := o.idle
	o.liveMu.Unlock()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("a connection outside stayed open")
	}
}

var (
	goodAddr = netip.MustParseAddr("93.184.216.10")
	evilAddr = netip.MustParseAddr("93.184.216.66")
	listAddr = netip.MustParseAddr("93.184.216.34")
)

// edges are public addresses right beside blocks that are not (EG-28).
var edges = []string{
	"9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
	"172.15.255.255", "172.32.0.1", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
}

func newOutside(t testing.TB) *outside {
	t.Helper()
	o := &outside{ca: newIssuer(t), sites: make(map[netip.AddrPort]netip.AddrPort), zone: make(map[string]func(dns.Question) *dns.Msg)}
	o.roots = x509.NewCertPool()
	o.roots.AddCert(o.ca.cert)
	o.serveDNS(t)
	for _, a := range []netip.Addr{goodAddr, evilAddr, listAddr, netip.MustParseAddr("10.9.0.5"), netip.MustParseAddr("2606:2800:220:1::10")} {
		o.site(t, netip.AddrPortFrom(a, 443), true)
		o.site(t, netip.AddrPortFrom(a, 80), false)
		o.site(t, netip.AddrPortFrom(a, 8443), true)
	}
	o.echo(t, netip.AddrPortFrom(goodAddr, 5432))
	for _, edge := range edges {
		o.sites[netip.AddrPortFrom(netip.MustParseAddr(edge), 443)] = o.sites[netip.AddrPortFrom(goodAddr, 443)]
	}
	return o
}

// site starts an HTTP server that stands for a public address. It has a
// certificate for whatever name it is asked for.
func (o *outside) site(t testing.TB, public netip.AddrPort, secure bool) {
	l := o.listen(t, public)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			o.mu.Lock()
			o.seen, o.bodies = append(o.seen, r), append(o.bodies, string(body))
			h := o.handler
			o.mu.Unlock()
			if h != nil {
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
				return
			}
			fmt.Fprintf(w, "hello from outside: %s %s", r.Method, r.RequestURI)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	if secure {
		srv.TLSConfig = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := h.ServerName
			if name == "" {
				name = public.Addr().String()
			}
			o.mu.Lock()
			f := o.chain
			o.mu.Unlock()
			if f != nil {
				return f(o.ca)
			}
			return o.ca.issue(name)
		}}
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		go srv.ServeTLS(l, "", "") //nolint:errcheck // ends with Close
	} else {
		go srv.Serve(l) //nolint:errcheck // ends with Close
	}
	t.Cleanup(func() { _ = srv.Close() })
}

// echo starts a raw TCP server that answers with what it gets.
func (o *outside) echo(t testing.TB, public netip.AddrPort) {
	l := o.listen(t, public)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func (o *outside) listen(t testing.TB, public netip.AddrPort) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	o.sites[public] = l.Addr().(*net.TCPAddr).AddrPort()
	return &counting{l, o}
}

type counting struct {
	net.Listener
	o *outside
}

func (c *counting) Accept() (net.Conn, error) {
	nc, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.o.accepts.Add(1)
	c.o.count(1)
	return &countedConn{Conn: nc, o: c.o}, nil
}

type countedConn struct {
	net.Conn
	o    *outside
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.o.count(-1) })
	return c.Conn.Close()
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.o.bytes.Add(int64(n))
	return n, err
}

// serveDNS starts the authority for every name, by UDP and TCP on one port.
func (o *outside) serveDNS(t testing.TB) {
	var pc net.PacketConn
	var l net.Listener
	for range 20 { // a UDP port whose TCP twin is free as well
		var err error
		if pc, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", pc.LocalAddr().String()); err == nil {
			break
		}
		_ = pc.Close()
	}
	if l == nil {
		t.Fatal("no free port for the DNS")
	}
	o.dnsAddr = pc.LocalAddr().(*net.UDPAddr).AddrPort()
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		o.mu.Lock()
		o.queries = append(o.queries, q.Question[0])
		answer := o.zone[strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")]
		o.mu.Unlock()
		var m *dns.Msg
		if answer == nil {
			m = defaultAnswer(q.Question[0])
		} else {
			m = answer(q.Question[0])
		}
		if m == nil {
			return // no answer at all
		}
		id, ok := m.Id, m.Response
		rcode, truncated := m.Rcode, m.Truncated
		m.SetReply(q)
		m.Rcode, m.Truncated = rcode, truncated
		if ok { // the case set its own id
			m.Id = id
		}
		_ = w.WriteMsg(m)
	})
	for _, srv := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: l, Handler: h}} {
		go srv.ActivateAndServe() //nolint:errcheck // ends with Shutdown
		t.Cleanup(func() { _ = srv.Shutdown() })
	}
}

// defaultAnswer gives good names the good address and every other name the
// evil one.
func defaultAnswer(q dns.Question) *dns.Msg {
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	addr := evilAddr
	for _, good := range []string{".good.test", ".pkg.test", ".deep.test"} {
		if strings.HasSuffix(name, good) {
			addr = goodAddr
		}
	}
	return answer(q, addr.String())
}

// answer is a reply with the addresses that fit the question.
func answer(q dns.Question, addrs ...string) *dns.Msg {
	m := new(dns.Msg)
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		h := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Rrtype: q.Qtype}
		switch {
		case q.Qtype == dns.TypeA && a.Is4():
			m.Answer = append(m.Answer, &dns.A{Hdr: h, A: a.AsSlice()})
		case q.Qtype == dns.TypeAAAA && a.Is6():
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
		}
	}
	return m
}

// at sets the addresses of a name for the rest of the test.
func (o *outside) at(t testing.TB, name string, f func(q dns.Question) *dns.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.zone[name] = f
	t.Cleanup(func() { o.mu.Lock(); delete(o.zone, name); o.mu.Unlock() })
}

// handle sets what the fakes answer for the rest of the test.
func (o *outside) handle(t testing.TB, h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handler = h
	t.Cleanup(func() { o.mu.Lock(); o.handler = nil; o.mu.Unlock() })
}

// tally is what reached the outside.
type tally struct {
	accepts, bytes int64
	queries        int
	requests       int
}

func (o *outside) tally() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	return tally{o.accepts.Load(), o.bytes.Load(), len(o.queries), len(o.seen)}
}

// requests returns what reached a fake since before.
func (o *outside) requests(before tally) []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[before.requests:]
}

// bodiesSince returns the bodies of those requests.
func (o *outside) bodiesSince(before tally) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bodies[before.requests:]
}

func (o *outside) asked(before tally) []dns.Question {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queries[before.queries:]
}

// issuer is the outside's certificate authority.
type issuer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	mu   sync.Mutex
	have map[string]*tls.Certificate
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key: key, cert: cert, have: make(map[string]*tls.Certificate)}
}

func (i *issuer) issue(name string) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.have[name]; c != nil {
		return c, nil
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: i.cert.NotBefore, NotAfter: i.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if a, err := netip.ParseAddr(name); err == nil {
		c.IPAddresses = []net.IP{a.AsSlice()}
	} else {
		c.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, i.cert, i.key.Public(), i.key)
	if err != nil {
		return nil, err
	}
	i.have[name] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: i.key}
	return i.have[name], nil
}

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
	ca, err := door.NewCA("s-1")
	if err != nil {
		t.Fatal(err)
	}
	in := &inside{t: t, out: o, rec: &recorder{}, up: up, path: filepath.Join(t.TempDir(), "door.sock"), roots: x509.NewCertPool()}
	in.roots.AppendCertsFromPEM(ca.Trust())
	policy := policyOf(t, s.policy)
	if s.change != nil {
		s.change(&policy)
	}
	in.gate = enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: s.mode, Policy: policy, Recorder: in.rec, Dev: true})
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

// present sets the certificate that the TLS fakes show for the rest of the
// test.
func (o *outside) present(t testing.TB, f func(*issuer) (*tls.Certificate, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chain = f
	t.Cleanup(func() { o.mu.Lock(); o.chain = nil; o.mu.Unlock() })
}
