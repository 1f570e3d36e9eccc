package door_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

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
		up := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(up) }
		go srv.ActivateAndServe() //nolint:errcheck // ends with Shutdown
		<-up                      // Shutdown of a server that has not started does nothing
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

// present sets the certificate that the TLS fakes show for the rest of the
// test.
func (o *outside) present(t testing.TB, f func(*issuer) (*tls.Certificate, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chain = f
	t.Cleanup(func() { o.mu.Lock(); o.chain = nil; o.mu.Unlock() })
}
