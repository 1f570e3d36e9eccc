//go:build linux

package gatekeeper

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/internal/problem"
)

// scripted is an agent that prints how it was started and leaves a file, unless
// its task is to do nothing.
const scripted = `#!/bin/sh
if [ "$1" = --version ]; then echo "scripted 1.2.3"; exit 0; fi
for a in "$@"; do printf 'arg[%s]\n' "$a"; done
env | sed 's/^/env /'
if [ -f "$HOME/.gemini/settings.json" ]; then echo "env settings $(cat "$HOME/.gemini/settings.json")"; fi
case "$*" in *nothing*) exit 0;; *fail*) exit 7;; esac
echo done > /gatehouse/out/done
`

// TestScriptedAgents starts each known agent in a real sandbox: a program of
// its name, which finds its task, its settings and the models' base URLs, and
// ends with the right ending.
func TestScriptedAgents(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("NOT TESTED on this machine: no bubblewrap")
	}
	// What the models' mediator would give.
	inside := map[string]string{
		"ANTHROPIC_BASE_URL": "http://gatehouse.internal/m/a", "ANTHROPIC_API_KEY": "gatehouse_ph_a",
		"OPENAI_BASE_URL": "http://gatehouse.internal/m/o/v1", "OPENAI_API_KEY": "gatehouse_ph_o",
		"GOOGLE_GEMINI_BASE_URL": "http://gatehouse.internal/m/g", "GEMINI_API_KEY": "gatehouse_ph_g",
	}
	agents := map[string]struct {
		program, model string   // the model is named in full by the bundle
		args           []string // all of them, "TASK" for the task
		env            []string
	}{
		"claude-code": {"claude", "claude-sonnet-4-6", []string{
			"-p", "--dangerously-skip-permissions", "--mcp-config", `{"mcpServers":{"gatehouse":{"type":"http","url":"http://gatehouse.internal/mcp"}}}`,
			"--model", "claude-sonnet-4-6", "--", "TASK",
		}, []string{
			"ANTHROPIC_BASE_URL=http://gatehouse.internal/m/a", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1",
			"ANTHROPIC_DEFAULT_HAIKU_MODEL=claude-sonnet-4-6",
		}},
		"codex": {"codex", "gpt-5.5", []string{
			"exec", "-c", `mcp_servers.gatehouse={url="http://gatehouse.internal/mcp"}`, "-c", "model_provider=gatehouse", "-c",
			`model_providers.gatehouse={name="gatehouse",base_url="http://gatehouse.internal/m/o/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`,
			"-m", "gpt-5.5", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false",
			"-c", "analytics.enabled=false", "-c", "features.plugins=false", "-c", "features.apps=false", "-c", "web_search=disabled", "--", "TASK",
		}, []string{"OPENAI_API_KEY=gatehouse_ph_o"}},
		"gemini": {"gemini", "gemini-3.1-pro-preview", []string{"--approval-mode=yolo", "--model", "gemini-3.1-pro-preview", "--prompt", "TASK"}, []string{
			"GOOGLE_GEMINI_BASE_URL=http://gatehouse.internal/m/g", "GEMINI_SANDBOX=false",
			`settings {"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}},"mcpServers":{"gatehouse":{"httpUrl":"http://gatehouse.internal/mcp","trust":true}}}`,
		}},
		"opencode": {"opencode", "claude-sonnet-4-6", []string{"run", "--model", "anthropic/claude-sonnet-4-6", "--", "TASK"}, []string{
			"OPENCODE_CONFIG_CONTENT=" + openCodeSettings + `,"mcp":{"gatehouse":{"type":"remote","url":"http://gatehouse.internal/mcp","oauth":false}},"small_model":"anthropic/claude-sonnet-4-6"}`,
		}},
	}
	for name, a := range agents {
		for task, want := range map[string]struct {
			reason string
			exit   int
		}{"fix $(id) `id` \"it\"": {"completed", 0}, "do nothing": {"no_effect", 0}, "fail now": {"failed", 7}} {
			t.Run(name+"/"+want.reason, func(t *testing.T) {
				tools := t.TempDir()
				install(t, tools, a.program, scripted)
				r, out := runAgent(t, tools, name, task, a.model, inside)
				if r.Reason != want.reason || r.Exit == nil || *r.Exit != want.exit {
					t.Errorf("ended %s, exit %v (%s)", r.Reason, r.Exit, r.Detail)
				}
				var args []string
				for l := range strings.Lines(out) {
					if arg, ok := strings.CutPrefix(strings.TrimSuffix(l, "]\n"), "arg["); ok {
						args = append(args, arg)
					}
				}
				wantArgs := slices.Clone(a.args)
				wantArgs[slices.Index(wantArgs, "TASK")] = task
				if !slices.Equal(args, wantArgs) {
					t.Errorf("arguments\n%q\nwant\n%q", args, wantArgs)
				}
				for _, e := range append(a.env, "NODE_EXTRA_CA_CERTS=/etc/gatehouse/session-ca.pem") {
					if !strings.Contains(out, "env "+e+"\n") {
						t.Errorf("the agent does not have %s", e)
					}
				}
			})
		}
	}
	t.Run("command", func(t *testing.T) {
		tools := t.TempDir()
		install(t, tools, "mine", scripted)
		r, out := runAgent(t, tools, `{command: {argv: [mine, --now]}}`, "fix it", "", inside)
		if r.Reason != "completed" || !strings.Contains(out, "arg[--now]\n") || !strings.Contains(out, "env GATEHOUSE_TASK=fix it\n") {
			t.Errorf("ended %s\n%s", r.Reason, out)
		}
	})
	t.Run("not_there", func(t *testing.T) {
		r, _ := runAgent(t, t.TempDir(), "claude-code", "fix it", "", inside)
		if r.Reason != "failed" || r.Detail != string(problem.AgentNotFound) {
			t.Errorf("ended %s (%s)", r.Reason, r.Detail)
		}
	})
}

