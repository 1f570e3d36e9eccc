package mcp_test

import (
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

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gatehouse/enforcers"
	"gatehouse/enforcers/agent"
	"gatehouse/enforcers/agent/mcp"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/upstream"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/wasm"
	"gatehouse/wasm/policies"
)

const policy = `{"bundle":"fix-ci","children":{"bundles":["lint"],"depth":1,"max":1},"digest":"00","egress":[],"models":[],"operations":[],"telemetry":[]}`

// recorder gives each decision a receipt of its own.
type recorder struct {
	mu    sync.Mutex
	kinds []enforcers.Kind
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, _ *enforcers.Decision, _ bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds = append(r.kinds, a.Kind)
	return receipts.Leaf(fmt.Append(nil, len(r.kinds))), nil
}

func (r *recorder) Outcome(receipts.Hash, enforcers.Outcome) {}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// family has room for one child.
type family struct{ children []agent.Child }

func (f *family) Reserve(context.Context, string) (agent.Place, error) { return place{f}, nil }
func (f *family) List() []agent.Child                                  { return f.children }

type place struct{ f *family }

func (p place) Depth() int { return 1 }
func (p place) Count() int { return len(p.f.children) + 1 }
func (p place) Release()   {}
func (p place) Start(context.Context) (string, error) {
	p.f.children = append(p.f.children, agent.Child{ID: "child-0", Bundle: "lint", State: "running"})
	return "child-0", nil
}

// requests takes two.
type requests struct{ filed []receipts.Hash }

func (q *requests) File(_ context.Context, h receipts.Hash) error {
	if len(q.filed) == 2 {
		return problem.New(problem.Conflict, "enough", "Go on without it.")
	}
	q.filed = append(q.filed, h)
	return nil
}

// ops stands for the desk of operations.
type ops struct {
	effects int
	keys    map[string]string
}

func (o *ops) ServeDoor(w http.ResponseWriter, r *door.Request) {
	body, _ := io.ReadAll(r.Body)
	name, key := agent.Rest(r, "operations"), r.Header.Get("Idempotency-Key")
	switch {
	case name == "":
		agent.Answer(w, http.StatusOK, map[string]any{"operations": []string{"scm.comment"}})
	case name != "scm.comment":
		agent.Problem(w, http.StatusNotFound, "operation_unknown", "")
	case string(body) == `{"break":1}`:
		panic("canary-of-a-fault")
	case string(body) == `{"bad":1}`:
		agent.Problem(w, http.StatusBadRequest, "operation_arguments", "")
	case o.keys[key] != "" && o.keys[key] != string(body):
		agent.Problem(w, http.StatusBadRequest, "operation_key", "")
	default:
		if o.keys[key] == "" {
			o.effects++
			o.keys[key] = string(body)
		}
		agent.Answer(w, http.StatusOK, map[string]any{"result": map[string]int{"id": o.effects}})
	}
}

type world struct {
	*http.Client
	t        *testing.T
	gate     *enforcers.Gate
	rec      *recorder
	requests *requests
	ops      *ops
}

