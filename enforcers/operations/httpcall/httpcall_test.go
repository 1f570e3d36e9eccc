package httpcall_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/enforcers/operations/httpcall"
	"gatehouse/enforcers/operations/operationstest"
	"gatehouse/receipts"
)

const (
	name   = "http.call.restart"
	schema = `{"type":"object","additionalProperties":false,"required":["app"],"properties":{"app":{"type":"string"},"reason":{"type":"string","maxLength":100}}}`
)

func template(t *testing.T, o *operationstest.Outside, change func(*httpcall.Template)) operations.Operation {
	t.Helper()
	x := &httpcall.Template{Name: name, Summary: "Restarts an app.", Remote: o.Remote(t), Method: "POST", Path: "/v1/apps/{app}/restart",
		Schema: json.RawMessage(schema), Answer: []string{"id", "state"}}
	if change != nil {
		change(x)
	}
	op, err := x.Operation()
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestCall(t *testing.T) {
	o := &operationstest.Outside{Answer: func(operationstest.Seen) (int, string) {
		return 200, `{"id":7,"state":"\u001b[1mqueued ghp_0123456789abcdef0123456789","hidden":"canary"}`
	}}
	d := operationstest.New(t, receipts.Hard, []string{name}, template(t, o, nil))
	d.Run(t, o, []operationstest.Row{
		{Name: "call", Op: name, Key: "k1", Args: `{"app":"shop","reason":"stuck"}`, Status: 200, Want: `"untrusted_answer":{"id":7,"state":"[1mqueued [credential removed]"}`, Left: 1},
		{Name: "call_replayed", Op: name, Key: "k1", Args: `{"reason":"stuck","app":"shop"}`, Status: 200, Want: `"id":7`, Left: 1},
		{Name: "call_elsewhere", Op: name, Key: "k2", Args: `{"app":"shop","host":"evil.test"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "NE-05_dot_segment", Op: name, Key: "k2", Args: `{"app":".."}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "NE-05_slash", Op: name, Key: "k2", Args: `{"app":"shop/../other"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "NE-05_encoded", Op: name, Key: "k2", Args: `{"app":"shop%2f"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "NE-05_query", Op: name, Key: "k2", Args: `{"app":"shop?x=1"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "NE-05_segment_parameter", Op: name, Key: "k2", Args: `{"app":"shop;v=1"}`, Status: 400, Code: operations.CodeArguments, Left: 1},
		{Name: "blank_is_escaped", Op: name, Key: "k3", Args: `{"app":"my shop"}`, Status: 200, Left: 2},
	})
	sent := o.Requests()
	if sent[0].Target != "/v1/apps/shop/restart" || sent[0].Body != `{"reason":"stuck"}` || sent[0].Header.Get("Idempotency-Key") == "" || sent[1].Target != "/v1/apps/my%20shop/restart" {
		t.Errorf("%+v", sent)
	}
	t.Run("refused", func(t *testing.T) {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			if a := operationstest.New(t, mode, nil, template(t, o, nil)).Call(t, name, "k", `{"app":"x"}`); a.Status != 403 || len(o.Requests()) != 2 {
				t.Errorf("%s: %s", mode, a.Text)
			}
		}
	})
	t.Run("over_limit", func(t *testing.T) {
		few := operationstest.New(t, receipts.Hard, []string{name}, template(t, o, func(x *httpcall.Template) { x.Calls = 1 }))
		few.Call(t, name, "k1", `{"app":"x"}`)
		if a := few.Call(t, name, "k2", `{"app":"x"}`); a.Code != operations.CodeLimit || len(o.Requests()) != 3 || few.Receipts.Last().Effect != enforcers.NotForwarded {
			t.Errorf("%s", a.Text)
		}
	})
}

func TestQuery(t *testing.T) {
	o := &operationstest.Outside{}
	d := operationstest.New(t, receipts.Hard, []string{name}, template(t, o, func(x *httpcall.Template) { x.Method = "GET" }))
	d.Call(t, name, "k", `{"app":"shop","reason":"a&b=c"}`)
	if sent := o.Requests(); len(sent) != 1 || sent[0].Target != "/v1/apps/shop/restart?reason=a%26b%3Dc" || sent[0].Body != "" {
		t.Errorf("%+v", sent)
	}
}

// What fails outside says no more than its status; what may have happened is
// not made to happen twice.
func TestFailures(t *testing.T) {
	for what, c := range map[string]struct {
		out    *operationstest.Outside
		status int
		effect string
		again  int
	}{
		"refused":   {&operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return 422, "canary" }}, 502, enforcers.Forwarded, 2},
		"redirect":  {&operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return 302, "canary" }}, 502, enforcers.Forwarded, 2},
		"no_answer": {&operationstest.Outside{Err: errors.New("canary: reset")}, 502, enforcers.Unknown, 1},
		"too_large": {&operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return 200, strings.Repeat("a", 2<<20) }}, 502, enforcers.Forwarded, 2},
		"ME-13":     {&operationstest.Outside{Answer: func(operationstest.Seen) (int, string) { return 200, operationstest.Credential }}, 403, enforcers.Forwarded, 1},
	} {
		t.Run(what, func(t *testing.T) {
			d := operationstest.New(t, receipts.Hard, []string{name}, template(t, c.out, nil))
			a := d.Call(t, name, "k", `{"app":"x"}`)
			if a.Status != c.status || d.Receipts.Last().Effect != c.effect {
				t.Errorf("%s, outcome %+v", a.Text, d.Receipts.Last())
			}
			if c.status == 502 {
				d.Call(t, name, "k", `{"app":"x"}`)
			}
			if n := len(c.out.Requests()); n != c.again {
				t.Errorf("%d requests, want %d", n, c.again)
			}
		})
	}
}

func TestTemplate(t *testing.T) {
	for what, x := range map[string]httpcall.Template{
		"method": {Method: "TRACE", Path: "/"}, "relative": {Method: "GET", Path: "v1"}, "dots": {Method: "GET", Path: "/a/../b"},
		"half_a_segment": {Method: "GET", Path: "/a-{b}"}, "query": {Method: "GET", Path: "/a?b=c"}, "encoded": {Method: "GET", Path: "/a%2fb"},
	} {
		if _, err := x.Operation(); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func FuzzFillPath(f *testing.F) {
	for _, s := range []string{"shop", "..", "a/b", "%2e%2e", "a b", "\x00", "a;b", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, _, err := operations.FillPath("/v1/{app}/x", map[string]any{"app": s})
		if err == nil && (strings.Count(path, "/") != 3 || strings.ContainsAny(path, "?#;\\") || strings.Contains(path, "/../") || strings.Contains(path, "/./")) {
			t.Errorf("%q becomes %q", s, path)
		}
	})
}
