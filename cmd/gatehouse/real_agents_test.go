package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealAgents starts the real agents that are installed on this machine, each
// in its sandbox: make test-agents. They have no model to call here, so that all
// that is judged is that they start and come to an end of their own.
func TestRealAgents(t *testing.T) {
	if os.Getenv("GATEHOUSE_TEST_AGENTS") != "1" {
		t.Skip("set GATEHOUSE_TEST_AGENTS=1, or run make test-agents")
	}
	for agent, program := range map[string]string{"claude-code": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode"} {
		t.Run(agent, func(t *testing.T) {
			at, err := exec.LookPath(program)
			if err != nil {
				t.Skipf("NOT TESTED on this machine: no %s", program)
			}
			mounts := ""
			if !strings.HasPrefix(at, "/usr/") && !strings.HasPrefix(at, "/bin/") {
				mounts = fmt.Sprintf(", mounts: [{source: %s, path: /opt/agent}]", filepath.Dir(filepath.Dir(at)))
			}
			dir := nodeDir(t)
			if err := os.Chmod(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "bundle.yaml")
			write(t, file, fmt.Sprintf("apiVersion: gatehouse/v1\nkind: Bundle\nname: real\naccepts: operator\nsession: {agent: %s, task: Say hello., timeout: 5m%s}\n", agent, mounts))
			run := func(args ...string) (string, int) {
				cmd := exec.CommandContext(t.Context(), binary, args...)
				cmd.Dir = dir
				out, _ := cmd.CombinedOutput()
				return string(out), cmd.ProcessState.ExitCode()
			}
			out, code := run("bundle", "test", "--start", "-b", file)
			if code != exitOK {
				t.Fatalf("it does not start:\n%s", out)
			}
			t.Log(strings.TrimSpace(out))
			if out, _ := run("run", "-b", file); !strings.Contains(out, "gatehouse: session ") || strings.Contains(out, "agent_not_found") || strings.Contains(out, " timeout (") {
				t.Errorf("it does not come to an end of its own:\n%s", out)
			}
		})
	}
}
