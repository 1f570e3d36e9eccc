//go:build linux

package git_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers/git"
)

// TestLFSRedirects: a redirect is followed nowhere, whatever of Git LFS is asked
// for, and says what an operator can do about it.
func TestLFSRedirects(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	oid := l.put("a large file")
	const content = "bytes that go up"
	sum := sha256.Sum256([]byte(content))
	fresh := hex.EncodeToString(sum[:])
	download := fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12}]}`, oid)
	upload := fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/gatehouse/a"},"objects":[{"oid":%q,"size":%d}]}`, fresh, len(content))
	for name, c := range map[string]struct {
		place, away   string // where objects are, and whose answer is the redirect
		to            string
		batch         string
		method, path  string // of what is asked for then, "" = the batch itself is redirected
		body          string
		code, mention string
	}{
		"EG-84_batch":            {atHost, "/objects/batch", "https://git.good.test/acme/other.git/info/lfs/objects/batch", download, "", "", "", git.CodeMoved, "under repositories"},
		"EG-84_object":           {atHost, oid, "https://evil.test/" + oid, download, "GET", oid, "", git.CodeLFSMoved, "proxy_download"},
		"EG-84_object_signed":    {atHost, oid, "https://evil.test/" + oid + "?X-Amz-Signature=0123456789abcdef", download, "GET", oid, "", git.CodeLFSMoved, "proxy_download"},
		"EG-84_object_sibling":   {atHost, oid, "https://git.good.test/acme/other.git/info/lfs/objects/" + oid, download, "GET", oid, "", git.CodeLFSMoved, "proxy_download"},
		"EG-84_object_in_store":  {atStore, oid, "https://evil.test/" + oid, download, "GET", oid, "", git.CodeLFSMoved, "proxy_download"},
		"EG-84_upload":           {atHost, fresh, "https://evil.test/" + fresh, upload, "PUT", fresh, content, git.CodeLFSMoved, "proxy_download"},
		"EG-84_upload_to_store":  {atStore, fresh, "https://evil.test/" + fresh, upload, "PUT", fresh, content, git.CodeLFSMoved, "proxy_download"},
		"EG-84_verify":           {atStore, "/verify", "https://evil.test/verify", upload, "POST", fresh + "/verify", "", git.CodeLFSMoved, "proxy_download"},
		"EG-84_store_to_sibling": {atStore, oid, "https://git.good.test/acme/other.git/info/refs?service=git-upload-pack", download, "GET", oid, "", git.CodeLFSMoved, "proxy_download"},
	} {
		t.Run(name, func(t *testing.T) {
			l.at(c.place)
			l.mu.Lock()
			l.moved, l.away = c.to, c.away
			l.mu.Unlock()
			s := open(t, w, setup{push: pushBranches, blind: true})
			check := untouched(t, l.other)
			w.mu.Lock()
			w.seen = nil
			w.mu.Unlock()
			status, text := s.batch(t, c.batch)
			if c.method != "" {
				if status != http.StatusOK {
					t.Fatalf("%d %s", status, text)
				}
				status, _, text = s.send(t, "git.good.test", c.method, "/acme/shop.git/info/lfs/objects/"+c.path, c.body, http.Header{})
			}
			if status != http.StatusBadGateway || !strings.Contains(text, c.code) || !strings.Contains(text, c.mention) || strings.Contains(text, "Signature") {
				t.Errorf("%d %s", status, text)
			}
			check()
			if w.DNS.Queries("evil.test") != 0 {
				t.Error("another host was looked up")
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, seen := range w.seen {
				if strings.Contains(seen, "other") {
					t.Errorf("the host saw %q", seen)
				}
			}
		})
	}
}

// TestLFSLocks: there is no locking here, the real git lfs says so in words, and a
// push goes on without.
func TestLFSLocks(t *testing.T) {
	w := newWorld(t)
	l := newLarge(t, w)
	l.at(atHost)
	s := open(t, w, setup{push: pushBranches})
	needLFS(t, s)
	dir := s.clone()
	s.must(dir, "lfs", "track", "--lockable", "*.bin")
	s.commit(dir, "large.bin", random(1<<10))
	check := untouched(t, w.site)
	for name, args := range map[string][]string{"lock": {"lock", "large.bin"}, "locks": {"locks"}, "unlock": {"unlock", "--force", "large.bin"}} {
		t.Run("EG-84_"+name, func(t *testing.T) {
			out := refusedGit(s, append([]string{"-C", dir, "lfs"}, args...)...)
			if !strings.Contains(out, git.CodeLFSLocks) || !strings.Contains(out, "there is no locking here") {
				t.Errorf("git lfs printed %q", out)
			}
		})
	}
	check() // nothing of it went out
	t.Run("EG-84_push_that_verifies_locks", func(t *testing.T) {
		s.must(dir, "config", "lfs.locksverify", "true")
		out, err := s.git(dir, "push", "origin", "HEAD:refs/heads/gatehouse/locks")
		if err != nil || w.tip("acme/shop", "gatehouse/locks") == "" {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for _, path := range []string{"locks", "locks?limit=1", "locks/verify", "locks/5/unlock"} {
		t.Run("EG-84_api_"+strings.ReplaceAll(path, "/", "_"), func(t *testing.T) {
			check := untouched(t, w.site)
			status, code, text := s.send(t, "git.good.test", "POST", "/acme/shop.git/info/lfs/"+path, `{}`, http.Header{"Content-Type": {"application/vnd.git-lfs+json"}})
			if status != http.StatusNotFound || code != git.CodeLFSLocks {
				t.Errorf("%d %q: %s", status, code, text)
			}
			check()
		})
	}
}
