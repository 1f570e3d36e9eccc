//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/remote"
)

// patience bounds every wait; nothing that works comes near it.
const patience = 2 * time.Minute

// host is the name in the machine's certificate.
const host = "sandboxes.example.com"

// machine is the built program as a process of its own.
type machine struct {
	t       *testing.T
	dir     string
	program string
	token   string
	roots   *x509.CertPool
	addr    string
	cmd     *exec.Cmd
	exited  chan struct{}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "gatehouse-remote-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // sessions' users pass through
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, program: filepath.Join(dir, "gatehouse-remote"), token: rand.Text() + rand.Text(), roots: x509.NewCertPool()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", m.program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.certify()
	if err := os.WriteFile(m.at("token"), []byte(m.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	m.start()
	return m
}

func (m *machine) at(name string) string { return filepath.Join(m.dir, name) }

// certify writes a certificate that is its own authority.
func (m *machine) certify() {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		m.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	m.roots.AppendCertsFromPEM(certificate)
	for name, b := range map[string][]byte{"cert.pem": certificate, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(m.at(name), b, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

// start runs the program until it says where it listens.
func (m *machine) start() {
	m.t.Helper()
	m.cmd = exec.Command(m.program, "--listen", "127.0.0.1:0", "--cert", m.at("cert.pem"), "--key", m.at("key.pem"), "--token-file", m.at("token"), "--dir", m.at("state"))
	m.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var errs strings.Builder
	m.cmd.Stderr = &errs
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd, exited := m.cmd, make(chan struct{})
	m.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	addr, said := strings.CutPrefix(strings.TrimSpace(line), "gatehouse-remote listens on ")
	if !said {
		m.kill()
		if strings.Contains(errs.String(), "hint: ") {
			m.t.Skipf("NOT TESTED on this machine: %s", errs.String())
		}
		m.t.Fatalf("it said %q\n%s", line, errs.String())
	}
	m.addr = addr
}

func (m *machine) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		<-m.exited
		m.cmd = nil
	}
}

// stop is an orderly end.
func (m *machine) stop() {
	m.t.Helper()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.exited:
	case <-time.After(patience):
		m.t.Fatal("it does not stop")
	}
	if !m.cmd.ProcessState.Success() {
		m.t.Errorf("it ended with %v", m.cmd.ProcessState)
	}
	m.cmd = nil
}

// empty checks that the machine keeps nothing of a session; canaries are this
// run's own.
func (m *machine) empty(canaries int) {
	m.t.Helper()
	for pattern, want := range map[string]int{"doors/*": 0, "run/s-*": 0, "artifacts/*": 0, "transcripts/*": 0, "gatehouse-remote-canary-*": canaries} {
		if left, err := filepath.Glob(filepath.Join(m.at("state"), pattern)); err != nil || len(left) != want {
			m.t.Errorf("left: %v %v", left, err)
		}
	}
}

// client speaks to the machine as a node does.
func (m *machine) client(token string, change func(*tls.Config)) *http.Client {
	config := &tls.Config{RootCAs: m.roots, ServerName: host}
	if change != nil {
		change(config)
	}
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	m.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: bearer{token, t}}
}

type bearer struct {
	token string
	rt    http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.rt.RoundTrip(r)
}

func (m *machine) url(path string) *url.URL {
	return &url.URL{Scheme: "https", Host: m.addr, Path: path}
}

// status asks for a session by the contract's words.
func (m *machine) status(session string) (s remote.Status, code int) {
	m.t.Helper()
	resp, err := m.client(m.token, nil).Get(m.url(remote.PathSessions + "/" + session).String())
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil && resp.StatusCode == http.StatusOK {
		m.t.Fatal(err)
	}
	return s, resp.StatusCode
}

// node is a provider that runs its sessions on the machine.
func (m *machine) node() *remote.Provider {
	m.t.Helper()
	doors, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	rt := m.client(m.token, nil).Transport
	p, err := remote.New(remote.Options{URL: m.url(""), Calls: rt, Runs: rt, Doors: doors, Advertise: doors.Addr().String(), Transcripts: m.t.TempDir()})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = p.Close() })
	return p
}

// session is one whose agent holds a connection to its door.
type session struct {
	sandbox.Sandbox
	door   *door
	marker string
	ended  chan sandbox.End
}

// holding starts an agent that greets its door and holds the connection.
func (m *machine) holding(id string) *session {
	m.t.Helper()
	s := &session{door: openDoor(m.t), ended: make(chan sandbox.End, 1), marker: "3" + strconv.FormatInt(time.Now().UnixNano()%1e9, 10) + strconv.Itoa(os.Getpid())}
	box, err := m.node().Start(m.t.Context(), sandbox.Spec{
		Session: id, Timeout: patience, Grace: 100 * time.Millisecond, Unlimited: true,
		Argv: []string{"/bin/bash", "-c", "trap '' TERM; exec 9<>/dev/tcp/93.184.216.34/443; echo began; sleep " + s.marker},
	}, s.door)
	if err != nil {
		m.t.Fatal(err)
	}
	s.Sandbox = box
	m.t.Cleanup(func() { _ = box.Close() })
	if got, code := m.status(id); code != http.StatusOK || got.State != remote.StateCreated {
		m.t.Errorf("after create: %d %+v", code, got)
	}
	go func() {
		end, err := box.Run(context.Background())
		if err != nil {
			m.t.Errorf("run: %v", err)
		}
		s.ended <- end
	}()
	m.await("the agent holds a connection", func() bool { return s.door.held() > 0 && len(s.processes()) > 0 })
	if got, code := m.status(id); code != http.StatusOK || got.State != remote.StateRunning {
		m.t.Errorf("while it runs: %d %+v", code, got)
	}
	return s
}

