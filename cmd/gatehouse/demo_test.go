package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// demoOutput runs the demo as a person would and returns what it printed.
func demoOutput(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return output(t, hear(t, exec.CommandContext(t.Context(), binary, append([]string{"demo"}, args...)...)))
}

func output(t *testing.T, cmd *heard) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("stderr:\n%s", errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

var lastLine = regexp.MustCompile(`(?m)^demo: ok, (\d+) attempts, 0 leaks, receipts complete\n\z`)

// TestDemo is M-11 and M-22 in one story: everything hostile is refused, in
// hard mode no byte leaves, and the receipts of all of it verify offline.
func TestDemo(t *testing.T) {
	t.Parallel()
	out, code := demoOutput(t)
	if m := lastLine.FindStringSubmatch(out); code != 0 || m == nil {
		t.Fatalf("exit %d:\n%s", code, out)
	}
}

// TestDemoAsOrdinaryUser is the same without root: on a laptop nobody runs
// agents as root.
func TestDemoAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestDemo ran as an ordinary user already")
	}
	t.Parallel()
	cmd := hear(t, exec.CommandContext(t.Context(), binary, "demo"))
	cmd.Env = append(os.Environ(), "HOME=/nonexistent")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	out, code := output(t, cmd)
	if code != 0 || !lastLine.MatchString(out) {
		t.Fatalf("exit %d:\n%s", code, out)
	}
}

// TestDemoJSON holds the shape that scripts read.
func TestDemoJSON(t *testing.T) {
	t.Parallel()
	out, code := demoOutput(t, "-o", "json")
	var r struct {
		Attempts []struct {
			ID, Shadow, Hard string
			Bytes            *int64 `json:"upstream_bytes_hard"`
		}
		Refusals []struct{ What, Code string }
		Receipts struct {
			Verdict string
			Count   int
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v:\n%s", code, err, out)
	}
	if len(r.Attempts) < 18 || r.Receipts.Verdict != "complete" || r.Receipts.Count == 0 {
		t.Errorf("%d attempts, receipts %+v", len(r.Attempts), r.Receipts)
	}
	if len(r.Refusals) != 1 || r.Refusals[0].Code != "no_match" {
		t.Errorf("refusals %+v", r.Refusals)
	}
	for _, a := range r.Attempts {
		if a.ID != "listed_get" && (a.Bytes == nil || *a.Bytes != 0) {
			t.Errorf("%s: bytes %v", a.ID, a.Bytes)
		}
	}
}

// TestDemoNotices breaks one rule on purpose: a demo that cannot fail would
// prove nothing.
func TestDemoNotices(t *testing.T) {
	cases := map[string]string{
		"egress": `LEAK: unlisted_host in hard: `, // the unlisted host is listed
		"secret": `LEAK: .* canary`,               // a planted secret is handed to the sandbox
	}
	for weaken, want := range cases {
		t.Run(weaken, func(t *testing.T) {
			t.Parallel()
			out, code := demoOutput(t, "--weaken", weaken)
			if code != exitFailed || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, exitFailed, want, out)
			}
		})
	}
}
