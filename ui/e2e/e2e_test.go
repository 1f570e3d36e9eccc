// Package e2e_test looks at the pages of a real node in a real browser.
package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
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
	config := demo(t, bin)
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
	cmd.Env = append(os.Environ(), "E2E_MODULES="+abs)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.HasSuffix(out, []byte("\nok\n")) {
		t.Fatal(err)
	}
}

// demo keeps a demo's node up for the test and returns its configuration.
func demo(t *testing.T, bin string) string {
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
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	kept := regexp.MustCompile(`kept: gatehouse -c (\S+) `)
	lines := bufio.NewScanner(said)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
		if m := kept.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return m[1]
		}
	}
	t.Fatalf("the demo kept no node:\n%s", strings.Join(all, "\n"))
	return ""
}
