package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// gitHub is a host with repositories behind git's own http-backend, and an API
// that mints tokens and counts them.
type gitHub struct {
	*outside.World
	t    *testing.T
	root string
	ids  map[string]string // by owner/name
	git  *outside.Site
	api  *outside.Site

	mu     sync.Mutex
	n      int
	bodies []string             // of every request for a token
	live   map[string]gitHubTok // by token
	held   chan struct{}        // closed once a push has landed whose answer is kept back
	rest   map[string]http.HandlerFunc
	static bool                 // a live token may do everything
	wider  func(map[string]any) // changes the answer to a request for a token
	prefix string               // of tokens, "" = ghs_canary and what is the world's own
	own    string
	told   bool             // whoever is inside knows the tokens: the test says so
	asked  []string         // paths at the host
	large  http.HandlerFunc // Git LFS, under any live token for the repository
	forge  http.HandlerFunc // an API beside the repositories
}

type gitHubTok struct {
	repository  string
	permissions map[string]string
}

var gitHubIDs = map[string]string{"acme/shop": "1001", "acme/docs": "1002", "acme/other": "1003"}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	w := &gitHub{World: base, t: t, root: tempDir(t), own: rand.Text(), ids: maps.Clone(gitHubIDs), live: map[string]gitHubTok{}, rest: map[string]http.HandlerFunc{}}
	for name := range gitHubIDs {
		work, bare := tempDir(t), filepath.Join(w.root, name+".git")
		write(t, filepath.Join(work, "README"), "README of "+name+"\n")
		for _, args := range [][]string{
			{"-C", work, "init", "-q", "-b", "main"}, {"-C", work, "add", "."},
			{"-C", work, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "one"},
			{"clone", "-q", "--bare", work, bare}, {"-C", bare, "config", "uploadpack.allowFilter", "true"},
		} {
			if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
	}
	backend := gitBackend(t, w.root, "REMOTE_USER=token")
	if w.git, err = base.HTTPS("git.good.test", netip.MustParseAddr("93.184.216.35"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		w.mu.Lock()
		tok, ok := w.live[password]
		w.mu.Unlock()
		need := "read"
		if strings.Contains(r.URL.RequestURI(), "git-receive-pack") {
			need = "write"
		}
		owner, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		name, _, _ := strings.Cut(rest, ".git")
		static := w.note(r)
		if w.forge != nil && strings.HasPrefix(r.URL.Path, "/api/") {
			w.forge(rw, r)
			return
		}
		if static && ok {
			backend.ServeHTTP(rw, r)
			return
		}
		if w.large != nil && ok && tok.repository == w.ids[owner+"/"+name] && strings.Contains(rest, "/info/lfs/") {
			w.large(rw, r)
			return
		}
		if !ok || tok.repository != w.ids[owner+"/"+name] || tok.permissions["contents"] != need {
			http.Error(rw, "bad credentials", http.StatusUnauthorized)
			return
		}
		if w.held != nil && r.Method == http.MethodPost && need == "write" {
			backend.ServeHTTP(httptest.NewRecorder(), r)
			close(w.held)
			<-r.Context().Done()
			return
		}
		backend.ServeHTTP(rw, r)
	})); err != nil {
		t.Fatal(err)
	}
	if w.api, err = base.HTTPS("api.good.test", netip.MustParseAddr("93.184.216.36"), http.HandlerFunc(w.serveAPI)); err != nil {
		t.Fatal(err)
	}
	return w
}

// gitBackend serves the repositories below root as git itself does; more are
// variables of its.
func gitBackend(t *testing.T, root string, more ...string) *cgi.Handler {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  append([]string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, more...),
	}
}

