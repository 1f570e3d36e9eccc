package enforcers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gatehouse/internal/authority"
	"gatehouse/receipts"
)

var at = time.Date(2026, 11, 29, 1, 2, 3, 4, time.UTC)

// TestCanonical fixes the bytes that enforcers of every language read.
func TestCanonical(t *testing.T) {
	api := to(t, "https", "api.good.test:443")
	const head = `{"at":"2026-11-29T01:02:03.000000004Z","connection":"",`
	const tail = `"seq":7,"session":"s"`
	const place = `"to":{"host":"api.good.test","ip":false,"port":443,"scheme":"https"}`
	for name, c := range map[string]struct {
		action Action
		want   string
	}{
		"connect": {
			Action{Kind: NetConnect, Connect: &Connect{To: to(t, "tcp", "93.184.216.34:443"), Literal: true}},
			head + `"id":"s-7","kind":"net.connect","net_connect":{"blind":false,"literal":true,"to":{"host":"93.184.216.34","ip":true,"port":443,"scheme":"tcp"}},` + tail + `}`,
		},
		"http": {
			Action{Kind: HTTPRequest, HTTP: &HTTP{
				To: api, Method: "POST", Path: "/v1/x", Query: "a=\"b\"", Headers: map[string][]string{"b": {"2"}, "a": {"1", "2"}},
				Body: Body{Mode: "whole", Length: 2, Bytes: []byte("hi")}, Upgrade: "websocket",
			}},
			head + `"http_request":{"body":{"bytes":"aGk=","length":2,"mode":"whole"},"headers":{"a":["1","2"],"b":["2"]},"method":"POST","path":"/v1/x","query":"a=\"b\"",` + place + `,"upgrade":"websocket"},"id":"s-7","kind":"http.request",` + tail + `}`,
		},
		"http_least": {
			Action{Kind: HTTPRequest, HTTP: &HTTP{To: api, Method: "GET", Path: "/", Body: Body{Mode: "none", Length: -1}}},
			head + `"http_request":{"body":{"length":-1,"mode":"none"},"headers":{},"method":"GET","path":"/","query":"",` + place + `,"upgrade":""},"id":"s-7","kind":"http.request",` + tail + `}`,
		},
		"dns": {
			Action{Kind: DNSQuery, DNS: &DNS{Name: "api.good.test", Type: "A"}},
			head + `"dns_query":{"name":"api.good.test","type":"A"},"id":"s-7","kind":"dns.query",` + tail + `}`,
		},
		"fetch": {
			Action{Kind: GitFetch, Fetch: &Fetch{To: api, Repository: "1296269", Path: "acme/shop", Protocol: 2}},
			head + `"git_fetch":{"path":"acme/shop","protocol":2,"repository":"1296269",` + place + `},"id":"s-7","kind":"git.fetch",` + tail + `}`,
		},
		"push": {
			Action{Kind: GitPush, Push: &Push{To: api, Repository: "1", Path: "a/b", Changed: []string{"x"}, Commands: []RefUpdate{{Ref: "refs/heads/a", Old: "0", New: "1", Forced: true}, {}}}},
			head + `"git_push":{"changed":["x"],"commands":[{"forced":true,"new":"1","old":"0","ref":"refs/heads/a"},{"forced":false,"new":"","old":"","ref":""}],"path":"a/b","repository":"1",` + place + `},"id":"s-7","kind":"git.push",` + tail + `}`,
		},
		"model": {
			Action{Kind: ModelCall, Model: &Model{To: api, Provider: "anthropic", Model: "m", MaxTokens: 5, Stream: true, Held: 9}},
			head + `"id":"s-7","kind":"model.call","model_call":{"held":9,"max_tokens":5,"model":"m","provider":"anthropic","stream":true,` + place + `},` + tail + `}`,
		},
		"operation": {
			Action{Kind: OperationCall, Operation: &Operation{Name: "scm.comment", Args: []byte(`{"b":[1,true,"x"],"a":{}}`)}},
			head + `"id":"s-7","kind":"operation.call","operation_call":{"args":{"a":{},"b":[1,true,"x"]},"name":"scm.comment"},` + tail + `}`,
		},
		"operation_without_arguments": {
			Action{Kind: OperationCall, Operation: &Operation{Name: "x"}},
			head + `"id":"s-7","kind":"operation.call","operation_call":{"args":{},"name":"x"},` + tail + `}`,
		},
		"telemetry": {
			Action{Kind: TelemetryEmit, Telemetry: &Telemetry{To: api, Path: "/v1/traces", Size: 12}},
			head + `"id":"s-7","kind":"telemetry.emit",` + tail + `,"telemetry_emit":{"path":"/v1/traces","size":12,` + place + `}}`,
		},
		"spawn": {
			Action{Kind: SessionSpawn, Spawn: &Spawn{Bundle: "lint-fix", Depth: 1, Count: 2}},
			head + `"id":"s-7","kind":"session.spawn",` + tail + `,"session_spawn":{"bundle":"lint-fix","count":2,"depth":1}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.action
			a.ID, a.Session, a.Seq, a.At, a.Generation = "s-7", "s", 7, at, 3
			got, err := a.Canonical()
			if err != nil || string(got) != c.want {
				t.Errorf("%v\n got %s\nwant %s", err, got, c.want)
			}
		})
	}
}

func TestCanonicalRefused(t *testing.T) {
	for name, a := range map[string]Action{
		"year":              {Kind: DNSQuery, At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), DNS: &DNS{}},
		"argument_null":     {Kind: OperationCall, Operation: &Operation{Args: []byte(`{"a":null}`)}},
		"argument_fraction": {Kind: OperationCall, Operation: &Operation{Args: []byte(`{"a":1.5}`)}},
		"arguments_no_json": {Kind: OperationCall, Operation: &Operation{Args: []byte(`{`)}},
		"held_too_large":    {Kind: ModelCall, Model: &Model{Held: 1 << 60}},
		"seq_too_large":     {Kind: DNSQuery, Seq: 1 << 53, DNS: &DNS{}},
		"header_with_quote": {Kind: HTTPRequest, HTTP: &HTTP{Headers: map[string][]string{`a":["b"],"c`: nil}}},
		"no_such_kind":      {Kind: "dns.other", DNS: &DNS{}},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := a.Canonical(); err == nil {
				t.Errorf("written as %s", b)
			}
			// An action that has no bytes to judge is denied.
			l := &log{}
			g := NewGate(GateOptions{Session: "s", Mode: "hard", Recorder: l, Policy: Policy{Enforcers: []Bound{
				{Enforcer: &fake{name: "e", kinds: []Kind{DNSQuery, OperationCall, ModelCall}, verdict: allowR}, Mode: "hard", Builtin: true},
			}}})
			a.Session = "s"
			if p, d := g.Decide(t.Context(), &a); p != nil || d.Reason != CodeMalformedAction {
				t.Errorf("%+v", d)
			}
		})
	}
}

// bytesLog is a recorder that keeps what Judged says.
type bytesLog struct {
	log
	judged []string
}

func (l *bytesLog) Decision(ctx context.Context, a *Action, d *Decision, durable bool) (receipts.Hash, error) {
	b, err := a.Judged()
	if err != nil {
		return receipts.Hash{}, err
	}
	l.judged = append(l.judged, string(b))
	return l.log.Decision(ctx, a, d, durable)
}

// The receipt commits to what the enforcers were given, also of an action that
// is changed and decided again, by rules or without asking any.
func TestJudged(t *testing.T) {
	l := &bytesLog{}
	e := &fake{name: "e", verdict: allowR}
	g := NewGate(GateOptions{Session: "s", Mode: "shadow", Recorder: l, Policy: Policy{Enforcers: []Bound{{Enforcer: e, Mode: "shadow", Builtin: true}}}})
	a := get(g, to(t, "https", "a.test:443"))
	for i, change := range []func(){
		func() {},
		func() { a.HTTP.Path = "/other" },
		func() { a.HTTP.Path, a.HardSet = "/third", "loop" },
		func() { a.HTTP.Path, a.HardSet = "/fourth", "" },
	} {
		change()
		g.Decide(t.Context(), a)
		want, err := a.Canonical()
		if err != nil || len(l.judged) != i+1 || l.judged[i] != string(want) {
			t.Fatalf("decision %d: %v\n got %s\nwant %s", i, err, l.judged[i:], want)
		}
		if outside, err := a.Judged(); err != nil || string(outside) != string(want) {
			t.Errorf("afterwards %s, %v", outside, err)
		}
	}
	if e.calls != 3 {
		t.Errorf("asked %d times", e.calls)
	}
}

// TestCanonicalText: whatever an agent writes, the bytes are one JSON value
// that says the same to every reader.
func TestCanonicalText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		method, query, value := rapid.String().Draw(t, "method"), rapid.StringN(0, 50, -1).Draw(t, "query"), string(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
		a := Action{Kind: HTTPRequest, At: at, HTTP: &HTTP{Method: method, Query: query, Headers: map[string][]string{"accept": {value}}}}
		b, err := a.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			HTTP struct {
				Headers map[string][]string `json:"headers"`
				To      map[string]any      `json:"to"`
			} `json:"http_request"`
		}
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if len(back.HTTP.Headers["accept"]) != 1 || len(back.HTTP.To) != 4 {
			t.Fatalf("%s", b)
		}
		if strings.ContainsAny(string(b), "\n\r\x00") {
			t.Fatalf("%q", b)
		}
	})
}

func TestBypassMatrixGrants(t *testing.T) {
	grants, err := Grants([]byte(`{"bundle":"b","egress":[` +
		`{"id":"egress[0]","host":"*.pkg.test","ports":[443,8443],"schemes":["https"],"methods":["GET"],"paths":["/**"],"connection":"acme","env":"T","uses":3,"encoded_slash":true,"blind":"","addresses":["10.0.0.0/8"],"upgrade":"websocket","names":5,"up":1,"down":2,"idle":3000},` +
		`{"id":"egress[1]","host":"db.test","ports":[5432],"blind":"tcp"}]}`))
	if err != nil || len(grants) != 2 {
		t.Fatalf("%v %v", grants, err)
	}
	g := grants[0]
	if g.Rule != "egress[0]" || g.Connection != "acme" || g.Env != "T" || g.Uses != 3 || !g.EncodedPath || !g.WebSocket || g.Names != 5 ||
		len(g.Addresses) != 1 || g.Limits != (Limits{Up: 1, Down: 2, Idle: 3 * time.Second}) {
		t.Errorf("%+v", g)
	}
	if !g.Covers(to(t, "https", "a.pkg.test:8443")) || g.Covers(to(t, "https", "a.pkg.test:80")) || g.Covers(to(t, "https", "pkg.test:443")) || g.Covers(authority.Authority{}) {
		t.Error("covers the wrong places")
	}
	if grants[1].Blind != "tcp" || grants[1].Limits.Or() != (Limits{Up: DefaultUp, Down: DefaultDown, Idle: DefaultIdle}) {
		t.Errorf("%+v", grants[1])
	}
	for name, policy := range map[string]string{
		"EG-101_no_json":   `{`,
		"EG-101_wide":      `{"egress":[{"id":"x","host":"*.com"}]}`,
		"EG-101_star":      `{"egress":[{"id":"x","host":"*"}]}`,
		"EG-101_newline":   `{"egress":[{"id":"x","host":"a.test\nb.test"}]}`,
		"EG-101_port":      `{"egress":[{"id":"x","host":"a.test","ports":[70000]}]}`,
		"EG-66_cleartext":  `{"egress":[{"id":"x","host":"a.test","connection":"c","schemes":["https","http"]}]}`,
		"EG-66_no_scheme":  `{"egress":[{"id":"x","host":"a.test","connection":"c"}]}`,
		"EG-66_blind":      `{"egress":[{"id":"x","host":"a.test","connection":"c","schemes":["https"],"blind":"tls"}]}`,
		"EG-101_addresses": `{"egress":[{"id":"x","host":"a.test","addresses":["10.0.0.0/99"]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if g, err := Grants([]byte(policy)); err == nil {
				t.Errorf("%+v", g)
			}
		})
	}
}
