package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

const (
	openHost     = "public.good.test"   // no connection
	packagesHost = "packages.good.test" // a bearer token, added outside
	forgeHost    = "ghe.good.test"      // the same for a client that does not start without a token
	javaClient   = `import java.net.URI;
import java.net.http.*;

class Client {
    public static void main(String[] args) throws Exception {
        var answer = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString());
        System.out.print(answer.body());
    }
}
`
)

// bound are clients as people configure them: those that do not know of a
// credential at all, and those that insist on one and get a placeholder. needs
// is a program of this machine, without which the row is skipped.
var bound = []struct {
	name, needs, setup string // setup: how the table of the docs puts it
	script, want       string
	from               string // the host that must have answered
}{
	{
		name: "npm install, public package", needs: "npm", setup: "`registry=` in .npmrc", from: openHost, want: "npm from " + openHost,
		script: "echo registry=https://" + openHost + "/npm/ > .npmrc; npm install --silent --no-audit --no-fund acme-util >&2; node -p 'require(\"acme-util\")'",
	},
	{
		name: "npm install, scoped package", needs: "npm", setup: "`@scope:registry=` in .npmrc; `encoded_slash: true`", from: openHost, want: "npm from " + openHost,
		script: "echo @acme:registry=https://" + openHost + "/npm/ > .npmrc; npm install --silent --no-audit --no-fund @acme/util >&2; node -p 'require(\"@acme/util\")'",
	},
	{
		name: "npm install, private package", needs: "npm", setup: "`_authToken=${ACME_TOKEN}` in .npmrc, a placeholder inside", from: packagesHost, want: "npm from " + packagesHost,
		script: "printf '%s\\n' @acme:registry=https://" + packagesHost + "/npm/ '//" + packagesHost + "/npm/:_authToken=${ACME_TOKEN}' > .npmrc; npm install --silent --no-audit --no-fund @acme/util >&2; node -p 'require(\"@acme/util\")'",
	},
	{
		name: "npm install, private package, no token", needs: "npm", setup: "no credential at all", from: packagesHost, want: "npm from " + packagesHost,
		script: "echo @acme:registry=https://" + packagesHost + "/npm/ > .npmrc; npm install --silent --no-audit --no-fund @acme/util >&2; node -p 'require(\"@acme/util\")'",
	},
	{
		name: "pip install", needs: "/usr/bin/pip", setup: "`--index-url`, no credential at all", from: packagesHost, want: "pip from " + packagesHost,
		script: "/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target lib --index-url https://" + packagesHost + "/simple acme-tool >&2; PYTHONPATH=lib /usr/bin/python3 -c 'import acme_tool; print(acme_tool.WHERE)'",
	},
	{
		name: "pip install, token in the index URL", needs: "/usr/bin/pip", setup: "`https://__token__:$ACME_TOKEN@...`, a placeholder inside", from: packagesHost, want: "pip from " + packagesHost,
		script: "/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target lib --index-url https://__token__:$ACME_TOKEN@" + packagesHost + "/simple acme-tool >&2; PYTHONPATH=lib /usr/bin/python3 -c 'import acme_tool; print(acme_tool.WHERE)'",
	},
	{
		name: "go mod download", needs: "/usr/local/go/bin/go", setup: "`GOPROXY`, no credential at all", from: packagesHost, want: "go from " + packagesHost,
		script: "export PATH=$PATH:/usr/local/go/bin GOPROXY=https://" + packagesHost + "/go GONOSUMDB='*' GOFLAGS=-mod=mod GOTOOLCHAIN=local; printf 'module m\\n\\nrequire acme.test/lib v1.0.0\\n' > go.mod; go mod download -x >&2; cat $(go env GOMODCACHE)/acme.test/lib@v1.0.0/lib.go",
	},
	{
		name: "cargo fetch", needs: "cargo", setup: "a sparse registry in .cargo/config.toml, no credential at all", from: packagesHost, want: "cargo from " + packagesHost,
		script: "export PATH=/opt/rust/bin:$PATH; mkdir .cargo src; printf '[registries.acme]\\nindex = \"sparse+https://" + packagesHost + "/cargo/\"\\n' > .cargo/config.toml; printf '[package]\\nname = \"m\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\nacme-dep = {version = \"1\", registry = \"acme\"}\\n' > Cargo.toml; touch src/lib.rs; cargo fetch -q >&2; cat $HOME/.cargo/registry/src/*/acme-dep-1.0.0/src/lib.rs",
	},
	{
		name: "Java, java.net.http", needs: "/usr/bin/javac", setup: "no credential at all", from: packagesHost, want: "java from " + packagesHost,
		script: "/usr/bin/java -Xint /opt/Client.java https://" + packagesHost + "/maven/acme/lib.txt",
	},
	{
		name: "gh api", needs: "/usr/bin/gh", setup: "`GH_ENTERPRISE_TOKEN`, a placeholder inside", from: forgeHost, want: "acme/shop",
		script: "GH_HOST=" + forgeHost + " /usr/bin/gh api repos/acme/shop --jq .full_name",
	},
}

