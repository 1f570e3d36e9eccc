package wasm

import (
	"encoding/json"
	"strings"
	"testing"

	"gatehouse/enforcers"
)

// TestLargestActions puts the costliest actions that fit the input limit to the
// built-in enforcers: an agent chooses headers, queries and file names, and
// must not be able to turn a verdict into a fault by choosing them well.
func TestLargestActions(t *testing.T) {
	many := func(n int, f func(i int) string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	request := func(f func(h *enforcers.HTTP)) enforcers.Action {
		h := &enforcers.HTTP{Method: "GET", Path: "/", Body: enforcers.Body{Mode: "none"}}
		f(h)
		return enforcers.Action{Kind: enforcers.HTTPRequest, HTTP: h}
	}
	push := func(changed []string) enforcers.Action {
		return enforcers.Action{Kind: enforcers.GitPush, Push: &enforcers.Push{
			Repository: "1296269", Changed: changed, Commands: []enforcers.RefUpdate{{Ref: "refs/heads/a", New: "a"}},
		}}
	}
	denied := strings.Repeat(`"a/b/c/d/**",`, 40)
	git := `{"git":{"push":{"delete":false,"deny_paths":[` + denied[:len(denied)-1] + `],"force":false,"refs":["refs/heads/*"]},"repository":"1296269"}}`
	cases := map[string]struct {
		enforcer, policy string
		action           enforcers.Action
	}{
		"query_of_quotes":  {"egress", benchPolicy(), request(func(h *enforcers.HTTP) { h.Query = strings.Repeat(`"`, 250_000) })},
		"query_of_letters": {"egress", benchPolicy(), request(func(h *enforcers.HTTP) { h.Query = strings.Repeat("a", 500_000) })},
		"many_headers": {"egress", benchPolicy(), request(func(h *enforcers.HTTP) {
			h.Headers = map[string][]string{"a": many(150_000, func(int) string { return "" })}
		})},
		"path_of_percent_signs":   {"egress", benchPolicy(), request(func(h *enforcers.HTTP) { h.Path = "/" + strings.Repeat("%", 500_000) })},
		"long_name":               {"egress", benchPolicy(), enforcers.Action{Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: strings.Repeat("a.", 250_000)}}},
		"many_changed_files":      {"git", git, push(many(70_000, func(int) string { return "a/b/" }))},
		"one_quoted_file":         {"git", git, push([]string{strings.Repeat(`"`, 4000)})},
		"many_quoted_files":       {"git", git, push(many(70_000, func(int) string { return `a"b` }))},
		"operation_of_nothing":    {"egress", benchPolicy(), enforcers.Action{Kind: enforcers.OperationCall, Operation: &enforcers.Operation{Name: "x", Args: []byte(`{"a":[` + strings.Repeat("1,", 250_000) + `1]}`)}}},
		"operation_deeply_nested": {"egress", benchPolicy(), enforcers.Action{Kind: enforcers.OperationCall, Operation: &enforcers.Operation{Name: "x", Args: []byte(`{"a":` + strings.Repeat("[", 12) + strings.Repeat("]", 12) + `}`)}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			action := canonical(t, c.action)
			if len(action) > 512<<10-40 {
				t.Fatalf("%d bytes do not fit", len(action))
			}
			v, err := builtinEnforcer(t, c.enforcer, c.policy).Decide(t.Context(), action)
			if err != nil {
				t.Errorf("%d bytes, %d fuel: %v", len(action), v.Fuel, err)
			}
			t.Logf("%d bytes, %d fuel, %s", len(action), v.Fuel, v.Reason)
			if !json.Valid(action) {
				t.Error("the action is not JSON")
			}
		})
	}
}