func (w *gitHub) serveAPI(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case strings.HasSuffix(r.URL.Path, "/installation") && r.Method == http.MethodGet:
		fmt.Fprint(rw, `{"id":88}`)
	case r.URL.Path == "/app/installations/88/access_tokens" && r.Method == http.MethodPost:
		var asked struct {
			IDs         []int64           `json:"repository_ids"`
			Permissions map[string]string `json:"permissions"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.IDs) != 1 {
			http.Error(rw, "not narrow", http.StatusUnprocessableEntity)
			return
		}
		w.n++
		token := fmt.Sprintf("%s%032d", cmp.Or(w.prefix, "ghs_canary"+w.own), w.n)
		if !w.told {
			known("minted "+token, []byte(token))
		}
		w.bodies = append(w.bodies, fmt.Sprintf("%v %v", asked.IDs, asked.Permissions))
		w.live[token] = gitHubTok{fmt.Sprint(asked.IDs[0]), asked.Permissions}
		rw.WriteHeader(http.StatusCreated)
		answer := map[string]any{
			"token": token, "expires_at": time.Now().Add(time.Hour), "permissions": maps.Clone(asked.Permissions),
			"repositories": []map[string]any{{"id": asked.IDs[0]}},
		}
		if w.wider != nil {
			w.wider(answer)
		}
		_ = json.NewEncoder(rw).Encode(answer)
	case r.URL.Path == "/installation/token" && r.Method == http.MethodDelete:
		delete(w.live, bearer)
		rw.WriteHeader(http.StatusNoContent)
	default:
		if h := w.rest[r.Method+" "+r.URL.Path]; h != nil {
			h(rw, r)
			return
		}
		http.NotFound(rw, r)
	}
}

// minted lists what was asked of every token.
func (w *gitHub) minted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.bodies)
}

// alive lists the tokens that nobody revoked.
func (w *gitHub) alive() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for t := range w.live {
		out = append(out, t)
	}
	return out
}

func (w *gitHub) tip(name, ref string) string {
	out, err := exec.Command("git", "-C", filepath.Join(w.root, name+".git"), "rev-parse", "-q", "--verify", ref).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// connect writes the files of a connection and returns its configuration.
func (w *gitHub) connect(dir string) string {
	w.t.Helper()
	upstreams, err := json.Marshal(w.Upstreams())
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		w.t.Fatal(err)
	}
	write(w.t, filepath.Join(dir, "app.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	write(w.t, filepath.Join(dir, "ca.pem"), string(w.CA()))
	return fmt.Sprintf(`connections:
  - {name: github-main, kind: scm, provider: github, host: git.good.test, api: "https://api.good.test/", app: {id: 4711, key: "${file:app.pem}"}}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, upstreams, w.DNS.Addr())
}

// configure writes a configuration and a bundle; git and more are YAML.
func (w *gitHub) configure(dir, git, more string) {
	w.t.Helper()
	write(w.t, filepath.Join(dir, "gatehouse.yaml"), `sandbox: {unlimited: accepted}
repositories: [{id: "1001", name: acme/shop}, {id: "1002", name: acme/docs}, {id: "1003", name: acme/other}]
`+w.connect(dir))
	write(w.t, filepath.Join(dir, "bundle.yaml"), `apiVersion: gatehouse/v1
kind: Bundle
name: git
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 5m
git: `+git+"\n"+more)
}

const gitOfShop = `{repository: acme/shop, siblings: [{repository: acme/docs, access: read}], push: {refs: ["refs/heads/gatehouse/*"], deny_paths: [".github/workflows/**"]}}`

