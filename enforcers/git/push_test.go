//go:build linux

package git_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/receipts"
)

// TestPush pushes with the real git to a real git server.
func TestPush(t *testing.T) {
	w := newWorld(t)
	s := open(t, w, setup{push: pushBranches})
	push := func(t *testing.T, dir string, args ...string) string {
		t.Helper()
		out, err := s.git(dir, append([]string{"push"}, args...)...)
		if err != nil {
			t.Fatalf("push: %v\n%s", err, out)
		}
		return out
	}
	t.Run("branch", func(t *testing.T) {
		dir := s.clone()
		tip := s.commit(dir, "a.txt", "a\n")
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/one")
		if got := w.tip("acme/shop", "gatehouse/one"); got != tip {
			t.Errorf("the branch is at %q, want %s", got, tip)
		}
		next := s.commit(dir, "a.txt", "b\n")
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/one")
		if got := w.tip("acme/shop", "gatehouse/one"); got != next {
			t.Errorf("the branch is at %q, want %s", got, next)
		}
		if len(s.before) != 2 || s.before[1].Commands[0] != (quarantine.Command{Ref: "refs/heads/gatehouse/one", Old: tip, New: next}) {
			t.Errorf("told before: %+v", s.before)
		}
	})
	t.Run("from_a_shallow_clone", func(t *testing.T) {
		dir := s.clone("--depth=1")
		tip := s.commit(dir, "b.txt", "b\n")
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/shallow")
		if got := w.tip("acme/shop", "gatehouse/shallow"); got != tip {
			t.Errorf("the branch is at %q, want %s", got, tip)
		}
	})
	t.Run("from_a_partial_clone", func(t *testing.T) {
		dir := s.clone("--filter=blob:none")
		s.commit(dir, "c.txt", "c\n")
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/partial")
	})
	t.Run("chunked", func(t *testing.T) { // over http.postBuffer: probe, then chunks
		dir := s.clone()
		b := make([]byte, 5<<20)
		_, _ = rand.Read(b)
		tip := s.commit(dir, "large.bin", string(b))
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/large")
		if got := w.tip("acme/shop", "gatehouse/large"); got != tip {
			t.Errorf("the branch is at %q, want %s", got, tip)
		}
	})
	t.Run("atomic_two", func(t *testing.T) {
		dir := s.clone()
		s.commit(dir, "d.txt", "d\n")
		push(t, dir, "--atomic", "origin", "HEAD:refs/heads/gatehouse/x", "HEAD~1:refs/heads/gatehouse/y")
		if w.tip("acme/shop", "gatehouse/x") == "" || w.tip("acme/shop", "gatehouse/y") == "" {
			t.Error("a branch is missing")
		}
	})
	t.Run("nothing_new", func(t *testing.T) {
		dir := s.clone()
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/same")
	})
	t.Run("lost_lease", func(t *testing.T) { // somebody else was faster: the host says so
		dir := s.clone()
		s.commit(dir, "e.txt", "e\n")
		push(t, dir, "origin", "HEAD:refs/heads/gatehouse/lease")
		work := t.TempDir()
		run(t, "", nil, "clone", "-q", "-b", "gatehouse/lease", w.bare("acme/shop"), work)
		write(t, filepath.Join(work, "f"), "f\n")
		run(t, work, nil, "add", "-A")
		run(t, work, nil, "commit", "-q", "-m", "f")
		run(t, work, nil, "push", "-q", "origin", "gatehouse/lease")
		s.commit(dir, "g.txt", "g\n")
		if out, err := s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/lease"); err == nil {
			t.Errorf("it went through:\n%s", out)
		}
	})
	for _, d := range s.rec.of(enforcers.GitPush) {
		if d.Decision.Passed && !d.Durable {
			t.Errorf("%s left before its receipt was durable", d.Action.ID)
		}
	}
}

// refusal is a push that must not go on.
type refusal struct {
	push   string
	limits quarantine.Limits
	most   int64
	blind  bool
	do     func(t *testing.T, s *session) (string, error)
	code   string
}

