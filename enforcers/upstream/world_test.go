package upstream_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/receipts"
)

// outside is one HTTPS server, one HTTP server, one echo server and a DNS, all
// counting.
type outside struct {
	dev     *upstream.Dev
	accepts atomic.Int64
	queries atomic.Int64

	mu      sync.Mutex
	handler http.HandlerFunc
	seen    []*http.Request
}

const public = "93.184.216.10"

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{dev: &upstream.Dev{Upstreams: make(map[netip.AddrPort]netip.AddrPort)}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // a server notices that a client left only after its body
		o.mu.Lock()
		o.seen = append(o.seen, r)
		h := o.handler
		o.mu.Unlock()
		if h != nil {
			h(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s %d", r.Method, r.RequestURI, n)
	})
	// The certificate of httptest is for example.com.
	secure := httptest.NewUnstartedServer(h)
	secure.EnableHTTP2 = false
	secure.Listener = &counted{secure.Listener, o}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewUnstartedServer(h)
	plain.Listener = &counted{plain.Listener, o}
	plain.Start()
	t.Cleanup(plain.Close)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			c, err := (&counted{echo, o}).Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	for port, l := range map[uint16]net.Listener{443: secure.Listener, 80: plain.Listener, 5432: echo} {
		o.dev.Upstreams[netip.AddrPortFrom(netip.MustParseAddr(public), port)] = l.Addr().(*net.TCPAddr).AddrPort()
	}
	o.dev.Roots = x509.NewCertPool()
	o.dev.Roots.AddCert(secure.Certificate())

	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.dev.DNS = pc.LocalAddr().(*net.UDPAddr).AddrPort()
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		o.queries.Add(1)
		m := new(dns.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(q.Question[0].Name + " 0 A " + public)
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	up := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(up) }
	go srv.ActivateAndServe() //nolint:errcheck // ends with Shutdown
	<-up                      // Shutdown of a server that has not started does nothing
	t.Cleanup(func() { _ = srv.Shutdown() })
	return o
}

func (o *outside) handle(h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handler = h
}

func (o *outside) last() *http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[len(o.seen)-1]
}

type counted struct {
	net.Listener
	o *outside
}

func (c *counted) Accept() (net.Conn, error) {
	nc, err := c.Listener.Accept()
	if err == nil {
		c.o.accepts.Add(1)
	}
	return nc, err
}

// judge answers every action the same way.
type judge struct{ effect enforcers.Effect }

func (judge) Name() string     { return "egress" }
func (judge) Digest() [32]byte { return [32]byte{1} }
func (judge) Kinds() []enforcers.Kind {
	return []enforcers.Kind{enforcers.HTTPRequest, enforcers.NetConnect}
}

func (j judge) Decide(context.Context, []byte) (enforcers.Verdict, error) {
	return enforcers.Verdict{Effect: j.effect, Rule: "r"}, nil
}

// log is a recorder in memory.
type log struct {
	mu       sync.Mutex
	n        int
	outcomes []enforcers.Outcome
	progress []enforcers.Outcome
	broken   error // of progress receipts
	done     chan struct{}
}

func (l *log) Decision(context.Context, *enforcers.Action, *enforcers.Decision, bool) (receipts.Hash, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return receipts.Leaf(fmt.Append(nil, l.n)), nil
}

func (l *log) Outcome(_ receipts.Hash, o enforcers.Outcome) {
	l.mu.Lock()
	l.outcomes = append(l.outcomes, o)
	l.mu.Unlock()
	l.done <- struct{}{}
}

func (l *log) Progress(_ context.Context, _ receipts.Hash, o enforcers.Outcome, durable bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !durable {
		return errors.New("a progress receipt of a hard session must be durable")
	}
	l.progress = append(l.progress, o)
	return l.broken
}

// outcome waits for the next outcome.
func (l *log) outcome(t *testing.T) enforcers.Outcome {
	t.Helper()
	select {
	case <-l.done:
	case <-time.After(10 * time.Second):
		t.Fatal("no outcome")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcomes[len(l.outcomes)-1]
}

type session struct {
	gate *enforcers.Gate
	log  *log
}

func newSession(name string, mode receipts.Mode, effect enforcers.Effect, g enforcers.Grant) *session {
	l := &log{done: make(chan struct{}, 100)}
	g.Rule = "r"
	return &session{log: l, gate: enforcers.NewGate(enforcers.GateOptions{
		Session: name, Mode: mode, Recorder: l,
		Policy: enforcers.Policy{
			Enforcers: []enforcers.Bound{{Enforcer: judge{effect}, Mode: receipts.Hard, Builtin: true}}, Grants: []enforcers.Grant{g},
		},
	})}
}

// permit returns a Permit for one request.
func (s *session) permit(t *testing.T, url, connection string) *enforcers.Permit {
	t.Helper()
	return s.permitFor(t, "POST", url, connection)
}

func (s *session) permitFor(t *testing.T, method, url, connection string) *enforcers.Permit {
	t.Helper()
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/")
	to, err := authority.ParseHostHeader(scheme, host)
	if err != nil {
		t.Fatal(err)
	}
	a := s.gate.Action(enforcers.HTTPRequest)
	a.Connection = connection
	a.HTTP = &enforcers.HTTP{To: to, Method: method, Path: "/" + path, Query: "q=1", Body: enforcers.Body{Mode: "none"}}
	p, d := s.gate.Decide(t.Context(), a)
	if p == nil {
		t.Fatalf("%+v", d)
	}
	return p
}

func (s *session) tunnel(t *testing.T) *enforcers.Permit {
	t.Helper()
	to, err := authority.ParseHostPort(authority.TCP, "example.com:5432")
	if err != nil {
		t.Fatal(err)
	}
	a := s.gate.Action(enforcers.NetConnect)
	a.Connect = &enforcers.Connect{To: to, Blind: true}
	p, d := s.gate.Decide(t.Context(), a)
	if p == nil {
		t.Fatalf("%+v", d)
	}
	return p
}

func newClient(t *testing.T, o *outside, f func(*upstream.Options)) *upstream.Client {
	t.Helper()
	options := upstream.Options{Dev: o.dev}
	if f != nil {
		f(&options)
	}
	c, err := upstream.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
