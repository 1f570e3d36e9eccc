//go:build linux

package git_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// raw makes a branch with a pack of the given objects and nothing else: git itself
// would send along what it does not see on a branch.
func (s *session) raw(t *testing.T, dir, branch, tip string, objects ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "-C", dir, "pack-objects", "--stdout", "-q")
	cmd.Stdin = strings.NewReader(strings.Join(objects, "\n"))
	pack, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("0", 40) + " " + tip + " refs/heads/" + branch + "\x00 report-status object-format=sha1"
	body := fmt.Sprintf("%04x%s0000%s", len(line)+4, line, pack)
	_, _, text := s.send(t, "git.good.test", "POST", "/acme/shop.git/git-receive-pack", body, http.Header{"Content-Type": {"application/x-git-receive-pack-request"}})
	return text
}

// outsider leaves a commit on the host that no branch holds, as of a pull request
// from a fork, and returns it.
func (w *world) outsider(t *testing.T, ref, path string) string {
	t.Helper()
	work := t.TempDir()
	run(t, "", nil, "clone", "-q", w.bare("acme/shop"), work)
	write(t, filepath.Join(work, path), "on: push\n")
	run(t, work, nil, "add", "-A")
	run(t, work, nil, "commit", "-q", "-m", path)
	run(t, work, nil, "push", "-q", "origin", "HEAD:"+ref)
	return w.tip("acme/shop", ref)
}

// TestUnheld is M-21 for commits that the host has already: what no branch or tag
// of the repository holds is judged as if the session had written it.
func TestUnheld(t *testing.T) {
	const evil, fine = ".github/workflows/evil.yml", "docs/fine.md"
	// Each pushes a branch that holds the outsider's commit, without sending it.
	pushes := map[string]func(t *testing.T, s *session, dir, branch, theirs string) string{
		"direct": func(t *testing.T, s *session, dir, branch, theirs string) string {
			return s.raw(t, dir, branch, theirs)
		},
		"child": func(t *testing.T, s *session, dir, branch, theirs string) string {
			s.must(dir, "checkout", "-q", theirs)
			c := s.commit(dir, "a.txt", "a\n")
			return s.raw(t, dir, branch, c, c, s.must(dir, "rev-parse", c+"^{tree}"), s.must(dir, "rev-parse", c+":a.txt"))
		},
		"merge": func(t *testing.T, s *session, dir, branch, theirs string) string {
			s.must(dir, "checkout", "-q", "--detach", "origin/main")
			mine := s.commit(dir, "a.txt", "a\n")
			s.must(dir, "merge", "-q", "--no-edit", theirs)
			m := s.must(dir, "rev-parse", "HEAD")
			return s.raw(t, dir, branch, m, m, s.must(dir, "rev-parse", m+"^{tree}"), mine, s.must(dir, "rev-parse", mine+"^{tree}"), s.must(dir, "rev-parse", mine+":a.txt"))
		},
	}
	w := newWorld(t)
	bad, good := w.outsider(t, "refs/pull/9/head", evil), w.outsider(t, "refs/pull/10/head", fine)
	dangling := w.outsider(t, "refs/heads/gone", evil)
	run(t, w.bare("acme/shop"), nil, "update-ref", "-d", "refs/heads/gone")
	for name, push := range pushes {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			for kind, theirs := range map[string]string{"pull_request": bad, "dangling": dangling} {
				t.Run("M-21_"+name+"_of_"+kind+"/"+string(mode), func(t *testing.T) {
					s := open(t, w, setup{push: pushBranches, mode: mode})
					dir := s.clone()
					s.must(dir, "fetch", "-q", w.bare("acme/shop"), theirs)
					before := w.receives()
					out := push(t, s, dir, "gatehouse/bad", theirs)
					if !strings.Contains(out, "path_denied") || w.receives() != before || w.tip("acme/shop", "gatehouse/bad") != "" {
						t.Errorf("it was not refused for its path: %q", out)
					}
				})
			}
		}
		t.Run("allowed_path_"+name, func(t *testing.T) {
			s := open(t, w, setup{push: pushBranches})
			dir := s.clone()
			s.must(dir, "fetch", "-q", w.bare("acme/shop"), good)
			out := push(t, s, dir, "gatehouse/good-"+name, good)
			if w.tip("acme/shop", "gatehouse/good-"+name) == "" {
				t.Errorf("it did not go through: %q", out)
			}
			run(t, w.bare("acme/shop"), nil, "update-ref", "-d", "refs/heads/gatehouse/good-"+name)
			all := s.rec.of(enforcers.GitPush)
			if len(all) != 1 || !slices.Contains(all[0].Action.Push.Changed, fine) {
				t.Errorf("the outsider's change was not judged: %+v", all)
			}
		})
	}
	t.Run("own_history", func(t *testing.T) { // a branch that holds a workflow already is the repository's own
		run(t, w.bare("acme/shop"), nil, "branch", "-f", "release", bad)
		s := open(t, w, setup{push: pushBranches})
		dir := s.clone()
		if out := s.raw(t, dir, "gatehouse/release", bad); w.tip("acme/shop", "gatehouse/release") != bad {
			t.Errorf("it did not go through: %q", out)
		}
	})
}