// Tags too; and everything that a push can do to its own references.
const (
	pushTags = `{"delete":false,"deny_paths":[],"force":false,"refs":["refs/heads/gatehouse/*","refs/tags/*"]}`
	pushAll  = `{"delete":true,"deny_paths":[],"force":true,"refs":["refs/heads/gatehouse/*","refs/tags/*"]}`
)

// TestPushGranted: tags, deletions and forced updates go through where the bundle
// grants them, and each is judged as what it is.
func TestPushGranted(t *testing.T) {
	w := newWorld(t)
	s := open(t, w, setup{push: pushAll})
	dir := s.clone()
	tip := s.commit(dir, "a.txt", "a\n")
	s.must(dir, "push", "-q", "origin", "HEAD:refs/heads/gatehouse/g")
	for _, c := range []struct {
		name, ref, want string
		args            []string
		forced          bool
	}{
		{"tag", "refs/tags/v1", "", []string{"refs/tags/v1"}, false},
		{"light_tag", "refs/tags/light", tip, []string{"HEAD:refs/tags/light"}, false},
		{"tag_moved", "refs/tags/light", "", []string{"--force", "HEAD~1:refs/tags/light"}, true},
		{"force", "refs/heads/gatehouse/g", "", []string{"--force", "HEAD~1:refs/heads/gatehouse/g"}, true},
		{"delete", "refs/heads/gatehouse/g", "gone", []string{"--delete", "refs/heads/gatehouse/g"}, false},
		{"tag_delete", "refs/tags/v1", "gone", []string{":refs/tags/v1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "tag" {
				s.must(dir, "tag", "-a", "-m", "one", "v1")
				c.want = s.must(dir, "rev-parse", "v1")
			}
			if c.want == "" {
				c.want = s.must(dir, "rev-parse", "HEAD~1")
			}
			if out, err := s.git(dir, append([]string{"push", "origin"}, c.args...)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := w.tip("acme/shop", c.ref); got != c.want && (got != "" || c.want != "gone") {
				t.Errorf("%s is at %q, want %s", c.ref, got, c.want)
			}
			all := s.rec.of(enforcers.GitPush)
			last := all[len(all)-1]
			if cmd := last.Action.Push.Commands[0]; cmd.Ref != c.ref || cmd.Forced != c.forced || !last.Durable || !last.Decision.Passed {
				t.Errorf("judged as %+v, %+v", cmd, last.Decision)
			}
		})
	}
}

// TestPushRefused is for what a push holds; TestBypassMatrix tries the rest.
func TestPushRefused(t *testing.T) {
	refusedPushes(t, newWorld(t), func(name string) bool { return !strings.HasPrefix(name, "EG-") })
}

