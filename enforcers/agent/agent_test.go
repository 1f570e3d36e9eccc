package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
	"gatehouse/enforcers/agent"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/wasm"
	"gatehouse/wasm/policies"
)

const policy = `{"bundle":"fix-ci","children":{"bundles":["lint","wide"],"depth":1,"max":3},"digest":"` + digest + `",` +
	`"egress":[{"addresses":[],"blind":"","connection":"","encoded_slash":false,"host":"api.good.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}],` +
	`"models":[],"operations":[],"telemetry":[]}`

const digest = "00000000000000000000000000000000000000000000000000000000000000aa"

// recorder keeps decisions in memory.
type recorder struct {
	mu   sync.Mutex
	said []string // kind, verdict, rule, reason
	out  []string
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, d *enforcers.Decision, _ bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("%s %s %s %s", a.Kind, d.Effect, d.Rule, d.Reason))
	var h receipts.Hash
	h[0], h[1] = 1, byte(len(r.said))
	return h, nil
}

func (r *recorder) Outcome(_ receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = append(r.out, o.Effect)
}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.said) == 0 {
		return ""
	}
	return r.said[len(r.said)-1]
}

// family hands out places by the rules of a gatekeeper.
type family struct {
	mu       sync.Mutex
	places   int
	children []agent.Child
}

func (f *family) Reserve(_ context.Context, bundle string) (agent.Place, error) {
	if bundle == "wide" {
		return nil, problem.New(problem.BundleNotCovered, "wide is wider", "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places++
	return &place{f, bundle, len(f.children) + f.places}, nil
}

func (f *family) List() []agent.Child {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]agent.Child(nil), f.children...)
}

type place struct {
	f      *family
	bundle string
	count  int
}

func (p *place) Depth() int { return 1 }
func (p *place) Count() int { return p.count }
func (p *place) Release() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.places--
}

func (p *place) Start(context.Context) (string, error) {
	p.Release()
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	id := fmt.Sprintf("child-%d", len(p.f.children))
	p.f.children = append(p.f.children, agent.Child{ID: id, Bundle: p.bundle, State: "running"})
	return id, nil
}

// inside is an HTTP client of one session's real door.
type inside struct {
	*http.Client
	t    *testing.T
	rec  *recorder
	kids *family
}

