package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
)

const testPolicy = `{"bundle":"t","digest":"d","egress":[` +
	`{"host":"api.good.test","id":"egress[0]","methods":["GET"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]}]}`

// CacheVariable names the compile cache that all hosts of this test binary
// share: compiling std.wasm takes seconds, and minutes under the race detector.
const CacheVariable = "GATEHOUSE_TEST_WASM_CACHE"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gatehouse-wasm-")
	if err != nil {
		panic(err)
	}
	os.Setenv(CacheVariable, dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shared is one host for the tests that need no host of their own.
var shared = sync.OnceValues(func() (*Host, error) {
	return NewHost(context.Background(), Options{CacheDir: os.Getenv(CacheVariable)})
})

func testHost(t testing.TB) *Host {
	t.Helper()
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func builtinEnforcer(t testing.TB, name, policy string) *Enforcer {
	t.Helper()
	m, err := testHost(t).Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.Enforcer(t.Context(), Configure([]byte(policy), BuiltinParams(name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func canonical(t testing.TB, a enforcers.Action) []byte {
	t.Helper()
	a.ID, a.Session, a.Seq, a.At = "s-1", "s", 1, time.Unix(1_800_000_000, 0)
	b, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func query(t testing.TB, name string) []byte {
	t.Helper()
	return canonical(t, enforcers.Action{Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: name, Type: "A"}})
}

func codeOf(err error) string {
	var f *enforcers.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

func TestBuiltin(t *testing.T) {
	e := builtinEnforcer(t, "egress", testPolicy)
	if e.Name() != "egress" || len(e.Kinds()) != 5 {
		t.Errorf("name %q, kinds %v", e.Name(), e.Kinds())
	}
	cases := map[string]struct {
		name string
		want enforcers.Verdict
	}{
		"listed":   {"api.good.test", enforcers.Verdict{Effect: enforcers.Allow, Rule: "egress[0]", Reason: "listed"}},
		"unlisted": {"evil.test", enforcers.Verdict{Effect: enforcers.Deny, Rule: "egress.default_deny", Reason: "name_not_listed"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := e.Decide(t.Context(), query(t, c.name))
			got.Fuel = 0
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestFaultsOfTheBuiltin(t *testing.T) {
	e := builtinEnforcer(t, "egress", testPolicy)
	if _, err := e.Decide(t.Context(), []byte(`{"kind":"dns.query"`)); codeOf(err) != GuestError {
		t.Errorf("malformed action: %v", err)
	}
	if _, err := e.Decide(t.Context(), []byte(strings.Repeat("x", 512<<10))); codeOf(err) != HostError {
		t.Errorf("action over the input limit: %v", err)
	}
	if v, err := e.Decide(t.Context(), query(t, "api.good.test")); err != nil || v.Effect != enforcers.Allow {
		t.Errorf("after faults: %+v, %v", v, err)
	}
	m, err := testHost(t).Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, configure := range map[string][]byte{
		"unknown_section":  Configure([]byte(`{"surprise":1}`), BuiltinParams("egress")),
		"unknown_enforcer": Configure([]byte(`{}`), BuiltinParams("dlp")),
		"version":          []byte(`{"abi":2,"bundle":{},"params":{"enforcer":"egress"}}`),
		"not_json":         []byte(`nonsense`),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := m.Enforcer(t.Context(), configure); codeOf(err) != ConfigureFailed {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestClosedEnforcer(t *testing.T) {
	e := builtinEnforcer(t, "egress", testPolicy)
	e.Close()
	e.Close()
	if _, err := e.Decide(t.Context(), query(t, "api.good.test")); codeOf(err) != HostError {
		t.Errorf("got %v", err)
	}
}

// TestEvictionMakesRoom runs more pools than the host may hold instances.
func TestEvictionMakesRoom(t *testing.T) {
	h, err := NewHost(t.Context(), Options{Instances: 2, CacheDir: os.Getenv(CacheVariable)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var es []*Enforcer
	for i := range 5 {
		e, err := m.Enforcer(t.Context(), Configure([]byte(strings.Replace(testPolicy, `"digest":"d"`, fmt.Sprintf(`"digest":"%d"`, i), 1)), BuiltinParams("egress")))
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	for range 2 {
		for _, e := range es {
			if v, err := e.Decide(t.Context(), query(t, "api.good.test")); err != nil || v.Effect != enforcers.Allow {
				t.Fatalf("%+v, %v", v, err)
			}
		}
	}
	if h.live.count > 2 {
		t.Errorf("%d live instances, limit 2", h.live.count)
	}
	for _, e := range es {
		e.Close()
	}
	if h.live.count != 0 {
		t.Errorf("%d live instances after closing every enforcer", h.live.count)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := h.Builtin(t.Context()); err == nil {
		if _, err := es[0].Decide(t.Context(), query(t, "x.test")); codeOf(err) != HostError {
			t.Errorf("a closed host judged: %v", err)
		}
	}
}

func TestCacheFolderMustBePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHost(t.Context(), Options{CacheDir: dir}); err == nil {
		t.Error("a folder others can read was accepted")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHost(t.Context(), Options{CacheDir: link}); err == nil {
		t.Error("a symbolic link was accepted")
	}
}

func TestParseAnswer(t *testing.T) {
	cases := map[string]struct {
		in string
		ok bool
	}{
		"allow":              {`{"reason":"listed","rule":"egress[2]","verdict":"allow"}`, true},
		"deny":               {`{"obligations":[],"reason":"x","rule":"r","verdict":"deny"}`, true},
		"abstain_no_rule":    {`{"reason":"","rule":"","verdict":"abstain"}`, true},
		"allow_no_rule":      {`{"reason":"","rule":"","verdict":"allow"}`, false},
		"unknown_verdict":    {`{"reason":"","rule":"r","verdict":"permit"}`, false},
		"unknown_obligation": {`{"obligations":[{"type":"x"}],"reason":"","rule":"r","verdict":"allow"}`, false},
		"extra_key":          {`{"also":1,"reason":"","rule":"r","verdict":"allow"}`, false},
		"duplicate_key":      {`{"reason":"","reason":"","rule":"r","verdict":"allow"}`, false},
		"trailing":           {`{"reason":"","rule":"r","verdict":"allow"} `, false},
		"white_space":        {`{"reason": "","rule":"r","verdict":"allow"}`, false},
		"wrong_type":         {`{"reason":1,"rule":"r","verdict":"allow"}`, false},
		"invalid_utf8":       {"{\"reason\":\"\xff\",\"rule\":\"r\",\"verdict\":\"allow\"}", false},
		"text_as_reason":     {`{"reason":"Bearer abc","rule":"r","verdict":"deny"}`, false},
		"long_reason":        {`{"reason":"` + strings.Repeat("a", 257) + `","rule":"r","verdict":"deny"}`, false},
		"empty":              {``, false},
		"WA-26_deep":         {strings.Repeat("[", 8000), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, _, _, ok := parseAnswer([]byte(c.in)); ok != c.ok {
				t.Errorf("ok = %v", ok)
			}
		})
	}
}
