package main

import (
	"encoding/json"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// agentScript is what an agent inside says to the endpoint, one line of answer
// for each question.
const agentScript = `u=$GATEHOUSE_AGENT_URL
ask() { printf '%s: ' "$1"; shift; curl -sS -o answer -w '%{http_code} ' "$@"; tr -d '\n' < answer; echo; }
ask session ${u}session
ask another ${u}session/01m8kjt9g0mxxc3zz45bd5d9s7
ask event ${u}event
ask operator http://gatehouse.internal/v1/sessions
curl -sS -D head -o /dev/null http://unlisted.test/
receipt=$(sed -n 's/^[Gg]atehouse-[Rr]eceipt: *//p' head | tr -d '\r')
ask explain ${u}explain/$receipt
for n in 1 2 3; do ask child$n -d '{"bundle":"lint"}' ${u}children; done
ask shadow -d '{"bundle":"lint","mode":"shadow"}' ${u}children
ask unnamed -d '{"bundle":"deploy"}' ${u}children
while curl -sS ${u}children | grep -q 'admitted\|preparing\|running'; do sleep 0.1; done
ask children ${u}children
echo done > /gatehouse/out/done`

// TestAgentEndpoint asks the agent's endpoint from inside a real sandbox, of a
// real node, and starts real children.
func TestAgentEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("short: three sandboxes")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT TESTED on this machine: no curl")
	}
	script, err := json.Marshal(agentScript)
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
  timeout: 2m
  children: {bundles: [lint], max: 2}
egress: [{host: listed.test}]
`, `apiVersion: gatehouse/v1
kind: Bundle
name: lint
mode: hard
accepts: member
session:
  agent: {command: {argv: [/bin/sh, -c, "curl -sS ${GATEHOUSE_AGENT_URL}session; echo x > /gatehouse/out/x"]}}
  task: "lint run {{ facts.run_id }}"
  timeout: 1m
`)
	n.start()
	n.settled(n.deliver(failure(1))...)
	var sessions struct{ Items []view.Session }
	n.until("three sessions", func() bool {
		sessions.Items = nil
		return n.client.Get(t.Context(), "/v1/sessions", nil, &sessions) == nil && len(sessions.Items) == 3
	})
	var parent view.Session
	var children []view.Session
	for _, s := range sessions.Items {
		if s.Bundle == "parent" {
			parent = s
		} else {
			children = append(children, s)
		}
	}
	said := lines(t, n, parent.ID)
	wants := map[string]string{
		"session": `200 {"id":"` + parent.ID + `"`, "another": "404 ", "event": "200 {", "operator": "404 ",
		"explain": `200 {"receipt":`, "child1": `201 {"id":"`, "child2": `201 {"id":"`, "child3": `403 `, "shadow": "403 ", "unnamed": "403 ",
		"children": `200 {"children":[{"id":"`,
	}
	for name, want := range wants {
		if !strings.HasPrefix(said[name], want) {
			t.Errorf("%s: %s, want %s", name, said[name], want)
		}
	}
	for name, holds := range map[string]string{
		"child3": `"code":"children_exceeded"`, "shadow": `"code":"bundle_not_covered"`, "unnamed": `"code":"bundle_not_listed"`,
		"explain": `"verdict":"deny"`, "children": `"state":"ended","reason":"completed","exit":0`,
	} {
		if !strings.Contains(said[name], holds) {
			t.Errorf("%s: %s, want %s in it", name, said[name], holds)
		}
	}
	if len(children) != 2 {
		t.Fatalf("%d children", len(children))
	}
	leftBehind(t, n, parent)
	for _, c := range children {
		if c.Parent != parent.ID || c.Event != parent.Event || c.State != "ended" || c.Reason != "completed" || c.Bundle != "lint" || c.Mode != "hard" {
			t.Errorf("child %+v", c)
		}
		out := n.gatehouse(0, "session", "logs", c.ID)
		if !strings.Contains(out, `"parent":"`+parent.ID+`"`) || !strings.Contains(out, `"id":"`+c.ID+`"`) {
			t.Errorf("the child at its own door:\n%s", out)
		}
	}
	if out := n.gatehouse(0, "session", "tail", children[0].ID); !strings.Contains(out, "session.open") || !strings.Contains(out, "session.close") {
		t.Errorf("session tail:\n%s", out)
	}
	if out := n.gatehouse(0, "session", "show", children[0].ID); !strings.Contains(out, parent.ID) {
		t.Errorf("session show does not name the parent:\n%s", out)
	}
}

// lines reads a transcript of "name: answer" lines.
func lines(t *testing.T, n *liveNode, session string) map[string]string {
	t.Helper()
	r, err := n.client.File(t.Context(), "/v1/sessions/"+url.PathEscape(session)+"/logs", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		name, answer, _ := strings.Cut(strings.TrimSpace(l), ": ")
		out[name] = answer
	}
	return out
}

// leftBehind: what the agent left is listed, and handed out by its digest to whoever asks
// for that session's, and no other blob is.
func leftBehind(t *testing.T, n *liveNode, s view.Session) {
	t.Helper()
	var all struct{ Items []api.Artifact }
	if err := n.client.Get(t.Context(), "/v1/sessions/"+s.ID+"/artifacts", nil, &all); err != nil || len(all.Items) != 1 || all.Items[0].Name != "done" || s.Artifacts != 1 {
		t.Fatalf("%d artifacts: %+v, %v", s.Artifacts, all.Items, err)
	}
	path := "/v1/sessions/" + s.ID + "/artifacts/"
	f, err := n.client.File(t.Context(), path+all.Items[0].SHA256, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "done\n" {
		t.Errorf("%q, %v", b, err)
	}
	blobs, err := filepath.Glob(filepath.Join(n.dir, "state", "blobs", "*"))
	if err != nil || len(blobs) < 2 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, b := range blobs {
		if name := filepath.Base(b); name != all.Items[0].SHA256 {
			if _, err := n.client.File(t.Context(), path+name, nil); problem.CodeOf(err) != problem.NotFound {
				t.Errorf("another blob: %v", err)
			}
		}
	}
}
