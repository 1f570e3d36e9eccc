//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"gatehouse/internal/bus"
)

// natsProcess is a real nats-server, of the version in go.mod, under
// deploy/nats/nats.conf: it can be killed, stopped and started again.
type natsProcess struct {
	t    *testing.T
	dir  string
	addr string
	node string // seed file of the least-privileged user
	env  []string
	cmd  *exec.Cmd
}

// newNATS starts the server and makes the streams, as an administrator does once.
func newNATS(t *testing.T) *natsProcess {
	t.Helper()
	s := &natsProcess{t: t, dir: tempDir(t)}
	build := exec.Command("go", "build", "-o", filepath.Join(s.dir, "nats-server"), "github.com/nats-io/nats-server/v2")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nats-server: %v\n%s", err, out)
	}
	var err error
	if s.addr, err = freeAddr(); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile("../../deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("127.0.0.1:4222", s.addr, "/var/lib/nats", filepath.Join(s.dir, "store")).Replace(string(conf))
	auditors, err := os.ReadFile("../../deploy/nats/auditors.conf")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{"nats.conf": text, "auditors.conf": string(auditors)} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var admin, node string
	for name, file := range map[string]*string{"ADMIN": &admin, "NODE": &s.node} {
		kp, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, err1 := kp.PublicKey()
		seed, err2 := kp.Seed()
		*file = filepath.Join(s.dir, name)
		if err := errors.Join(err1, err2, os.WriteFile(*file, seed, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.env = append(s.env, "GATEHOUSE_"+name+"_NKEY="+public)
		if name == "NODE" {
			node = public
		}
	}
	s.start()
	t.Cleanup(func() {
		s.kill()
		// The permissions of deploy/nats/nats.conf are all that a node asks for.
		said, err := os.ReadFile(filepath.Join(s.dir, "nats.log"))
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(said)) {
			if strings.Contains(line, "Violation") && strings.Contains(line, node) {
				t.Error("nats-server: " + line)
			}
		}
	})
	b, err := bus.Open(t.Context(), bus.Options{Node: "administrator", URL: "nats://" + s.addr, Creds: admin})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs the server until its port answers.
func (s *natsProcess) start() {
	s.t.Helper()
	s.cmd = exec.Command(filepath.Join(s.dir, "nats-server"), "-c", filepath.Join(s.dir, "nats.conf"), "-l", filepath.Join(s.dir, "nats.log"))
	s.cmd.Env = s.env
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatal("nats-server does not start: ", err)
		}
	}
}

// kill is kill -9, also of a stopped process.
func (s *natsProcess) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// stop makes the server as slow as can be: it keeps its connections and does
// nothing.
func (s *natsProcess) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

func (s *natsProcess) resume() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
}

// TestNATSAway takes an external NATS away from a running node, by kill -9 and
// by a server that answers nothing: deliveries are taken up to the bound and
// then refused, hard mode goes on, and everything is on the streams once, and
// judged, when the server is back.
func TestNATSAway(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: waits for NATS to come back take a minute; make test runs them")
	}
	server := newNATS(t)
	world, site := listedWorld(t)
	config, bundle := knocker(world)
	const bound = 200
	n := newLiveNode(t, config+fmt.Sprintf("nats: {url: \"nats://%s\", creds: %q, backlog: %d}\n", server.addr, server.node, bound), bundle)
	n.args = []string{"--dev"}
	n.start()
	kept := n.deliver(failure(1), quiet(2))
	n.until("asking outside", func() bool { return site.Requests() > 3 })

	run := 1000
	away := map[string]struct{ leave, back func() }{
		"killed":  {server.kill, server.start},
		"stopped": {server.stop, server.resume},
	}
	for _, name := range []string{"killed", "stopped"} {
		away[name].leave()
		taken := 0
		var refused post
		for refused.id == "" {
			run++
			switch a, err := n.send(quiet(run)); {
			case err != nil:
				t.Fatal(err)
			case a.Status == http.StatusOK:
				kept = append(kept, a.ID)
				taken++
			case a.Status == http.StatusServiceUnavailable && a.Code == "streams_behind":
				refused = quiet(run)
			case a.Status == http.StatusTooManyRequests:
				time.Sleep(20 * time.Millisecond) // the endpoint's rate
			default:
				t.Fatalf("%s: answered %d %s", name, a.Status, a.Code)
			}
			if taken > 2*bound {
				t.Fatalf("%s: %d deliveries taken with a bound of %d records", name, taken, bound)
			}
		}
		t.Logf("%s: %d deliveries taken, then 503", name, taken)
		if taken == 0 {
			t.Errorf("%s: no delivery was taken without NATS", name)
		}
		n.until("not ready", func() bool {
			for _, r := range n.status().Reasons {
				if r.Code == "streams_behind" {
					return true
				}
			}
			return false
		})
		// The journal is the gate, not NATS: what is allowed still leaves.
		at := site.Requests()
		n.until("asking outside without NATS", func() bool { return site.Requests() > at+5 })

		away[name].back()
		n.until("caught up", func() bool { s := n.status(); return s.Ready && s.Bus.Stored+1 >= s.Bus.Durable })
		again := n.deliver(refused)
		if again[0] == "" {
			t.Fatalf("%s: the retry was not taken", name)
		}
		kept = append(kept, again[0])
	}
	for _, s := range n.sessions() {
		if s.State == "running" {
			n.gatehouse(exitOK, "session", "kill", s.ID)
		}
	}
	n.settled(kept...)
	n.gatehouse(exitOK, "rebuild", "--check")
	n.stop()
	// A node does not start without its streams; the unit tries again.
	server.kill()
	n.gatehouse(exitUnreachable, "serve", "--dev")
}
