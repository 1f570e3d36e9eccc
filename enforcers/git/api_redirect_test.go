//go:build linux

package git_test

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// TestAPIRedirects: EG-108. A release's asset, which the API hands out by a
// redirect to a signed URL, comes through a door URL. To what a mediator looks at
// none leads: EG-80 and EG-84 hold for a redirect as for a request.
func TestAPIRedirects(t *testing.T) {
	w := newWorld(t)
	const signed = "X-Amz-Signature=0123456789abcdef0123456789abcdef"
	asset := "https://free.good.test/objects/1?" + signed
	var location atomic.Value
	var stored atomic.Int64
	site := func(host, addr string, h http.HandlerFunc) {
		if _, err := w.HTTPS(host, netip.MustParseAddr(addr), h); err != nil { // instead of the world's
			t.Fatal(err)
		}
	}
	site("api.good.test", "93.184.216.38", func(rw http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			http.Error(rw, "no credential", http.StatusUnauthorized)
			return
		}
		http.Redirect(rw, r, location.Load().(string), http.StatusFound)
	})
	site("free.good.test", "93.184.216.39", func(rw http.ResponseWriter, r *http.Request) {
		stored.Add(1)
		if r.URL.RawQuery != signed || r.Header.Get("Authorization") != "" {
			http.Error(rw, "not signed", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(rw, "an asset")
	})
	for name, c := range map[string]struct{ path, location, want string }{
		"EG-108_release_asset":     {"/repos/acme/shop/releases/assets/1", asset, "an asset"},
		"EG-80_sibling":            {"/repos/acme/shop/releases/assets/1", "https://git.good.test/acme/other/info/refs?service=git-upload-pack&" + signed, enforcers.CodeAnswerCredential},
		"EG-84_push":               {"/repos/acme/shop/releases/assets/1", "https://free.good.test/acme/x/info/refs?service=git-receive-pack&" + signed, enforcers.CodeAnswerCredential},
		"EG-85_siblings_asset":     {"/repos/acme/other/releases/assets/1", asset, "sibling_repository"},
		"EG-85_archive_not_opened": {"/repos/acme/shop/tarball/main", asset, "api_not_listed"},
	} {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				s := open(t, w, setup{mode: mode})
				before := stored.Load()
				location.Store(c.location)
				tr := s.client()
				defer tr.CloseIdleConnections()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.good.test"+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "token "+placeholder)
				r.Header.Set("Accept", "application/octet-stream")
				resp, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !strings.Contains(string(b), c.want) || strings.Contains(string(b)+resp.Request.URL.String(), "0123456789") {
					t.Errorf("%s %s %v", resp.Status, b, err)
				}
				if came := stored.Load() > before; came != (c.want == "an asset") {
					t.Errorf("%d requests reached the store", stored.Load()-before)
				}
			})
		}
	}
}
