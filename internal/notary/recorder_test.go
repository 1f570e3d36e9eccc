package notary_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// Every kind of action in its closed form: hosts, ids and counters in the clear,
// everything a client chose the words of as a commitment.
func TestActOfEveryKind(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	to, err := authority.New("https", "api.example.com", 443)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(pairs ...string) map[string]receipts.Hash {
		m := map[string]receipts.Hash{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = c.Commit(pairs[i], []byte(pairs[i+1]))
		}
		return m
	}
	cases := map[enforcers.Kind]struct {
		action enforcers.Action
		want   receipts.Act
	}{
		enforcers.NetConnect: {
			enforcers.Action{Connect: &enforcers.Connect{To: to, Blind: true}},
			receipts.Act{Scheme: "https", Host: "api.example.com", Port: 443, Blind: true},
		},
		enforcers.HTTPRequest: {
			enforcers.Action{Connection: "acme", HTTP: &enforcers.HTTP{To: to, Method: "POST", Path: "/a/b", Query: "q=1", Body: enforcers.Body{Mode: "whole", Length: 4, Bytes: []byte("body")}}},
			receipts.Act{
				Scheme: "https", Host: "api.example.com", Port: 443, Method: "POST", Connection: "acme", Authority: true,
				Args: commit("path", "/a/b", "query", "q=1", "body", "body"), Units: map[string]uint64{"body": 4},
			},
		},
		enforcers.DNSQuery: {
			enforcers.Action{DNS: &enforcers.DNS{Name: "a.example.com", Type: "AAAA"}},
			receipts.Act{Host: "a.example.com", Name: "AAAA"},
		},
		enforcers.GitFetch: {
			enforcers.Action{Fetch: &enforcers.Fetch{To: to, Repository: "1296269", Path: "acme/shop"}},
			receipts.Act{Scheme: "https", Host: "api.example.com", Port: 443, Repository: "1296269", Args: commit("path", "acme/shop")},
		},
		enforcers.GitPush: {
			enforcers.Action{Push: &enforcers.Push{
				To: to, Repository: "1296269", Path: "acme/shop", Changed: []string{"a.go", "b.go"},
				Commands: []enforcers.RefUpdate{{Ref: "refs/heads/x", Old: "00", New: "11"}, {Ref: "refs/heads/y", Old: "22", New: "33"}},
			}},
			receipts.Act{
				Scheme: "https", Host: "api.example.com", Port: 443, Repository: "1296269", Authority: true,
				Args:  commit("path", "acme/shop", "ref", "refs/heads/x\nrefs/heads/y", "update", "00 11\n22 33", "changed", "a.go\nb.go"),
				Units: map[string]uint64{"commands": 2, "changed": 2},
			},
		},
		enforcers.ModelCall: {
			enforcers.Action{Connection: "anthropic-main", Model: &enforcers.Model{To: to, Model: "claude-sonnet-4", MaxTokens: 1000}},
			receipts.Act{
				Scheme: "https", Host: "api.example.com", Port: 443, Connection: "anthropic-main", Name: "claude-sonnet-4", Authority: true,
				Units: map[string]uint64{"max_tokens": 1000},
			},
		},
		enforcers.OperationCall: {
			enforcers.Action{Operation: &enforcers.Operation{Name: "scm.comment", Args: []byte(`{"text":"hello"}`)}},
			receipts.Act{Name: "scm.comment", Authority: true, Args: commit("arguments", `{"text":"hello"}`)},
		},
		enforcers.TelemetryEmit: {
			enforcers.Action{Connection: "langfuse", Telemetry: &enforcers.Telemetry{To: to, Path: "/v1/traces", Size: 99}},
			receipts.Act{
				Scheme: "https", Host: "api.example.com", Port: 443, Connection: "langfuse", Authority: true,
				Args: commit("path", "/v1/traces"), Units: map[string]uint64{"body": 99},
			},
		},
		enforcers.SessionSpawn: {
			enforcers.Action{Spawn: &enforcers.Spawn{Bundle: "lint-fix", Depth: 1, Count: 2}},
			receipts.Act{Name: "lint-fix", Authority: true, Units: map[string]uint64{"depth": 1, "count": 2}},
		},
	}
	for kind, k := range cases {
		t.Run(string(kind), func(t *testing.T) {
			a := k.action
			a.ID, a.Session, a.Kind, a.Generation, a.At = "S1-1", "S1", kind, 7, n.clock.Now()
			_, d := get(t, c, 1, "/")
			d.Held, d.Fault, d.Dev = 12, "trap", true
			leaf, err := c.Recorder(doorObs).Decision(t.Context(), &a, d, true)
			if err != nil {
				t.Fatal(err)
			}
			rs := n.chainOf("S1")
			r := rs[len(rs)-1]
			want := k.want
			want.ID, want.Kind = "S1-1", string(kind)
			if d := cmp.Diff(&want, r.Act); d != "" {
				t.Fatal(d)
			}
			input, err := a.Canonical()
			if err != nil {
				t.Fatal(err)
			}
			if r.In != c.Commit("in", input) {
				t.Fatal("in is not the commitment to the action as enforcers saw it")
			}
			wantDec := &receipts.Dec{
				Verdict: receipts.Allow, Mode: receipts.Hard, Passed: true, Fault: "trap", Rule: "egress[0]", Reason: "listed",
				Policy: sum(bundle), By: "egress", Gen: 7, Fuel: 12, Dur: 3, Held: 12, Dev: true,
			}
			if d := cmp.Diff(wantDec, r.Dec); d != "" {
				t.Fatal(d)
			}
			forwarded(c, leaf)
		})
	}
	closeChain(t, c, "completed")
	want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
}

// Words that are no codes never stop a receipt and never get into one.
func TestWordsAreReplaced(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	for name, words := range map[string]string{
		"sentence": "please look at this", "control": "a\x00b", "quote": `a"b`, "umlaut": "sch\u00f6n", "long": strings.Repeat("x", 300),
	} {
		t.Run(name, func(t *testing.T) {
			a, d := get(t, c, 1, words)
			a.HTTP.Method, d.Reason, d.Rule, d.By = words, words, words, words
			leaf, err := c.Recorder(doorObs).Decision(t.Context(), a, d, true)
			if err != nil {
				t.Fatal(err)
			}
			c.Recorder(doorObs).Outcome(leaf, enforcers.Outcome{Effect: words, Code: words, Address: words, Status: 99999})
			n.event("behind the outcome") // durable after it
			rs := n.chainOf("S1")
			dec, out := rs[len(rs)-2], rs[len(rs)-1]
			if dec.Dec.Reason != "unlisted" || dec.Act.Method != "unlisted" || dec.Red["text"] != 4 {
				t.Fatalf("%+v %+v %v", dec.Dec, dec.Act, dec.Red)
			}
			if out.Out == nil || out.Out.Effect != enforcers.Unknown || out.Out.Code != "unlisted" || out.Out.Address != "unlisted" || out.Out.Status != 0 {
				t.Fatalf("%+v", out.Out)
			}
		})
	}
	if err := c.Recorder(doorObs).Progress(t.Context(), sum([]byte("x")), enforcers.Outcome{}, true); err == nil {
		t.Error("progress of an action without an open decision")
	}
}
