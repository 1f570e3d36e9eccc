//go:build linux

package git_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// way is one way in which a session reaches a host of a connection.
type way struct{ host, method, target, body, kind string }

// ways are all of them: git's own, its large files, both APIs, and the pages.
var ways = map[string]way{
	"refs":        {"git.good.test", "GET", "/acme/shop.git/info/refs?service=git-upload-pack", "", ""},
	"fetch":       {"git.good.test", "POST", "/acme/shop.git/git-upload-pack", "0014command=ls-refs\n0000", "application/x-git-upload-pack-request"},
	"push_refs":   {"git.good.test", "GET", "/acme/shop.git/info/refs?service=git-receive-pack", "", ""},
	"push":        {"git.good.test", "POST", "/acme/shop.git/git-receive-pack", commands(1, ""), "application/x-git-receive-pack-request"},
	"lfs_batch":   {"git.good.test", "POST", "/acme/shop.git/info/lfs/objects/batch", fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12}]}`, strings.Repeat("a", 64)), "application/vnd.git-lfs+json"},
	"lfs_object":  {"git.good.test", "GET", "/acme/shop.git/info/lfs/objects/" + strings.Repeat("a", 64), "", ""},
	"rest":        {"api.good.test", "GET", "/repos/acme/shop/pulls", "", ""},
	"graphql":     {"api.good.test", "POST", "/graphql", `{"query":"{repository(owner:\"acme\",name:\"shop\"){id}}"}`, "application/json"},
	"another_api": {"api.good.test", "GET", "/user", "", ""},
	"archive":     {"git.good.test", "GET", "/acme/shop/archive/main.zip", "", ""},
}

func (y way) header() http.Header {
	h := http.Header{}
	if y.kind != "" {
		h.Set("Content-Type", y.kind)
	}
	if strings.Contains(y.body, "command=") {
		h.Set("Git-Protocol", "version=2")
	}
	return h
}

// try goes this way over a transport that may hold connections from before.
func (y way) try(t *testing.T, tr *http.Transport, h http.Header) (status int, text string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), y.method, "https://"+y.host+y.target, strings.NewReader(y.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// untouched returns what fails the test when any of the sites was reached since.
func untouched(t *testing.T, sites ...*outside.Site) func() {
	t.Helper()
	var accepts, sent int64
	count := func() (a, b int64) {
		for _, s := range sites {
			a, b = a+s.Accepts(), b+s.Bytes()
		}
		return a, b
	}
	accepts, sent = count()
	return func() {
		t.Helper()
		if a, b := count(); a != accepts || b != sent {
			t.Errorf("%d connections and %d bytes reached a host", a-accepts, b-sent)
		}
	}
}

// TestForeignCredential: a credential of the agent's own, or the placeholder of
// another session, opens no way to a connection's host, in no mode and wherever it
// stands: nothing goes out, and no credential of the node's is asked for.
func TestForeignCredential(t *testing.T) {
	w := newWorld(t)
	const own, sibling = "ghp_attackersown0123456789", "gatehouse_ph_ZZZZZZZZZZZZZZZZZZZZZZZZZZ"
	places := map[string]func(v string) [][2]string{
		"basic": func(v string) [][2]string {
			return [][2]string{{"Authorization", strings.TrimPrefix(basic(v), "Authorization: ")}}
		},
		"bearer":        func(v string) [][2]string { return [][2]string{{"Authorization", "Bearer " + v}} },
		"token":         func(v string) [][2]string { return [][2]string{{"Authorization", "token " + v}} },
		"private_token": func(v string) [][2]string { return [][2]string{{"Private-Token", v}} },
		"cookie":        func(v string) [][2]string { return [][2]string{{"Cookie", "user_session=" + v}} },
		"beside_ours": func(v string) [][2]string {
			return [][2]string{{"Authorization", "Bearer " + placeholder}, {"Private-Token", v}}
		},
	}
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		s := open(t, w, setup{mode: mode, push: pushBranches, blind: true})
		for id, value := range map[string]string{"ME-03": own, "ME-05": sibling} {
			for name, y := range ways {
				for place, put := range places {
					t.Run(id+"_"+name+"/"+place+"/"+string(mode), func(t *testing.T) {
						check := untouched(t, w.site, w.api)
						h := y.header()
						for _, field := range put(value) {
							h.Set(field[0], field[1])
						}
						_, code, text := s.send(t, y.host, y.method, y.target, y.body, h)
						if code != enforcers.CodeForeignCredential || strings.Contains(text, value) {
							t.Errorf("refused with %q: %s", code, text)
						}
						check()
					})
				}
			}
		}
		if asked := s.inject.asked(); len(asked) != 0 {
			t.Errorf("credentials were asked for: %q", asked)
		}
	}
	t.Run("ME-03_in_the_query", func(t *testing.T) { // where an API takes one
		for _, key := range []string{"access_token", "private_token", "token"} {
			s := open(t, w, setup{push: pushBranches, blind: true})
			check := untouched(t, w.site, w.api)
			if _, code, text := s.send(t, "api.good.test", "GET", "/repos/acme/shop/pulls?"+key+"="+own, "", http.Header{}); code != enforcers.CodeForeignCredential {
				t.Errorf("%s: refused with %q: %s", key, code, text)
			}
			check()
		}
	})
}

// TestPlaceholderElsewhere: what stands for the credential inside is worth nothing
// at any other host, whatever the bundle allows there.
func TestPlaceholderElsewhere(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		s := open(t, w, setup{mode: mode, push: pushBranches, blind: true})
		t.Run("ME-04_git/"+string(mode), func(t *testing.T) {
			check := untouched(t, w.free)
			out := refusedGit(s, "-c", "http.extraHeader="+basic(placeholder), "ls-remote", "https://free.good.test/acme/shop.git")
			if !strings.Contains(out, enforcers.CodePlaceholderHost) && !strings.Contains(out, "403") {
				t.Errorf("it was not refused: %s", out)
			}
			check()
		})
		for place, header := range map[string]http.Header{"bearer": {"Authorization": {"Bearer " + placeholder}}, "other_field": {"X-Note": {placeholder}}} {
			t.Run("ME-04_"+place+"/"+string(mode), func(t *testing.T) {
				check := untouched(t, w.free)
				if _, code, text := s.send(t, "free.good.test", "GET", "/x", "", header); code != enforcers.CodePlaceholderHost {
					t.Errorf("refused with %q: %s", code, text)
				}
				check()
			})
		}
	}
}

// TestPlaceholderAfterwards: once a session has ended, however it ended, none of
// its ways leads anywhere.
func TestPlaceholderAfterwards(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	l.at(atHost)
	oid := l.put("a large file")
	for _, reason := range []string{"completed", "timeout", "cancelled"} {
		t.Run("ME-06_"+reason, func(t *testing.T) {
			s := open(t, w, setup{push: pushBranches, blind: true})
			auth := "http.extraHeader=" + basic(placeholder)
			dir := filepath.Join(t.TempDir(), "shop")
			s.must("", "-c", auth, "clone", "-q", url+"acme/shop.git", dir)
			s.commit(dir, "x", "x\n")
			// An address of a large file that was offered before.
			if status, text := s.batch(t, fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12}]}`, oid)); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
			held := s.client() // with a connection to each host that is open already
			t.Cleanup(held.CloseIdleConnections)
			for _, name := range []string{"refs", "rest"} {
				if status, text, err := ways[name].try(t, held, ways[name].header()); err != nil || status != http.StatusOK {
					t.Fatalf("%v, %d %s", err, status, text)
				}
			}
			asked := len(s.inject.asked())
			check := untouched(t, w.site, w.api, l.store)
			s.gate.Revoke(reason)
			for _, args := range [][]string{{"fetch", "-q", "origin"}, {"push", "-q", "origin", "HEAD:refs/heads/gatehouse/late"}} {
				if out := refusedGit(s, append([]string{"-C", dir, "-c", auth}, args...)...); !strings.Contains(out, "CONNECT tunnel failed") && !strings.Contains(out, reason) {
					t.Errorf("git %v: %q", args, out)
				}
			}
			for name, y := range ways {
				if name == "lfs_object" {
					y.target = "/acme/shop.git/info/lfs/objects/" + oid
				}
				h := y.header()
				h.Set("Authorization", "Bearer "+placeholder)
				if status, text, err := y.try(t, held, h); err == nil && (status < 400 || !strings.Contains(text, reason)) {
					t.Errorf("%s: %d %s", name, status, text)
				}
			}
			check()
			if got := s.inject.asked(); len(got) != asked || w.tip("acme/shop", "gatehouse/late") != "" {
				t.Errorf("asked for credentials afterwards: %q", got[asked:])
			}
		})
	}
}
