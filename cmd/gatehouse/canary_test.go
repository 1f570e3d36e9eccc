//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatehouse/internal/api"
	"gatehouse/internal/leak"
)

// canaries are unique secrets, one for each store of a node.
type canaries map[string][]byte // name -> value

func (c canaries) in(b []byte) (names []string) {
	var set leak.Set
	for name, v := range c {
		set.Add(name, v)
	}
	for _, hit := range set.In("", b) {
		names = append(names, hit.Names...)
	}
	return names
}

// canaryAgent uses every kind of connection that a session can have, in the ways
// that are allowed and in those that are refused, and leaves a process that dies
// of a signal. It says what came of each.
const canaryAgent = `
say() { printf '%s: ' "$1"; shift; "$@" 2>&1 | tr -d '\n'; echo; }
get() { curl -sS --max-time 30 "$@"; }
json='Content-Type: application/json'
say bearer get https://PACKAGES/maven/acme/lib.txt
say placeholder get -H "Authorization: Bearer $ACME_TOKEN" https://PACKAGES/maven/acme/lib.txt
say basic get https://BASIC/x
say header get https://FORGE/x
say query get https://OPEN/x
say path get https://PACKAGES/nowhere
say method get -X DELETE https://PACKAGES/maven/acme/lib.txt
say foreign get -H 'Authorization: Bearer mine' https://PACKAGES/maven/acme/lib.txt
say misplaced get -H "Authorization: Bearer $ACME_TOKEN" https://PLAIN/x
say unlisted get https://evil.test/
say signed get -w '%{redirect_url}' https://BASIC/signed
say followed get -L https://BASIC/signed
say link get https://BASIC/link
say app git clone -q https://git.good.test/acme/shop
(cd shop && echo new > new && git add new && git commit -q -m new && say push git push -q origin HEAD:refs/heads/gatehouse/one; say main git push origin HEAD:refs/heads/main)
say sibling git ls-remote https://git.good.test/acme/other
say static git ls-remote https://lab.good.test/acme/docs
say token curl -sS -X POST ${GATEHOUSE_AGENT_URL}scm-credentials
say model get -H "$json" -d '{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[]}' $ANTHROPIC_BASE_URL/v1/messages
say files get -H "$json" $ANTHROPIC_BASE_URL/v1/files
say report get -o /dev/null -w '%{http_code}' -H "$json" -d '{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a-span"}]}]}]}' $OTEL_EXPORTER_OTLP_ENDPOINT/v1/traces
say reports get $OTEL_EXPORTER_OTLP_ENDPOINT/v1/query
say operation get -H 'Idempotency-Key: h1' -H "$json" -d '{"app":"shop"}' ${GATEHOUSE_AGENT_URL}operations/http.call.restart
say other get -H 'Idempotency-Key: h2' -H "$json" -d '{}' ${GATEHOUSE_AGENT_URL}operations/http.call.deploy
echo "token $ACME_TOKEN" | tee kept
(ulimit -c unlimited; sh -c 'kill -SEGV $$')
ls; env | cut -c 1-400; echo; echo ready; sleep 600
`

// canaryWork is what the agent must have come to for the search to mean
// anything: a line's name and what stands in it.
var canaryWork = map[string]string{
	"bearer": "java from " + packagesHost, "placeholder": "java from " + packagesHost, "basic": "let in", "header": "let in", "query": "let in",
	"path": "path_not_listed", "method": "method_not_listed", "foreign": "foreign_credential", "misplaced": "placeholder_wrong_host", "unlisted": "response 403",
	"signed": "https://gatehouse.internal/url/", "followed": "let in by signature", "link": "answer_holds_credential", "app": "", "push": "", "main": "ref_not_listed", "sibling": "repository_not_listed", "static": "refs/heads/main",
	"token": "gatehouse_ph_", "model": "hello from the model", "files": "model_", "report": "200", "reports": "telemetry_route",
	"operation": "queued", "other": "operation_not_listed",
}

// signedCanary stands in a signed URL that an answer holds. It is no store's
// secret, but what was obtained with one.
const signedCanary = "signed-canary-0a1b2c3d4e5f"

// canaryWorld is an outside with one host for each kind of connection. Each lets
// in nobody without its canary.
type canaryWorld struct {
	*gitHub
	registries *registryWorld
	secrets    canaries
}

