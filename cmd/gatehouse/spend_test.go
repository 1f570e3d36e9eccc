package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/api"
	"gatehouse/internal/outside"
)

// budgets reads the node's ledger.
func (n *liveNode) budgets() api.Budgets {
	n.t.Helper()
	var b api.Budgets
	if err := n.client.Get(n.t.Context(), "/v1/spend", nil, &b); err != nil {
		n.t.Fatal(err)
	}
	return b
}

// TestSpendAfterKill kills a node in the middle of a model call: the call whose
// answer nobody saw counts in full, and the bundle's day goes on from there.
func TestSpendAfterKill(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and a sandbox")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	var calls atomic.Int64
	stuck := make(chan struct{})
	site, err := world.HTTPS("api.anthropic.com", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if r.Header.Get("X-Api-Key") != modelKey {
				w.WriteHeader(http.StatusUnauthorized)
			}
			return
		}
		if calls.Add(1) > 1 {
			close(stuck)
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":100,"output_tokens":10}}`)
	}))
	if err != nil {
		t.Fatal(err)
	}
	const call = `curl -sS $ANTHROPIC_BASE_URL/v1/messages -H 'Content-Type: application/json' -d '{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":1000,\"messages\":[]}'`
	n := newLiveNode(t, strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+"connections: [{name: anthropic-main, kind: model, provider: anthropic, credential: \"${file:model.key}\"}]\n", `apiVersion: gatehouse/v1
kind: Bundle
name: spender
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: ["1"], fork: false}}
session:
  agent: {command: {argv: [/bin/bash, -c, "`+call+`; `+call+`"]}}
  task: "run {{ facts.run_id }}"
  timeout: 2m
models: [{connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 1000}]
spend: {limit: 1.00 USD, per_day: 3.00 USD}
`)
	n.write("model.key", modelKey)
	n.write("ca.pem", string(world.CA()))
	n.args = []string{"--dev"}
	n.start()

	if out := n.gatehouse(0, "model", "test", "anthropic-main", "--dev"); !strings.Contains(out, "takes the credential") {
		t.Errorf("model test: %s", out)
	}
	n.deliver(failure(1))
	n.until("the second call", func() bool {
		select {
		case <-stuck:
			return true
		default:
			return false
		}
	})
	live := byKind(n.budgets(), spend.KindBundle)
	const first = 100*3000 + 10*15000
	if live.Spent != first || live.Held == 0 || live.Limit != 3e9 {
		t.Errorf("before: %+v", live)
	}
	for verb, want := range map[string]string{"spend show --tree": live.Held.String(), "session list": live.Held.String(), "spend show": "spender"} {
		if out := n.gatehouse(0, strings.Fields(verb)...); !strings.Contains(out, want) {
			t.Errorf("%s does not show %s:\n%s", verb, want, out)
		}
	}
	t.Run("ME-16_kill_in_a_call", func(t *testing.T) {
		n.kill()
		n.start()
		if after := byKind(n.budgets(), spend.KindBundle); after.Spent != live.Spent+live.Held || after.Held != 0 {
			t.Errorf("after: %+v, want spent %s", after, live.Spent+live.Held)
		}
		if site.Requests() != 3 {
			t.Errorf("%d requests: a call was sent again", site.Requests())
		}
	})
}

func byKind(all api.Budgets, kind string) spend.Budget {
	for _, b := range all.Budgets {
		if b.Kind == kind {
			return b
		}
	}
	return spend.Budget{}
}

// TestBranches puts children under the session that pays for them.
func TestBranches(t *testing.T) {
	list := []spend.Budget{
		{Kind: spend.KindNode, ID: "node"},
		{Kind: spend.KindSession, ID: "a", Parent: "c"}, {Kind: spend.KindSession, ID: "b"},
		{Kind: spend.KindSession, ID: "c", Parent: "b"}, {Kind: spend.KindSession, ID: "d"},
	}
	ids := func(list []spend.Budget) (out string) {
		for _, b := range list {
			out += b.ID + " "
		}
		return out
	}
	if got := ids(nested(list)); got != "node b c a d " {
		t.Errorf("nested: %s", got)
	}
	if got := ids(branch(list, "c")); got != "a c " {
		t.Errorf("branch: %s", got)
	}
}
