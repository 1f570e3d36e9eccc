package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/authority"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// TestBenchDoor compares the door with smokescreen v0.1.0, goproxy, squid and
// mitmproxy, each as it is set up for the same task: receipts of ours are real
// and on the disk, the enforcer is the one in wasm, peers keep no log. goproxy
// and the door share the process with the client and the fake outside; the
// others are processes of their own. A run says something only on a build on
// which TestBypassMatrix passes.
func TestBenchDoor(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	asServe(t)
	o := newOutsideWorld(t)
	shadow, hard := o.door(t, receipts.Shadow, nil), o.door(t, receipts.Hard, nil)
	direct := o.direct()
	goproxy, goproxyBlind := o.goproxy(t)
	smokescreen, squid, mitm := o.smokescreen(t), o.squid(t), o.mitmproxy(t)

	// Blind CONNECT: 64 KiB answers over TLS that nobody in between can read.
	o.versus(t, "door.blind_connect", "1/s", shadow.to(passHost), []way{smokescreen, goproxyBlind, squid, direct}, func(w way) (float64, error) {
		return o.keepAlive(w, "/64k", 16)
	})
	o.versus(t, "door.new_blind_tunnel", "1/s", shadow.to(passHost), []way{smokescreen, goproxyBlind, squid}, func(w way) (float64, error) { return o.fresh(w) })
	// TLS ended in between, one connection and then 64. In hard a credential is
	// added, and each request waits for its durable receipt; in shadow one that uses
	// no authority does not wait.
	for name, ours := range map[string]way{"door.mitm_shadow": shadow.at(plainHost), "door.mitm_injecting_hard": hard} {
		o.versus(t, name, "1/s", ours, []way{goproxy, mitm, direct}, func(w way) (float64, error) { return o.keepAlive(w, "/", 1) })
		o.many(t, name+"_64", ours, goproxy, mitm)
		o.added(t, name+"_p50_added", ours, goproxy, name == "door.mitm_injecting_hard")
	}
	for name, without := range map[string]func(*enforcers.GateOptions){"bare": bare, "unrecorded": unrecorded} {
		o.many(t, "door.mitm_"+name+"_64", o.door(t, receipts.Shadow, nil, without).at(plainHost), goproxy)
	}
	o.versus(t, "door.new_mitm_tunnel", "1/s", shadow.at(plainHost), []way{goproxy, mitm}, func(w way) (float64, error) { return o.fresh(w) })
	o.versus(t, "door.cold_names", "1/s", o.door(t, receipts.Shadow, nil), []way{goproxy}, func(w way) (float64, error) { return o.names(w) })
	o.versus(t, "door.h2_32_streams", "1/s", shadow.at(plainHost), []way{mitm, direct}, func(w way) (float64, error) { return o.http2(w) })
	o.versus(t, "door.denial", "1/s", hard, []way{smokescreen, goproxy}, func(w way) (float64, error) { return o.denials(w) })
	for _, n := range []int{1_000, 10_000} {
		few := shadow.at(plainHost)
		few.name = "few_rules"
		o.versus(t, fmt.Sprintf("door.%d_rules", n), "1/s", o.door(t, receipts.Shadow, fillers(n)).at(plainHost), []way{few}, func(w way) (float64, error) {
			return o.keepAlive(w, "/", 1)
		})
	}
	ended := func(w way) way { return w }
	report(t, "door.idle_tunnel/goal", "KiB", o.idle(t, 5_000, ended), 64)
	// A blind one has a server at its other end: that without a door is taken off.
	blind := func(w way) way { return w.to(passHost) }
	report(t, "door.idle_blind_tunnel/goal", "KiB", o.idle(t, 1_000, blind)-o.idle(t, 1_000, func(way) way { return direct }), 64)
}

const (
	benchHost  = "api.good.test"  // a connection is bound to it
	plainHost  = "open.good.test" // none is
	passHost   = "pass.good.test"
	benchToken = "canary-0123456789"
)

// way is how a client gets to the outside.
type way struct {
	name          string
	dial          func() (net.Conn, error) // nil: it could not be set up
	network, addr string                   // what it dials, for the generator
	ca            []byte                   // PEM of roots, for the generator
	target        string                   // of the CONNECT
	roots         *x509.CertPool           // nil = the outside's own: nobody ends TLS in between
	none          bool                     // no CONNECT at all
	denied        string                   // a target that is refused
}

// dialing returns w, which dials what it says.
func dialing(w way) way {
	w.dial = func() (net.Conn, error) { return net.Dial(w.network, w.addr) }
	return w
}

// direct is the way without anything in between.
func (o *outsideWorld) direct() way {
	return dialing(way{name: "direct", network: "tcp", addr: o.origin, none: true})
}

