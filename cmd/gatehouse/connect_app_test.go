package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/ingest/github"
	"gatehouse/internal/outside"
)

var (
	hookCanary   = unique("webhook", "canary_of_a_webhook_secret_that_github_made_")
	clientCanary = unique("client", "canary_of_a_client_secret_")
)

// manifestServer is a GitHub Enterprise Server that makes Apps from manifests.
type manifestServer struct {
	key    string // PEM
	status int    // of the exchange

	mu    sync.Mutex
	asked []string
}

func (g *manifestServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(g.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"id": 4711, "slug": "acme-gatehouse", "html_url": "https://ghe.example.com/github-apps/acme-gatehouse",
		"pem": g.key, "webhook_secret": hookCanary, "client_secret": clientCanary})
}

// TestConnectCreateApp is the manifest flow: the form goes to the configured
// GitHub with what was asked for, only who brings the state back is believed, the
// code is exchanged through upstream, and key and secret end in 0600 files.
func TestConnectCreateApp(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	for name, c := range map[string]struct {
		pem    string
		status int
		want   int
		stderr string
	}{
		"made":           {good, http.StatusCreated, exitOK, ""},
		"code was used":  {good, http.StatusNotFound, exitFailed, "GitHub answered 404"},
		"no private key": {"canary", http.StatusCreated, exitUsage, "the key is not PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			world, err := outside.New()
			if err != nil {
				t.Fatal(err)
			}
			defer world.Close()
			ghe := &manifestServer{key: c.pem, status: c.status}
			site, err := world.HTTPS("ghe.example.com", netip.MustParseAddr("93.184.216.50"), ghe)
			if err != nil {
				t.Fatal(err)
			}
			dir := tempDir(t)
			write(t, filepath.Join(dir, "ca.pem"), string(world.CA()))
			subs, err := json.Marshal(world.Upstreams())
			if err != nil {
				t.Fatal(err)
			}
			config := filepath.Join(dir, "gatehouse.yaml")
			write(t, config, fmt.Sprintf("public_url: https://hooks.example.com\ndev: {upstreams: %s, dns: %q, ca: ca.pem}\n", subs, world.DNS.Addr()))

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			said, says := io.Pipe()
			var out, errs bytes.Buffer
			done := make(chan int, 1)
			go func() {
				code := Main(ctx, []string{"-c", config, "connect", "github", "--create-app", "--dev", "--app-name", "acme-gatehouse", "--organization", "acme",
					"--events", "workflow_run,issue_comment", "--permissions", "contents=write", "--api", "https://ghe.example.com/api/v3/", "--ca", "ca.pem"},
					strings.NewReader(""), &out, io.MultiWriter(&errs, says))
				_ = says.Close()
				done <- code
			}()
			page := address(t, said)
			go func() { _, _ = io.Copy(io.Discard, said) }() // ends when the command does

			manifest, action := form(t, page)
			want := github.Manifest{Name: "acme-gatehouse", URL: "https://hooks.example.com", Hook: github.ManifestHook{URL: "https://hooks.example.com/hooks/main", Active: true},
				Redirect: "http://" + page.Host + "/made", Events: []string{"issue_comment", "workflow_run"},
				Permissions: map[string]string{"metadata": "read", "actions": "read", "issues": "read", "contents": "write"}}
			if diff := cmp.Diff(want, manifest); diff != "" {
				t.Error(diff)
			}
			if action.Scheme+"://"+action.Host+action.Path != "https://ghe.example.com/organizations/acme/settings/apps/new" {
				t.Errorf("the form goes to %s", action)
			}
			state := action.Query().Get("state")
			back := "http://" + page.Host + "/made?code=c0ffee&state="
			for url, status := range map[string]int{
				"http://" + page.Host + "/": 403, "http://" + page.Host + "/?key=x": 403, back + "x": 403, back: 403,
				"http://" + page.Host + "/made?state=" + state: 403, "http://" + page.Host + "/other": 404,
			} {
				if got := visit(t, url, ""); got != status {
					t.Errorf("%s answers %d, want %d", url, got, status)
				}
			}
			if got := visit(t, back+state, "rebound.example"); got != http.StatusMisdirectedRequest {
				t.Errorf("another Host is answered %d", got)
			}
			if got := visit(t, back+state, ""); got != http.StatusOK {
				t.Errorf("the way back answers %d", got)
			}
			if code := <-done; code != c.want || !strings.Contains(errs.String(), c.stderr) {
				t.Fatalf("exit %d, want %d: %s", code, c.want, errs.String())
			}
			if ghe.asked[0] != "POST /api/v3/app-manifests/c0ffee/conversions " || len(ghe.asked) != 1 || site.Accepts() != 1 {
				t.Errorf("GitHub was asked %q", ghe.asked)
			}
			if all := out.String() + errs.String(); strings.Contains(all, "canary") || strings.Contains(all, "PRIVATE") || strings.Contains(all, state) {
				t.Errorf("it prints a secret: %s", all)
			}
			files := map[string]string{"github-main.pem": good, "main.key": hookCanary + "\n"}
			for name, want := range files {
				b, err := os.ReadFile(filepath.Join(dir, name))
				if c.want != exitOK {
					if err == nil {
						t.Errorf("%s was written", name)
					}
					continue
				}
				if err != nil || strings.TrimSpace(string(b)) != strings.TrimSpace(want) {
					t.Errorf("%s: %v", name, err)
				}
				if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", name, info.Mode(), err)
				}
			}
			if c.want != exitOK {
				return
			}
			if !strings.Contains(out.String(), "https://ghe.example.com/github-apps/acme-gatehouse/installations/new\n") {
				t.Errorf("%s", out.String())
			}
			// What it prints is what config check takes.
			lines := regexp.MustCompile(`(?m)^  - (.*)$`).FindAllStringSubmatch(out.String(), -1)
			if len(lines) != 2 {
				t.Fatalf("%s", out.String())
			}
			write(t, config, "connections:\n  - "+lines[0][1]+"\nendpoints:\n  - "+lines[1][1]+"\n")
			out.Reset()
			if code := Main(ctx, []string{"-c", config, "config", "check"}, strings.NewReader(""), &out, &errs); code != exitOK || !strings.Contains(out.String(), "1 endpoints, 1 connections") {
				t.Errorf("config check: exit %d: %s %s", code, out.String(), errs.String())
			}
		})
	}
}