// refusedPushes asserts for each refusal that is chosen what git prints, that the
// server's receive-pack saw nothing, and that no credential that can write was
// asked for.
func refusedPushes(t *testing.T, w *world, chosen func(name string) bool) {
	t.Helper()
	cases := map[string]refusal{
		"EG-86_main": {do: pushed("HEAD:refs/heads/main"), code: "ref_not_listed"},
		"EG-86_tag":  {do: pushed("HEAD:refs/tags/v9"), code: "ref_not_listed"},
		"EG-86_delete": {do: func(t *testing.T, s *session) (string, error) {
			run(t, s.w.bare("acme/shop"), nil, "branch", "-f", "gatehouse/old", "main")
			return s.git(s.clone(), "push", "origin", ":refs/heads/gatehouse/old")
		}, code: "delete_not_allowed"},
		"EG-86_force": {do: func(t *testing.T, s *session) (string, error) {
			run(t, s.w.bare("acme/shop"), nil, "branch", "-f", "gatehouse/forced", "main")
			dir := s.clone()
			s.must(dir, "reset", "-q", "--hard", "HEAD~1")
			s.commit(dir, "x", "rewritten\n")
			return s.git(dir, "push", "--force", "origin", "HEAD:refs/heads/gatehouse/forced")
		}, code: "force_not_allowed"},
		"EG-86_rewind": {do: func(t *testing.T, s *session) (string, error) {
			run(t, s.w.bare("acme/shop"), nil, "branch", "-f", "gatehouse/rewound", "main")
			return s.git(s.clone(), "push", "--force", "origin", "HEAD~1:refs/heads/gatehouse/rewound")
		}, code: "force_not_allowed"},
		"EG-86_tag_delete": {do: func(t *testing.T, s *session) (string, error) {
			run(t, s.w.bare("acme/shop"), nil, "tag", "-f", "v1", "main")
			return s.git(s.clone(), "push", "origin", ":refs/tags/v1")
		}, push: pushTags, code: "delete_not_allowed"},
		"EG-86_tag_moved": {do: func(t *testing.T, s *session) (string, error) {
			run(t, s.w.bare("acme/shop"), nil, "tag", "-f", "v1", "main~1")
			return s.git(s.clone(), "push", "--force", "origin", "HEAD:refs/tags/v1")
		}, push: pushTags, code: "force_not_allowed"},
		"EG-86_chunked_main": {do: func(t *testing.T, s *session) (string, error) { // more than a body without chunks
			dir := s.clone()
			s.commit(dir, "large", random(3<<20))
			return s.git(dir, "push", "origin", "HEAD:refs/heads/main")
		}, code: "ref_not_listed"},
		"EG-86_atomic": {do: func(t *testing.T, s *session) (string, error) {
			dir := s.clone()
			s.commit(dir, "x", "x\n")
			out, err := s.git(dir, "push", "--atomic", "origin", "HEAD:refs/heads/gatehouse/a", "HEAD:refs/heads/main")
			for _, ref := range []string{"gatehouse/a", "main"} { // a line for each
				if !strings.Contains(out, "[remote rejected] HEAD -> "+ref) {
					t.Errorf("no rejection of %s in:\n%s", ref, out)
				}
			}
			return out, err
		}, code: "ref_not_listed"},
		"EG-86_mixed": {do: pushed("HEAD:refs/heads/gatehouse/a", "HEAD:refs/heads/main"), code: "ref_not_listed"},
		"EG-82_not_granted": {push: "none", do: func(t *testing.T, s *session) (string, error) {
			dir := s.clone()
			s.commit(dir, "x", "x\n")
			return s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/a")
		}, code: "push_not_listed"},
		"EG-82_sibling_is_read_only": {do: func(t *testing.T, s *session) (string, error) {
			dir := s.clone()
			return s.git(dir, "push", url+"acme/docs", "HEAD:refs/heads/gatehouse/a")
		}, code: "access_read_only"},
		"EG-80_sibling": {do: func(t *testing.T, s *session) (string, error) {
			return s.git(s.clone(), "push", url+"acme/other", "HEAD:refs/heads/gatehouse/a")
		}, code: "repository_not_listed"},
		"without_a_connection": {do: func(t *testing.T, s *session) (string, error) {
			return s.git(s.clone(), "push", "https://free.good.test/acme/shop.git", "HEAD:refs/heads/gatehouse/a")
		}, code: "repository_not_listed"},
		"workflow": {do: changed(".github/workflows/x.yml", "on: push\n"), code: "path_denied"},
		"submodule": {do: func(t *testing.T, s *session) (string, error) { // the submodule's own address is another decision
			return changed(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://git.good.test/acme/other.git\n")(t, s)
		}, code: "path_denied"},
		"names_collide": {do: func(t *testing.T, s *session) (string, error) {
			dir := s.clone()
			s.commit(dir, "Readme", "x\n")
			return s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/a")
		}, code: quarantine.Colliding},
		"bad_fsck": {do: func(t *testing.T, s *session) (string, error) {
			dir := s.clone()
			blob := run(t, dir, strings.NewReader("x"), "hash-object", "-w", "--stdin")
			tree := run(t, dir, strings.NewReader("100644 blob "+blob+"\t.git\n"), "mktree")
			tip := run(t, dir, nil, "commit-tree", "-m", "x", tree)
			return s.git(dir, "push", "origin", tip+":refs/heads/gatehouse/a")
		}, code: quarantine.Broken},
		"deep_delta":   {do: deep, limits: quarantine.Limits{Depth: 3}, code: quarantine.TooDeep},
		"zip_bomb":     {do: changed("zeros", strings.Repeat("0", 4<<20)), limits: quarantine.Limits{Object: 1 << 20}, code: quarantine.TooLarge},
		"placeholder":  {do: changed("env", "TOKEN="+placeholder+"\n"), code: quarantine.Canary},
		"too_large":    {do: changed("random", random(64<<10)), most: 4 << 10, code: git.CodePushSize},
		"no_inspector": {do: changed("x", "x\n"), blind: true, code: git.CodeInspection},
		"push_options": {do: func(t *testing.T, s *session) (string, error) {
			// The client does not send what was not offered; it says so itself.
			out, err := s.git(s.clone(), "push", "-o", "ci.skip", "origin", "HEAD:refs/heads/gatehouse/a")
			return out, err
		}, code: "does not support push options"},
		"signed": {do: func(t *testing.T, s *session) (string, error) {
			return s.git(s.clone(), "push", "--signed", "origin", "HEAD:refs/heads/gatehouse/a")
		}, code: "does not support --signed push"},
	}
	for name, c := range cases {
		if !chosen(name) {
			continue
		}
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				rules := c.push
				switch rules {
				case "":
					rules = pushBranches
				case "none":
					rules = ""
				}
				s := open(t, w, setup{mode: mode, push: rules, limits: c.limits, most: c.most, blind: c.blind})
				before := w.receives()
				out, err := c.do(t, s)
				s.stop()
				if err == nil || !strings.Contains(out, c.code) {
					t.Errorf("%v: no %q in what git printed:\n%s", err, c.code, out)
				}
				if w.receives() != before {
					t.Error("the server's receive-pack was asked")
				}
				for _, asked := range s.inject.asked() {
					if strings.HasPrefix(asked, "git.push") {
						t.Errorf("a credential was asked for: %s", asked)
					}
				}
				for _, d := range s.rec.of(enforcers.GitPush) {
					if d.Decision.Passed {
						t.Errorf("%s passed", d.Action.ID)
					}
				}
				if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
					t.Errorf("%d packs are left behind (%v)", len(left), err)
				}
			})
		}
	}
}

