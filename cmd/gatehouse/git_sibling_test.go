package main

import (
	"slices"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// TestSiblingMintsNothing is M-05 with the host's own count: in a real session, in
// either mode, every way to another repository of the same installation is tried,
// and no token is minted but for the session's own repository to be read.
func TestSiblingMintsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	const script = `
try() { "$@" && echo "ANSWERED $*"; }
git clone -q "$GATEHOUSE_REPOSITORY" shop && cd shop && echo cloned
H=https://git.good.test
for path in acme/other.git ACME/OTHER acme/other.git/ acme/shop.git/../other.git acme/shop.git/%2e%2e/other.git acme//other.git acme%2fother.git acme/other/info/../.git; do
  try git ls-remote $H/$path
done
try git ls-remote git@git.good.test:acme/other.git
try git push $H/acme/other HEAD:refs/heads/gatehouse/a
try git submodule add ../other.git sub
J="Content-Type: application/json"
L="Content-Type: application/vnd.git-lfs+json"
for target in https://api.good.test/repos/acme/other/contents/README https://api.good.test/repositories/1003 https://api.good.test/user/repos \
  https://api.good.test/installation/repositories https://api.good.test/search/code?q=org:acme $H/acme/other/raw/main/README $H/acme/other/archive/main.zip; do
  try curl -sSf "$target"
done
try curl -sSf -H "$J" -d '{"query":"{repository(owner:\"acme\",name:\"other\"){id}}"}' https://api.good.test/graphql
try curl -sSf -H "$J" -d '{"query":"{node(id:\"R_3\"){id}}"}' https://api.good.test/graphql
try curl -sSf -H "$J" -d '{"repository_ids":[1003]}' https://api.good.test/app/installations/88/access_tokens
try curl -sSf -X DELETE https://api.good.test/installation/token
try curl -sSf -H "$L" -d '{"operation":"download","objects":[{"oid":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":1}]}' $H/acme/other.git/info/lfs/objects/batch
echo tried
`
	for _, mode := range []string{"hard", "shadow"} {
		t.Run("EG-80_"+mode, func(t *testing.T) {
			w := newGitHub(t)
			dir := tempDir(t)
			w.configure(dir, gitOfShop, "egress:\n  - {host: api.good.test, methods: [GET, POST, DELETE], paths: [\"/**\"], connection: github-main}\n")
			out, res := runInside(t, dir, mode, script)
			if !strings.Contains(out, "cloned") || !strings.Contains(out, "tried") || strings.Contains(out, "ANSWERED") || strings.Contains(out, "README of acme/other") {
				t.Errorf("a sibling was answered, or nothing was tried:\n%s", out)
			}
			// One to read its own repository, and nothing else; the installation is
			// looked up for it alone.
			if want := []string{"[1001] map[contents:read metadata:read]"}; !slices.Equal(w.minted(), want) {
				t.Errorf("minted %q, want %q", w.minted(), want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, path := range w.asked {
				if !strings.HasPrefix(path, "/acme/shop.git/") {
					t.Errorf("the host was asked for %s", path)
				}
			}
			if res.Exit != receipts.ExitComplete {
				t.Errorf("receipts: %s", res.Verdict())
			}
		})
	}
}
