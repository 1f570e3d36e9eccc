package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatehouse/internal/outside"
)

// TestVertexCredentials mints access tokens from each kind of credential, one
// host a step, and shows that the provider sees the minted one and nothing else.
func TestVertexCredentials(t *testing.T) {
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	refresh, own, theirs := unique("refresh", "refresh-CANARY-"), unique("minted own", "ya29.own-"), unique("minted theirs", "ya29.theirs-")
	var mu sync.Mutex
	var steps []string
	step := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, fmt.Sprintf(format, args...))
	}
	serve := map[string]http.HandlerFunc{
		tokenHost: func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			form, _ := url.ParseQuery(string(b))
			switch {
			case form.Get("refresh_token") == refresh:
				step("refresh")
			case strings.HasSuffix(form.Get("grant_type"), "jwt-bearer") && strings.Count(form.Get("assertion"), ".") == 2:
				step("assertion")
			default:
				step("unknown grant %q", form.Get("grant_type"))
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, own)
		},
		iamHost: func(w http.ResponseWriter, r *http.Request) {
			step("impersonate %s as %s", r.URL.Path, r.Header.Get("Authorization"))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"accessToken":%q,"expireTime":"2099-01-01T00:00:00Z"}`, theirs)
		},
		"europe-west1-aiplatform.googleapis.com": func(_ http.ResponseWriter, r *http.Request) {
			step("ask as %s", r.Header.Get("Authorization"))
		},
	}
	for i, host := range []string{tokenHost, iamHost, "europe-west1-aiplatform.googleapis.com"} {
		if _, err := world.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(70 + i)}), serve[host]); err != nil {
			t.Fatal(err)
		}
	}
	dir := tempDir(t)
	write(t, filepath.Join(dir, "ca.pem"), string(world.CA()))
	write(t, filepath.Join(dir, "service.json"), serviceAccount(t))
	write(t, filepath.Join(dir, "person.json"), `{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"`+refresh+`"}`)
	write(t, filepath.Join(dir, "program.json"), `{"type":"external_account","audience":"`+rand.Text()+`","subject_token_type":"t","token_url":"https://evil.test/","credential_source":{"executable":{"command":"touch pwned"}}}`)
	write(t, filepath.Join(dir, "elsewhere.json"), strings.Replace(serviceAccount(t), "oauth2.googleapis.com", "evil.test", 1))
	const conn = `  - {name: %s, kind: model, provider: vertex-anthropic, project: acme-prod, location: europe-west1, credential: "${file:%s}"%s}` + "\n"
	write(t, filepath.Join(dir, "gatehouse.yaml"), strings.Replace(worldConfig(world), "dev: {", "dev: {ca: ca.pem, ", 1)+"connections:\n"+
		fmt.Sprintf(conn, "service", "service.json", "")+fmt.Sprintf(conn, "person", "person.json", "")+
		fmt.Sprintf(conn, "becomes", "service.json", ", impersonate: agents@acme-prod.iam.gserviceaccount.com")+
		fmt.Sprintf(conn, "program", "program.json", "")+fmt.Sprintf(conn, "elsewhere", "elsewhere.json", ""))
	for name, want := range map[string][]string{
		"service": {"assertion", "ask as Bearer " + own},
		"person":  {"refresh", "ask as Bearer " + own},
		"becomes": {
			"assertion", "impersonate /v1/projects/-/serviceAccounts/agents@acme-prod.iam.gserviceaccount.com:generateAccessToken as Bearer " + own,
			"ask as Bearer " + theirs,
		},
		"program":   nil, // it may name a program to run
		"elsewhere": nil, // or a place to send an assertion to
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			steps = nil
			mu.Unlock()
			cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", filepath.Join(dir, "gatehouse.yaml"), "model", "test", name, "--dev"))
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if (err == nil) != (want != nil) || strings.Join(steps, "\n") != strings.Join(want, "\n") {
				t.Errorf("%v, steps %q, want %q\n%s", err, steps, want, out)
			}
			if strings.Contains(string(out), "CANARY") || strings.Contains(string(out), "ya29.") {
				t.Errorf("a credential is in what was printed:\n%s", out)
			}
			if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
				t.Error("a credential file had a program run")
			}
		})
	}
}
