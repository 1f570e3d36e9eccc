package model_test

import (
	"io"
	"net/http"
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