func newCanaryWorld(t *testing.T) *canaryWorld {
	t.Helper()
	g := newGitHub(t)
	g.prefix = "ghs_" + rand.Text()
	w := &canaryWorld{gitHub: g, registries: newRegistryWorldIn(t, g.World)}
	w.secrets = canaries{"connection": []byte(w.registries.canary), "minted": []byte(g.prefix), "signed": []byte(signedCanary)}
	for _, name := range []string{"file", "environment", "basic", "static", "model", "telemetry", "operation"} {
		w.secrets[name] = []byte(name + "-canary-" + rand.Text())
	}
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	repositories := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=token"},
	}
	f := &modelFakes{World: g.World}
	answers := map[string]struct {
		host string
		h    http.HandlerFunc
	}{
		"basic": {"basic.good.test", func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/signed": // what an answer may hold, and what it may not
				http.Redirect(rw, r, "https://cdn.good.test/x?X-Amz-Signature="+signedCanary, http.StatusFound)
			case "/link":
				rw.Header().Set("Link", "<https://cdn.good.test/x?X-Amz-Signature="+signedCanary+">")
			case "/echo":
				fmt.Fprint(rw, "you sent ", r.Header)
			default:
				fmt.Fprint(rw, "let in")
			}
		}},
		"static":    {"lab.good.test", repositories.ServeHTTP},
		"model":     {"api.anthropic.com", f.handle},
		"telemetry": {"otlp.good.test", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "{}") }},
		"operation": {"service.good.test", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `{"state":"queued"}`) }},
	}
	if _, err := g.HTTPS("cdn.good.test", netip.MustParseAddr("93.184.216.119"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("X-Amz-Signature") == signedCanary {
			fmt.Fprint(rw, "let in by signature")
		}
	})); err != nil {
		t.Fatal(err)
	}
	i := byte(120)
	for name, a := range answers {
		if _, err := g.HTTPS(a.host, netip.AddrFrom4([4]byte{93, 184, 216, i}), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			if !strings.Contains(fmt.Sprint(r.Header, password), string(w.secrets[name])) {
				http.Error(rw, "no credential", http.StatusUnauthorized)
				return
			}
			a.h(rw, r)
		})); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for host, canary := range map[string]string{forgeHost: "file", openHost: "environment"} {
		w.registries.at[host].also = func(r *http.Request) bool {
			return r.URL.Path == "/x" && strings.Contains(fmt.Sprint(r.Header["X-Token"], r.URL.Query()["k"]), string(w.secrets[canary]))
		}
	}
	return w
}

