package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/wasm"
	"gatehouse/wasm/policies"
)

// rule is one of the fifty that every engine has; number 42 matches.
type rule struct{ id, host string }

func fifty() []rule {
	var out []rule
	for i := range 50 {
		r := rule{fmt.Sprintf("egress[%d]", i), fmt.Sprintf("host-%d.example.test", i)}
		switch {
		case i == 42:
			r.host = "api.good.test"
		case i%2 == 1:
			r.host = fmt.Sprintf("*.zone-%d.example.test", i)
		}
		out = append(out, r)
	}
	return out
}

// request is what is judged, about 566 bytes as an action.
func request(t *testing.T) *enforcers.Action {
	t.Helper()
	to, err := authority.ParseHostPort(authority.HTTPS, "api.good.test:443")
	if err != nil {
		t.Fatal(err)
	}
	return &enforcers.Action{
		ID: "01m8mz66pt44kts6s1tga6xy27-17", Session: "01m8mz66pt44kts6s1tga6xy27", Seq: 17, Kind: enforcers.HTTPRequest,
		At: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
		HTTP: &enforcers.HTTP{
			To: to, Method: "GET", Path: "/v1/projects/12/packages", Query: "page=2&per_page=100", Body: enforcers.Body{Mode: "none"},
			Headers: map[string][]string{
				"accept":          {"application/json, text/plain;q=0.9, */*;q=0.1"},
				"accept-encoding": {"gzip, br"}, "user-agent": {"npm/11.2.0 node/v22.23.0 linux x64 workspaces/false"},
			},
		},
	}
}

// TestBenchDecide compares one decision with cedar-go and with a prepared query
// of OPA, on the same fifty rules and the same request. Ours is given canonical
// JSON and reads it, and so is the guest in Rust, a third-party module under the
// same rules, whose memory is put back before each call. The peers are given values: cedar a request made of them for
// each call, OPA an input made once. cedar_go_from_json reads what ours reads.
func TestBenchDecide(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	a := request(t)
	action, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	guest, native := ours(t)
	type side struct {
		name  string
		calls int
		call  func() error // nil: it could not be built
	}
	sides := []side{
		{"wasm", 10_000, func() error { return listed(guest.Decide(t.Context(), action)) }},
		{"native", 40_000, func() error { return listed(native.Decide(t.Context(), action)) }},
		{"wasm_encoding_the_action", 10_000, func() error {
			b, err := a.Canonical()
			if err != nil {
				return err
			}
			return listed(guest.Decide(t.Context(), b))
		}},
		{"rust_guest", 10_000, rustSide(t, action)},
		{"cedar_go", 5_000, cedarSide(t, a, nil)},
		{"cedar_go_from_json", 5_000, cedarSide(t, a, action)},
		{"rego_prepared", 400, regoSide(t, a, false)},
		{"rego_prepared_parsed_input", 400, regoSide(t, a, true)},
	}
	sides = slices.DeleteFunc(sides, func(s side) bool { return s.call == nil })
	got := make([][]float64, len(sides))
	for range 7 {
		for i, s := range sides {
			start := used(t)
			for range s.calls {
				if err := s.call(); err != nil {
					t.Fatal(s.name, err)
				}
			}
			got[i] = append(got[i], float64((used(t)-start).Nanoseconds())/1e3/float64(s.calls))
		}
	}
	for _, g := range got {
		slices.Sort(g)
	}
	for i, s := range sides[1:] {
		report(t, "wasm.decide_50_rules/"+s.name, "us", got[0][3], got[i+1][3])
	}
	allocations := func(e enforcers.Enforcer) float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := listed(e.Decide(t.Context(), action)); err != nil {
				t.Fatal(err)
			}
		})
	}
	// The native twin makes its message anew each time.
	report(t, "wasm.decide_50_rules.host_allocations/native", "allocations", allocations(guest), allocations(native))
}

// used is the processor time of this process, collecting garbage included: what
// other processes do does not make an engine slow.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func listed(v enforcers.Verdict, err error) error {
	if err == nil && (v.Effect != enforcers.Allow || v.Rule != "egress[42]") {
		err = fmt.Errorf("%s by %s", v.Effect, v.Rule)
	}
	return err
}

// rulesJSON are the rules as a compiled policy has them.
func rulesJSON() (list []string) {
	for _, r := range fifty() {
		list = append(list, fmt.Sprintf(`{"host":"%s","id":"%s","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]}`, r.host, r.id))
	}
	return list
}

// ours are the built-in enforcer in wasm and the same source compiled natively.
func ours(t *testing.T) (guest, native enforcers.Enforcer) {
	t.Helper()
	configure := wasm.Configure([]byte(`{"egress":[`+strings.Join(rulesJSON(), ",")+`]}`), wasm.BuiltinParams("egress"))
	h, err := wasm.NewHost(t.Context(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(t.Context()) })
	m, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if guest, err = m.Enforcer(t.Context(), configure); err != nil {
		t.Fatal(err)
	}
	if native, err = policies.Native("egress", configure); err != nil {
		t.Fatal(err)
	}
	return guest, native
}