// TestGitInside runs git in a real hard session against a host that takes only
// tokens for one repository and one access.
func TestGitInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	w := newGitHub(t)
	dir := tempDir(t)
	w.configure(dir, gitOfShop, "")
	out, res := runInside(t, dir, "hard", `set -e
git clone -q git@git.good.test:acme/shop.git
git clone -q https://git.good.test/acme/docs
cd shop
echo new > new
git add new && git commit -q -m new
git push origin HEAD:refs/heads/gatehouse/one
git log -1 --format=%an
mkdir -p .github/workflows && echo "on: push" > .github/workflows/x.yml
git add . && git commit -q -m workflow
git push origin HEAD:refs/heads/gatehouse/two || echo no workflow
git ls-remote https://git.good.test/acme/other || echo no sibling
printf 'protocol=https\nhost=git.good.test\n\n' | git credential fill
env | grep -c ghs_ || echo nothing in the environment
`)
	for _, want := range []string{"Gatehouse\n", "path_denied", "no workflow", "repository_not_listed", "no sibling", "password=gatehouse_ph_", "nothing in the environment"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ghs_canary") {
		t.Errorf("a token was printed:\n%s", out)
	}
	if res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
	if w.tip("acme/shop", "gatehouse/one") == "" || w.tip("acme/shop", "gatehouse/two") != "" {
		t.Errorf("branches are at %q and %q", w.tip("acme/shop", "gatehouse/one"), w.tip("acme/shop", "gatehouse/two"))
	}
	slices.Sort(w.bodies)
	want := []string{"[1001] map[contents:read metadata:read]", "[1001] map[contents:write metadata:read]", "[1002] map[contents:read metadata:read]"}
	if !slices.Equal(w.bodies, want) {
		t.Errorf("minted %q, want %q", w.bodies, want)
	}
	if left := w.alive(); len(left) > 0 {
		t.Errorf("%d tokens live after the session", len(left))
	}
}

// TestOperationsInside calls named operations from a real hard session.
func TestOperationsInside(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	w := newGitHub(t)
	w.rest["GET /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") }
	w.rest["POST /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ghs_canary") {
			t.Errorf("commented under %q", r.Header.Get("Authorization"))
		}
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprint(rw, `{"id":9,"html_url":"https://git.good.test/9"}`)
	}
	w.rest["GET /repos/acme/shop/actions/jobs/5/logs"] = func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://logs.blob.core.windows.net/5?sig=0123456789abcdef", http.StatusFound)
	}
	w.rest["GET /repos/acme/shop/actions/jobs/6/logs"] = func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://evil.test/6", http.StatusFound)
	}
	store, err := w.HTTPS("logs.blob.core.windows.net", netip.MustParseAddr("93.184.216.37"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the store was sent a credential")
		}
		fmt.Fprint(rw, "FAIL: a test\n")
	}))
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	w.configure(dir, gitOfShop, "operations: [scm.comment, scm.run.logs]\n")
	out, res := runInside(t, dir, "hard", `
call() { curl -sS -H "Idempotency-Key: $1" -d "$3" http://gatehouse.internal/agent/v1/operations/$2; }
call a scm.comment '{"number":7,"body":"hello"}'
call a scm.comment '{"number":7,"body":"hello"}'
call b scm.pr.create '{"head":"gatehouse/one","title":"x"}'
call c scm.run.logs '{"job":5}'
cat "$GATEHOUSE_INBOX/job-5.log" "$GATEHOUSE_INBOX/README"
echo x > "$GATEHOUSE_INBOX/job-5.log" || echo the inbox is read-only
call d scm.run.logs '{"job":6}'
curl -sS http://gatehouse.internal/agent/v1/operations
`)
	for _, want := range []string{`"id":9`, "operation_not_listed", "FAIL: a test", "not one of its stores", `"name":"scm.artifact.get"`, "\nFAIL: a test\n", "untrusted text", "the inbox is read-only"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ghs_canary") || strings.Contains(out, "sig=") {
		t.Errorf("a credential was printed:\n%s", out)
	}
	if store.Requests() != 1 || w.DNS.Queries("evil.test") != 0 {
		t.Errorf("the store saw %d requests, the DNS %d questions about another host", store.Requests(), w.DNS.Queries("evil.test"))
	}
	if res.Exit != receipts.ExitComplete {
		t.Errorf("receipts: %s", res.Verdict())
	}
	slices.Sort(w.bodies)
	want := []string{"[1001] map[actions:read metadata:read]", "[1001] map[issues:write metadata:read pull_requests:write]"}
	if !slices.Equal(w.bodies, want) {
		t.Errorf("minted %q, want %q", w.bodies, want)
	}
	if left := w.alive(); len(left) > 0 {
		t.Errorf("%d tokens live after the session", len(left))
	}
}