// TestCanaries is M-22 for whole sessions: a secret in every store that a node
// has, a session that uses every kind of connection and is refused in many ways,
// a process in it that dies of a signal, another session whose upstream repeats
// the credential, and then everything that is inside or came out is searched:
// the memory of every process of the sandbox, dumped from outside while it runs,
// their environments and arguments, files, cores, what they printed, the node's
// log, its state, metrics, what the API and the command line show, every page,
// receipts and an export of them, a backup.
func TestCanaries(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a node and its sandboxes")
	}
	w := newCanaryWorld(t)
	secrets := w.secrets
	hosts := strings.NewReplacer("PACKAGES", packagesHost, "FORGE", forgeHost, "OPEN", openHost, "BASIC", "basic.good.test", "PLAIN", "plain.good.test")
	config := hosts.Replace(`  - {name: packages, kind: http, host: PACKAGES, scheme: bearer, credential: "${secret:packages}"}
  - {name: forge, kind: http, host: FORGE, scheme: header, header: X-Token, credential: "${file:file.key}"}
  - {name: other, kind: http, host: OPEN, scheme: query, query: k, credential: "${env:CANARY_IN_ENV}"}
  - {name: basic, kind: http, host: BASIC, scheme: basic, header: robot, credential: "${file:basic.key}"}
  - {name: lab, kind: scm, provider: gitlab, host: lab.good.test, credential: "${file:static.key}"}
  - {name: anthropic-main, kind: model, provider: anthropic, credential: "${file:model.key}"}
  - {name: traces-main, kind: telemetry, provider: otlp, host: otlp.good.test, scheme: bearer, credential: "${file:telemetry.key}"}
  - {name: deployer, kind: http, host: service.good.test, scheme: bearer, credential: "${file:operation.key}"}
operations:
  - {name: http.call.restart, connection: deployer, summary: Restarts an app., method: POST, path: "/v1/apps/{app}/restart", answer: [state], arguments: {type: object, additionalProperties: false, required: [app], properties: {app: {type: string}}}}
  - {name: http.call.deploy, connection: deployer, summary: Deploys., method: POST, path: /v1/deploy, arguments: {type: object, additionalProperties: false}}
`)
	dir := nodeDir(t)
	bundle := func(name, conclusion, agent, more string) string {
		return hosts.Replace(fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: %s
mode: hard
accepts: outsider
match: [{source: github, kinds: [workflow_run.completed], where: {conclusion: %s}}]
session:
  agent: {command: {argv: [/bin/bash, -c, %q]}}
  task: go
  timeout: 15m
`, name, conclusion, hosts.Replace(agent)) + more)
	}
	scm, dev, _ := strings.Cut(w.connect(dir), "dev: ")
	n := newLiveNodeOn(t, dir, scm+config+"dev: "+dev,
		bundle("canaries", "failure", canaryAgent, `egress:
  - {host: PACKAGES, paths: ["/maven/**"], connection: packages, env: ACME_TOKEN}
  - {host: FORGE, connection: forge, env: OTHER_TOKEN}
  - {host: OPEN, connection: other}
  - {host: BASIC, paths: [/x, /signed, /link], connection: basic}
  - {host: cdn.good.test, paths: [/x]}
  - {host: PLAIN}
git: `+gitOfShop+`
models: [{connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 1000}]
spend: {limit: 1.00 USD, per_day: 3.00 USD}
telemetry: [traces-main]
operations: [http.call.restart]
`),
		// An answer that repeats the credential ends its session.
		bundle("echo", "success", `curl -sS https://BASIC/echo; echo; sleep 600`, "egress: [{host: BASIC, connection: basic}]\n"))
	t.Setenv("CANARY_IN_ENV", string(secrets["environment"]))
	for _, name := range []string{"file", "basic", "static", "model", "telemetry", "operation"} {
		n.write(name+".key", string(secrets[name]))
	}
	secrets["webhook"] = n.key.Reveal()
	secrets["app"], secrets["pem"] = appSecrets(t, n.path("app.pem"))
	own, err := os.ReadFile(n.path("gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write("gatehouse.yaml", strings.Replace(string(own), `repositories: [{id: "1", name: acme/shop}]`,
		`repositories: [{id: "1", name: acme/src, connection: github-main}, {id: "1001", name: acme/shop, connection: github-main}, {id: "1002", name: acme/docs, connection: lab}, {id: "1003", name: acme/other, connection: github-main}]`, 1))
	w.registries.setSecret(t, n.path("gatehouse.yaml"))
	n.args = []string{"--dev"}
	n.start()
	n.settled(n.deliver(quiet(2))...)
	ids := n.deliver(failure(1))
	n.until("at work", func() bool { return strings.Contains(transcripts(t, n), "\nready") })
	said := transcripts(t, n)
	for name, want := range canaryWork {
		_, line, ok := strings.Cut("\n"+said, "\n"+name+": ")
		line, _, _ = strings.Cut(line, "\n")
		if !ok || !strings.Contains(line, want) || want == "" && line != "" {
			t.Errorf("%s came to %q, want %q", name, line, want)
		}
	}
	if t.Failed() {
		t.Fatalf("the session did not do its work:\n%s", said)
	}
	placeholder := []byte(said[strings.Index(said, "token gatehouse_ph_")+len("token "):][:len("gatehouse_ph_")+26])
	search := func(where string, b []byte) {
		for _, name := range secrets.in(b) {
			t.Errorf("the %s canary is in %s", name, where)
		}
	}
	processes := descendants(t, n.cmd.Process.Pid)
	if len(processes) < 3 {
		t.Fatalf("only %d processes of the sandbox were found", len(processes))
	}
	known := false
	for _, p := range processes {
		memory, err := dump(p)
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("SKIPPED: this user may not read a sandbox's memory: %v", err)
		}
		if noProcess(err) {
			continue
		}
		if err != nil {
			t.Fatalf("process %d: %v", p, err)
		}
		search(fmt.Sprintf("the memory of %s", memory.name), memory.bytes)
		known = known || bytes.Contains(memory.bytes, placeholder)
	}
	// The same search finds what is there: the placeholder inside, the credentials
	// in the node itself.
	if !known {
		t.Error("the placeholder was found in no process: the dumps are no dumps")
	}
	node, err := dump(n.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if found := secrets.in(node.bytes); len(found) < len(secrets)/2 {
		t.Errorf("of all canaries only %q were found in the node's memory: the search finds nothing", found)
	}

	// While the session runs, its folders are there.
	files := searchTree(t, n.path("state"), search)
	if files < 10 {
		t.Errorf("only %d files of the state folder were searched", files)
	}
	for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		search("http://private"+path, get(t, "http://"+n.private+path))
	}
	for _, path := range []string{"/v1/status", "/v1/sessions", "/v1/events", "/v1/events/" + url.PathEscape(ids[0])} {
		var answer any
		n.until("shown at "+path, func() bool { return n.client.Get(t.Context(), path, nil, &answer) == nil }) // views are late
		search(path, fmt.Append(nil, answer))
	}
	search("the transcript", []byte(said))
	pages := crawl(t, n, search)
	for _, want := range []string{"/ui/sessions/", "/ui/events/", "/ui/bundles/canaries", "/ui/receipts/", "/ui/settings"} {
		if !slices.ContainsFunc(pages, func(p string) bool { return strings.HasPrefix(p, want) && p != want }) && !slices.Contains(pages, want) {
			t.Errorf("no page under %s was searched, only %q", want, pages)
		}
	}
	told := false
	for _, s := range n.sessions() {
		if s.Bundle == "canaries" {
			n.gatehouse(exitOK, "session", "kill", s.ID)
		}
		for _, verb := range []string{"tail", "show", "logs"} { // tail is done when the session has ended
			b := []byte(n.gatehouse(exitOK, "session", verb, s.ID))
			search("session "+verb, b)
			told = told || verb == "logs" && bytes.Contains(b, placeholder)
		}
	}
	if !told {
		t.Error("no session's transcript says what the agent said")
	}
	for _, verb := range [][]string{
		{"config", "print"}, {"secret", "list"}, {"event", "show", ids[0]}, {"spend", "show"}, {"session", "list", "-o", "json"}, {"bundle", "history", "canaries"},
		{"receipts", "export", "-f", n.path("export")}, {"receipts", "export", "--open", "paths,refs", "-f", n.path("opened")}, {"backup", n.path("copy")},
	} {
		search("gatehouse "+strings.Join(verb, " "), []byte(n.gatehouse(exitOK, verb...)))
	}
	for _, name := range []string{"export", "opened"} {
		b, err := os.ReadFile(n.path(name))
		if err != nil || !bytes.Contains(b, []byte("placeholder_wrong_host")) || !bytes.Contains(b, []byte("credential_reflected")) {
			t.Errorf("the %s says nothing of what happened: %v", name, err)
		}
		search("the "+name, b)
	}
	if files := searchTree(t, n.path("copy"), search); files < 3 {
		t.Errorf("only %d files of the backup were searched", files)
	}
	n.stop()
	searchTree(t, n.path("state"), search)
	log, err := os.ReadFile(n.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	search("the node's log", log)
	if sent := w.registries.at[packagesHost].sent(); len(sent) != 2 || sent[0] != "Bearer "+w.registries.canary {
		t.Errorf("the registry was sent %q", sent)
	}
}

// appSecrets returns the first bytes of an App's private exponent, and a line of
// its file.
func appSecrets(t *testing.T, file string) (exponent, line []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.D.Bytes()[:24], bytes.Split(b, []byte("\n"))[8]
}

// crawl logs in with a one-time link, follows every link of the pages and returns
// which it came to.
func crawl(t *testing.T, n *liveNode, search func(where string, b []byte)) (pages []string) {
	t.Helper()
	var link api.Link
	if err := n.client.Post(t.Context(), "/v1/login-links", nil, &link); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	open := func(address string) []byte {
		res, err := browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", address, res.Status)
		}
		return b
	}
	open(link.URL)
	const most = 300
	known := map[string]bool{}
	for todo := []string{"/ui/"}; len(todo) > 0 && len(pages) < most; todo = todo[1:] {
		body := open("http://" + n.operator + todo[0])
		search("the page "+todo[0], body)
		pages = append(pages, todo[0])
		for _, m := range pageLink.FindAllSubmatch(body, -1) {
			if to := html.UnescapeString(string(m[1])); !known[to] && !strings.HasSuffix(to, "/live") {
				known[to] = true
				todo = append(todo, to)
			}
		}
	}
	return pages
}

// pageLink finds where a page leads by a link.
var pageLink = regexp.MustCompile(`href="(/ui/[^"#]*)`)

func get(t *testing.T, address string) []byte {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// searchTree searches every plain file of a folder and returns how many there
// are. The store's identity is the one thing that is kept as it is.
func searchTree(t *testing.T, root string, search func(where string, b []byte)) (files int) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil // a session's files go while it is looked at
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files++
		if strings.HasPrefix(d.Name(), "core") {
			t.Errorf("%s is a core", path)
		}
		search(path, b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}
