//go:build linux

package remote_test

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	_ "gatehouse/gatekeeper/sandbox/initd" // a change of what runs inside outdates cached results
	"gatehouse/gatekeeper/sandbox/local"
	_ "gatehouse/gatekeeper/sandbox/probe"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/gatekeeper/sandbox/remote/remoted"
	"gatehouse/gatekeeper/sandbox/remote/shim"
	"gatehouse/internal/problem"
)

// initPath is the real gatehouse-init, built once.
var initPath string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == shim.Role {
		os.Exit(shim.Main())
	}
	os.Exit(programtest.Main(m, &initPath))
}

// shimUser is the shims' user beside the agents' range, when the test is root.
const shimUser = 609999

// machine is the other machine: the reference server over the real sandbox.
type machine struct {
	dir     string
	server  *remoted.Server
	http    *httptest.Server
	token   string
	options remoted.Options
}

func newMachine(t *testing.T, change ...func(*remoted.Options)) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir(), token: rand.Text() + rand.Text()}
	store, err := remoted.NewStore(filepath.Join(m.dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := local.New(local.Options{Run: filepath.Join(m.dir, "run"), Transcripts: filepath.Join(m.dir, "transcripts"), InitPath: initPath, Put: store.Put})
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		t.Skipf("NOT TESTED on this machine: %v; %s", err, problem.HintOf(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	own := uint32(os.Geteuid())
	m.options = remoted.Options{
		Provider: p, Artifacts: store, Token: []byte(m.token), Dir: filepath.Join(m.dir, "doors"), Transcripts: filepath.Join(m.dir, "transcripts"),
		Program: "/proc/self/exe", ShimUID: shimUser,
		Agents: func(uid uint32) bool { return own != 0 && uid == own || uid >= 610000 && uid <= 610999 },
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, c := range change {
		c(&m.options)
	}
	if m.server, err = remoted.New(m.options); err != nil {
		t.Fatal(err)
	}
	m.http = httptest.NewUnstartedServer(m.server)
	m.http.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelDebug)
	m.http.EnableHTTP2 = true
	m.http.StartTLS()
	t.Cleanup(func() {
		m.http.CloseClientConnections()
		m.http.Close()
		if err := m.server.Close(); err != nil {
			t.Errorf("close the machine: %v", err)
		}
	})
	return m
}

// bearer stands where upstream stands in a node: it adds the credential.
type bearer struct {
	token string
	rt    http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.rt.RoundTrip(r)
}

// node returns a provider that runs its sessions on the machine.
func (m *machine) node(t *testing.T) (*remote.Provider, remote.Options) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(m.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := m.http.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: transport.TLSClientConfig.RootCAs, ServerName: "example.com"}
	rt := bearer{m.token, transport}
	o := remote.Options{URL: at, Calls: rt, Runs: rt, Doors: l, Advertise: l.Addr().String(), Transcripts: filepath.Join(t.TempDir(), "transcripts")}
	p, err := remote.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		transport.CloseIdleConnections()
	})
	return p, o
}

// start starts a sandbox that is closed with the test.
func start(t *testing.T, p sandbox.Provider, s sandbox.Spec, door net.Listener) sandbox.Sandbox {
	t.Helper()
	if s.Session == "" {
		s.Session = "s-1"
	}
	s.Unlimited = true
	if s.Timeout == 0 {
		s.Timeout = time.Minute
	}
	b, err := p.Start(t.Context(), s, door)
	if err != nil {
		t.Fatalf("start: %v; hint: %s", err, problem.HintOf(err))
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// door is a session's door that answers every CONNECT with a greeting and an
// echo, but refuses the probe's nonces.
type door struct {
	net.Listener
	mu       sync.Mutex
	seen     []string
	expected map[string]bool
	open     int
	wg       sync.WaitGroup
}

func openDoor(t *testing.T) *door {
	t.Helper()
	l, err := sandbox.ListenDoor(filepath.Join(t.TempDir(), "door.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l, expected: map[string]bool{}}
	d.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); d.wg.Wait() })
	return d
}

func (d *door) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return
	}
	for strings.TrimSpace(line) != "" {
		if line, err = r.ReadString('\n'); err != nil {
			return
		}
	}
	d.mu.Lock()
	d.seen = append(d.seen, fields[1])
	refused := d.expected[fields[1]] || fields[1] == "gatehouse-dns:53"
	d.open++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.open--
		d.mu.Unlock()
	}()
	if refused {
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello from "+fields[1]+"\n")
	_, _ = io.Copy(c, r)
}

// Expect and Saw make door a witness.
func (d *door) Expect(targets []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range targets {
		d.expected[t] = true
	}
}

func (d *door) Saw(target string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.seen {
		if s == target {
			return true
		}
	}
	return false
}

func (d *door) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// await waits for a condition with a generous deadline.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(until) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