// TestConnectCreateAppRefuses what would fail only after a person went to GitHub.
func TestConnectCreateAppRefuses(t *testing.T) {
	for name, c := range map[string]struct{ args, config, stderr string }{
		"no public_url":        {"--app-name x", "bundles: []\n", "public_url is not set"},
		"no name":              {"", "public_url: https://h.example.com\n", "--app-name"},
		"unknown event":        {"--app-name x --events nonsense", "public_url: https://h.example.com\n", "nonsense"},
		"permission by itself": {"--app-name x --permissions contents", "public_url: https://h.example.com\n", "NAME=read"},
		"an App besides":       {"--app-name x --app-id 7 --app-key k.pem", "public_url: https://h.example.com\n", "--create-app makes the App"},
		"organization":         {"--app-name x --organization a/b", "public_url: https://h.example.com\n", "login"},
		"secret is there":      {"--app-name x --endpoint taken", "public_url: https://h.example.com\n", "exists (conflict)"},
		"api":                  {"--app-name x --api http://ghe.example.com", "public_url: https://h.example.com\n", "not an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			config := filepath.Join(dir, "gatehouse.yaml")
			write(t, config, c.config)
			write(t, filepath.Join(dir, "taken.key"), "k")
			var out, errs bytes.Buffer
			code := Main(t.Context(), append([]string{"-c", config, "connect", "github", "--create-app"}, strings.Fields(c.args)...), strings.NewReader(""), &out, &errs)
			if code == exitOK || !strings.Contains(errs.String(), c.stderr) || strings.Contains(errs.String(), "http://127.0.0.1") {
				t.Errorf("exit %d: %s", code, errs.String())
			}
		})
	}
}

// address reads the page's address from what the command says.
func address(t *testing.T, r io.Reader) *url.URL {
	t.Helper()
	var text []byte
	buf := make([]byte, 256)
	for {
		n, err := r.Read(buf)
		text = append(text, buf[:n]...)
		if m := regexp.MustCompile(`http://127\.0\.0\.1:\S+\n`).Find(text); m != nil {
			u, err := url.Parse(strings.TrimSpace(string(m)))
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		if err != nil {
			t.Fatalf("it said no address: %s", text)
		}
	}
}

// form reads the page as a browser does.
func form(t *testing.T, page *url.URL) (m github.Manifest, action *url.URL) {
	t.Helper()
	resp, err := http.Get(page.String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
	}
	found := regexp.MustCompile(`<form method="post" action="([^"]*)"><input type="hidden" name="manifest" value="([^"]*)">`).FindSubmatch(b)
	if found == nil {
		t.Fatalf("no form: %s", b)
	}
	if action, err = url.Parse(html.UnescapeString(string(found[1]))); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[2]))), &m); err != nil {
		t.Fatal(err)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'; form-action https://"+action.Host+";") {
		t.Errorf("policy %q", csp)
	}
	return m, action
}

func visit(t *testing.T, url, host string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Close = host, true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
