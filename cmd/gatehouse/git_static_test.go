package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/receipts"
)

// TestStaticInside: git in a real hard session under a credential that its
// connection has, on the hosts that mint none. Of their API the session's own
// repository may be read, and the same credential opens nothing else of the host,
// whatever the bundle lists.
func TestStaticInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	for provider, api := range map[string]struct{ ask, asked, other, write string }{
		"gitlab": {"api/v4/projects/acme%2Fshop/issues", "/api/v4/projects/1001/issues", "api/v4/projects/1003/issues", "api/v4/projects/1001/hooks"},
		"gitea":  {"api/v1/repos/Acme/Shop/issues", "/api/v1/repos/acme/shop/issues", "api/v1/repos/acme/other/issues", "api/v1/repos/acme/shop/hooks"},
	} {
		t.Run("M-11_"+provider, func(t *testing.T) {
			w := newGitHub(t)
			canary := unique("static", "glpat-canary")
			w.forge = func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+canary {
					t.Errorf("the API was asked under %q", r.Header.Get("Authorization"))
				}
				fmt.Fprint(rw, `[{"title":"an issue of the shop"}]`)
			}
			w.static, w.live[canary] = true, gitHubTok{}
			dir := tempDir(t)
			upstreams, err := json.Marshal(w.Upstreams())
			if err != nil {
				t.Fatal(err)
			}
			w.configure(dir, gitOfShop, "egress:\n  - {host: git.good.test, methods: [GET, POST], paths: [\"/**\"], encoded_slash: true, connection: forge}\n")
			write(t, filepath.Join(dir, "forge.token"), canary)
			write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf(`sandbox: {unlimited: accepted}
repositories: [{id: "1001", name: acme/shop}, {id: "1002", name: acme/docs}, {id: "1003", name: acme/other}]
connections:
  - {name: forge, kind: scm, provider: %s, host: git.good.test, credential: "${file:forge.token}"}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, provider, upstreams, w.DNS.Addr()))
			out, res := runInside(t, dir, "hard", `set -e
git clone -q "$GATEHOUSE_REPOSITORY" shop && cd shop
echo new > new && git add new && git commit -q -m new
git push -q origin HEAD:refs/heads/gatehouse/one && echo pushed
git push origin HEAD:refs/heads/main || echo not main
git ls-remote https://git.good.test/acme/other || echo no sibling
curl -sS https://git.good.test/`+api.ask+`; echo
curl -sS https://git.good.test/`+api.other+`; echo
curl -sS -d '{}' https://git.good.test/`+api.write+`; echo
for path in api/v3/user acme/other/raw/main/README acme/shop/archive/main.zip; do
  curl -sS https://git.good.test/$path; echo
done
curl -sS -X POST http://gatehouse.internal/agent/v1/scm-credentials
env | grep -c glpat- || echo nothing in the environment
`)
			for _, want := range []string{"pushed", "not main", "ref_not_listed", "no sibling", "repository_not_listed", "an issue of the shop", "sibling_repository", "api_write", `"password":"gatehouse_ph_`, `"expires_at_epoch_ms":`, "nothing in the environment"} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
			if n := strings.Count(out, "api_not_listed"); n < 3 {
				t.Errorf("%d of 3 side doors were refused:\n%s", n, out)
			}
			if strings.Contains(out, canary) || res.Exit != receipts.ExitComplete || w.tip("acme/shop", "gatehouse/one") == "" {
				t.Errorf("receipts %s:\n%s", res.Verdict(), out)
			}
			for _, path := range w.asked {
				if !strings.HasPrefix(path, "/acme/shop.git/") && path != api.asked {
					t.Errorf("the host was asked for %s", path)
				}
			}
		})
	}
}

// note counts what the host is asked for, and lets a static credential in.
func (w *gitHub) note(r *http.Request) (allowed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, r.URL.Path)
	return w.static
}
