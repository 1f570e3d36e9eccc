//go:build linux

package quarantine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "gatehouse/gatekeeper/sandbox/initd" // a change of what runs inside outdates cached results
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/problem"
)

// initPath is the real gatehouse-init, built once.
var initPath string

func TestMain(m *testing.M) { os.Exit(programtest.Main(m, &initPath)) }

func runner(t *testing.T) *quarantine.Runner {
	t.Helper()
	p, err := local.New(local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initPath})
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		t.Skipf("NOT TESTED on this machine: %v; %s", err, problem.HintOf(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &quarantine.Runner{Provider: p}
}

// repo is a real repository with a history to push from.
type repo struct {
	t     *testing.T
	dir   string
	known []string // what the last pack was made against: its branches and tags
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.commit("README", "hello\n")
	r.commit("src/main.go", "package main\n")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	return r.in("", args...)
}

func (r *repo) in(stdin string, args ...string) string {
	r.t.Helper()
	return strings.TrimSpace(string(r.bytes(stdin, args...)))
}

func (r *repo) raw(args ...string) []byte { return r.bytes("", args...) }

// objects packs single objects.
func (r *repo) objects(ids ...string) []byte {
	return r.bytes(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", "-q")
}

func (r *repo) bytes(stdin string, args ...string) []byte {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-C", r.dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, said.String())
	}
	return out.Bytes()
}

// commit writes one file and commits everything.
func (r *repo) commit(path, content string) string {
	r.t.Helper()
	full := filepath.Join(r.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "change "+path)
	return r.git("rev-parse", "HEAD")
}

// file commits one file to a branch without a past, whatever a file system would
// say of its path.
func (r *repo) file(path string) string {
	r.t.Helper()
	r.in("commit refs/heads/long\ncommitter t <t@example.com> 1700000000 +0000\ndata 1\nx\nM 100644 inline "+path+"\ndata 1\nx\n", "fast-import", "--quiet")
	return r.git("rev-parse", "long")
}

// pack packs what leads to want and not to have.
func (r *repo) pack(want, have []string, extra ...string) []byte {
	r.t.Helper()
	r.known = have
	revs := strings.Join(want, "\n") + "\n"
	for _, h := range have {
		revs += "^" + h + "\n"
	}
	args := append([]string{"-C", r.dir, "pack-objects", "--revs", "--stdout", "-q"}, extra...)
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Stdin = strings.NewReader(revs)
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("pack-objects: %v", err)
	}
	return out
}

// base answers from the repository as an upstream would.
func (r *repo) base(_ context.Context, n quarantine.Need, to string) error {
	if n.History {
		return os.WriteFile(to, r.pack(n.Want, n.Have, "--filter=tree:0"), 0o600)
	}
	var ids strings.Builder
	for _, c := range n.Want {
		fmt.Fprintln(&ids, c)
		fmt.Fprintln(&ids, r.git("rev-parse", c+"^{tree}"))
		for line := range strings.Lines(r.git("ls-tree", "-r", "-t", c)) {
			if f := strings.Fields(line); f[1] == "tree" {
				fmt.Fprintln(&ids, f[2])
			}
		}
	}
	return os.WriteFile(to, r.objects(strings.Fields(ids.String())...), 0o600)
}

var jobs atomic.Int64

// inspect looks into one push.
func inspect(t *testing.T, q *quarantine.Runner, r *repo, pack []byte, question quarantine.Question) (quarantine.Report, error) {
	t.Helper()
	dir := t.TempDir()
	question.Pack = pack != nil
	question.Known = append(question.Known, r.known...)
	for _, c := range question.Commands {
		if c.Old != none {
			question.Known = append(question.Known, c.Old)
		}
	}
	if pack != nil {
		if err := os.WriteFile(filepath.Join(dir, quarantine.PackFile), pack, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return q.Inspect(t.Context(), quarantine.Job{ID: fmt.Sprintf("q-%d", jobs.Add(1)), Dir: dir, Question: question, Base: r.base})
}