// registryWorld is an outside of three registries, and a node whose connections
// take their credentials from its encrypted store.
type registryWorld struct {
	*outside.World
	dir    string
	canary string // the credential
	at     map[string]*registry
	sites  map[string]*outside.Site
}

func newRegistryWorld(t *testing.T) *registryWorld {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	return newRegistryWorldIn(t, base)
}

func newRegistryWorldIn(t *testing.T, base *outside.World) *registryWorld {
	t.Helper()
	w := &registryWorld{World: base, dir: nodeDir(t), canary: "canary-" + rand.Text(), at: map[string]*registry{}, sites: map[string]*outside.Site{}}
	for i, host := range []string{openHost, packagesHost, forgeHost} {
		token := w.canary
		if host == openHost {
			token = ""
		}
		w.at[host] = newRegistry(t, host, token)
		w.site(t, host, netip.AddrFrom4([4]byte{93, 184, 216, byte(50 + i)}), w.at[host])
	}
	if err := os.Chmod(w.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return w
}

// setSecret puts the credential into the store of a configuration.
func (w *registryWorld) setSecret(t *testing.T, config string) {
	t.Helper()
	set := hear(t, exec.CommandContext(t.Context(), binary, "-c", config, "secret", "set", "packages"))
	set.Stdin = strings.NewReader(w.canary + "\n")
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("secret set: %v\n%s", err, out)
	}
}

func (w *registryWorld) site(t *testing.T, host string, addr netip.Addr, h http.Handler) {
	t.Helper()
	s, err := w.HTTPS(host, addr, h)
	if err != nil {
		t.Fatal(err)
	}
	w.sites[host] = s
}

// write makes the configuration, the stored secret and the bundle; rules is
// added to the bundle's egress.
func (w *registryWorld) write(t *testing.T, mounts, rules string) {
	t.Helper()
	upstreams, err := json.Marshal(w.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.dir, "ca.pem"), string(w.CA()))
	write(t, filepath.Join(w.dir, "gatehouse.yaml"), fmt.Sprintf(`sandbox: {unlimited: accepted}
connections:
  - {name: packages, kind: http, host: %s, scheme: bearer, credential: "${secret:packages}"}
  - {name: forge, kind: http, host: %s, scheme: bearer, credential: "${secret:packages}"}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, packagesHost, forgeHost, upstreams, w.DNS.Addr()))
	write(t, filepath.Join(w.dir, "bundle.yaml"), fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: bound
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 5m
  mounts: [%s]
egress:
  - {host: %s, encoded_slash: true}
  - {host: %s, encoded_slash: true, connection: packages, env: ACME_TOKEN}
  - {host: %s, paths: ["/api/v3/**"], connection: forge, env: GH_ENTERPRISE_TOKEN}
%s`, mounts, openHost, packagesHost, forgeHost, rules))
	w.setSecret(t, filepath.Join(w.dir, "gatehouse.yaml"))
}

// TestCredentialedClients is M-12 and M-13 through everything: an unmodified
// client inside a hard session reaches what needs a credential, the credential
// is added outside, and it is nowhere inside.
func TestCredentialedClients(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each client starts a sandbox")
	}
	w := newRegistryWorld(t)
	java := filepath.Join(w.dir, "Client.java")
	write(t, java, javaClient)
	mounts := fmt.Sprintf("{source: %s, path: /opt/Client.java}", java)
	rust := ""
	if out, err := exec.CommandContext(t.Context(), "rustc", "--print", "sysroot").Output(); err == nil {
		rust = strings.TrimSpace(string(out))
		mounts += fmt.Sprintf(", {source: %s, path: /opt/rust}", rust)
	}
	w.write(t, mounts, "")
	for _, c := range bound {
		t.Run(strings.ReplaceAll(c.name, ", ", "/"), func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil || c.needs == "cargo" && rust == "" {
				t.Skipf("SKIPPED: %s is not on this machine", c.needs)
			}
			before := len(w.at[c.from].sent())
			// What the session holds when the client is done goes with its output.
			out, export, res := runExported(t, w.dir, "hard", "set -e; "+c.script+"; env; cat .npmrc 2>/dev/null; grep -rhs canary- . $HOME /tmp /gatehouse /proc/self/environ || true")
			if !strings.Contains(out, c.want) {
				t.Fatalf("no %q in:\n%s", c.want, out)
			}
			if strings.Contains(out, "canary-") || bytes.Contains(export, []byte(w.canary)) {
				t.Errorf("the credential is inside, or in a receipt:\n%s", out)
			}
			sent := w.at[c.from].sent()[before:]
			want := "Bearer " + w.canary
			if c.from == openHost {
				want = ""
			}
			if len(sent) == 0 || slices.ContainsFunc(sent, func(s string) bool { return s != want }) {
				t.Errorf("%s was sent %q", c.from, sent)
			}
			if res.Exit != receipts.ExitComplete {
				t.Errorf("receipts: %s", res.Verdict())
			}
		})
	}
}

