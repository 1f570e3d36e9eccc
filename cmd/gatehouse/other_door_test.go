package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatehouse/internal/view"
)

// connects opens a door's socket by its path on the host and says how that went.
const connects = `import socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1])
except OSError as e: print(type(e).__name__)
else: print('connected')
`

// intrudes is an agent that has been told where another session's door is, and
// that session's id, and tries to come in by both.
const intrudes = `/usr/bin/python3 - <<'EOF'
import glob, json, os, socket, urllib.error, urllib.request
text = {t['pointer']: t['untrusted'] for t in json.load(open('/gatehouse/event.json'))['text']}
door, other = text['/workflow_run/name'].split(' ')
reached = []
for path in [door] + [p + door for p in glob.glob('/proc/*/root') + glob.glob('/proc/*/cwd')]:
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(path)
    except OSError: continue
    reached.append(path)
print('door:', reached)
def ask(url, data=None, **headers):
    try: r = urllib.request.urlopen(urllib.request.Request(url, data, headers))
    except urllib.error.HTTPError as e: r = e
    return str(r.status) + ' ' + ' '.join(r.read().decode().split())
base = os.environ['GATEHOUSE_AGENT_URL']
print('by_path:', ask(base + 'session/' + other))
print('by_v1:', ask('http://gatehouse.internal/v1/sessions/' + other))
print('by_explain:', ask(base + 'explain/' + other))
print('by_query:', ask(base + 'session?session=' + other, **{'Gatehouse-Session': other}))
call = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': {'name': 'describe_session', 'arguments': {}}}).encode()
print('by_mcp:', ask(os.environ['GATEHOUSE_MCP_URL'] + '?session=' + other, call, **{
    'Content-Type': 'application/json', 'Accept': 'application/json, text/event-stream', 'Mcp-Session-Id': other, 'Gatehouse-Session': other}))
EOF
echo done > /gatehouse/out/done`

// TestAnotherSessionsDoor: while a session lives, neither the sandbox of another
// nor another user of the host gets to its door or its MCP endpoint.
func TestAnotherSessionsDoor(t *testing.T) {
	if testing.Short() {
		t.Skip("short: two sandboxes")
	}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("NOT TESTED on this machine: no python3")
	}
	bundle := func(name, workflow, script string) string {
		argv, err := json.Marshal([]string{"/bin/bash", "-c", script})
		if err != nil {
			t.Fatal(err)
		}
		return `apiVersion: gatehouse/v1
kind: Bundle
name: ` + name + `
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, workflow_id: "` + workflow + `", fork: false}}
session:
  agent: {command: {argv: ` + string(argv) + `}}
  task: "run {{ facts.run_id }}"
  timeout: 5m
`
	}
	n := newLiveNode(t, "", bundle("lives", "1", "sleep 290"), bundle("intrudes", "2", intrudes))
	n.start()
	n.deliver(failure(1))
	find := func(name, state string) (found view.Session) {
		n.until(name+" is "+state, func() bool {
			var list struct{ Items []view.Session }
			if n.client.Get(t.Context(), "/v1/sessions", nil, &list) != nil {
				return false
			}
			for _, s := range list.Items {
				if s.Bundle == name && s.State == state {
					found = s
					return true
				}
			}
			return false
		})
		return found
	}
	victim, door := find("lives", "running").ID, ""
	if err := filepath.WalkDir(n.path("state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "door.sock" {
			door = path
		}
		return nil
	}); err != nil || door == "" {
		t.Fatalf("no door under the node's state: %v", err)
	}

	told := failure(2)
	told.body = bytes.Replace(told.body, []byte(`"name":"ci"`), []byte(`"name":"`+door+` `+victim+`"`), 1)
	n.settled(n.deliver(told)...)
	own := find("intrudes", "ended").ID
	said := lines(t, n, own)
	if said["door"] != "[]" {
		t.Errorf("from another sandbox: %s", said["door"])
	}
	for name, want := range map[string]string{"by_path": "404 ", "by_v1": "404 ", "by_explain": "404 ", "by_query": own, "by_mcp": own} {
		if !strings.Contains(said[name], want) || strings.Contains(strings.ReplaceAll(said[name], "?session="+victim, ""), `"id":"`+victim) {
			t.Errorf("%s: %q, want %s and nothing of %s", name, said[name], want, victim)
		}
	}

	t.Run("users_of_the_host", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("NOT TESTED: being another user needs root")
		}
		knock := func(uid uint32) string {
			cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", connects, door)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return strings.TrimSpace(string(out))
		}
		// The node's own user gets in: the door is there, and this is the way to it.
		for uid, want := range map[uint32]string{0: "connected", 65534: "PermissionError", 610999: "PermissionError"} {
			if got := knock(uid); got != want {
				t.Errorf("uid %d: %s, want %s", uid, got, want)
			}
		}
	})
	if find("lives", "running").ID != victim {
		t.Error("the session did not outlive the attempts: nothing was tried on a live door")
	}
	n.stop()
}