// TestCheckout: the workspace holds the session's repository before the agent
// starts, and its remote works.
func TestCheckout(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	w := newGitHub(t)
	dir := tempDir(t)
	w.configure(dir, gitOfShop, "")
	path := filepath.Join(dir, "bundle.yaml")
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(source), "  task: go\n", "  task: go\n  workspace: {checkout: true}\n", 1))
	out, _ := runInside(t, dir, "hard", `cat README && git fetch -q origin && git remote get-url origin`)
	for _, want := range []string{"README of acme/shop", "https://git.good.test/acme/shop.git"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// heldBundle takes every failed run and gives it git in its own repository.
func heldBundle(script string) string {
	return `apiVersion: gatehouse/v1
kind: Bundle
name: held
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure}}
session:
  agent: {command: {argv: [/bin/sh, -c, '` + script + `']}}
  task: go
  timeout: 10m
git: {repository: session, push: {refs: ["refs/heads/gatehouse/*"]}}
`
}

// TestPushAfterKill: a push whose answer the node did not live to see is asked
// about when it starts again, by object ids, and is not pushed again.
func TestPushAfterKill(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and a sandbox")
	}
	w := newGitHub(t)
	w.ids["acme/shop"] = "1" // as the node lists it
	w.held = make(chan struct{})
	dir := nodeDir(t)
	n := newLiveNodeOn(t, dir, w.connect(dir), heldBundle(`git clone -q "$GATEHOUSE_REPOSITORY" . && echo x > x && git add x && git commit -q -m x && git push origin HEAD:refs/heads/gatehouse/cut; sleep 300`))
	n.args = []string{"--dev"}
	n.start()
	n.deliver(failure(1))
	select {
	case <-w.held:
	case <-time.After(patience):
		t.Fatal("nothing was pushed")
	}
	n.kill()
	tip := w.tip("acme/shop", "gatehouse/cut")
	n.start()
	n.until("asked about the push", func() bool {
		log, err := os.ReadFile(n.path("log"))
		return err == nil && strings.Contains(string(log), "found=push_landed")
	})
	n.until("without a token", func() bool { return len(w.alive()) == 0 })
	n.stop()
	if got := w.tip("acme/shop", "gatehouse/cut"); got != tip || tip == "" {
		t.Errorf("the branch went from %q to %q", tip, got)
	}
}

// TestTokensAtTheEnd is M-19: however a session ends, its tokens are revoked, and
// none stands in what its receipts say.
func TestTokensAtTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and sandboxes")
	}
	w := newGitHub(t)
	w.ids["acme/shop"] = "1" // as the node lists it
	for name, c := range map[string]struct {
		script, timeout string
		end             func(n *liveNode)
	}{
		"M-19_completion": {script: `true`, timeout: "10m"},
		"M-19_failure":    {script: `exit 7`, timeout: "10m"},
		"M-19_timeout":    {script: `sleep 600`, timeout: "15s"},
		"M-19_cancel": {script: `sleep 600`, timeout: "10m", end: func(n *liveNode) {
			n.until("holding a token", func() bool { return len(w.alive()) > 0 })
			n.gatehouse(exitOK, "session", "kill", n.sessions()[0].ID)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			minted := len(w.minted())
			dir := nodeDir(t)
			n := newLiveNodeOn(t, dir, w.connect(dir), strings.Replace(heldBundle(`git ls-remote "$GATEHOUSE_REPOSITORY"; `+c.script), "timeout: 10m", "timeout: "+c.timeout, 1))
			n.args = []string{"--dev"}
			n.start()
			ids := n.deliver(failure(1))
			if c.end != nil {
				c.end(n)
			}
			n.settled(ids...)
			n.until("without a token", func() bool { return len(w.alive()) == 0 })
			n.stop()
			if len(w.minted()) == minted {
				t.Error("no token was minted")
			}
		})
	}
}