func (s *session) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), s.marker) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// over waits for the end and checks that the door and the machine are quiet.
func (m *machine) over(s *session, reason string) {
	m.t.Helper()
	select {
	case end := <-s.ended:
		if end.Reason != reason {
			m.t.Errorf("ended %+v, want %s", end, reason)
		}
	case <-time.After(patience):
		m.t.Fatal("the run does not end")
	}
	m.await("the door is empty", func() bool { return s.door.held() == 0 })
	m.await("the agent is dead", func() bool { return len(s.processes()) == 0 })
}

func (m *machine) await(what string, ok func() bool) {
	m.t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			m.t.Fatalf("never: %s", what)
		}
	}
}

// door answers every CONNECT and holds the connection.
type door struct {
	net.Listener
	mu   sync.Mutex
	open int
}

func openDoor(t *testing.T) *door {
	t.Helper()
	l, err := sandbox.ListenDoor(filepath.Join(t.TempDir(), "door.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return d
}

func (d *door) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(c)
	for line := "-"; strings.TrimSpace(line) != ""; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			return
		}
	}
	d.add(1)
	defer d.add(-1)
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	_, _ = io.Copy(io.Discard, r)
}

func (d *door) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
}

func (d *door) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// TestProcess is the built program from its first word to its last: who may
// speak to it, a session's states, and every way in which it ends.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("short: builds a program and starts sandboxes")
	}
	m := newMachine(t)
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			top := m.t
			m.t = t
			defer func() { m.t = top }()
			f(t)
		})
	}
	sub("no_token", func(t *testing.T) {
		for _, token := range []string{"", "x", m.token + "x"} {
			resp, err := m.client(token, nil).Get(m.url(remote.PathProvider).String())
			if err != nil {
				t.Fatal(err)
			}
			var f remote.Fault
			err = json.NewDecoder(resp.Body).Decode(&f)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusUnauthorized || f.Code != "unauthenticated" {
				t.Errorf("token %q: %d %+v %v", token, resp.StatusCode, f, err)
			}
		}
	})
	sub("tls", func(t *testing.T) {
		for name, change := range map[string]func(*tls.Config){
			"another_authority": func(c *tls.Config) { c.RootCAs = x509.NewCertPool() },
			"another_name":      func(c *tls.Config) { c.ServerName = "example.com" },
			"an_older_tls":      func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		} {
			if resp, err := m.client(m.token, change).Get(m.url(remote.PathProvider).String()); err == nil {
				resp.Body.Close()
				t.Errorf("%s: answered %d", name, resp.StatusCode)
			}
		}
	})
	sub("cancel", func(t *testing.T) {
		s := m.holding("s-cancel")
		resp, err := m.client(m.token, nil).Post(m.url(remote.PathSessions+"/s-cancel/cancel").String(), "application/json", nil)
		if err != nil || resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%+v %v", resp, err)
		}
		resp.Body.Close()
		m.over(s, sandbox.Cancelled)
		if got, code := m.status("s-cancel"); code != http.StatusOK || got.State != remote.StateEnded || got.End == nil || got.End.Reason != sandbox.Cancelled {
			t.Errorf("after its end: %d %+v", code, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got, code := m.status("s-cancel"); code != http.StatusNotFound {
			t.Errorf("after Close: %d %+v", code, got)
		}
		m.empty(1)
	})
	sub("never_run", func(t *testing.T) {
		box, err := m.node().Start(t.Context(), sandbox.Spec{Session: "s-idle", Argv: []string{"true"}, Timeout: patience, Unlimited: true}, openDoor(t))
		if err != nil {
			t.Fatal(err)
		}
		report, err := box.Probe(t.Context())
		if err != nil || len(report.Cases) == 0 {
			t.Errorf("%d cases, %v", len(report.Cases), err)
		}
		for _, c := range report.Cases {
			if want := sandbox.Passed; c.ID == "RM-01" && os.Geteuid() == 0 && c.Outcome != want { // without root the shim is the agents' own user
				t.Errorf("RM-01: %s %s", c.Outcome, c.Evidence)
			}
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
		m.empty(1)
	})
	sub("kill_9_shim", func(t *testing.T) {
		s := m.holding("s-shim")
		if err := syscall.Kill(m.shim(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		m.over(s, sandbox.Faulted)
		_ = s.Close()
		m.empty(1)
	})
	sub("killed", func(t *testing.T) {
		s := m.holding("s-killed")
		shim := m.shim()
		m.kill()
		m.over(s, sandbox.Lost)
		m.await("the shim is dead", func() bool { return syscall.Kill(shim, 0) != nil })
		if err := s.Close(); err == nil {
			t.Error("Close says that the machine was told")
		}
		m.start() // the next run sweeps
		m.empty(1)
	})
	sub("stopped", func(*testing.T) {
		s := m.holding("s-stopped")
		m.stop()
		m.over(s, sandbox.Lost)
		m.empty(0)
	})
}

// shim is the one that runs: a child of the machine with its role.
func (m *machine) shim() int {
	m.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(m.cmd.Process.Pid) && strings.HasSuffix(string(args), "\x00shim\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	m.t.Fatal("no shim runs")
	return 0
}

// TestFlags: what is missing or would be no boundary is refused before anything
// listens.
func TestFlags(t *testing.T) {
	all := []string{"--cert", "c", "--key", "k", "--token-file", "t", "--dir", t.TempDir()}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":             {nil, "are needed"},
		"RM-01_shim_is_root":  {append(all, "--shim-uid", "0"), "neither root nor"},
		"RM-01_shim_an_agent": {append(all, "--shim-uid", "610500"), "neither root nor"},
		"no_token":            {all, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(c.args); err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
