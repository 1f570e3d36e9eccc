package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/view"
)

// mcpScript is an agent that uses its endpoint by MCP. Its child does the same.
const mcpScript = `curl -sS -D head -o /dev/null http://unlisted.test/
receipt=$(sed -n 's/^[Gg]atehouse-[Rr]eceipt: *//p' head | tr -d '\r')
/opt/mcpclient 'describe describe_session {}' "explain explain_refusal {\"receipt\":\"$receipt\"}" \
  "access request_access {\"receipt\":\"$receipt\"}" "access_again request_access {\"receipt\":\"$receipt\"}" \
  "access_words request_access {\"receipt\":\"$receipt\",\"reason\":\"the reviewer said yes\"}" \
  'operation run_operation {"name":"scm.pr.create","key":"k","arguments":{}}' \
  'child spawn_child {"bundle":"lint"}' 'over spawn_child {"bundle":"lint"}' 'unlisted spawn_child {"bundle":"deploy"}' \
  'granted grant_access {}'
curl -sS -o /dev/null -w 'get: %{http_code}\n' $GATEHOUSE_MCP_URL
while curl -sS ${GATEHOUSE_AGENT_URL}children | grep -q 'admitted\|preparing\|running'; do sleep 0.1; done
echo done > /gatehouse/out/done`

// TestMCPInside uses the tools through the official client from real sandboxes
// of a real node.
func TestMCPInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: two sandboxes")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT TESTED on this machine: no curl")
	}
	client := filepath.Join(tempDir(t), "mcpclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", client, "./testdata/mcpclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the MCP client: %v\n%s", err, out)
	}
	script, err := json.Marshal(mcpScript)
	if err != nil {
		t.Fatal(err)
	}
	n := newLiveNode(t, "", `apiVersion: gatehouse/v1
kind: Bundle
name: parent
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: ["1"], fork: false}}
session:
  agent: {command: {argv: [/bin/bash, -c, `+string(script)+`]}}
  task: "run {{ facts.run_id }}"
  timeout: 3m
  children: {bundles: [lint], max: 1}
  mounts: [{source: `+client+`, path: /opt/mcpclient}]
egress: [{host: listed.test}]
`, `apiVersion: gatehouse/v1
kind: Bundle
name: lint
mode: hard
accepts: member
session:
  agent: {command: {argv: [/opt/mcpclient, "describe describe_session {}", 'spawn spawn_child {"bundle":"lint"}']}}
  task: "lint run {{ facts.run_id }}"
  timeout: 2m
  mounts: [{source: `+client+`, path: /opt/mcpclient}]
`)
	n.start()
	n.settled(n.deliver(failure(1))...)
	var sessions struct{ Items []view.Session }
	n.until("two sessions", func() bool {
		sessions.Items = nil
		return n.client.Get(t.Context(), "/v1/sessions", nil, &sessions) == nil && len(sessions.Items) == 2
	})
	ids := map[string]string{}
	for _, s := range sessions.Items {
		ids[s.Bundle] = s.ID
	}
	said := lines(t, n, ids["parent"])
	for name, want := range map[string][]string{
		"describe": {"ok {", `"id":"` + ids["parent"] + `"`}, "explain": {"ok {", `"verdict":"deny"`},
		"access": {"ok {", `"filed":`}, "access_again": {"ok {"}, "access_words": {"failed {", "access_request"},
		"operation": {"failed {", "operation_unknown"}, "child": {"ok {", ids["lint"]}, "over": {"failed {", "children_exceeded"},
		"unlisted": {"failed {", "bundle_not_listed"}, "granted": {"error "}, "get": {"405"},
	} {
		for _, w := range want {
			if !strings.Contains(said[name], w) {
				t.Errorf("%s: %s, want %s", name, said[name], w)
			}
		}
	}
	child := lines(t, n, ids["lint"])
	if !strings.Contains(child["describe"], `"id":"`+ids["lint"]+`"`) || !strings.Contains(child["spawn"], "failed ") {
		t.Errorf("NE-13: the child at its own door: %v", child)
	}
	t.Run("reviewers_find_it", func(t *testing.T) {
		var steps struct{ Items []view.Step }
		n.until("the request for access", func() bool {
			steps.Items = nil
			return n.client.Get(t.Context(), "/v1/steps", url.Values{"subject": {ids["parent"]}}, &steps) == nil && len(steps.Items) > 0
		})
		if len(steps.Items) != 1 || steps.Items[0].Step != "access" || steps.Items[0].Refusal == "" || steps.Items[0].By != "agent" {
			t.Errorf("%+v", steps.Items)
		}
	})
	t.Run("NE-13_not_on_the_node", func(t *testing.T) {
		for _, at := range []string{n.hooks, n.operator} {
			res, err := http.Post("http://"+at+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode < 400 {
				t.Errorf("%s answers %d", at, res.StatusCode)
			}
		}
	})
}
