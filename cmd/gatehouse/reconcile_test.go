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
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/outside"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// enterprise is a GitHub Enterprise Server: its API, and its hook, which sends a
// delivery again when it is asked to.
type enterprise struct {
	t      *testing.T
	lost   func() delivery // the delivery that never came
	stored chan struct{}   // closed when the other one is in the journal

	mu    sync.Mutex
	asked []string // "METHOD path"
}

var mintedToken = unique("minted token of the node itself", "ghs_canary")

func (g *enterprise) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v3")
	g.mu.Lock()
	g.asked = append(g.asked, path)
	g.mu.Unlock()
	app := strings.Count(r.Header.Get("Authorization"), ".") == 2
	hour := time.Now().Add(-time.Hour).Format(time.RFC3339)
	switch {
	case path == "GET /app/hook/deliveries" && app:
		<-g.stored
		fmt.Fprintf(w, `[{"id":1,"guid":"stored","delivered_at":%q},{"id":2,"guid":"lost","delivered_at":%q,"status_code":503}]`, hour, hour)
	case path == "POST /app/hook/deliveries/2/attempts" && app:
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "{}")
		go func() {
			if a, err := g.lost().send(context.Background()); err != nil || a.Result != "accepted" {
				g.t.Errorf("the redelivery: %+v, %v", a, err)
			}
		}()
	case path == "GET /repos/acct-01/Hello-World/installation" && app:
		fmt.Fprint(w, `{"id":88}`)
	case path == "POST /app/installations/88/access_tokens" && app:
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":%q,"expires_at":%q,"permissions":{"metadata":"read"},"repositories":[{"id":186853002}]}`,
			mintedToken, time.Now().Add(time.Hour).Format(time.RFC3339))
	case path == "DELETE /installation/token" && r.Header.Get("Authorization") == "Bearer "+mintedToken:
		w.WriteHeader(http.StatusNoContent)
	case path == "GET /repos/acct-01/Hello-World/collaborators/acct-private-member/permission" && r.Header.Get("Authorization") == "Bearer "+mintedToken:
		fmt.Fprint(w, `{"permission":"write","user":{"id":2000077}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "{}")
	}
}

func (g *enterprise) count(path string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.asked {
		if p == path {
			n++
		}
	}
	return n
}

// TestAskGitHub: a node with an App finds the delivery that never came, has it
// sent again, and admits a concealed member once the API confirms them. Every
// call of its own has a decision and an outcome in the control chain.
func TestAskGitHub(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node")
	}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	ghe := &enterprise{t: t, stored: make(chan struct{})}
	if _, err := world.HTTPS("ghe.example.com", netip.MustParseAddr("93.184.216.50"), ghe); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	if _, err := initNode(dir, "test.gatehouse.example/node-1"); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "app.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	write(t, filepath.Join(dir, "ca.pem"), string(world.CA()))
	subs, err := json.Marshal(world.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf(`listen: {hooks: "127.0.0.1:0", operator: "127.0.0.1:0", private: "127.0.0.1:0"}
endpoints: [{name: main, source: github, secrets: ["${file:main.key}"], connection: ghe}]
repositories: [{id: "186853002", name: acct-01/Hello-World}]
connections: [{name: ghe, kind: scm, provider: github, app: {id: 4711, key: "${file:app.pem}"}, api: "https://ghe.example.com/api/v3", ca: ca.pem}]
sandbox: {unlimited: accepted}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
`, subs, world.DNS.Addr()))
	if err := os.Remove(filepath.Join(dir, "bundles", "fix-failing-ci.yaml")); err != nil {
		t.Fatal(err)
	}
	// No provider mounts for writing: admission goes as far as that, and no
	// sandbox is needed.
	write(t, filepath.Join(dir, "bundles", "answer.yaml"), `apiVersion: gatehouse/v1
kind: Bundle
name: answer
accepts: member
match: [{source: github, endpoint: main, kinds: [issue_comment.created]}]
session: {mounts: [{source: /srv, path: /srv, mode: write}], agent: {command: {argv: [/bin/true]}}, task: answer, deliver: [/comment/body]}
`)
	cfg, err := config.Load(filepath.Join(dir, "gatehouse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	comment, err := os.ReadFile(filepath.Join("..", "..", "ingest", "testdata", "corpus", "github", "issue_comment__created_private_member_seen_as_contributor.json"))
	if err != nil {
		t.Fatal(err)
	}
	hookKey, err := os.ReadFile(filepath.Join(dir, "main.key"))
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	var mu sync.Mutex
	ctx, stop := context.WithCancel(t.Context())
	n, err := start(ctx, cfg, nodeOptions{dev: true, log: slog.New(slog.NewTextHandler(&locked{mu: &mu, b: &logged}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	post := func(id, kind string, body []byte) delivery {
		return delivery{URL: "http://" + n.hooks.String() + "/hooks/main", Source: "github", Kind: kind, ID: id,
			Secret: secret.FromString(strings.TrimSpace(string(hookKey))), Body: body}
	}
	ghe.lost = func() delivery { return post("lost", "issue_comment", comment) }
	if a, err := post("stored", "no_such_kind", []byte(`{}`)).send(t.Context()); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	close(ghe.stored)
	var open *receipts.Open
	for end := time.Now().Add(time.Minute); open == nil; time.Sleep(20 * time.Millisecond) {
		for _, r := range receiptsOf(t, n.journal, 0) {
			if r.Open != nil && r.Open.Event == "github:main:lost" {
				open = r.Open
			}
		}
		if time.Now().After(end) {
			mu.Lock()
			t.Fatalf("the lost delivery never led to an admission:\n%s", logged.String())
		}
	}
	// IN-17, IN-31.
	if open.Code != "provider_capability_missing" || open.Facts["lifted"] != "true" || open.Floor != "member" {
		t.Errorf("session.open is %+v", open)
	}
	// What another node would have put there is known by the same look, also what
	// it quarantined.
	if a, err := post("odd", "issue_comment", []byte(`{"action":"created","Action":"deleted"}`)).send(t.Context()); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	there := &others{n: n, endpoint: "main", odd: map[string]bool{}}
	for end := time.Now().Add(time.Minute); !there.know("odd"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a quarantined delivery does not show in the stream")
		}
	}
	if !there.know("odd") || !there.know("lost") || there.know("never") {
		t.Error("the stream is not asked")
	}
	stop()
	if err := n.wait(); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]int{
		"POST /app/hook/deliveries/2/attempts": 1, "POST /app/hook/deliveries/1/attempts": 0,
		"POST /app/installations/88/access_tokens": 1, "DELETE /installation/token": 1, "GET /repos/acct-01/Hello-World/collaborators/acct-private-member/permission": 1,
	} {
		if got := ghe.count(path); got != want {
			t.Errorf("%s was called %d times, want %d", path, got, want)
		}
	}

	j, err := journal.Open(filepath.Join(dir, "state", "journal"), journal.Options{PrivateKey: n.keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	waiting := map[receipts.Hash]string{}
	purposes := map[string]int{}
	results := map[string]int{}
	for _, r := range receiptsOf(t, j, 0) {
		if r.Session != receipts.ControlSession {
			continue
		}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Act != nil:
			waiting[receipts.Leaf(b)] = r.Act.Name
			purposes[r.Act.Name]++
			if r.Act.Host != "ghe.example.com" || r.Act.Port != 443 || r.Act.Connection != "ghe" || !r.Act.Authority || !r.Dec.Dev {
				t.Errorf("decision %+v %+v", r.Act, r.Dec)
			}
		case r.Type == receipts.TypeOutcome:
			if waiting[r.Out.Ref] == "" || r.Out.Effect != "forwarded" || r.Out.Address != "93.184.216.50" {
				t.Errorf("outcome %+v of %q", r.Out, waiting[r.Out.Ref])
			}
			delete(waiting, r.Out.Ref)
		case r.Cred != nil:
			results[string(r.Type)+" "+r.Cred.Result]++
			if r.Cred.Scope["repository.id"] != "186853002" || r.Cred.Scope["permission.metadata"] != "read" || r.Cred.Host != "ghe.example.com" {
				t.Errorf("credential %+v", r.Cred)
			}
		}
		if bytes.Contains(b, []byte(mintedToken)) {
			t.Error("a receipt holds the token")
		}
	}
	if len(waiting) > 0 || results["credential.issue issued"] != 1 || results["credential.revoke revoked"] != 1 || len(results) != 2 || purposes["github.lift"] != 4 || purposes["github.reconcile"] < 2 {
		t.Errorf("without outcome %v, tokens %v, calls %v", waiting, results, purposes)
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(logged.String(), mintedToken) {
		t.Error("the log holds the token")
	}
}

func receiptsOf(t *testing.T, j *journal.Journal, from uint64) []*receipts.Receipt {
	t.Helper()
	var out []*receipts.Receipt
	for group, err := range j.Groups(from) {
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt {
				continue
			}
			r, err := receipts.Decode(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	return out
}

// locked is a buffer that several goroutines write to.
type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestAPIOf: the node's calls go to one https place.
func TestAPIOf(t *testing.T) {
	for api, want := range map[string]string{
		"": "https://api.github.com:443 /", "https://ghe.example.com/api/v3": "https://ghe.example.com:443 /api/v3/", "https://ghe.example.com:8443/api/v3/": "https://ghe.example.com:8443 /api/v3/",
		"http://ghe.example.com/api/v3": "", "ghe.example.com": "", "https://u:p@ghe.example.com/": "", "https://ghe.example.com/?x": "", "https:///api/v3/": "",
	} {
		u, to, err := apiOf(config.Connection{Name: "ghe", API: api})
		got := ""
		if err == nil {
			got = fmt.Sprintf("%s://%s %s", to.Scheme(), to.HostPort(), u.Path)
		}
		if got != want {
			t.Errorf("%q is %q, want %q (%v)", api, got, want, err)
		}
	}
}
