//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

func TestAgentIsUnprivileged(t *testing.T) {
	r := run(t, sandbox.Spec{}, nil, `id -u; id -g; grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'; pwd; ls -d "$HOME"; hostname 2>/dev/null || cat /proc/sys/kernel/hostname`)
	want := `1000
1000
CapInh:0000000000000000
CapPrm:0000000000000000
CapEff:0000000000000000
CapBnd:0000000000000000
CapAmb:0000000000000000
NoNewPrivs:1
Seccomp:2
/workspace
/home/agent
gatehouse
`
	if diff := cmp.Diff(want, r.out); diff != "" {
		t.Errorf("inside (-want +got):\n%s", diff)
	}
	if r.Exit != 0 || r.Reason != sandbox.Completed {
		t.Errorf("end %+v", r.End)
	}
}

// TestUmask: the agent has the umask that programs expect, whatever the node's is,
// and reads what was written for it.
func TestUmask(t *testing.T) {
	r := run(t, sandbox.Spec{Files: map[string][]byte{"event.json": []byte("{}")}}, nil,
		"umask; touch f; stat -c %a f /gatehouse /gatehouse/event.json /etc /etc/passwd /etc/ssl/certs; ls / >/dev/null && echo listed")
	if want := "0022\n644\n755\n644\n755\n644\n755\nlisted\n"; r.out != want {
		t.Errorf("output:\n%s\nwant:\n%s", r.out, want)
	}
}

func TestKernelUserIsNeverRoot(t *testing.T) {
	p, o := provider(t)
	b := start(t, p, sandbox.Spec{Argv: []string{"/bin/sh", "-c", "touch /workspace/mine /home/agent/mine /tmp/mine /gatehouse/out/mine"}}, nil)
	if r := finish(t, b); r.Exit != 0 {
		t.Fatalf("end %+v %s", r.End, r.out)
	}
	for _, f := range []string{"workspace/mine", "home/mine", "tmp/mine", "out/mine"} {
		fi, err := os.Stat(filepath.Join(o.Run, "s-1", f))
		if err != nil {
			t.Fatal(err)
		}
		if owner := ownerOf(fi); owner == 0 {
			t.Errorf("%s belongs to kernel uid 0", f)
		} else if os.Geteuid() == 0 && (owner < 610000 || owner > 610999) {
			t.Errorf("%s belongs to uid %d, outside sandbox.uids", f, owner)
		}
	}
}

func TestExitCodes(t *testing.T) {
	cases := map[string]struct {
		script string
		exit   int
		reason string
	}{
		"zero":     {"exit 0", 0, sandbox.Completed},
		"seven":    {"exit 7", 7, sandbox.Faulted},
		"sigkill":  {"kill -KILL $$", 137, sandbox.Faulted},
		"sigsegv":  {"kill -SEGV $$", 139, sandbox.Faulted},
		"orphan":   {"(sleep 100 &) ; exit 3", 3, sandbox.Faulted},
		"last_one": {"exit 255", 255, sandbox.Faulted},
		"SB-26_traced_stop_is_no_end": {"(while ! grep -q '^State:.t' /proc/$$/status; do :; done; kill -KILL $$) & exec /usr/bin/python3 -c '" +
			"import ctypes, os, signal; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP)'", 137, sandbox.Faulted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			needs(t, c.script)
			r := run(t, sandbox.Spec{}, nil, c.script)
			if r.Exit != c.exit || r.Reason != c.reason {
				t.Errorf("got %d %s, want %d %s\n%s", r.Exit, r.Reason, c.exit, c.reason, r.out)
			}
		})
	}
}

func TestUnknownAgent(t *testing.T) {
	p, _ := provider(t)
	b := start(t, p, sandbox.Spec{Argv: []string{"no-such-agent"}}, nil)
	_, err := b.Run(t.Context())
	if problem.CodeOf(err) != problem.AgentNotFound || !strings.Contains(err.Error(), "no-such-agent") {
		t.Errorf("got %v", err)
	}
}

func TestFilesAndEnvironment(t *testing.T) {
	t.Setenv("GATEHOUSE_CANARY", "canary-in-the-environment")
	r := run(t, sandbox.Spec{
		Env:   map[string]string{"EXTRA": "given"},
		Files: map[string][]byte{"event.json": []byte(`{"id":"1"}`)},
	}, nil, `cat /gatehouse/event.json; echo; env | sort; echo changed > /gatehouse/event.json || echo read-only; cat /proc/self/environ /proc/1/environ`)
	// What it prints and its complaints come by two ways, in either order.
	if !strings.Contains(r.out, `{"id":"1"}`) || !strings.Contains(r.out, "EXTRA=given\n") || !strings.Contains(r.out, "read-only") {
		t.Errorf("inside:\n%s", r.out)
	}
	if strings.Contains(r.out, "canary") {
		t.Errorf("the host's environment is inside:\n%s", r.out)
	}
}