// open opens a door in front of the agent's endpoint.
func open(t *testing.T, mode receipts.Mode) *inside {
	t.Helper()
	in := &inside{t: t, rec: &recorder{}, kids: &family{}}
	p := enforcers.Policy{}
	for _, name := range policies.Names() {
		e, err := policies.Native(name, wasm.Configure([]byte(policy), wasm.BuiltinParams(name)))
		if err != nil {
			t.Fatal(err)
		}
		p.Enforcers = append(p.Enforcers, enforcers.Bound{Enforcer: e, Mode: mode, Builtin: true})
	}
	var err error
	if p.Grants, err = enforcers.Grants([]byte(policy)); err != nil {
		t.Fatal(err)
	}
	gate := enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: mode, Policy: p, Recorder: in.rec})
	route, err := agent.Route(agent.Options{
		Session: agent.Session{ID: "s-1", Bundle: "fix-ci", Digest: digest, Mode: string(mode), Credentials: "credential_free", Provider: "local", Timeout: "45m0s", Children: []string{"lint"}},
		Event:   []byte("{\"note\":\"hello\"}\n"),
		More: map[string]door.Handler{
			"children": agent.Children(in.kids),
			"operations": door.HandlerFunc(func(w http.ResponseWriter, r *door.Request) {
				if agent.Rest(r, "operations") == "broken" {
					panic("canary-of-a-fault")
				}
				agent.Answer(w, http.StatusOK, map[string]string{"rest": agent.Rest(r, "operations")})
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	up, err := upstream.New(upstream.Options{Resolver: netip.MustParseAddrPort("127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := door.NewCA("s-1")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(context.Background(), l, gate, door.Options{Up: up, CA: ca, Routes: []door.Route{route}})
	if err != nil {
		t.Fatal(err)
	}
	in.Client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:3128"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	t.Cleanup(func() { in.CloseIdleConnections(); d.Close(enforcers.CodeRevoked); _ = up.Close() })
	return in
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (in *inside) ask(method, path, body string) answer {
	in.t.Helper()
	req, err := http.NewRequestWithContext(in.t.Context(), method, agent.URL+path, strings.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	res, err := in.Do(req)
	if err != nil {
		in.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		in.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

func TestResources(t *testing.T) {
	in := open(t, receipts.Hard)
	cases := map[string]struct {
		method, path string
		status       int
		holds        string
	}{
		"index":                     {"GET", "", 200, `{"resources":["children","event","explain","operations","refusals","session"]}`},
		"session":                   {"GET", "session", 200, `"bundle":"fix-ci"`},
		"session_reach":             {"GET", "session", 200, `"reach":[{"rule":"egress[0]","host":"api.good.test","ports":[443]}]`},
		"own_session_by_id":         {"GET", "session/s-1", 200, `"id":"s-1"`},
		"EG-73_another_session":     {"GET", "session/s-2", 404, `"code":"not_found"`},
		"event":                     {"GET", "event", 200, `{"note":"hello"}`},
		"event_of_another_session":  {"GET", "event/s-2", 404, `"code":"not_found"`},
		"explain_nothing":           {"GET", "explain/" + receipts.Hash{1, 200}.String(), 404, `"code":"not_found"`},
		"explain_garbage":           {"GET", "explain/garbage", 404, `"code":"not_found"`},
		"refusals_none":             {"GET", "refusals", 200, `{"refusals":[]}`},
		"refusal_by_name":           {"GET", "refusals/x", 404, `"code":"not_found"`},
		"write_to_refusals":         {"POST", "refusals", 405, `"code":"method_not_allowed"`},
		"children_none":             {"GET", "children", 200, `{"children":[]}`},
		"child_of_another_session":  {"GET", "children/01m8kjt9g0mxxc3zz45bd5d9s7", 404, `"code":"not_found"`},
		"added_resource":            {"GET", "operations/scm.comment", 200, `{"rest":"scm.comment"}`},
		"no_operator_handlers":      {"GET", "sessions", 404, `"code":"not_found"`},
		"no_such_resource":          {"GET", "keys", 404, `"code":"not_found"`},
		"write_to_the_session":      {"POST", "session", 405, `"code":"method_not_allowed"`},
		"write_to_an_explanation":   {"DELETE", "explain/x", 405, `"code":"method_not_allowed"`},
		"children_are_not_replaced": {"PUT", "children", 405, `"code":"method_not_allowed"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := in.ask(c.method, c.path, "")
			if a.status != c.status || !strings.Contains(a.body, c.holds) {
				t.Errorf("%d %s, want %d %s", a.status, a.body, c.status, c.holds)
			}
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") == "" {
				t.Errorf("header %v", a.header)
			}
		})
	}
	if said := in.rec.last(); said != "" {
		t.Errorf("reading made a decision: %s", said)
	}
}

// TestExplain: a refusal names its receipt, and the receipt explains itself to
// the session that has it.
func TestExplain(t *testing.T) {
	in := open(t, receipts.Hard)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://evil.test/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := in.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	receipt := res.Header.Get(door.ReceiptHeader)
	if res.StatusCode != http.StatusForbidden || receipt == "" {
		t.Fatalf("%d, receipt %q", res.StatusCode, receipt)
	}
	a := in.ask("GET", "explain/"+receipt, "")
	var x agent.Explanation
	if err := json.Unmarshal([]byte(a.body), &x); err != nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if x.Receipt != receipt || x.Action != "http.request" || x.Verdict != "deny" || x.Reason == "" || x.Method != "GET" || x.Path != "/x" || len(x.Steps) == 0 {
		t.Errorf("%+v", x)
	}
	if b := in.ask("GET", "refusals", ""); !strings.Contains(b.body, `"receipt":"`+receipt+`","action":"http.request","to":"http://evil.test:80","method":"GET","path":"/x","code":"host_not_listed"`) || !strings.Contains(b.body, `"hint":"Ask the operator`) {
		t.Errorf("refusals: %s", b.body)
	}
	if b := open(t, receipts.Hard).ask("GET", "refusals", ""); strings.Contains(b.body, receipt) {
		t.Errorf("another session's refusals: %s", b.body)
	}
	// Another session has the same receipt's name and learns nothing by it.
	if b := open(t, receipts.Hard).ask("GET", "explain/"+receipt, ""); b.status != http.StatusNotFound {
		t.Errorf("another session: %d %s", b.status, b.body)
	}
}

func TestChildren(t *testing.T) {
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		t.Run(string(mode), func(t *testing.T) {
			in := open(t, mode)
			a := in.ask("POST", "children", `{"bundle":"lint"}`)
			if a.status != http.StatusCreated || a.header.Get("Location") != "/agent/v1/children/child-0" || !strings.Contains(a.body, `"id":"child-0"`) {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if got := in.rec.last(); got != "session.spawn allow children.bundles[0] listed" {
				t.Errorf("decided %q", got)
			}
			if diff := cmp.Diff([]string{enforcers.Forwarded}, in.rec.out); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if b := in.ask("GET", "children/child-0", ""); b.status != http.StatusOK || !strings.Contains(b.body, `"state":"running"`) {
				t.Errorf("%d %s", b.status, b.body)
			}
		})
	}
}

// TestChildrenRefused: whatever is no name of a covered bundle is refused with
// a receipt, in every mode, and nothing starts.
func TestChildrenRefused(t *testing.T) {
	const hard = "session.spawn deny gate.hard_set bundle_not_covered"
	cases := map[string]struct{ body, said, code string }{
		"wider":               {`{"bundle":"wide"}`, hard, "bundle_not_covered"},
		"in_shadow":           {`{"bundle":"lint","mode":"shadow"}`, hard, "bundle_not_covered"},
		"another_provider":    {`{"bundle":"lint","provider":"remote"}`, hard, "bundle_not_covered"},
		"longer_timeout":      {`{"bundle":"lint","session":{"timeout":"24h"}}`, hard, "bundle_not_covered"},
		"a_task_of_its_own":   {`{"bundle":"lint","task":"do something else"}`, hard, "bundle_not_covered"},
		"unknown_field":       {`{"bundle":"lint","x":1}`, hard, "bundle_not_covered"},
		"two_values":          {`{"bundle":"lint"}{"bundle":"lint"}`, hard, "bundle_not_covered"},
		"not_json":            {`bundle=lint`, hard, "bundle_not_covered"},
		"empty":               {``, hard, "bundle_not_covered"},
		"no_name":             {`{"bundle":""}`, hard, "bundle_not_covered"},
		"no_bundles_name":     {`{"bundle":"../lint\u202e"}`, hard, "bundle_not_covered"},
		"too_long":            {`{"bundle":"` + strings.Repeat("l", 5000) + `"}`, hard, "bundle_not_covered"},
		"another_bundle":      {`{"bundle":"deploy"}`, "session.spawn deny spend.default_deny bundle_not_listed", "bundle_not_listed"},
		"duplicate_wins_last": {`{"bundle":"lint","bundle":"wide"}`, hard, "bundle_not_covered"},
	}
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		for name, c := range cases {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				in := open(t, mode)
				a := in.ask("POST", "children", c.body)
				if got := in.rec.last(); !strings.HasPrefix(got, strings.TrimSuffix(c.said, " bundle_not_listed")) {
					t.Errorf("decided %q, want %q", got, c.said)
				}
				if a.status != http.StatusForbidden || a.header.Get(door.ReceiptHeader) == "" || (mode == receipts.Hard && !strings.Contains(a.body, `"code":"`+c.code+`"`)) {
					t.Errorf("%d %s", a.status, a.body)
				}
				if n := len(in.kids.List()); n != 0 || in.kids.places != 0 {
					t.Errorf("%d children, %d places", n, in.kids.places)
				}
			})
		}
	}
}

// TestChildrenMany: 100 are asked for, three start.
func TestChildrenMany(t *testing.T) {
	in := open(t, receipts.Hard)
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for range 10 { // ten clients, as a door takes 256 connections
		wg.Go(func() {
			for range 10 {
				a := in.ask("POST", "children", `{"bundle":"lint"}`)
				mu.Lock()
				got[a.status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := len(in.kids.List()); n == 0 || n > 3 || got[http.StatusCreated] != n || got[http.StatusForbidden] != 100-n {
		t.Errorf("%d children; answers %v", n, got)
	}
}

// TestFault: a handler that breaks ends its request, with a receipt, and nothing
// else.
func TestFault(t *testing.T) {
	in := open(t, receipts.Shadow)
	a := in.ask("GET", "operations/broken", "")
	if a.status != http.StatusInternalServerError || !strings.Contains(a.body, `"receipt":"`) || strings.Contains(a.body, "canary") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := in.rec.last(); got != "http.request deny gate.hard_set internal" {
		t.Errorf("the receipt says %q", got)
	}
	if a := in.ask("GET", "operations/other", ""); a.status != http.StatusOK {
		t.Errorf("afterwards %d %s", a.status, a.body)
	}
}

func TestRouteRefusesASecondHandler(t *testing.T) {
	for _, name := range []string{"session", "event", "explain", "", "a/b"} {
		_, err := agent.Route(agent.Options{More: map[string]door.Handler{name: agent.Children(&family{})}})
		if err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

// FuzzAsked: whatever an agent sends, it is a decision with a receipt.
func FuzzAsked(f *testing.F) {
	for _, s := range []string{`{"bundle":"lint"}`, `{"bundle":"lint","x":1}`, `[]`, `null`, "\x00", `{"bundle":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		name, err := agent.Asked(bytes.NewReader(body))
		if err == nil && (name == "" || len(name) > 63 || strings.ContainsAny(name, "/. \n\x00")) {
			t.Errorf("%q passed for a bundle's name", name)
		}
		if err != nil && name != "" {
			t.Errorf("%q is refused and still named", name)
		}
	})
}
