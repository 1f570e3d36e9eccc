// Package e2e_test looks at the pages of a real node in a real browser.
package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/internal/notary"
)

const patience = 10 * time.Minute

// modules is where scripts/browser puts what drives the browser.
const modules = "../../.tools/e2e"

// TestUI runs the demo, whose agent makes would-blocks, and looks at its node.
// `make test-ui` installs what it needs.
func TestUI(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	if _, err := os.Stat(filepath.Join(modules, "installed")); err != nil {
		t.Skip("NOT TESTED: run scripts/browser, or make test-ui")
	}
	bin := filepath.Join(t.TempDir(), "gatehouse")
	if out, err := exec.Command("go", "build", "-o", bin, "gatehouse/cmd/gatehouse").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	config, hooks, key := demo(t, bin)
	send(t, hooks, key)
	// A proposal that waits has a page of its own. No receipt can hold an escape.
	out, err := exec.Command(bin, "-c", config, "bundle", "promote", "fix-failing-ci-shadow", "--reason", strings.ReplaceAll(hostile, "\x1b", "")).CombinedOutput()
	if !bytes.Contains(out, []byte("needs          2 people")) {
		t.Fatalf("propose: %v\n%s", err, out)
	}
	link, err := exec.Command(bin, "-c", config, "login").Output()
	if err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"pages.mjs", strings.TrimSpace(string(link))}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		args = append(args, dir)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	keys, err := notary.LoadKeys(filepath.Join(filepath.Dir(config), "state", "keys"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "E2E_MODULES="+abs, "ROOT="+keys.RootFingerprint())
	out, err = cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.HasSuffix(out, []byte("\nok\n")) {
		t.Fatal(err)
	}
}

// hostile is text that a stranger could put into a title. The pages must show
// all of it and run, load or move nothing.
const hostile = `"><script>globalThis.pwned = 1</script><img src=x onerror="globalThis.pwned = 1">` +
	`<button hx-get="/ui/pwned" hx-trigger="load" hx-nonce="x">x</button><a href="javascript:globalThis.pwned=1">x</a>` +
	"<style>body{display:none}</style>\u202eltr\u2066\u200b\U000e0041 \x1b[31m سلام "

// send has the node take an event whose text is hostile, in every place a sender
// can write.
func send(t *testing.T, hooks, key string) {
	t.Helper()
	b, err := os.ReadFile("../../cmd/gatehouse/demo/payloads/workflow_run__completed.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	run := doc["workflow_run"].(map[string]any)
	run["display_title"] = hostile
	run["head_branch"] = hostile
	run["head_commit"].(map[string]any)["message"] = strings.Repeat(hostile, 1+(300<<10)/len(hostile)) // a longer one is quarantined
	doc["repository"].(map[string]any)["description"] = hostile
	if b, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(b)
	r, err := http.NewRequest(http.MethodPost, hooks, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "workflow_run")
	r.Header.Set("X-GitHub-Delivery", "5f0e1f6a-0000-4000-8000-0000deadbeef")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the hostile event: %s", resp.Status)
	}
}

// demo keeps a demo's node up for the test and returns its configuration, the
// URL of its hook, and the file with the hook's key.
func demo(t *testing.T, bin string) (config, hooks, key string) {
	t.Helper()
	cmd := exec.Command(bin, "demo", "--keep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var later bytes.Buffer // what it says once it is up
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-drained
		if err := cmd.Wait(); t.Failed() {
			t.Logf("the node ended with %v and had said:\n%s", err, tail(later.Bytes(), 8<<10))
		}
	})
	kept := regexp.MustCompile(`kept: gatehouse -c (\S+) |^hooks: (\S+), signed with the key in (\S+)`)
	lines := bufio.NewScanner(said)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
		switch m := kept.FindStringSubmatch(lines.Text()); {
		case m == nil:
		case m[1] != "":
			config = m[1]
		default:
			go func() {
				defer close(drained)
				_, _ = io.Copy(&later, said)
			}()
			return config, m[2], m[3]
		}
	}
	close(drained)
	t.Fatalf("the demo kept no node:\n%s", strings.Join(all, "\n"))
	return "", "", ""
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
