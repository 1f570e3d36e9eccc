package bus_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
)

// natsServer is an external server on loopback that can be stopped and started
// again on the same port.
type natsServer struct {
	t    testing.TB
	dir  string
	port int
	srv  *server.Server
}

func startServer(t testing.TB) *natsServer {
	s := &natsServer{t: t, dir: t.TempDir(), port: server.RANDOM_PORT}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	srv, err := server.NewServer(&server.Options{
		ServerName: "external", Host: "127.0.0.1", Port: s.port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: s.dir, MaxPayload: bus.MaxMessage + 64<<10,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(deadline) {
		s.t.Fatal("the server did not start")
	}
	s.srv, s.port = srv, srv.Addr().(*net.TCPAddr).Port
}

func (s *natsServer) stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

func (s *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

func TestExternalServer(t *testing.T) {
	b, j := open(t, bus.Options{URL: startServer(t).url()}), openJournal(t, t.TempDir())
	fill(t, j, 0, 100)
	pumping(t, b, j)
	stored(t, b, j)
	same(t, b, j)
	if s := b.Status(); s.Embedded || !s.Connected {
		t.Fatalf("status %+v", s)
	}
}

func TestExternalServerRestarts(t *testing.T) {
	srv := startServer(t)
	b, j := open(t, bus.Options{URL: srv.url(), AckTimeout: time.Second}), openJournal(t, t.TempDir())
	fill(t, j, 0, 100)
	pumping(t, b, j)
	stored(t, b, j)
	for round := range 3 {
		srv.stop()
		fill(t, j, 100+round*100, 200+round*100) // NATS is away; deliveries go on
		srv.start()
		stored(t, b, j)
	}
	same(t, b, j)
}

// TestPumpStartsWhileNATSIsAway: the comparison waits for the server.
func TestPumpStartsWhileNATSIsAway(t *testing.T) {
	srv := startServer(t)
	b, j := open(t, bus.Options{URL: srv.url(), AckTimeout: time.Second}), openJournal(t, t.TempDir())
	fill(t, j, 0, 20)
	srv.stop()
	pumping(t, b, j)
	until(t, func() bool { s := b.Status(); return s.Phase == bus.Reconciling && !s.Connected })
	srv.start()
	stored(t, b, j)
	same(t, b, j)
}

func TestUnreachableServerIsAProblem(t *testing.T) {
	_, err := bus.Open(context60(t), bus.Options{Node: "n1", URL: "nats://127.0.0.1:1"})
	if problem.CodeOf(err) != problem.Unreachable {
		t.Fatalf("got %v", err)
	}
}

// TestLostAnswers cuts the connection again and again, also between a publish
// and its acknowledgement, and holds answers back past the timeout: each record
// is stored exactly once, in order.
func TestLostAnswers(t *testing.T) {
	for name, o := range map[string]bus.Options{
		"cut_connections": {AckTimeout: 300 * time.Millisecond, Duplicates: 100 * time.Millisecond},
		// Every publish times out before its answer can be read.
		"late_answers": {AckTimeout: time.Microsecond, Duplicates: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t)
			p := startProxy(t, fmt.Sprintf("127.0.0.1:%d", srv.port))
			o.URL = "nats://" + p.addr()
			if name == "late_answers" {
				o.URL = srv.url()
			}
			b, j := open(t, o), openJournal(t, t.TempDir())
			fill(t, j, 0, 50)
			pumping(t, b, j)
			rnd := rand.New(rand.NewPCG(3, 4))
			rounds := 20
			if testing.Short() {
				rounds = 5
			}
			for round := range rounds {
				fill(t, j, 50+round*20, 70+round*20)
				some := b.Status().Stored + uint64(rnd.IntN(60))
				until(t, func() bool { s := b.Status().Stored; return s >= some || s >= end(t, j) })
				p.cut()
			}
			stored(t, b, j)
			same(t, b, j)
		})
	}
}

// proxy passes bytes on until it is cut.
type proxy struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(t testing.TB, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to}
	p.wg.Go(p.serve)
	t.Cleanup(func() { _ = l.Close(); p.cut(); p.wg.Wait() })
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
			p.wg.Go(func() {
				_, _ = io.Copy(c[0], c[1])
				_ = c[0].Close()
				_ = c[1].Close()
			})
		}
	}
}

// cut ends every connection at once.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// TestServerThatTakesTooLittle: a record that the server will never take stops
// the pump with the setting's name, and doctor shows it before that.
func TestServerThatTakesTooLittle(t *testing.T) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 64 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(deadline) {
		t.Fatal("the server did not start")
	}
	b, j := open(t, bus.Options{URL: "nats://" + srv.Addr().String()}), openJournal(t, t.TempDir())
	drift, err := b.Drift(context60(t))
	if err != nil || len(drift) != 1 || drift[0].Field != "max_payload" {
		t.Fatalf("drift %v, %v", drift, err)
	}
	add(t, j, receipt(1, 0), event("big", strings.Repeat("x", 100<<10)))
	var d *bus.DriftError
	if err := stopsWith(t, b, pumping(t, b, j)); !errors.As(err, &d) || d.Differences[0].Field != "max_payload" {
		t.Fatal(err)
	}
}

func TestOpenRefusesOptionsThatMakeNoSense(t *testing.T) {
	for name, o := range map[string]bus.Options{
		"neither":   {Node: "n1"},
		"both":      {Node: "n1", Dir: t.TempDir(), URL: "nats://127.0.0.1:1"},
		"node_name": {Node: "a.b", Dir: t.TempDir()},
		"no_node":   {Dir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := bus.Open(context60(t), o); err == nil {
				t.Fatal("accepted")
			}
		})
	}
}

// TestEmbeddedServerHasNoListener: no port is open unless asked for.
func TestEmbeddedServerHasNoListener(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	if got := b.Conn().ConnectedAddr(); !strings.Contains(got, "pipe") {
		t.Fatalf("connected to %q", got)
	}
	if got := b.Listens(); got != nil {
		t.Fatalf("the server listens on %v", got)
	}
}
