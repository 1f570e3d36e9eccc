package model_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/enforcers/door"
)

// TestMetadata: the stub hands out a placeholder that only this session's
// connection knows, and nothing else.
func TestMetadata(t *testing.T) {
	w := start(t, vertexSetup("vertex-anthropic"))
	get := func(path string, header ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+door.Reserved+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	const root = "/computeMetadata/v1/"
	google := []string{"Metadata-Flavor", "Google"}
	for name, c := range map[string]struct {
		path   string
		header []string
		status int
		holds  string
	}{
		"project":        {root + "project/project-id", google, 200, "acme-prod"},
		"token":          {root + "instance/service-accounts/default/token?scopes=x", google, 200, "gatehouse_ph_"},
		"no_header":      {root + "instance/service-accounts/default/token", nil, 403, ""},
		"forwarded":      {root + "instance/service-accounts/default/token", append([]string{"X-Forwarded-For", "1.2.3.4"}, google...), 403, ""},
		"identity":       {root + "instance/service-accounts/default/identity?audience=x", google, 404, ""},
		"ssh_keys":       {root + "project/attributes/ssh-keys", google, 404, ""},
		"attributes":     {root + "instance/attributes/", google, 404, ""},
		"other_accounts": {root + "instance/service-accounts/", google, 404, ""},
	} {
		t.Run("ME-11_"+name, func(t *testing.T) {
			status, body := get(c.path, c.header...)
			if status != c.status || !strings.Contains(body, c.holds) || strings.Contains(body, "canary") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	_, token := get(root+"instance/service-accounts/default/token", google...)
	_, token, _ = strings.Cut(token, `"access_token":"`)
	token, _, _ = strings.Cut(token, `"`)
	resp, body := w.post(vertexRoot+"anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":10,"messages":[]}`,
		"Authorization", "Bearer "+token, "X-Goog-User-Project", "other", "X-Goog-Request-Params", "project=other")
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if _, h, _ := w.fake.last(); h.Get("Authorization") != "Bearer ya29.canary-0123456789abcdef" || h.Get("X-Goog-User-Project") != "" || h.Get("X-Goog-Request-Params") != "" {
		t.Errorf("%v", h)
	}
	if other := start(t, anthropicSetup()); other != nil {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+door.Reserved+root+"project/project-id", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Metadata-Flavor", "Google")
		resp, err := other.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("a session without Vertex has a metadata server: %d", resp.StatusCode)
		}
	}
}

// TestMetadataClosed: the real metadata server stays closed in every spelling of
// its address, and under a name that turns into it.
func TestMetadataClosed(t *testing.T) {
	w := start(t, vertexSetup("vertex-anthropic"))
	w.out.DNS.Answer("cdn.good.test", netip.MustParseAddr("169.254.169.254"))
	for name, target := range map[string]string{
		"ME-11_name": "metadata.google.internal:80", "ME-11_address": "169.254.169.254:80", "ME-11_decimal": "2852039166:80",
		"ME-11_hex": "0xa9fea9fe:80", "ME-11_octal": "0251.0376.0251.0376:80", "ME-11_short": "169.254.43518:80",
		"ME-11_ipv6": "[fd00:ec2::254]:80", "ME-11_mapped": "[::ffff:169.254.169.254]:80", "ME-11_name_that_leads_there": "cdn.good.test:443",
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{
				DialContext:     func(context.Context, string, string) (net.Conn, error) { return w.tunnel(target) },
				TLSClientConfig: &tls.Config{RootCAs: w.roots},
			}}
			defer client.CloseIdleConnections()
			scheme := "http"
			if strings.HasSuffix(target, ":443") {
				scheme = "https"
			}
			host, _, _ := strings.Cut(target, ":")
			if strings.HasPrefix(target, "[") {
				host = target[:strings.Index(target, "]")+1]
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+host+"/computeMetadata/v1/instance/service-accounts/default/token", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Metadata-Flavor", "Google")
			resp, err := client.Do(r)
			if err == nil {
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode < 400 || strings.Contains(string(b), "access_token") {
					t.Errorf("%d %s", resp.StatusCode, b)
				}
			}
			if w.fake.Accepts() != 0 || w.cdn.Accepts() != 0 {
				t.Error("something was dialed")
			}
		})
	}
	t.Run("ME-11_flip", func(t *testing.T) {
		// The name is public when somebody looks and the metadata server when
		// somebody dials: one look-up is all there is.
		provider := vertexSetup("vertex-anthropic").host
		w.out.DNS.Flip(provider, []netip.Addr{netip.MustParseAddr("169.254.169.254")}, []netip.Addr{netip.MustParseAddr("93.184.216.34")})
		resp, body := w.post(vertexRoot+"anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":10,"messages":[]}`)
		if resp.StatusCode < 400 || w.fake.Accepts() != 0 || w.fake.Bytes() != 0 {
			t.Errorf("%d %s, %d connections", resp.StatusCode, body, w.fake.Accepts())
		}
		if b, _ := w.ledger.Session("s-1"); b.Held != 0 || b.Spent != 0 {
			t.Errorf("money moved: %+v", b)
		}
	})
}