// TestPlaceholderOnlyAtItsHost is EG-72 for a real client: the placeholder of
// one host, sent to another that is listed too, is refused and sent nowhere.
func TestPlaceholderOnlyAtItsHost(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	w := newRegistryWorld(t)
	w.write(t, "", "")
	out, _ := runInside(t, w.dir, "hard", fmt.Sprintf(`for host in %s %s; do curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://$host/maven/acme/lib.txt; done`, openHost, forgeHost))
	if strings.Count(out, `"code":"placeholder_wrong_host"`) != 2 {
		t.Errorf("not refused twice:\n%s", out)
	}
	if n := w.sites[openHost].Accepts() + w.sites[forgeHost].Accepts(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestReflectedCredentialEndsSession is EG-76 through everything: an answer that
// repeats the credential ends the session and tells the operator to replace it;
// nothing of the answer comes in.
func TestReflectedCredentialEndsSession(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a sandbox")
	}
	w := newRegistryWorld(t)
	const echoHost = "echo.good.test"
	w.site(t, echoHost, netip.MustParseAddr("93.184.216.60"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "you sent %s\n", r.Header.Get("Authorization"))
	}))
	w.write(t, "", fmt.Sprintf("  - {host: %s, connection: echo}\n", echoHost))
	path := filepath.Join(w.dir, "gatehouse.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(b), "connections:\n", fmt.Sprintf("connections:\n  - {name: echo, kind: http, host: %s, scheme: bearer, credential: \"${secret:packages}\"}\n", echoHost), 1))

	out, export, res := runExported(t, w.dir, "hard", "curl -sS https://"+echoHost+"/; echo after; sleep 60; echo still alive")
	if strings.Contains(out, "canary-") || strings.Contains(out, "you sent") {
		t.Errorf("the answer came in:\n%s", out)
	}
	if strings.Contains(out, "still alive") {
		t.Errorf("the session went on:\n%s", out)
	}
	if w.sites[echoHost].Requests() != 1 {
		t.Fatalf("the fake was asked %d times:\n%s", w.sites[echoHost].Requests(), out)
	}
	if res.Exit != receipts.ExitComplete || len(res.Sessions) != 1 {
		t.Fatalf("receipts: %s", res.Verdict())
	}
	if end := res.Sessions[0]; end.Reason != "revoked" {
		t.Errorf("the session ended %s", end.Reason)
	}
	// The outcome names the credential that must be replaced, not its value.
	for _, want := range []string{`"code":"credential_reflected"`, `"connection":"echo"`} {
		if !bytes.Contains(export, []byte(want)) {
			t.Errorf("no receipt says %s", want)
		}
	}
	if bytes.Contains(export, []byte(w.canary)) {
		t.Error("the credential stands in a receipt")
	}
}

// TestClientTable holds docs/build-environments.md to what the tests run.
func TestClientTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| client | what it is given inside |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		fmt.Fprintf(&table, "| %s | nothing |\n", strings.ReplaceAll(name, "_", " "))
	}
	for _, c := range bound {
		fmt.Fprintf(&table, "| %s | %s |\n", c.name, c.setup)
	}
	path := filepath.Join("..", "..", "docs", "build-environments.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- clients -->\n", "<!-- /clients -->"
	before, rest, ok1 := strings.Cut(string(b), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("the table's marks are gone")
	}
	if *update {
		write(t, path, before+begin+table.String()+end+after)
		return
	}
	if d := cmp.Diff(table.String(), have); d != "" {
		t.Errorf("go test ./cmd/gatehouse -run TestClientTable -update writes it:\n%s", d)
	}
}
