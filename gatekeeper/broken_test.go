//go:build linux

package gatekeeper

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/internal/problem"
)

// breakage breaks the local provider in one place.
type breakage struct {
	breaks func(*testing.T, *local.Options)
	lacks  []string // one of these is named in the result; nil = nothing is broken
	failed string   // a case that stands as failed in the report
}

// otherVersion is the breakage that is no lack of the machine.
const otherVersion = "an_init_of_another_version"

// breakages are all of them, by name, and the folder of what they need.
func breakages(t *testing.T) (cases map[string]breakage, dir string) {
	t.Helper()
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("NOT TESTED on this machine: no bubblewrap")
	}
	if dir, err = os.MkdirTemp("", "gatehouse-broken-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := build(t, dir)
	// bwrap with its arguments changed by a shell script.
	wrapped := func(t *testing.T, name, script string) string {
		path := filepath.Join(dir, "bwrap-"+name)
		if err := os.WriteFile(path, []byte("#!/bin/bash\nargs=(\"$@\")\n"+script+"\nexec "+real+" \"${args[@]}\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inits := func(broken string) func(*testing.T, *local.Options) {
		return func(t *testing.T, o *local.Options) {
			o.InitPath = filepath.Join(dir, "init-"+broken)
			if err := os.WriteFile(o.InitPath, append(append([]byte{}, program...), " "+broken...), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]breakage{
		"nothing": {breaks: inits("nothing")},
		"network_open": {breaks: func(t *testing.T, o *local.Options) {
			inits("nothing")(t, o)
			o.Bwrap = wrapped(t, "net", `for i in "${!args[@]}"; do [ "${args[$i]}" = --unshare-all ] && args[$i]="--unshare-all --share-net"; done; set -- ${args[0]} ${args[1]} --share-net "${args[@]:2}"; args=("$@")
for i in "${!args[@]}"; do [ "${args[$i]}" = "--unshare-all --share-net" ] && args[$i]=--unshare-all; done`)
		}, lacks: []string{"loopback", "SB-09"}},
		"host_proc": {breaks: func(t *testing.T, o *local.Options) {
			inits("nothing")(t, o)
			o.Bwrap = wrapped(t, "proc", `out=(); for a in "${args[@]}"; do [ "$a" = --proc ] && { out+=(--ro-bind /proc); } || out+=("$a"); done; args=("${out[@]}")`)
		}, lacks: []string{"user namespace cannot be made"}}, // nothing inside finds itself in it
		"proc_unmasked": {breaks: func(t *testing.T, o *local.Options) {
			inits("nothing")(t, o)
			o.Bwrap = wrapped(t, "unmasked", `out=(); while [ ${#args[@]} -gt 0 ]; do
  if [ "${args[0]}" = --ro-bind ] && [ "${args[1]}" = /dev/null ]; then args=("${args[@]:3}"); else out+=("${args[0]}"); args=("${args[@]:1}"); fi
done; args=("${out[@]}")`)
		}, lacks: []string{"SB-45"}, failed: "SB-45"},
		"secret_in_the_environment": {breaks: inits("environment"), lacks: []string{"SB-01"}, failed: "SB-01"},
		"vsock_and_no_filter":       {breaks: inits("filter"), lacks: []string{"SB-"}, failed: "SB-14"},
		"kuid_0": {breaks: func(t *testing.T, o *local.Options) {
			inits("nothing")(t, o)
			if os.Geteuid() != 0 {
				t.Skip("NOT TESTED as an ordinary user: needs a set-user-id program")
			}
			o.Bwrap = wrapped(t, "root", `set -- `+asRoot(t, dir)+` `+real+` "${args[@]}"; exec "$@"`)
		}, lacks: []string{"SB-"}, failed: "SB-31"},
		"probe_without_controls":   {breaks: inits("controls"), lacks: []string{"SB-"}, failed: "SB-25"},
		"probe_that_finds_nothing": {breaks: inits("empty"), lacks: []string{"environment_clean", "SB-09"}},
		"probe_that_cannot_run":    {breaks: inits("dies"), lacks: []string{"probe"}, failed: "probe"},
		otherVersion:               {breaks: func(_ *testing.T, o *local.Options) { o.InitPath = "/bin/true" }, lacks: nil, failed: "start"},
	}, dir
}

// TestBrokenProviders breaks the local provider on purpose, each time in one
// place, and has the real gatekeeper refuse it in hard mode with the code
// provider_capability_missing before the agent starts. The first case is the
// control: nothing is broken, and the agent runs.
func TestBrokenProviders(t *testing.T) {
	cases, _ := breakages(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := local.Options{Run: filepath.Join(t.TempDir(), "run")}
			c.breaks(t, &o)
			p, err := local.New(o)
			if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
				t.Skipf("NOT TESTED on this machine: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, []string{strings.Replace(fixCI, "accepts:", "mode: hard\naccepts:", 1)}, func(w *world) {
				w.opts.Providers, w.opts.Unlimited = map[string]sandbox.Provider{"local": &patient{p}}, true
			})
			w.refuses(name, c)
		})
	}
}

// refuses has a session of the broken provider, which must not begin.
func (w *world) refuses(name string, c breakage) {
	t := w.t
	t.Helper()
	id := w.take(failedRun(name))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := w.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if name == otherVersion {
		// Not a lack of the machine: the session failed, and nothing ran.
		if r.State != "ended" || r.Reason != "failed" || r.Exit != nil {
			t.Errorf("%+v", r)
		}
		return
	}
	if c.lacks == nil {
		if r.State != "ended" || r.Exit == nil || *r.Exit != 0 {
			raw, _ := os.ReadFile(filepath.Join(w.folder(id), "probe.json"))
			t.Fatalf("the control did not run: %+v\n%s", r, raw)
		}
		return
	}
	if r.State != "refused" || r.Code != string(problem.ProviderCapabilityMissing) || r.Exit != nil {
		t.Fatalf("the session was not refused: %+v", r)
	}
	named := false
	for _, lack := range c.lacks {
		named = named || strings.Contains(r.Detail, lack)
	}
	if !named {
		t.Errorf("the result names %q, want one of %v", r.Detail, c.lacks)
	}
	w.wantStory(id, "open admitted, preparing, refused(provider_capability_missing), close refused")
	if c.failed != "" {
		reported(t, w, id, c.failed)
	}
}

// reported checks that a case stands as failed in the session's probe report.
func reported(t testing.TB, w *world, id, want string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.folder(id), "probe.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report sandbox.Report
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range report.Cases {
		if c.ID == want && c.Outcome == sandbox.Failed {
			return
		}
		if c.ID == want {
			found = append(found, fmt.Sprintf("%s: %s %s", c.Name, c.Outcome, c.Evidence))
		}
	}
	t.Errorf("%s is not failed: %v", want, found)
}

// patient gives a real sandbox what the agent of the bundle is not: a program
// that exists.
type patient struct{ *local.Provider }

func (p *patient) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	s.Argv = []string{"/bin/sh", "-c", "echo done > /gatehouse/out/done"}
	return p.Provider.Start(ctx, s, door)
}

func build(t *testing.T, dir string) []byte {
	t.Helper()
	path := filepath.Join(dir, "brokeninit")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/brokeninit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// asRoot makes a set-user-id program that becomes root and executes the rest of
// its command line.
func asRoot(t *testing.T, dir string) string {
	t.Helper()
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil || at.Flags&unix.ST_NOSUID != 0 {
		t.Skip("NOT TESTED on this machine: the folder for temporary files honours no set-user-id bit")
	}
	path := filepath.Join(dir, "as-root")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/asroot")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	return path
}
