package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/receipts"
)

const (
	assetsHost = "assets.good.test" // a bearer token, added outside; redirects to a store
	storeHost  = "store.good.test"  // lets in who has a signed URL
	cdnHost    = "cdn.good.test"    // the same, and no rule lists it
)

// followers are clients that follow a redirect as they do everywhere.
var followers = map[string]struct{ needs, script string }{
	"curl":               {"curl", "curl -sSL URL"},
	"curl_proxy_http1":   {"curl", "curl --http1.1 -sSL URL"},
	"curl_transparent":   {"curl", "unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy; curl -sSL URL"},
	"curl_placeholder":   {"curl", `curl -sSL -H "Authorization: Bearer $ASSETS_TOKEN" URL`},
	"curl_sends_it_on":   {"curl", `curl -sSL --location-trusted -H "Authorization: Bearer $ASSETS_TOKEN" URL`},
	"curl_into_a_file":   {"curl", "curl -sSL -o asset URL; cat asset"},
	"curl_range":         {"curl", "curl -sSL -r 0-3 URL"},
	"python_requests":    {"/usr/bin/python3", `/usr/bin/python3 -c 'import requests; print(requests.get("URL").text)'`},
	"python_urllib":      {"/usr/bin/python3", `/usr/bin/python3 -c 'import urllib.request; print(urllib.request.urlopen("URL").read().decode())'`},
	"node_fetch":         {"node", `node -e 'fetch("URL").then(r => r.text()).then(console.log)'`},
	"wget":               {"wget", "wget -q -O - URL"},
	"two_redirects_more": {"curl", "curl -sSL URL/again"},
}

// TestDoorURLs is EG-108 through everything: an unmodified client inside a hard
// session downloads what a connection's host hands out by a signed URL, and
// neither the credential nor the signature is ever inside.
func TestDoorURLs(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each client starts a sandbox")
	}
	w := newRegistryWorld(t)
	signature := unique("signed url", "signature-")
	query := "X-Amz-Expires=300&X-Amz-Signature=" + signature
	w.site(t, assetsHost, netip.MustParseAddr("93.184.216.61"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+w.canary {
			http.Error(rw, "no credential", http.StatusUnauthorized)
			return
		}
		to := "https://" + storeHost + "/objects" + r.URL.Path + "?" + query
		if strings.HasPrefix(r.URL.Path, "/elsewhere") {
			to = "https://" + cdnHost + "/x?" + query
		}
		http.Redirect(rw, r, to, http.StatusFound)
	}))
	store := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.RawQuery != query || len(r.Header["Authorization"]) > 0:
			http.Error(rw, "not signed, or signed twice", http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/again"):
			http.Redirect(rw, r, strings.TrimSuffix(r.URL.Path, "/again")+"?"+query, http.StatusTemporaryRedirect)
		default:
			rw.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(rw, "what the asset holds\n")
		}
	})
	w.site(t, storeHost, netip.MustParseAddr("93.184.216.62"), store)
	w.site(t, cdnHost, netip.MustParseAddr("93.184.216.63"), store)
	w.write(t, "", fmt.Sprintf("  - {host: %s, connection: assets, env: ASSETS_TOKEN}\n  - {host: %s, paths: [\"/objects/**\"]}\n", assetsHost, storeHost))
	path := filepath.Join(w.dir, "gatehouse.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(b), "connections:\n", fmt.Sprintf("connections:\n  - {name: assets, kind: http, host: %s, scheme: bearer, credential: \"${secret:packages}\"}\n", assetsHost), 1))

	// What the session holds when the client is done goes with its output.
	const look = "; env; ls -la; cat .wget-hsts 2>/dev/null; grep -rhs -e canary- -e signature- . $HOME /tmp /gatehouse /proc/self/environ || true"
	clean := func(t *testing.T, out string, export []byte, res *receipts.Result) {
		t.Helper()
		if all := append([]byte(out), export...); bytes.Contains(all, []byte(w.canary)) || bytes.Contains(all, []byte(signature)) {
			t.Errorf("the credential or the signature is inside, or in a receipt:\n%s", out)
		}
		if res.Exit != receipts.ExitComplete {
			t.Errorf("receipts: %s", res.Verdict())
		}
	}
	for name, c := range followers {
		t.Run("EG-108_"+name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skipf("SKIPPED: %s is not on this machine", c.needs)
			}
			before := w.sites[storeHost].Requests()
			out, export, res := runExported(t, w.dir, "hard", strings.ReplaceAll(c.script, "URL", "https://"+assetsHost+"/release/1")+look)
			if !strings.Contains(out, "what the asset holds") || w.sites[storeHost].Requests() == before {
				t.Errorf("the asset did not come:\n%s", out)
			}
			clean(t, out, export, res)
			for _, want := range []string{`"host":"` + storeHost + `"`, `"signed.by":"assets"`, `"authority":true`} {
				if !bytes.Contains(export, []byte(want)) {
					t.Errorf("no receipt says %s", want)
				}
			}
		})
	}
	for mode, code := range map[string]string{"hard": "host_not_listed", "shadow": "would_block_needs_authority"} {
		t.Run("EG-108_unlisted/"+mode, func(t *testing.T) {
			before := w.DNS.Queries(cdnHost)
			out, export, res := runExported(t, w.dir, mode, "curl -sSL https://"+assetsHost+"/elsewhere"+look)
			if !strings.Contains(out, `"code":"`+code+`"`) || w.sites[cdnHost].Accepts() != 0 || w.DNS.Queries(cdnHost) != before {
				t.Errorf("%d connections, %d look-ups:\n%s", w.sites[cdnHost].Accepts(), w.DNS.Queries(cdnHost)-before, out)
			}
			clean(t, out, export, res)
			if !bytes.Contains(export, []byte(`"host":"`+cdnHost+`"`)) {
				t.Error("no receipt names the host")
			}
		})
	}
}