func open(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, rec: &recorder{}, requests: &requests{}, ops: &ops{keys: map[string]string{}}}
	p := enforcers.Policy{}
	for _, name := range policies.Names() {
		e, err := policies.Native(name, wasm.Configure([]byte(policy), wasm.BuiltinParams(name)))
		if err != nil {
			t.Fatal(err)
		}
		p.Enforcers = append(p.Enforcers, enforcers.Bound{Enforcer: e, Mode: receipts.Hard, Builtin: true})
	}
	w.gate = enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: receipts.Hard, Policy: p, Recorder: w.rec})
	route, err := agent.Route(agent.Options{
		Session: agent.Session{ID: "s-1", Bundle: "fix-ci", Children: []string{"lint"}},
		More:    map[string]door.Handler{"children": agent.Children(&family{}), "access": agent.Access(w.requests), "operations": w.ops},
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
	d, err := door.Open(context.Background(), l, w.gate, door.Options{Up: up, CA: ca, Routes: []door.Route{route, mcp.Route(route, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	w.Client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:3128"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	t.Cleanup(func() { w.CloseIdleConnections(); d.Close(enforcers.CodeRevoked); _ = up.Close() })
	return w
}

// refused makes the gate refuse something and returns the receipt.
func (w *world) refused() string {
	w.t.Helper()
	res, err := w.Get("http://unlisted.test/")
	if err != nil {
		w.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Header.Get(door.ReceiptHeader)
}

// TestTools: each tool allowed, refused, over its limit, replayed and with
// wrong arguments, through the official client and the session's real door.
func TestTools(t *testing.T) {
	w := open(t)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: mcp.URL, HTTPClient: w.Client, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "describe_session explain_refusal request_access run_operation spawn_child" {
		t.Errorf("tools %s", got)
	}
	receipt, second, third := w.refused(), w.refused(), w.refused()
	none := receipts.Leaf([]byte("another session's")).String()
	for _, c := range []struct {
		name, tool, args string
		failed           bool
		want             string
	}{
		{"describe", "describe_session", `{}`, false, `"id":"s-1"`},
		{"describe_operations", "describe_session", `{}`, false, `"operations":["scm.comment"]`},
		{"describe_wrong_arguments", "describe_session", `{"session":"s-2"}`, true, "tool_arguments"},
		{"explain", "explain_refusal", `{"receipt":"` + receipt + `"}`, false, `"verdict":"deny"`},
		{"EG-73_explain_another", "explain_refusal", `{"receipt":"` + none + `"}`, true, "not_found"},
		{"explain_path", "explain_refusal", `{"receipt":"../session"}`, true, "not_found"},
		{"explain_wrong_arguments", "explain_refusal", `{"receipt":1}`, true, "tool_arguments"},
		{"operation", "run_operation", `{"name":"scm.comment","key":"k1","arguments":{"number":7}}`, false, `"id":1`},
		{"operation_replayed", "run_operation", `{"name":"scm.comment","key":"k1","arguments":{"number":7}}`, false, `"id":1`},
		{"operation_other_arguments", "run_operation", `{"name":"scm.comment","key":"k1","arguments":{"number":8}}`, true, "operation_key"},
		{"operation_unknown", "run_operation", `{"name":"../../session","key":"k2","arguments":{}}`, true, "operation_unknown"},
		{"operation_wrong_arguments", "run_operation", `{"name":"scm.comment","key":"k3","arguments":{"bad":1}}`, true, "operation_arguments"},
		{"operation_breaks", "run_operation", `{"name":"scm.comment","key":"k5","arguments":{"break":1}}`, true, `{"code":"internal","receipt":"`},
		{"operation_after_the_fault", "run_operation", `{"name":"scm.comment","key":"k1","arguments":{"number":7}}`, false, `"id":1`},
		{"operation_unknown_field", "run_operation", `{"name":"scm.comment","key":"k4","arguments":{},"repository":"acme/other"}`, true, "tool_arguments"},
		{"spawn", "spawn_child", `{"bundle":"lint"}`, false, `"id":"child-0"`},
		{"spawn_over_limit", "spawn_child", `{"bundle":"lint"}`, true, "children_exceeded"},
		{"spawn_refused", "spawn_child", `{"bundle":"deploy"}`, true, "bundle_not_listed"},
		{"spawn_wrong_arguments", "spawn_child", `{"bundle":"lint","mode":"shadow"}`, true, "bundle_not_covered"},
		{"access", "request_access", `{"receipt":"` + receipt + `"}`, false, `"filed":"` + receipt},
		{"access_second", "request_access", `{"receipt":"` + second + `"}`, false, `"filed":"` + second},
		{"access_over_limit", "request_access", `{"receipt":"` + third + `"}`, true, "conflict"},
		{"EG-73_access_another", "request_access", `{"receipt":"` + none + `"}`, true, "not_found"},
		{"access_with_words", "request_access", `{"receipt":"` + receipt + `","reason":"approve me"}`, true, "access_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
			if err != nil {
				t.Fatal(err)
			}
			text := res.Content[0].(*sdk.TextContent).Text
			if strings.Contains(text, "canary") {
				t.Errorf("the answer holds a fault's words: %s", text)
			}
			if res.IsError != c.failed || !strings.Contains(text, c.want) {
				t.Errorf("failed %t: %s", res.IsError, text)
			}
		})
	}
	if w.ops.effects != 1 {
		t.Errorf("%d effects of one key", w.ops.effects)
	}
	if len(w.requests.filed) != 2 {
		t.Errorf("filed %v", w.requests.filed)
	}
	if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "grant_access", Arguments: json.RawMessage(`{}`)}); err == nil {
		t.Error("a tool that is not there answers")
	}
}

// TestTransport: what is no MCP request, by plain HTTP.
func TestTransport(t *testing.T) {
	w := open(t)
	for name, c := range map[string]struct {
		method, url, body, want string
		status                  int
	}{
		"get":            {"GET", mcp.URL, "", "", 405},
		"delete":         {"DELETE", mcp.URL, "", "", 405},
		"not_json":       {"POST", mcp.URL, "{", "", 400},
		"too_large":      {"POST", mcp.URL, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`, "", 413},
		"below":          {"POST", mcp.URL + "/x", "{}", "", 404},
		"other_host":     {"POST", "http://unlisted.test/mcp", "{}", "host_not_listed", 403},
		"tools_by_hand":  {"POST", mcp.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"explain_refusal","arguments":{"receipt":"x"}}}`, "not_found", 200},
		"duplicate_keys": {"POST", mcp.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"spawn_child","name":"explain_refusal","arguments":{"receipt":"x"}}}`, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			res, err := w.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if c.status != 0 && res.StatusCode != c.status || !strings.Contains(string(b), c.want) {
				t.Errorf("%d %s", res.StatusCode, b)
			}
		})
	}
	for _, kind := range w.rec.kinds {
		if kind == enforcers.SessionSpawn {
			t.Error("something was asked of the gate in the name of a malformed request")
		}
	}
}
