//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/sandboxtest"
)

// withPodman makes the provider podman's.
func withPodman(o *local.Options) { o.Podman = "podman" }

// TestPodmanConformance holds podman's containers to the matrix.
func TestPodmanConformance(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED as an ordinary user: the oci provider needs root")
	}
	p, o := provider(t, withPodman)
	forget(t, o)
	sandboxtest.Test(t, &sandboxtest.Suite{Provider: p, Base: sandbox.Spec{Unlimited: true}, Dir: t.TempDir(), Quick: testing.Short()})
}

// TestPodmanBroken: a container that is open in one place is told by the probe,
// or does not start.
func TestPodmanBroken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED as an ordinary user: the oci provider needs root")
	}
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("NOT TESTED on this machine: no podman")
	}
	cases := map[string]struct {
		from, to string
		id       string // of the failed case; "" = it does not start
	}{
		"network_of_the_host": {"'--network none'", "host", ""},
		"kernel_uid_0":        {"*' 0:6'*':1'", "0:0:1", ""},
		"proc_not_masked":     {"*' mask='*", "unmask=/proc/timer_list", "SB-45"},
		"a_writable_root":     {"*' --read-only'", "--tty=false", "SB-33"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "podman")
			script := "#!/bin/bash\nargs=()\nfor a in \"$@\"; do case \"$last $a\" in " + c.from + ") a='" + c.to + "';; esac; last=$a; args+=(\"$a\"); done\nexec podman \"${args[@]}\"\n"
			if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			p, o := provider(t, withPodman, func(o *local.Options) { o.Podman = program })
			forget(t, o)
			b, err := p.Start(t.Context(), sandbox.Spec{Session: "s-1", Argv: []string{"true"}, Unlimited: true, Timeout: time.Minute}, nil)
			if c.id == "" {
				if err == nil {
					_ = b.Close()
					t.Fatal("it started")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			report, err := b.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range report.Cases {
				if k.ID == c.id && k.Outcome == sandbox.Failed {
					return
				}
			}
			t.Errorf("%s is not failed: %+v", c.id, report.Cases)
		})
	}
}

// forget removes what podman keeps below /run of a test's storage.
func forget(t *testing.T, o local.Options) {
	t.Helper()
	conf, err := os.ReadFile(filepath.Join(filepath.Dir(o.Run), "podman", "storage.conf"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(conf), `runroot = "`)
	runroot, _, found := strings.Cut(after, `"`)
	if !found || !strings.HasPrefix(runroot, "/run/gatehouse-podman/") {
		t.Fatalf("no runroot in:\n%s", conf)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(runroot); err != nil {
			t.Error(err)
		}
	})
}