// TestTokensAfterKill: a node that was killed while a session held a token gives
// it back when it starts again.
func TestTokensAfterKill(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and a sandbox")
	}
	w := newGitHub(t)
	w.ids["acme/shop"] = "1" // as the node lists it
	dir := nodeDir(t)
	n := newLiveNodeOn(t, dir, w.connect(dir), heldBundle(`git ls-remote "$GATEHOUSE_REPOSITORY"; sleep 300`))
	n.args = []string{"--dev"}
	n.start()
	n.deliver(failure(1))
	// Used, and so in the journal: one whose answer is still under way when the node
	// is killed was never in anybody's hands.
	n.until("using a token", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.live) == 1 && len(w.asked) > 0
	})
	n.kill()
	if len(w.alive()) != 1 {
		t.Fatal("the token is gone before the node started again")
	}
	n.start()
	n.until("without a token", func() bool { return len(w.alive()) == 0 })
	n.stop()
}

// TestPullThroughTheAPI: the mutation that gh sends becomes scm.pr.create, under
// its own decision and token.
func TestPullThroughTheAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts sandboxes")
	}
	w := newGitHub(t)
	w.rest["GET /repos/acme/shop/pulls"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") }
	w.rest["POST /repos/acme/shop/pulls"] = func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprint(rw, `{"number":8,"html_url":"https://git.good.test/acme/shop/pull/8"}`)
	}
	for name, c := range map[string]struct{ operations, want string }{
		"listed":   {"[scm.pr.create]", "https://git.good.test/acme/shop/pull/8"},
		"unlisted": {"[scm.comment]", "operation_not_listed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			w.configure(dir, gitOfShop, "operations: "+c.operations+"\negress:\n  - {host: api.good.test, methods: [GET, POST], paths: [/api/graphql, /graphql], connection: github-main}\n")
			out, res := runInside(t, dir, "hard", `curl -sS -H 'Content-Type: application/json' https://api.good.test/graphql -d '{"query":"mutation m($input:CreatePullRequestInput!){createPullRequest(input:$input){pullRequest{id url}}}","variables":{"input":{"repositoryId":"R_1","headRefName":"gatehouse/one","baseRefName":"main","title":"x","body":"y"}}}'`)
			if !strings.Contains(out, c.want) || res.Exit != receipts.ExitComplete {
				t.Errorf("no %q, receipts %s:\n%s", c.want, res.Verdict(), out)
			}
		})
	}
}

// TestOnStartAndEnd: what a bundle lists under on_start is said before the agent
// starts, and what stands under on_end once it is gone, each under a decision of
// its own, however the agent ended. Neither is an effect of the agent's.
func TestOnStartAndEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("short: starts a node and sandboxes")
	}
	w := newGitHub(t)
	w.ids["acme/shop"] = "1" // as the node lists it
	said := make(chan string, 2)
	w.rest["GET /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") }
	w.rest["POST /repos/acme/shop/issues/7/comments"] = func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		said <- string(b)
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprint(rw, `{"id":9}`)
	}
	dir := nodeDir(t)
	n := newLiveNodeOn(t, dir, w.connect(dir), strings.Replace(heldBundle(`exit 0`), "  task: go\n", "  task: go\n  on_start: [scm.comment]\n  on_end: [scm.comment]\n", 1)+"operations: [scm.comment]\n")
	n.args = []string{"--dev"}
	n.start()
	run := failure(1)
	run.body = bytes.Replace(run.body, []byte(`"pull_requests":[]`), []byte(`"pull_requests":[{"id":70,"number":7,"base":{"repo":{"id":1}},"head":{"repo":{"id":1}}}]`), 1)
	n.settled(n.deliver(run)...)
	for _, want := range []string{"has started.", "has ended: no_effect."} {
		select {
		case text := <-said:
			if !strings.Contains(text, want) {
				t.Errorf("said %s, want %q", text, want)
			}
		case <-time.After(patience):
			t.Fatal("nothing was said")
		}
	}
	n.until("without a token", func() bool { return len(w.alive()) == 0 })
	n.stop()
}
