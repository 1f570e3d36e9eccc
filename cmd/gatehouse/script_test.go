package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// binary is gatehouse as users run it: sandboxes start it again as their init,
// which a test binary cannot be.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gatehouse-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "gatehouse")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build gatehouse: %v\n%s", err, out)
		return 1
	}
	return wholeSuite(m)
}

// TestScript runs every command line of testdata/script; the examples in docs
// are these files.
func TestScript(t *testing.T) {
	if testing.Short() && os.Getenv("CI") == "" {
		t.Log("short: sandboxes still run, they take a second each")
	}
	testscript.RunT(&scripts{T: t}, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.T().(*scripts).dir = e.WorkDir
			// The users that sessions run under must be able to pass through.
			for dir := e.WorkDir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o711); err != nil {
					return err
				}
			}
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(os.TempDir(), "gatehouse-test-cache"))
			for _, name := range []string{"HOOKS", "OPERATOR", "PRIVATE"} {
				addr, err := freeAddr()
				if err != nil {
					return err
				}
				e.Setenv(name, addr)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "expand": expand, "fill": fill, "guest": guest},
	})
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// await PATTERN COMMAND... runs the command until its output matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await pattern command...")
	}
	pattern := regexp.MustCompile(args[0])
	deadline := time.Now().Add(60 * time.Second)
	var out []byte
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		cmd := exec.CommandContext(ctx, binary, args[1:]...)
		cmd.Dir = ts.MkAbs(".")
		out, _ = cmd.CombinedOutput()
		cancel()
		for _, hit := range suite.In("what "+strings.Join(args[1:], " ")+" printed", out) {
			ts.Fatalf("%s", hit)
		}
		if pattern.Match(out) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s never matched %s; last:\n%s", strings.Join(args[1:], " "), args[0], out)
}

// expand FILE replaces $HOOKS, $OPERATOR and $PRIVATE by free addresses, and
// $WORK by the script's folder.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand file")
	}
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	text := string(b)
	for _, name := range []string{"HOOKS", "OPERATOR", "PRIVATE", "WORK"} {
		text = strings.ReplaceAll(text, "$"+name, ts.Getenv(name))
	}
	ts.Check(os.WriteFile(path, []byte(text), 0o644))
}
