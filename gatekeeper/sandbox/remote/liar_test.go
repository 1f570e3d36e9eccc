//go:build linux

package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// liar is a machine that answers what the test says.
type liar struct {
	about  About
	cases  []Case
	lines  string
	files  map[string]string // by the path's last part
	create Fault
	asked  []string
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	l.asked = append(l.asked, r.Method+" "+r.URL.Path)
	answer := func(status int, v any) (*http.Response, error) {
		var body []byte
		if s, ok := v.(string); ok {
			body = []byte(s)
		} else {
			body, _ = json.Marshal(v)
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
	}
	switch p := r.URL.Path; {
	case p == PathProvider:
		return answer(200, l.about)
	case p == PathSessions && l.create.Status != 0:
		return answer(l.create.Status, l.create)
	case p == PathSessions:
		return answer(201, Status{Session: "s-1", State: StateCreated})
	case strings.HasSuffix(p, "/probe"):
		return answer(200, Cases{Cases: l.cases})
	case strings.HasSuffix(p, "/run"):
		return answer(200, l.lines)
	case strings.Contains(p, "/artifacts/"):
		return answer(200, l.files[p[strings.LastIndexByte(p, '/')+1:]])
	}
	return answer(204, "")
}

// blind is a door that met nothing.
type blind struct{ met bool }

func (blind) Expect([]string)   {}
func (b blind) Saw(string) bool { return b.met }

func (l *liar) provider(t *testing.T) *Provider {
	t.Helper()
	doors, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if l.about.Contract == 0 {
		l.about = About{Contract: Contract, Version: strings.Repeat("a", 64), Capabilities: []sandbox.Capability{sandbox.NetworkClosed}}
	}
	p, err := New(Options{URL: &url.URL{Scheme: "https", Host: "boxes.example.com"}, Calls: l, Runs: l, Doors: doors, Advertise: "127.0.0.1:1", Transcripts: t.TempDir(), TranscriptBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (l *liar) start(t *testing.T, w sandbox.Witness) (sandbox.Sandbox, error) {
	t.Helper()
	door, err := sandbox.ListenDoor(filepath.Join(t.TempDir(), "door.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	b, err := l.provider(t).Start(t.Context(), sandbox.Spec{Session: "s-1", Argv: []string{"true"}, Witness: w}, door)
	if err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

// TestLyingProbe: what the machine claims is held against the door, and what is
// no outcome is a failure.
func TestLyingProbe(t *testing.T) {
	door := Case{ID: "SB-09", Name: "raw TCP", Outcome: sandbox.Passed, Proves: sandbox.DoorOnly}
	with := func(c Case, outcome string) Case { c.Outcome = outcome; return c }
	cases := map[string]struct {
		cases []Case
		met   bool
		want  bool // door_only is proven
	}{
		"honest":                     {[]Case{door}, true, true},
		"the_door_met_nothing":       {[]Case{door}, false, false},
		"says_the_attempt_is_absent": {[]Case{with(door, sandbox.Absent)}, true, false},
		"proves_it_by_another_case":  {[]Case{{ID: "SB-50", Outcome: sandbox.Passed, Proves: sandbox.DoorOnly}}, true, false},
		"an_outcome_that_is_none":    {[]Case{door, with(door, "fine")}, true, false},
		"says_nothing":               {nil, true, false},
		"too_many_cases":             {append(make([]Case, 2000), door), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := (&liar{cases: c.cases}).start(t, blind{c.met})
			if err != nil {
				t.Fatal(err)
			}
			report, err := b.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			failed := false
			for _, k := range report.Cases {
				failed = failed || k.Outcome == sandbox.Failed
			}
			if got := report.Proven()[sandbox.DoorOnly] && !failed; got != c.want {
				t.Errorf("proven %v, want %v: %+v", got, c.want, report.Cases)
			}
		})
	}
}

// TestLyingEnd: an end is what an end can be, and an artifact what its digest
// says (SB-34).
func TestLyingEnd(t *testing.T) {
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	end := func(e Ended) string { b, _ := json.Marshal(Line{End: &e}); return string(b) + "\n" }
	cases := map[string]struct {
		lines     string
		reason    string
		artifacts int
	}{
		"honest":                 {"{}\n" + end(Ended{Reason: sandbox.Completed, Artifacts: map[string]string{"a/b": sum("file")}}), sandbox.Completed, 1},
		"exit_that_cannot_be":    {end(Ended{Exit: 300, Reason: sandbox.Faulted}), sandbox.Lost, 0},
		"completed_with_an_exit": {end(Ended{Exit: 1, Reason: sandbox.Completed}), sandbox.Lost, 0},
		"a_reason_of_its_own":    {end(Ended{Reason: "fine"}), sandbox.Lost, 0},
		"no_end":                 {"{}\n{}\n", sandbox.Lost, 0},
		"no_json":                {"<html>\n", sandbox.Lost, 0},
		"a_line_without_end":     {strings.Repeat("x", MaxLine+1), sandbox.Lost, 0},
		"names_that_climb": {end(Ended{Reason: sandbox.Completed, Artifacts: map[string]string{
			"../up": sum("file"), "/abs": sum("file"), "a/../../b": sum("file"), "..": sum("file"), "": sum("file"), "a//b": sum("file"),
		}}), sandbox.Completed, 0},
		"bytes_of_another_file": {end(Ended{Reason: sandbox.Completed, Artifacts: map[string]string{"a": sum("other")}}), sandbox.Completed, 0},
		"no_digest":             {end(Ended{Reason: sandbox.Completed, Artifacts: map[string]string{"a": "../../v1/provider"}}), sandbox.Completed, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := &liar{lines: c.lines, files: map[string]string{sum("file"): "file", sum("other"): "not that"}}
			b, err := l.start(t, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Reason != c.reason || len(got.Artifacts) != c.artifacts {
				t.Errorf("%+v, want %s and %d artifacts", got, c.reason, c.artifacts)
			}
		})
	}
}

// TestRefusals: what the machine cannot give is named before an agent starts.
func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		l     liar
		code  problem.Code
		names string
	}{
		"another_contract":   {liar{about: About{Contract: 2, Version: strings.Repeat("a", 64)}}, problem.ProviderCapabilityMissing, "version 2"},
		"no_version":         {liar{about: About{Contract: Contract, Version: "new"}}, problem.ProviderCapabilityMissing, "does not say"},
		"it_lacks_something": {liar{create: Fault{Status: 422, Code: "provider_capability_missing", Title: "no bubblewrap\x1b[2J"}}, problem.ProviderCapabilityMissing, "no bubblewrap [2J"},
		"a_code_of_its_own":  {liar{create: Fault{Status: 500, Code: "credential_free_is_fine"}}, problem.SandboxFailed, "answered 500"},
		"a_login_page":       {liar{create: Fault{Status: 302}}, problem.SandboxFailed, "answered 302"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := c.l.start(t, nil)
			if problem.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%v, want %s %q", err, c.code, c.names)
			}
			if p := c.l.provider(t); c.l.about.Contract == 2 && len(p.Capabilities()) != 0 {
				t.Error("it is believed what it declares")
			}
		})
	}
	t.Run("files_of_this_machine", func(t *testing.T) {
		l := &liar{}
		p := l.provider(t)
		for _, s := range []sandbox.Spec{{Session: "s-1", Mounts: []sandbox.Mount{{Source: "/srv", Path: "/opt/x"}}}, {Session: "s-1", Rootfs: "/srv/root"}} {
			if _, err := p.Start(t.Context(), s, nil); problem.CodeOf(err) != problem.ProviderCapabilityMissing {
				t.Errorf("%+v: %v", s, err)
			}
		}
		if len(l.asked) != 0 {
			t.Errorf("the machine was asked: %v", l.asked)
		}
	})
}
