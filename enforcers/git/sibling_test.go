//go:build linux

package git_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/git"
	"gatehouse/receipts"
)

// TestSibling is M-05 in one table: every way to another repository of the same
// installation is refused in every mode, brings nothing of it in, and asks for no
// credential but the session's own.
func TestSibling(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	oid := l.put("a large file")
	type try func(t *testing.T, s *session) string
	remote := func(path string) try {
		return func(_ *testing.T, s *session) string { return refusedGit(s, "ls-remote", url+path) }
	}
	const unlisted = "repository_not_listed"
	for name, c := range map[string]struct {
		try  try
		code string // stands in what comes back
	}{
		"EG-80_by_name":      {remote("acme/other.git"), unlisted},
		"EG-81_by_case":      {remote("Acme/OTHER.git"), unlisted},
		"EG-81_without_git":  {remote("acme/other"), unlisted},
		"EG-81_slash":        {remote("acme/other.git/"), unlisted},
		"EG-81_dot_segments": {remote("acme/shop.git/../other.git"), unlisted},
		"EG-81_encoded": {func(t *testing.T, s *session) string {
			_, code, _ := s.send(t, "git.good.test", "GET", "/acme/shop.git/%2e%2e/other.git/info/refs?service=git-upload-pack", "", http.Header{})
			return code
		}, enforcers.CodeBadPath},
		"EG-82_push": {func(t *testing.T, s *session) string {
			return refusedGit(s, "-C", s.clone(), "push", url+"acme/other", "HEAD:refs/heads/gatehouse/a")
		}, unlisted},
		"EG-81_renamed": {func(_ *testing.T, s *session) string {
			w.rename(true)
			defer w.rename(false)
			return refusedGit(s, "ls-remote", url+"acme/shop.git")
		}, git.CodeMoved},
		"EG-84_submodule": {func(t *testing.T, s *session) string {
			dir := s.clone()
			return refusedGit(s, "-C", dir, "submodule", "add", "../other.git", filepath.Join("sub", "other"))
		}, unlisted},
		"EG-84_lfs": {func(t *testing.T, s *session) string {
			_, code, _ := s.send(t, "git.good.test", "POST", "/acme/other.git/info/lfs/objects/batch", fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12}]}`, oid), http.Header{"Content-Type": {"application/vnd.git-lfs+json"}})
			return code
		}, unlisted},
		"EG-84_lfs_href": {func(t *testing.T, s *session) string {
			l.at("https://git.good.test/acme/other.git/info/lfs/objects/OID")
			_, text := s.batch(t, fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12}]}`, oid))
			if strings.Contains(text, "href\":") {
				return "an address: " + text
			}
			if _, code, _ := s.send(t, "git.good.test", "GET", "/acme/shop.git/info/lfs/objects/"+oid, "", http.Header{}); code != git.CodeLFSAsked {
				return "the object: " + code
			}
			return text
		}, git.CodeLFSHref},
		"EG-85_rest": {func(t *testing.T, s *session) string {
			_, code, _ := s.request(t, "GET", "/repos/acme/other/contents/README", "")
			return code
		}, git.CodeAPIRepository},
		"EG-85_rest_by_id": {func(t *testing.T, s *session) string {
			_, code, _ := s.request(t, "GET", "/repositories/"+otherID, "")
			return code
		}, git.CodeAPIRepository},
		"EG-85_graphql": {func(t *testing.T, s *session) string {
			_, code, _ := s.request(t, "POST", "/graphql", `{"query":"{repository(owner:\"acme\",name:\"other\"){id}}"}`)
			return code
		}, git.CodeGraphQL},
		"EG-85_raw": {func(t *testing.T, s *session) string {
			_, code, _ := s.send(t, "git.good.test", "GET", "/acme/other/raw/main/README", "", http.Header{})
			return code
		}, "connection_not_listed"},
		"EG-85_archive": {func(t *testing.T, s *session) string {
			_, code, _ := s.send(t, "git.good.test", "GET", "/acme/other/archive/main.zip", "", http.Header{})
			return code
		}, "connection_not_listed"},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				w.mu.Lock()
				w.seen = nil
				w.mu.Unlock()
				s := open(t, w, setup{mode: mode, push: pushBranches})
				if got := c.try(t, s); !strings.Contains(got, c.code) {
					t.Errorf("no %q in what came back: %.300s", c.code, got)
				}
				for _, asked := range s.inject.asked() {
					if !strings.HasSuffix(asked, " "+shopID) {
						t.Errorf("a credential was asked for: %q", asked)
					}
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, seen := range w.seen {
					if strings.Contains(strings.ToLower(seen), "other") {
						t.Errorf("the host saw %q", seen)
					}
				}
			})
		}
	}
}

// refusedGit runs git and returns what it printed if it failed.
func refusedGit(s *session, args ...string) string {
	out, err := s.git("", args...)
	if err == nil {
		return ""
	}
	return "git: " + out
}

// rename has the host answer with a redirect to another repository.
func (w *world) rename(moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = moved
}