// at is the way to another host, to is one on which nobody ends TLS.
func (w way) at(host string) way {
	w.target = host + ":443"
	return w
}

func (w way) to(host string) way {
	w.roots = nil
	return w.at(host)
}

// outsideWorld is the fake outside and what leads to it.
type outsideWorld struct {
	*outside.World
	origin string
	roots  *x509.CertPool
}

func newOutsideWorld(t testing.TB) *outsideWorld {
	t.Helper()
	w, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	o := &outsideWorld{World: w, roots: x509.NewCertPool()}
	o.roots.AppendCertsFromPEM(w.CA())
	small, large := []byte(strings.Repeat("x", 1<<10)), []byte(strings.Repeat("x", 64<<10))
	answer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/64k" {
			_, _ = rw.Write(large)
			return
		}
		_, _ = rw.Write(small)
	})
	if _, err := w.HTTPS(benchHost, netip.MustParseAddr("93.184.216.10"), answer); err != nil {
		t.Fatal(err)
	}
	if _, err := w.HTTPS(plainHost, netip.MustParseAddr("93.184.216.12"), answer); err != nil {
		t.Fatal(err)
	}
	if _, err := w.HTTPS(passHost, netip.MustParseAddr("93.184.216.11"), answer); err != nil {
		t.Fatal(err)
	}
	o.origin = w.Upstreams()["93.184.216.10:443"]
	for i := range coldNames {
		w.DNS.Answer(fmt.Sprintf("n%d.cold.test", i), netip.MustParseAddr("93.184.216.10"))
	}
	return o
}

func fillers(n int) (rules []string) {
	for i := range n {
		rules = append(rules, fmt.Sprintf(`{"host":"h%d.test","id":"f%d","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}`, i, i))
	}
	return rules
}

// door opens a session's door as a node has one and returns the way by it.
func (o *outsideWorld) door(t testing.TB, mode receipts.Mode, more []string, change ...func(*enforcers.GateOptions)) way {
	t.Helper()
	policy := []byte(`{"egress":[` + strings.Join(append(more,
		`{"connection":"main","down":1099511627776,"host":"`+benchHost+`","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}`,
		`{"blind":"tls","down":1099511627776,"host":"`+passHost+`","id":"egress[1]","methods":[],"paths":[],"ports":[443],"schemes":["https"]}`,
		`{"down":1099511627776,"host":"`+plainHost+`","id":"egress[2]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}`,
		`{"host":"*.cold.test","id":"egress[3]","methods":["GET"],"names":4096,"paths":["/**"],"ports":[443],"schemes":["https"]}`), ",") + `]}`)
	h, err := wasm.NewHost(t.Context(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	m, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.Enforcer(t.Context(), wasm.Configure(policy, wasm.BuiltinParams("egress")))
	if err != nil {
		t.Fatal(err)
	}
	grants, err := enforcers.Grants(policy)
	if err != nil {
		t.Fatal(err)
	}
	to, err := authority.ParseHostPort(authority.HTTPS, benchHost+":443")
	if err != nil {
		t.Fatal(err)
	}
	inject, err := upstream.NewConnections([]upstream.Credential{{
		Name: "main", To: to, Scheme: "bearer", Secret: func(context.Context) (secret.Value, error) { return secret.FromString(benchToken), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	dev := &upstream.Dev{Upstreams: map[netip.AddrPort]netip.AddrPort{}, DNS: netip.MustParseAddrPort(o.DNS.Addr()), Roots: o.roots}
	for from, to := range o.Upstreams() {
		dev.Upstreams[netip.MustParseAddrPort(from)] = netip.MustParseAddrPort(to)
	}
	up, err := upstream.New(upstream.Options{Dev: dev, Inject: inject})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := notary.NewKeys("gatehouse.example/bench")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "bench", Keys: keys, Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40}})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, Linger: 20 * time.Millisecond, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	chain, err := n.Open(t.Context(), "bench", receipts.Open{State: "admitted", Bundle: "bench", Mode: mode, Policy: "credential_free"},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		t.Fatal(err)
	}
	gateOptions := enforcers.GateOptions{
		Session: "bench", Mode: mode, Policy: enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: e, Mode: mode, Builtin: true}}, Grants: grants},
		Recorder: chain.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}), Dev: true,
	}
	for _, f := range change {
		f(&gateOptions)
	}
	gate := enforcers.NewGate(gateOptions)
	ca, err := door.NewCA("bench")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	// A session may use 64 new names a minute: here a minute passes with each.
	var minutes atomic.Int64
	began := time.Now()
	d, err := door.Open(context.Background(), l, gate, door.Options{Up: up, CA: ca, Clock: func() time.Time { return began.Add(time.Duration(minutes.Add(1)) * time.Minute) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close(enforcers.CodeRevoked)
		_ = up.Close()
		_ = j.Close()
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.Trust())
	return dialing(way{name: "gatehouse", network: "unix", addr: path, target: benchHost + ":443", roots: roots, ca: d.Trust(), denied: "evil.test:22"})
}

// tunnel opens the way and speaks TLS with whoever answers.
func (o *outsideWorld) tunnel(w way, sni string, protocols ...string) (*tls.Conn, error) {
	c, err := w.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if !w.none {
		if err := connect(c, w.target); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	roots := w.roots
	if roots == nil {
		roots = o.roots
	}
	t := tls.Client(c, &tls.Config{ServerName: sni, RootCAs: roots, NextProtos: protocols})
	return t, t.Handshake()
}

// connect asks for a tunnel.
func connect(c net.Conn, target string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 1), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("CONNECT %s: %s", target, res.Status)
	}
	return nil
}

