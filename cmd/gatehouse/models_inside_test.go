//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/enforcers/model"
	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
)

// scanInside looks for credentials as an attacker inside would: in its own
// environment, in every process's environment and arguments, behind open files,
// and in every file that it can read. It also looks for what it does have, a
// placeholder: a scan that finds nothing at all proves nothing.
const scanInside = `
import os, stat
needle, ours = b"%s" + b"%s", b"gatehouse_" + b"ph_"
found, looked, known = [], 0, False
def look(where, b):
    global looked, known
    looked += 1
    known = known or ours in b
    if needle in b:
        found.append(where)
def read(path):
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as f:
                look(path, f.read())
    except OSError:
        pass
look("environment", repr(sorted(os.environb.items())).encode())
for p in [p for p in os.listdir("/proc") if p.isdigit()]:
    for name in ("environ", "cmdline", "maps"):
        read("/proc/" + p + "/" + name)
    try:
        for fd in os.listdir("/proc/" + p + "/fd"):
            read("/proc/" + p + "/fd/" + fd)
    except OSError:
        pass
for root in (os.environ["HOME"], os.getcwd(), "/gatehouse", "/run", "/tmp", "/var", "/etc"):
    for at, dirs, files in os.walk(root):
        for name in files:
            read(os.path.join(at, name))
print("scan:", "looked" if looked > 20 else "blind", "known" if known else "nothing", "found", found)
`

// TestModelSession is one hard session of a live node with model connections,
// looked at from all sides while it runs and when its node is gone.
func TestModelSession(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and a sandbox")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	f := &modelFakes{World: world}
	mark := rand.Text()[:16]
	key := "sk-ant-api03-" + mark + rand.Text() // in no program, as a constant would be
	site, err := world.HTTPS("api.anthropic.com", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Anthropic-Version") == "bad" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"type":"error","error":{"type":"invalid_request_error","message":"no such version"}}`)
			return
		}
		f.handle(w, r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	const agent = `
python3 -c "$SCAN"
call() { curl -sS --max-time 20 -H 'Content-Type: application/json' -d '{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[]}' "$@"; echo; }
call $ANTHROPIC_BASE_URL/v1/messages
call $ANTHROPIC_BASE_URL/v1/messages -H 'Anthropic-Version: bad'
call $ANTHROPIC_BASE_URL/v1/files
call https://api.anthropic.com/v1/messages -H 'X-Api-Key: sk-ant-attackers-own'
echo == no variables
env -i /usr/bin/curl -sS --max-time 20 -H 'Content-Type: application/json' -d '{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[]}' https://api.anthropic.com/v1/messages 2>&1
echo; echo == no checks
env -i /usr/bin/curl -k -sS --max-time 20 -H 'Content-Type: application/json' -d '{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[]}' https://api.anthropic.com/v1/messages 2>&1
echo; echo == end
(ulimit -c unlimited; sh -c 'kill -SEGV $$')
echo ready
while :; do env -i /usr/bin/curl -k -s --max-time 5 https://api.anthropic.com/v1/models >/dev/null 2>&1; /usr/bin/curl -s --noproxy '*' --max-time 5 http://93.184.216.34/ >/dev/null 2>&1; done
`
	n := newLiveNode(t, strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+"connections: [{name: anthropic-main, kind: model, provider: anthropic, credential: \"${file:model.key}\"}]\n", fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: models
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: failure}}]
session:
  agent: {command: {argv: [/bin/bash, -c, %q]}}
  task: go
  timeout: 10m
