//go:build linux

package git_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// TestFetch runs the real git against a real git server through the door.
func TestFetch(t *testing.T) {
	w := newWorld(t)
	s := open(t, w, setup{})
	for name, args := range map[string][]string{
		"EG-79_clone": {"-c", "protocol.version=2"},
		"version_0":   {"-c", "protocol.version=0"},
		"version_1":   {"-c", "protocol.version=1"},
		"shallow":     {"--depth=1"},
		"partial":     {"--filter=blob:none"},
		"sparse":      {"--filter=blob:none", "--sparse"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := s.clone(args...)
			b, err := os.ReadFile(filepath.Join(dir, "README"))
			if err != nil || !strings.HasPrefix(string(b), "README of acme/shop") {
				t.Fatalf("%v: %s", err, b)
			}
		})
	}
	t.Run("fetch_after_a_push_outside", func(t *testing.T) {
		dir := s.clone()
		work := t.TempDir()
		run(t, "", nil, "clone", "-q", w.bare("acme/shop"), work)
		write(t, filepath.Join(work, "new"), "new\n")
		run(t, work, nil, "add", "-A")
		run(t, work, nil, "commit", "-q", "-m", "new")
		run(t, work, nil, "push", "-q", "origin", "main")
		s.must(dir, "pull", "-q")
		if got, want := s.must(dir, "rev-parse", "HEAD"), w.tip("acme/shop", "main"); got != want {
			t.Errorf("HEAD is %s, want %s", got, want)
		}
	})
	t.Run("sibling_may_be_read", func(t *testing.T) {
		s.must("", "clone", "-q", url+"acme/docs", filepath.Join(t.TempDir(), "docs"))
	})
	t.Run("submodules", func(t *testing.T) { // each address is a decision of its own
		for name, c := range map[string]struct {
			address string
			ok      bool
		}{
			"sibling": {"../docs.git", true}, "EG-84_other": {"../other.git", false}, "EG-84_unlisted": {url + "acme/unlisted.git", false},
		} {
			t.Run(name, func(t *testing.T) {
				branch := "with-" + name
				work := t.TempDir()
				run(t, "", nil, "clone", "-q", w.bare("acme/shop"), work)
				write(t, filepath.Join(work, ".gitmodules"), "[submodule \"sub\"]\n\tpath = sub\n\turl = "+c.address+"\n")
				base := c.address[strings.LastIndex(c.address, "/")+1:]
				run(t, work, nil, "update-index", "--add", "--cacheinfo", "160000,"+w.tip("acme/"+strings.TrimSuffix(base, ".git"), "main")+",sub")
				run(t, work, nil, "add", ".gitmodules")
				run(t, work, nil, "commit", "-q", "-m", "sub")
				run(t, work, nil, "push", "-q", "origin", "HEAD:refs/heads/"+branch)
				asked := len(s.inject.asked())
				out, err := s.git("", "clone", "-q", "-b", branch, "--recurse-submodules", url+"acme/shop.git", filepath.Join(t.TempDir(), "shop"))
				if (err == nil) != c.ok || !c.ok && !strings.Contains(out, "repository_not_listed") {
					t.Errorf("%v\n%s", err, out)
				}
				for _, a := range s.inject.asked()[asked:] {
					if a != "git.fetch "+shopID && a != "git.fetch "+docsID {
						t.Errorf("a credential was asked for: %s", a)
					}
				}
			})
		}
	})
	t.Run("placeholder_is_taken_out", func(t *testing.T) {
		s.must("", "-c", "http.extraHeader="+basic(placeholder), "ls-remote", url+"acme/shop.git")
	})
	for _, d := range s.rec.of(enforcers.GitFetch) {
		if d.Action.Fetch.Repository == otherID || d.Action.Fetch.Repository == "" {
			continue // of the submodules
		}
		if !d.Decision.Passed || !d.Durable || d.Action.Connection != "github-main" {
			t.Errorf("%s: passed %t, durable %t, connection %q", d.Action.ID, d.Decision.Passed, d.Durable, d.Action.Connection)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for auth := range w.auth {
		if !strings.HasPrefix(auth, "Basic ") || strings.Contains(auth, placeholder) {
			t.Errorf("the host saw Authorization %q", auth)
		}
	}
}

// otherRepositories tries every way to another repository, in both modes. None
// brings a token out, nor a byte from there.
func otherRepositories(t *testing.T, w *world) {
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		s := open(t, w, setup{mode: mode})
		for name, path := range map[string]string{
			"EG-80_sibling":            "acme/other.git",
			"EG-80_unlisted":           "acme/unlisted.git",
			"EG-81_case":               "ACME/Other.GIT",
			"EG-81_without_git":        "acme/other",
			"EG-81_trailing_slash":     "acme/other/",
			"EG-81_double_git":         "acme/shop.git.git",
			"EG-81_dot_segments":       "acme/shop.git/../other.git",
			"EG-81_encoded_dots":       "acme/shop.git/%2e%2e/other.git",
			"EG-81_encoded_slash":      "acme%2fother.git",
			"EG-81_double_slash":       "acme//other.git",
			"EG-81_parameter":          "acme/other.git;x",
			"EG-81_group_in_group":     "acme/shop/other.git",
			"EG-84_alternates_by_path": "acme/shop.git/objects/info/../../../other.git",
		} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				before, asked := w.site.Requests(), len(s.inject.asked())
				out, err := s.git("", "ls-remote", url+path)
				if err == nil {
					t.Fatalf("it was answered:\n%s", out)
				}
				if w.site.Requests() != before || len(s.inject.asked()) != asked {
					t.Errorf("%d requests reached the host, %d credentials were asked for", w.site.Requests()-before, len(s.inject.asked())-asked)
				}
			})
		}
		t.Run("EG-81_case_of_its_own/"+string(mode), func(t *testing.T) {
			s.must("", "ls-remote", url+"ACME/Shop.GIT")
		})
		t.Run("EG-81_renamed/"+string(mode), func(t *testing.T) {
			w.mu.Lock()
			w.moved, w.seen = true, nil
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				w.moved = false
				w.mu.Unlock()
			}()
			if out, err := s.git("", "ls-remote", url+"acme/shop.git"); err == nil {
				t.Fatalf("it was answered:\n%s", out)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.seen) != 1 {
				t.Errorf("the host saw %q: a redirect was followed", w.seen)
			}
		})
		t.Run("EG-75_foreign_credential/"+string(mode), func(t *testing.T) {
			before := w.site.Requests()
			if out, err := s.git("", "-c", "http.extraHeader="+basic("ghp_attackersowntoken0123456789"), "ls-remote", url+"acme/shop.git"); err == nil || w.site.Requests() != before {
				t.Fatalf("it went out:\n%s", out)
			}
		})
	}
}

// basic is the header of a client that brings a credential.
func basic(password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+password))
}

// TestRefusalIsReadable shows what a person sees.
func TestRefusalIsReadable(t *testing.T) {
	s := open(t, newWorld(t), setup{})
	out, _ := s.git("", "clone", url+"acme/other.git", filepath.Join(t.TempDir(), "x"))
	for _, want := range []string{"remote: refused by Gatehouse: repository_not_listed", "remote: receipt "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
