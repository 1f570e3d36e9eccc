package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"gatehouse/receipts"
)

// TestLFSInside: the real git lfs in a real hard session stores a file on a host
// that takes only a token for the repository, and brings it back.
func TestLFSInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("NOT TESTED on this machine: no git-lfs (Debian package git-lfs)")
	}
	w := newGitHub(t)
	var mu sync.Mutex
	objects := map[string][]byte{}
	w.large = func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		oid := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case oid == "batch":
			var q struct {
				Operation string
				Objects   []struct {
					OID  string `json:"oid"`
					Size int64  `json:"size"`
				}
			}
			_ = json.Unmarshal(b, &q)
			var out []any
			for _, o := range q.Objects {
				out = append(out, map[string]any{"oid": o.OID, "size": o.Size, "actions": map[string]any{q.Operation: map[string]any{
					"href": "https://git.good.test/acme/shop.git/info/lfs/objects/" + o.OID, "header": map[string]string{"Authorization": r.Header.Get("Authorization")}}}})
			}
			_ = json.NewEncoder(rw).Encode(map[string]any{"objects": out})
		case r.Method == http.MethodPut:
			objects[oid] = b
		default:
			rw.Header().Set("Content-Type", "application/octet-stream")
			_, _ = rw.Write(objects[oid])
		}
	}
	dir := tempDir(t)
	w.configure(dir, gitOfShop, "")
	out, res := runInside(t, dir, "hard", `set -e
git lfs install --skip-repo
git clone -q "$GATEHOUSE_REPOSITORY" shop && cd shop
git lfs track '*.bin'
head -c 3000000 /dev/zero > large.bin
git add . && git commit -q -m large
git push origin HEAD:refs/heads/gatehouse/large
git clone -q -b gatehouse/large "$GATEHOUSE_REPOSITORY" ../again
cmp large.bin ../again/large.bin && echo the same
git push origin HEAD:refs/heads/main || echo not main
`)
	for _, want := range []string{"the same", "not main"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ghs_canary") || res.Exit != receipts.ExitComplete {
		t.Errorf("receipts %s:\n%s", res.Verdict(), out)
	}
	sum := sha256.Sum256(make([]byte, 3_000_000))
	if _, ok := objects[hex.EncodeToString(sum[:])]; !ok || len(objects) != 1 {
		t.Errorf("%d objects are stored", len(objects))
	}
	if left := w.alive(); len(left) > 0 {
		t.Errorf("%d tokens live after the session", len(left))
	}
}
