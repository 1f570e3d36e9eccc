//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/gatekeeper/sandbox/remote"
)

// patience bounds every wait; nothing that works comes near it.
const patience = 2 * time.Minute

// host is the name in the machine's certificate.
const host = "sandboxes.example.com"

// machine is the built program as a process of its own, and who speaks to it.
type machine struct {
	*programtest.Machine
	t     *testing.T
	token string
	roots *x509.CertPool
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
	m := &machine{t: t, token: rand.Text() + rand.Text(), roots: x509.NewCertPool()}
	m.Machine = programtest.NewMachine(t, dir, host, m.token, "127.0.0.1:0")
	certificate, err := os.ReadFile(filepath.Join(dir, programtest.CA))
	if err != nil {
		t.Fatal(err)
	}
	m.roots.AppendCertsFromPEM(certificate)
	return m
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
	return &url.URL{Scheme: "https", Host: m.Addr, Path: path}
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
			m.t, m.T = t, t
			defer func() { m.t, m.T = top, top }()
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
		m.Empty(1)
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
		m.Empty(1)
	})
	sub("kill_9_shim", func(t *testing.T) {
		s := m.holding("s-shim")
		if err := syscall.Kill(m.shim(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		m.over(s, sandbox.Faulted)
		_ = s.Close()
		m.Empty(1)
	})
	sub("killed", func(t *testing.T) {
		s := m.holding("s-killed")
		shim := m.shim()
		m.Kill()
		m.over(s, sandbox.Lost)
		m.await("the shim is dead", func() bool { return syscall.Kill(shim, 0) != nil })
		if err := s.Close(); err == nil {
			t.Error("Close says that the machine was told")
		}
		m.Start() // the next run sweeps
		m.Empty(1)
	})
	sub("stopped", func(*testing.T) {
		s := m.holding("s-stopped")
		m.Stop()
		m.over(s, sandbox.Lost)
		m.Empty(0)
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
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(m.Cmd.Process.Pid) && strings.HasSuffix(string(args), "\x00shim\x00") {
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