// host is the name that a way's target has for the client.
func (w way) host() string {
	for _, host := range []string{passHost, plainHost} {
		if w.target == host+":443" {
			return host
		}
	}
	return benchHost
}

func ask(c net.Conn, r *bufio.Reader, host, path string) error {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, res.Status)
	}
	return nil
}

const benchFor = time.Second

// rateOf is sustained for a task that must not fail.
func rateOf(t *testing.T, n int, f func(caller int) error) float64 {
	rate, err := sustained(n, benchFor, f)
	if err != nil {
		t.Error(err)
	}
	return rate
}

// sustained counts how often a second n callers get f done, in a time.
func sustained(n int, during time.Duration, f func(caller int) error) (float64, error) {
	var done atomic.Int64
	var group errgroup.Group
	start := time.Now()
	for i := range n {
		group.Go(func() error {
			for time.Since(start) < during {
				if err := f(i); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), err
}

// lines are connections by one way that stay open, the one outside too.
type lines struct {
	conns      []net.Conn
	readers    []*bufio.Reader
	host, path string
}

func (o *outsideWorld) open(w way, path string, callers int) (*lines, error) {
	l := &lines{host: w.host(), path: path}
	for i := range callers {
		c, err := o.tunnel(w, w.host())
		if err == nil {
			l.conns, l.readers = append(l.conns, c), append(l.readers, bufio.NewReader(c))
			err = errors.Join(c.SetDeadline(time.Time{}), l.ask(i))
		}
		if err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *lines) ask(i int) error { return ask(l.conns[i], l.readers[i], l.host, l.path) }

func (l *lines) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

func (o *outsideWorld) keepAlive(w way, path string, callers int) (float64, error) {
	l, err := o.open(w, path, callers)
	if err != nil {
		return 0, err
	}
	defer l.close()
	return sustained(callers, benchFor, l.ask)
}

// many compares requests on 64 connections that stay open. Goals stand on these
// rows and the machine's pace changes by a third from one second to the next, so
// the sides take many short turns.
func (o *outsideWorld) many(t *testing.T, name string, ours way, bases ...way) {
	t.Helper()
	const turn, pause = 250 * time.Millisecond, 25 * time.Millisecond
	opened := map[string]*lines{}
	defer func() {
		for _, l := range opened {
			l.close()
		}
	}()
	o.turns(t, name, "1/s", 36, ours, bases, func(w way) (rate float64, err error) {
		l := opened[w.name]
		if l == nil {
			if l, err = o.open(w, "/", 64); err != nil {
				return 0, err
			}
			opened[w.name] = l
		}
		time.Sleep(pause) // the last side's receipts reach the disk
		return sustained(64, turn, l.ask)
	})
}

func (o *outsideWorld) fresh(w way) (float64, error) {
	return sustained(4, benchFor, func(int) error {
		c, err := o.tunnel(w, w.host())
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c, bufio.NewReader(c), w.host(), "/")
	})
}

const coldNames = 512

var nextName atomic.Int64

// names opens tunnels to names that were never asked for: a certificate each.
func (o *outsideWorld) names(w way) (float64, error) {
	const each = 50
	start := time.Now()
	for range each {
		host := fmt.Sprintf("n%d.cold.test", nextName.Add(1)%coldNames)
		w := w
		if w.roots != nil && strings.HasPrefix(w.target, benchHost) {
			w.target = host + ":443"
		}
		c, err := o.tunnel(w, host)
		if err != nil {
			return 0, err
		}
		_ = c.Close()
	}
	return each / time.Since(start).Seconds(), nil
}

func (o *outsideWorld) http2(w way) (float64, error) {
	tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		return o.tunnel(w, w.host(), "h2", "http/1.1")
	}}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	return sustained(32, benchFor, func(int) error {
		res, err := client.Get("https://" + w.host() + "/")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	})
}

func (o *outsideWorld) denials(w way) (float64, error) {
	return sustained(4, benchFor, func(int) error {
		c, err := w.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", w.denied, w.denied)
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err == nil && res.StatusCode == http.StatusOK {
			return fmt.Errorf("%s let %s through", w.name, w.denied)
		}
		return nil // goproxy hangs up
	})
}

// versus measures ours and every base in turns and reports the medians.
func (o *outsideWorld) versus(t *testing.T, name, unit string, ours way, bases []way, measure func(way) (float64, error)) {
	t.Helper()
	o.turns(t, name, unit, 3, ours, bases, measure)
}

// turns is versus with a number of rounds.
func (o *outsideWorld) turns(t *testing.T, name, unit string, rounds int, ours way, bases []way, measure func(way) (float64, error)) {
	t.Helper()
	sides := append([]way{ours}, bases...)
	got := make([][]float64, len(sides))
	for range rounds {
		for i, w := range sides {
			if w.dial == nil {
				continue
			}
			rate, err := measure(w)
			switch {
			case err != nil && i == 0:
				t.Fatalf("%s: %v", name, err)
			case err != nil: // a peer that does not hold out is no base
				fmt.Printf("BENCH SKIPS %s: %s: %v\n", name, w.name, err)
				sides[i].dial = nil
				continue
			}
			got[i] = append(got[i], rate)
		}
	}
	for i, w := range sides[1:] {
		if w.dial != nil {
			report(t, name+"/"+w.name, unit, middle(got[0]), middle(got[i+1]))
		}
	}
}

// The pace at which a lone request is measured.
const (
	paceEvery = 5 * time.Millisecond
	paceTotal = 200
)

// added offers 200 requests a second and reports the median time beyond the direct
// way. The goal of a way that waits for the disk is half a millisecond beyond what
// a group takes there, asked for at the same times and with the same processors.
func (o *outsideWorld) added(t *testing.T, name string, ours, base way, durable bool) {
	t.Helper()
	const rounds = 9 // one differs from the next by a third
	var direct, our, bases, commits []float64
	for range rounds {
		direct = append(direct, o.pace(t, o.direct(), paceEvery, paceTotal))
		our = append(our, o.pace(t, ours, paceEvery, paceTotal))
		bases = append(bases, o.pace(t, base, paceEvery, paceTotal))
		if durable {
			commits = append(commits, groupCommit(t))
		}
	}
	d, a := middle(direct), middle(our)
	report(t, name+"/goproxy", "us", a-d, middle(bases)-d)
	goal := 300.0
	if durable {
		commit := middle(commits)
		report(t, name+"/group_commit", "us", a-d, commit)
		goal = commit + 500
	}
	report(t, name+"/goal", "us", a-d, goal)
}

func middle(f []float64) float64 {
	s := slices.Sorted(slices.Values(f))
	return s[len(s)/2]
}

// groupCommit is the median time of one sealed receipt to the disk, asked for when
// pace asks for requests.
func groupCommit(t *testing.T) float64 {
	t.Helper()
	if n := runtime.NumCPU(); n > 1 {
		defer keepOff(t, n-1)()
	}
	keys, err := notary.NewKeys("gatehouse.example/commit")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "commit", Keys: keys, Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40}})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	chain, err := n.Open(t.Context(), "commit", receipts.Open{State: "admitted", Bundle: "bench", Mode: receipts.Hard, Policy: "credential_free"},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var took []float64
	var group errgroup.Group
	begin := time.Now()
	for _, due := range arrivals(paceEvery, paceTotal) {
		time.Sleep(time.Until(begin.Add(due)))
		group.Go(func() error { // the next may be due before this one is on the disk
			at := time.Now() // the timer is late by as much as a commit takes
			_, err := chain.Append(t.Context(), receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{From: "running", To: "running"}})
			one := float64(time.Since(at).Microseconds())
			mu.Lock()
			took = append(took, one)
			mu.Unlock()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return middle(took)
}

// idle returns what a tunnel takes that nobody uses, in KiB, both ends of it
// included: the client's is in this process too. A door holds 256.
func (o *outsideWorld) idle(t *testing.T, tunnels int, to func(way) way) float64 {
	t.Helper()
	const perDoor = 125
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	var doors []way
	for range tunnels / perDoor {
		doors = append(doors, to(o.door(t, receipts.Shadow, nil)))
	}
	before := used()
	var held []net.Conn
	for _, w := range doors {
		for range perDoor {
			c, err := o.tunnel(w, w.host())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Time{})
			held = append(held, c)
		}
	}
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	return float64(used()-before) / float64(tunnels) / 1024
}
