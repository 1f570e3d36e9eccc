package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gatehouse-verify": main})
}

// TestScript runs the command on the vectors of package receipts. $V is their
// folder, $ROOT the fingerprint of their root key.
func TestScript(t *testing.T) {
	vectors, err := filepath.Abs("../../receipts/testdata/vectors")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("V", vectors)
			e.Setenv("ROOT", "d5342cb57bd62f6ec24002167e24aaf9a7d3157fc78379524405a8ae6f7f3915")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and compares its exit status: exits N command args...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS command [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		// testscript names the status in its error: "exit status 3".
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// TestReachesNothing: an auditor builds this command; it must not be able to
// reach the network or run a program, and needs no other part of Gatehouse.
func TestReachesNothing(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, banned := range []string{"net", "net/http", "os/exec", "plugin", "crypto/tls"} {
		if slices.Contains(deps, banned) {
			t.Errorf("depends on %s", banned)
		}
	}
	for _, d := range deps {
		if strings.HasPrefix(d, "gatehouse/") && !slices.Contains([]string{"gatehouse/receipts", "gatehouse/internal/canon", "gatehouse/cmd/gatehouse-verify"}, d) {
			t.Errorf("depends on %s", d)
		}
	}
}

// TestCrossBuild: the three systems auditors use, without a C compiler.
func TestCrossBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for three systems")
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			cmd := exec.Command("go", "build", "-o", os.DevNull, ".")
			cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=arm64", "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