// rustSide builds the example of the Rust SDK and puts it under the rules; nil,
// loudly, without a rustc that has the target (wasm/sdk/test.sh says which).
func rustSide(t *testing.T, action []byte) func() error {
	t.Helper()
	out := filepath.Join(t.TempDir(), "allowlist.wasm")
	var failed error
	for _, rustc := range []string{os.Getenv("RUSTC"), "rustc", "/usr/bin/rustc"} { // one of rustup often comes first and without the target
		if rustc == "" {
			continue
		}
		args := []string{"--edition", "2021", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib", "-C", "opt-level=3", "-C", "panic=abort",
			"-C", "strip=symbols", "-C", "link-arg=--no-fatal-warnings", "-C", "link-arg=-zstack-size=16384", "-o", out, "../../wasm/sdk/rust/allowlist.rs"}
		for _, ld := range []string{"wasm-ld", "wasm-ld-19"} {
			if _, err := exec.LookPath(ld); err == nil {
				args = append(args, "-C", "linker="+ld)
			}
		}
		text, err := exec.Command(rustc, args...).CombinedOutput()
		if err == nil {
			failed = nil
			break
		}
		failed = fmt.Errorf("%s: %w: %.300s", rustc, err, text)
	}
	code, err := os.ReadFile(out)
	if failed != nil || err != nil {
		fmt.Fprintf(os.Stderr, "BENCH SKIPS THE RUST GUEST: %v\n", errors.Join(failed, err))
		return nil
	}
	h, err := wasm.NewHost(t.Context(), wasm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(t.Context()) })
	m, err := h.Load(t.Context(), "allowlist", code)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := m.Enforcer(t.Context(), wasm.Configure([]byte(`{}`), []byte(`{"rules":[`+strings.Join(rulesJSON(), ",")+`]}`)))
	if err != nil {
		t.Fatal(err)
	}
	asked := func(action []byte) (string, error) {
		v, err := guest.Decide(t.Context(), action)
		return v.Reason, err
	}
	if why, err := asked(bytes.Replace(action, []byte("api.good.test"), []byte("api.bad.test"), 1)); err != nil || why != "not_listed" {
		t.Fatalf("the Rust guest says %q, %v of a host that no rule lists", why, err)
	}
	return func() error {
		why, err := asked(action)
		if err == nil && why != "listed" {
			err = errors.New(why)
		}
		return err
	}
}

// cedarSide makes cedar's request of values, or reads them from action first.
func cedarSide(t *testing.T, a *enforcers.Action, action []byte) func() error {
	t.Helper()
	var text strings.Builder
	for _, r := range fifty() {
		host := fmt.Sprintf(`context.host == %q`, r.host)
		if strings.HasPrefix(r.host, "*") {
			host = fmt.Sprintf(`context.host like %q`, r.host)
		}
		fmt.Fprintf(&text, "@id(%q)\npermit (principal, action == Action::\"http.request\", resource) when { %s && context.scheme == \"https\" && [443].contains(context.port) && [\"GET\", \"POST\"].contains(context.method) && context.path like \"/v1/*\" };\n", r.id, host)
	}
	set, err := cedar.NewPolicySetFromBytes("rules.cedar", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	session, host := cedar.NewEntityUID("Session", cedar.String(a.Session)), cedar.NewEntityUID("Host", "outside")
	kind := cedar.NewEntityUID("Action", cedar.String(a.Kind))
	var read struct {
		HTTP struct {
			Method, Path string
			To           struct {
				Scheme, Host string
				Port         uint16
			}
		} `json:"http_request"`
	}
	read.HTTP.Method, read.HTTP.Path = a.HTTP.Method, a.HTTP.Path
	read.HTTP.To.Scheme, read.HTTP.To.Host, read.HTTP.To.Port = a.HTTP.To.Scheme(), a.HTTP.To.Host(), a.HTTP.To.Port()
	return func() error {
		if action != nil {
			if err := json.Unmarshal(action, &read); err != nil {
				return err
			}
		}
		decision, _ := cedar.Authorize(set, cedar.EntityMap{}, cedar.Request{
			Principal: session, Action: kind, Resource: host,
			Context: cedar.NewRecord(cedar.RecordMap{
				"scheme": cedar.String(read.HTTP.To.Scheme), "host": cedar.String(read.HTTP.To.Host), "port": cedar.Long(read.HTTP.To.Port),
				"method": cedar.String(read.HTTP.Method), "path": cedar.String(read.HTTP.Path),
			}),
		})
		if decision != cedar.Allow {
			return fmt.Errorf("decision %v", decision)
		}
		return nil
	}
}

func regoSide(t *testing.T, a *enforcers.Action, parsed bool) func() error {
	t.Helper()
	var list []string
	for _, r := range fifty() {
		list = append(list, fmt.Sprintf(`{"id": %q, "host": %q, "ports": [443], "schemes": ["https"], "methods": ["GET", "POST"], "prefix": "/v1/"}`, r.id, r.host))
	}
	module := `package egress
rules := [` + strings.Join(list, ",\n") + `]
matches(rule) if rule.host == input.to.host
matches(rule) if {
	startswith(rule.host, "*.")
	suffix := substring(rule.host, 1, -1)
	endswith(input.to.host, suffix)
	not contains(trim_suffix(input.to.host, suffix), ".")
}
verdict := [rule.id |
	some rule in rules
	matches(rule)
	input.to.port in rule.ports
	input.to.scheme in rule.schemes
	input.method in rule.methods
	startswith(input.path, rule.prefix)
]
`
	query, err := rego.New(rego.Query("data.egress.verdict"), rego.Module("egress.rego", module)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]any{
		"method": a.HTTP.Method, "path": a.HTTP.Path, "query": a.HTTP.Query,
		"to": map[string]any{"scheme": a.HTTP.To.Scheme(), "host": a.HTTP.To.Host(), "port": int(a.HTTP.To.Port())},
	}
	option := rego.EvalInput(in)
	if parsed {
		v, err := ast.InterfaceToValue(in)
		if err != nil {
			t.Fatal(err)
		}
		option = rego.EvalParsedInput(v)
	}
	return func() error {
		rs, err := query.Eval(t.Context(), option)
		if err != nil {
			return err
		}
		if len(rs) != 1 || fmt.Sprint(rs[0].Expressions[0].Value) != "[egress[42]]" {
			return fmt.Errorf("result %v", rs)
		}
		return nil
	}
}