// deep pushes a file whose versions are deltas upon deltas.
func deep(t *testing.T, s *session) (string, error) {
	t.Helper()
	dir := s.clone()
	lines := make([]string, 20)
	for i := range lines {
		lines[i] = fmt.Sprintf("%x", random(200))
	}
	for i := range lines { // each is nearest to its neighbour
		lines[i] = fmt.Sprintf("%x", random(200))
		s.commit(dir, "deep", strings.Join(lines, "\n"))
	}
	s.must(dir, "repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
	return s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/a")
}

// pushed pushes a new commit to the given refs.
func pushed(refs ...string) func(*testing.T, *session) (string, error) {
	return func(t *testing.T, s *session) (string, error) {
		t.Helper()
		dir := s.clone()
		s.commit(dir, "x", "x\n")
		return s.git(dir, append([]string{"push", "origin"}, refs...)...)
	}
}

// changed pushes a commit that changes one path to the session's own branch.
func changed(path, content string) func(*testing.T, *session) (string, error) {
	return func(t *testing.T, s *session) (string, error) {
		t.Helper()
		dir := s.clone()
		s.commit(dir, path, content)
		return s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/a")
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

// waiting is an Inspector that counts how many packs are looked into at once.
type waiting struct {
	git.Inspector
	mu         sync.Mutex
	now, worst int
}

func (w *waiting) Inspect(ctx context.Context, j quarantine.Job) (quarantine.Report, error) {
	w.mu.Lock()
	w.now++
	w.worst = max(w.worst, w.now)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
	}()
	return w.Inspector.Inspect(ctx, j)
}

// TestOnePushAtATime: a session that pushes four times at once has one pack
// looked into at any moment, and all four go through.
func TestOnePushAtATime(t *testing.T) {
	w := newWorld(t)
	look := &waiting{Inspector: inspector(t)}
	s := open(t, w, setup{push: pushBranches, inspect: look})
	dir := s.clone()
	s.commit(dir, "a", "a\n")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if out, err := s.git(dir, "push", "origin", fmt.Sprintf("HEAD:refs/heads/gatehouse/p%d", i)); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	if look.worst != 1 {
		t.Errorf("%d packs were looked into at once", look.worst)
	}
}
