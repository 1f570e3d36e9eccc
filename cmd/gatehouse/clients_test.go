package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// goClient knows nothing of proxies unless its environment tells it.
const goClient = `package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	res, err := http.Get(os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, _ := io.ReadAll(res.Body)
	fmt.Println(string(b))
}
`

// clients are run inside as they come. The transparent path needs nothing of
// them; the proxy variables, which are set too, must not hurt either.
var clients = map[string]struct{ script, want string }{
	"curl":            {"curl -sS https://api.good.test/v1/status", "hello from outside"},
	"curl_post":       {"curl -sS -d x=1 https://api.good.test/v1/post", "posted 3"},
	"git_clone":       {"git clone -q https://git.good.test/acme/shop.git && cat shop/README", "a public repository"},
	"python_urllib":   {`/usr/bin/python3 -c 'import urllib.request; print(urllib.request.urlopen("https://api.good.test/v1/status").read().decode())'`, "hello from outside"},
	"python_requests": {`/usr/bin/python3 -c 'import requests; print(requests.get("https://api.good.test/v1/status").text)'`, "hello from outside"},
	"node_20_fetch":   {`/opt/node-20/bin/node -e 'fetch("https://api.good.test/v1/status").then(r => r.text()).then(console.log)'`, "hello from outside"},
	"node_22_fetch":   {`/opt/node-22/bin/node -e 'fetch("https://api.good.test/v1/status").then(r => r.text()).then(console.log)'`, "hello from outside"},
	"go_http":         {"/opt/goclient https://api.good.test/v1/status", "hello from outside"},
}

// TestClients runs unmodified clients in a hard session, through the whole
// path: sandbox, door, gate, upstream, fake.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each client starts a sandbox")
	}
	w, dir := clientWorld(t)
	for name, c := range clients {
		for _, way := range []string{"transparent", "proxy"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				script := c.script
				if way == "transparent" {
					script = "unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy NODE_USE_ENV_PROXY; " + script
				}
				before := w.Requests()
				out, res := runInside(t, dir, "hard", script)
				if !strings.Contains(out, c.want) {
					t.Fatalf("no %q in:\n%s", c.want, out)
				}
				if w.Requests() == before {
					t.Error("the fake saw no request: the answer came from elsewhere")
				}
				if res.Exit != receipts.ExitComplete {
					t.Errorf("receipts: %s", res.Verdict())
				}
			})
		}
	}
	t.Run("unlisted_is_refused", func(t *testing.T) {
		out, _ := runInside(t, dir, "hard", "curl -sS https://evil.test/ || echo refused")
		if !strings.Contains(out, "refused") || w.evil.Accepts() != 0 {
			t.Errorf("%d connections reached the fake:\n%s", w.evil.Accepts(), out)
		}
	})
}

type clientFakes struct {
	*outside.World
	api, git, evil *outside.Site
}

func (w *clientFakes) Requests() int64 { return w.api.Requests() + w.git.Requests() }

// clientWorld starts the fakes and writes a configuration and a bundle.
func clientWorld(t *testing.T) (*clientFakes, string) {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	w := &clientFakes{World: base}
	dir := tempDir(t)
	site := func(host, addr string, h http.Handler) *outside.Site {
		s, err := base.HTTPS(host, netip.MustParseAddr(addr), h)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	w.api = site("api.good.test", "93.184.216.34", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "posted %d\n", len(b))
			return
		}
		_, _ = io.WriteString(rw, "hello from outside\n")
	}))
	w.git = site("git.good.test", "93.184.216.35", gitServer(t))
	w.evil = site("evil.test", "93.184.216.40", http.NotFoundHandler())

	node := func(v string) string {
		path, err := filepath.Abs(filepath.Join("..", "..", ".tools", "node-"+v))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, "bin", "node")); err != nil {
			t.Fatalf("Node %s is missing: run make setup", v)
		}
		return path
	}
	client := filepath.Join(dir, "goclient")
	source := filepath.Join(dir, "goclient.go")
	write(t, source, goClient)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", client, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go client: %v\n%s", err, out)
	}
	upstreams, err := json.Marshal(base.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.pem"), string(base.CA()))
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf("sandbox: {unlimited: accepted}\ndev: {upstreams: %s, dns: %q, ca: ca.pem}\n", upstreams, base.DNS.Addr()))
	write(t, filepath.Join(dir, "bundle.yaml"), fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: clients
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 2m
  mounts:
    - {source: %s, path: /opt/node-20}
    - {source: %s, path: /opt/node-22}
    - {source: %s, path: /opt/goclient}
egress:
  - {host: api.good.test, methods: [GET, POST], paths: ["/v1/**"]}
  - {host: git.good.test, methods: [GET, POST]}
`, node("20"), node("22"), client))
	return w, dir
}

// gitServer serves one public repository with git's own http-backend.
func gitServer(t *testing.T) http.Handler {
	t.Helper()
	root := tempDir(t)
	work := tempDir(t)
	write(t, filepath.Join(work, "README"), "a public repository\n")
	for _, args := range [][]string{
		{"-C", work, "init", "-q", "-b", "main"}, {"-C", work, "add", "."},
		{"-C", work, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "one"},
		{"clone", "-q", "--bare", work, filepath.Join(root, "acme", "shop.git")},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return gitBackend(t, root)
}

// runInside runs a script in one session and returns what it printed and the
// verified receipts.
func runInside(t *testing.T, dir, mode, script string) (string, *receipts.Result) {
	t.Helper()
	out, _, res := runExported(t, dir, mode, script)
	return out, res
}

// runExported is runInside with the receipts as they were exported.
func runExported(t *testing.T, dir, mode, script string) (string, []byte, *receipts.Result) {
	t.Helper()
	export := filepath.Join(tempDir(t), "receipts.gh")
	cmd := hear(t, exec.CommandContext(t.Context(), binary, "-c", filepath.Join(dir, "gatehouse.yaml"),
		"run", "--dev", "-b", filepath.Join(dir, "bundle.yaml"), "--mode", mode, "--receipts", export, "--", "/bin/sh", "-c", script))
	out, _ := cmd.CombinedOutput() // the script's exit is its own business
	b, err := os.ReadFile(export)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out), b, receipts.Verify(bytes.NewReader(b), receipts.Options{Root: ephemeralRoot(t, out)})
}

func ephemeralRoot(t *testing.T, out []byte) string {
	t.Helper()
	_, after, found := bytes.Cut(out, []byte("ephemeral root "))
	if !found {
		t.Fatalf("no root printed:\n%s", out)
	}
	root, _, _ := bytes.Cut(after, []byte("\n"))
	return string(root)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