models: [{connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 1000}]
spend: {limit: 1.00 USD, per_day: 3.00 USD}
`, "SCAN='"+strings.TrimSpace(fmt.Sprintf(scanInside, mark[:8], mark[8:]))+"'\n"+agent))
	n.write("model.key", key)
	n.write("ca.pem", string(world.CA()))
	n.args = []string{"--dev"}
	n.start()
	n.deliver(failure(1))
	n.until("at work", func() bool { return strings.Contains(transcripts(t, n), "\nready") })
	said := transcripts(t, n)
	if strings.Count(said, "hello from the model") < 1 || !strings.Contains(said, "no such version") || !strings.Contains(said, model.CodeFeature) {
		t.Fatalf("the session did not do its work:\n%s", said)
	}

	t.Run("ME-01_scan_inside", func(t *testing.T) {
		if !strings.Contains(said, "scan: looked known found []") {
			t.Errorf("%s", said)
		}
	})
	t.Run("ME-02_scan_outside", func(t *testing.T) {
		search := func(where string, b []byte) {
			if strings.Contains(string(b), mark) {
				t.Errorf("the credential is in %s", where)
			}
		}
		if files := searchTree(t, n.path("state"), search); files < 10 { // cores are an error there
			t.Errorf("only %d files of the state folder were searched", files)
		}
		for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2"} {
			search(path, get(t, "http://"+n.private+path))
		}
		for _, path := range []string{"/v1/status", "/v1/sessions", "/v1/spend"} {
			var answer any
			n.until("shown at "+path, func() bool { return n.client.Get(t.Context(), path, nil, &answer) == nil })
			search(path, fmt.Append(nil, answer))
		}
		search("what the session printed, its error bodies among it", []byte(transcripts(t, n)))
		n.gatehouse(exitOK, "receipts", "export", "-f", n.path("all.gh"))
		for _, name := range []string{"log", "all.gh"} {
			b, err := os.ReadFile(n.path(name))
			if err != nil || len(b) == 0 {
				t.Fatalf("%s: %d bytes, %v", name, len(b), err)
			}
			search(name, b)
		}
	})
	t.Run("ME-23_no_ca_variables", func(t *testing.T) {
		_, bare, _ := strings.Cut(said, "== no variables\n")
		bare, unchecked, _ := strings.Cut(bare, "== no checks\n")
		unchecked, _, _ = strings.Cut(unchecked, "== end")
		// Without variables a client trusts the door by the system's bundle, or does
		// not connect. With its checks off it meets the door all the same.
		if !strings.Contains(bare, "hello from the model") && !strings.Contains(bare, "certificate") {
			t.Errorf("without variables: %s", bare)
		}
		if !strings.Contains(unchecked, "hello from the model") {
			t.Errorf("without checks: %s", unchecked)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.keys) < 2 {
			t.Errorf("the fake answered %d calls", len(f.keys))
		}
		for _, k := range f.keys {
			if k != key { // a way around the mediator brings no key, or the client's own
				t.Errorf("a request came under %q", k)
			}
		}
	})
	t.Run("ME-26_another_uid", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("SKIPPED: only root can become another user")
		}
		doors := find(t, n.path("state"), "door.sock")
		if len(doors) != 1 {
			t.Fatalf("doors of the one session: %q", doors)
		}
		const connect = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint('connected')"
		before := site.Requests()
		for _, path := range append(doors, n.path("state", socketName)) {
			as := func(uid uint32) string {
				cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", connect, filepath.Base(path))
				cmd.Dir = filepath.Dir(path) // a path may be longer than a socket's name
				if uid != 0 {
					cmd.Dir = "/"
					cmd.Args[len(cmd.Args)-1] = path
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
				}
				out, _ := cmd.CombinedOutput()
				return string(out)
			}
			if out := as(0); !strings.Contains(out, "connected") {
				t.Errorf("%s is no socket that anybody could open: %s", path, out)
			}
			for _, uid := range []uint32{65534, 610999} { // nobody, and another session's
				if out := as(uid); !strings.Contains(out, "PermissionError") {
					t.Errorf("uid %d at %s: %s", uid, path, out)
				}
			}
		}
		if site.Requests() != before {
			t.Error("a request went out")
		}
	})
	t.Run("ME-23_mediator_dead", func(t *testing.T) {
		inside := descendants(t, n.cmd.Process.Pid)
		before, bytes := site.Accepts(), site.Bytes()
		n.kill()
		for _, pid := range inside {
			for end := time.Now().Add(patience); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !zombie(pid); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("process %d of the sandbox outlives its node", pid)
				}
			}
		}
		if site.Accepts() != before || site.Bytes() != bytes {
			t.Error("something reached the provider without a mediator")
		}
	})
}

// find returns the paths below root that end in a name.
func find(t *testing.T, root, name string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			paths = append(paths, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}

// zombie tells a process that has ended and whose parent has not looked yet.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(b), ") ")
	return err == nil && strings.HasPrefix(state, "Z")
}

// TestUnmediatedBackend: a session that names one backend without a mediated
// path does not begin, and nothing goes by another way.
func TestUnmediatedBackend(t *testing.T) {
	if testing.Short() {
		t.Skip("short: runs the gatekeeper of a whole node")
	}
	for name, policy := range map[string]string{"ME-23_credential_free": "credential_free", "ME-23_required": "required"} {
		t.Run(name, func(t *testing.T) {
			world, err := outside.New()
			if err != nil {
				t.Fatal(err)
			}
			defer world.Close()
			var sites []*outside.Site
			for i, host := range []string{"api.anthropic.com", "bedrock-runtime.eu-west-1.amazonaws.com"} {
				s, err := world.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(60 + i)}), http.NotFoundHandler())
				if err != nil {
					t.Fatal(err)
				}
				sites = append(sites, s)
			}
			dir := nodeDir(t)
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "model.key"), modelKey)
			write(t, filepath.Join(dir, "ca.pem"), string(world.CA()))
			write(t, filepath.Join(dir, "gatehouse.yaml"), strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+`sandbox: {unlimited: accepted}
connections:
  - {name: anthropic-main, kind: model, provider: anthropic, credential: "${file:model.key}"}
  - {name: bedrock-main, kind: model, provider: bedrock, credential: "${file:model.key}"}
`)
			write(t, filepath.Join(dir, "bundle.yaml"), `apiVersion: gatehouse/v1
kind: Bundle
name: models
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 1m
credentials: `+policy+`
models:
  - {connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 1000}
  - {connection: bedrock-main, allow: ["claude-sonnet-*"], max_output_tokens: 1000}
spend: {limit: 1.00 USD}
`)
			cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", filepath.Join(dir, "gatehouse.yaml"),
				"run", "--dev", "-b", filepath.Join(dir, "bundle.yaml"), "--mode", "hard", "--receipts", filepath.Join(dir, "out.gh"), "--",
				"/bin/sh", "-c", "echo it ran; curl -sS https://api.anthropic.com/ https://bedrock-runtime.eu-west-1.amazonaws.com/"))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitNegative || !strings.Contains(string(out), string(problem.ConnectionUnmediated)) || strings.Contains(string(out), "it ran") {
				t.Errorf("%v\n%s", err, out)
			}
			for _, s := range sites {
				if s.Accepts() != 0 || s.Bytes() != 0 {
					t.Errorf("%d connections reached the outside", s.Accepts())
				}
			}
		})
	}
}
