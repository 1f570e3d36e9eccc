//go:build linux

package gatekeeper

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/gatekeeper/sandbox/remote"
	"gatehouse/gatekeeper/sandbox/remote/remoted"
	"gatehouse/internal/problem"
)

// TestBrokenRemote is TestBrokenProviders on another machine, whose conformance
// report holds, and what only another machine can break besides: it says what it
// did not try, keeps its shim where agents are, has less than is asked for, or
// is gone.
func TestBrokenRemote(t *testing.T) {
	if testing.Short() {
		t.Skip("short: fifteen sandboxes")
	}
	cases, dir := breakages(t)
	program := programtest.Build(t, dir, "gatehouse-remote")
	sound := cases["nothing"].breaks
	own := uint32(os.Geteuid())
	if own != 0 {
		t.Skip("NOT TESTED as an ordinary user: the shim is the agents' own user there (RM-01), so nothing is sound to begin with")
	}
	agents := func(uid uint32) bool { return uid >= 610000 && uid <= 610999 }
	// What the machine does beyond its sandboxes.
	type habits struct {
		shim uint32
		lies func(http.Handler) http.Handler
		gone bool
	}
	honest := habits{shim: 609999}
	lies := func(to func(http.ResponseWriter, *http.Request) bool) habits {
		return habits{shim: 609999, lies: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !to(w, r) {
					h.ServeHTTP(w, r)
				}
			})
		}}
	}
	say := func(w http.ResponseWriter, v any) bool {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
		return true
	}
	all := []sandbox.Capability{
		sandbox.NetworkClosed, sandbox.DoorOnly, sandbox.EnvironmentClean, sandbox.FilesystemPrivate, sandbox.ProcessesPrivate,
		sandbox.Unprivileged, sandbox.SyscallsFiltered, sandbox.VsockClosed, sandbox.Supervised,
	}
	machines := map[string]struct {
		breakage
		habits
		story string // of one that is refused before it is asked for a sandbox
	}{
		"RM-01_shim_of_an_agents_user": {breakage{sound, []string{"RM-01"}, "RM-01"}, habits{shim: 610500}, ""},
		"claims_what_it_did_not_try": {breakage{sound, []string{"SB-09"}, "SB-09"}, lies(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/probe") {
				return false
			}
			var c remote.Cases
			for _, capability := range all {
				c.Cases = append(c.Cases, remote.Case{ID: "SB-09", Name: "all is well", Outcome: sandbox.Passed, Evidence: "trust me", Proves: capability})
			}
			return say(w, c)
		}), ""},
		"says_nothing_of_its_probe": {breakage{sound, []string{"SB-09"}, "SB-09"}, lies(func(w http.ResponseWriter, r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/probe") && say(w, remote.Cases{})
		}), ""},
		"declares_less": {breakage{sound, []string{string(sandbox.SyscallsFiltered)}, ""}, lies(func(w http.ResponseWriter, r *http.Request) bool {
			has := slices.DeleteFunc(slices.Clone(all), func(c sandbox.Capability) bool { return c == sandbox.SyscallsFiltered })
			return r.URL.Path == remote.PathProvider && say(w, remote.About{Contract: remote.Contract, Version: strings.Repeat("a", 64), Capabilities: has})
		}), "open refused provider_capability_missing, close refused"},
		"gone": {breakage{sound, []string{"environment_clean"}, ""}, habits{shim: 609999, gone: true}, "open refused provider_capability_missing, close refused"},
	}
	run := func(t *testing.T, name string, c breakage, h habits, story string) {
		at := t.TempDir()
		store, err := remoted.NewStore(filepath.Join(at, "artifacts"))
		if err != nil {
			t.Fatal(err)
		}
		o := local.Options{Run: filepath.Join(at, "run"), Transcripts: filepath.Join(at, "transcripts"), Put: store.Put}
		c.breaks(t, &o)
		p, err := local.New(o)
		if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
			t.Skipf("NOT TESTED on this machine: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		token := rand.Text() + rand.Text()
		s, err := remoted.New(remoted.Options{
			Provider: p, Artifacts: store, Token: []byte(token), Dir: filepath.Join(at, "doors"), Transcripts: o.Transcripts, Program: program, ShimUID: h.shim, Agents: agents,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close the machine: %v", err)
			}
		})
		handler := http.Handler(s)
		if h.lies != nil {
			handler = h.lies(s)
		}
		server := httptest.NewTLSServer(handler)
		t.Cleanup(server.Close)
		if h.gone {
			server.Close()
		}
		base, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		gate, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		rt := shows{token, server.Client().Transport}
		far, err := remote.New(remote.Options{URL: base, Calls: rt, Runs: rt, Doors: gate, Advertise: gate.Addr().String(), Transcripts: filepath.Join(at, "here")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = far.Close() })
		w := newWorld(t, []string{strings.Replace(fixCI, "accepts:", "mode: hard\naccepts:", 1)}, func(w *world) {
			w.opts.Providers, w.opts.Unlimited = map[string]sandbox.Provider{"local": &farPatient{far}}, true
			w.opts.Report = func(sandbox.Provider) error { return nil }
			w.opts.Doors = &realDoors{t: t}
		})
		if story != "" {
			w.wantStory(w.take(failedRun(name)), story)
			return
		}
		w.refuses(name, c)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { run(t, name, c, honest, "") })
	}
	for name, m := range machines {
		t.Run(name, func(t *testing.T) { run(t, name, m.breakage, m.habits, m.story) })
	}
}

// farPatient is patient for another machine.
type farPatient struct{ *remote.Provider }

func (p *farPatient) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	s.Argv = []string{"/bin/sh", "-c", "echo done > /gatehouse/out/done"}
	return p.Provider.Start(ctx, s, door)
}

// shows adds the machine's token.
type shows struct {
	token string
	rt    http.RoundTripper
}

func (s shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+s.token)
	return s.rt.RoundTrip(r)
}

// realDoors opens doors that listen, remember what they met and let nothing
// through.
type realDoors struct{ t *testing.T }

func (d *realDoors) Open(_ context.Context, s DoorSpec) (Door, error) {
	dir, err := os.MkdirTemp("", "gatehouse-door-")
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := sandbox.ListenDoor(filepath.Join(dir, "door.sock"))
	if err != nil {
		return nil, err
	}
	out := &realDoor{fakeDoor: fakeDoor{spec: s, closed: make(chan struct{})}, l: l, met: map[string]bool{}}
	out.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			out.wg.Go(func() { out.serve(c) })
		}
	})
	d.t.Cleanup(func() { l.Close(); out.wg.Wait() })
	return out, nil
}

type realDoor struct {
	fakeDoor
	l       net.Listener
	wg      sync.WaitGroup
	meeting sync.Mutex // guards met
	met     map[string]bool
}

func (d *realDoor) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	line, err := bufio.NewReader(c).ReadString('\n')
	if fields := strings.Fields(line); err == nil && len(fields) == 3 {
		d.meeting.Lock()
		d.met[fields[1]] = true
		d.meeting.Unlock()
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
	}
}

func (d *realDoor) Listener() net.Listener { return d.l }

func (d *realDoor) Saw(target string) bool {
	d.meeting.Lock()
	defer d.meeting.Unlock()
	return d.met[target]
}