// install puts a program into the bin folder of a mount.
func install(t *testing.T, tools, name, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(tools, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tools, "bin", name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// runAgent runs one session of a real sandbox through the real gatekeeper.
func runAgent(t *testing.T, tools, agent, task, model string, inside map[string]string) (Result, string) {
	t.Helper()
	p, err := local.New(local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initProgram(t)})
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		t.Skipf("NOT TESTED on this machine: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	src := fmt.Sprintf("apiVersion: gatehouse/v1\nkind: Bundle\nname: fix-ci\naccepts: member\n"+
		"match: [{source: github, endpoint: main, kinds: [workflow_run.completed]}]\n"+
		"session: {agent: %s, task: %q, timeout: 1m, mounts: [{source: %s, path: /opt/tools}]}\n", agent, task, tools)
	if model != "" {
		src += "models: [{connection: m, allow: [\"other-*\", " + model + "], max_output_tokens: 1000}]\nspend: {limit: 1.00 USD}\n"
	}
	w := newWorld(t, []string{src}, withDoors(&doors{inside: Inside{Env: inside}}), func(w *world) {
		w.opts.Providers = map[string]sandbox.Provider{"local": p}
		w.opts.Mediated = func(string) bool { return true }
	})
	id := w.take(failedRun("1"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := w.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.Transcript(id)
	if problem.CodeOf(err) == problem.NotFound {
		return r, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	b, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

// initProgram is gatehouse-init as TestBrokenProviders builds it, with nothing
// broken.
func initProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build(t, dir)
	return filepath.Join(dir, "brokeninit")
}

// TestModelOf: an agent is told the first model that its bundle names in full
// and that is of its own kind.
func TestModelOf(t *testing.T) {
	b := &bundle.Bundle{Models: []bundle.Model{{Allow: []string{"claude-*", "gpt-5.5"}}, {Allow: []string{"claude-opus-5", "gemini-2.5-pro"}}}}
	for agent, want := range map[string]string{"claude-code": "claude-opus-5", "codex": "gpt-5.5", "gemini": "gemini-2.5-pro", "opencode": "gpt-5.5", "command": ""} {
		b.Session.Agent.Name = agent
		if got := modelOf(b); got != want {
			t.Errorf("%s is told %q, want %q", agent, got, want)
		}
	}
	b.Models = b.Models[:1]
	b.Session.Agent.Name = "claude-code"
	if got := argv(b, "fix it"); slices.Contains(got, "--model") {
		t.Errorf("a pattern became a model's name: %q", got)
	}
}

func TestTrialOfACommand(t *testing.T) {
	spec := Trial(&bundle.Bundle{Session: bundle.Session{Agent: bundle.Agent{Name: bundle.AgentCommand, Argv: []string{"mine", "x"}}}})
	if got := spec.Argv[len(spec.Argv)-1]; got != "mine" {
		t.Errorf("argv %q", spec.Argv)
	}
}

// TestNoMCP: a bundle can keep its agent from being told of Gatehouse's MCP
// server; nothing else of how it starts changes.
func TestNoMCP(t *testing.T) {
	said := func(agent string, off bool) string {
		b := &bundle.Bundle{Session: bundle.Session{Agent: bundle.Agent{Name: agent}, NoMCP: off}}
		spec := sandbox.Spec{}
		equip(&spec, b)
		return fmt.Sprint(argv(b, "fix it"), spec.Env)
	}
	for agent := range presets {
		if on, off := said(agent, false), said(agent, true); !strings.Contains(on, mcpServer) || strings.Contains(off, mcpServer) || strings.Contains(off, "--mcp-config") {
			t.Errorf("%s is told\n%s\nand without\n%s", agent, on, off)
		}
	}
	// Of the two that are scripts the second argument decides.
	for agent, script := range map[string]string{"codex": codexScript, "gemini": geminiScript} {
		for _, url := range []string{"", mcpServer} {
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, agent), []byte("#!/bin/sh\necho \"$@\"\ncat \"$HOME/.gemini/settings.json\" 2>/dev/null || true\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script, agent, "fix it", url)
			cmd.Env = []string{"HOME=" + home, "PATH=" + home + ":/usr/bin:/bin"}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "mcp") != (url != "") {
				t.Errorf("%s with %q: %v\n%s", agent, url, err, out)
			}
		}
	}
}
