//go:build linux

package git_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/door"
	"gatehouse/enforcers/git"
	"gatehouse/enforcers/upstream"
	_ "gatehouse/gatekeeper/sandbox/initd" // a change of what runs inside outdates cached results
	"gatehouse/gatekeeper/sandbox/local"
	"gatehouse/gatekeeper/sandbox/programtest"
	"gatehouse/gatekeeper/sandbox/quarantine"
	"gatehouse/internal/authority"
	"gatehouse/internal/outside"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

// initPath is the real gatehouse-init, built once.
var initPath string

func TestMain(m *testing.M) { os.Exit(programtest.Main(m, &initPath)) }

// The repositories of the world: what the session works in, a sibling that may
// be read, one that is listed and not granted, and one nobody lists.
const (
	shopID, docsID, otherID = "1001", "1002", "1003"
	token                   = "ghs_0123456789abcdefghijklmnopqrstuv"
	placeholder             = "gatehouse_ph_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

const egressRules = `{"connection":"github-main","host":"api.good.test","id":"egress[1]","methods":["GET","POST","PUT","DELETE"],"paths":["/**"],"ports":[443],"schemes":["https"]},` +
	`{"host":"git.good.test","id":"git.github-main","methods":[],"paths":[],"ports":[443],"schemes":["https"]},` +
	`{"host":"free.good.test","id":"egress[0]","methods":["GET","POST"],"paths":["/**"],"ports":[443],"schemes":["https"]}`

// policy is a compiled policy; push is its push section, "" for none.
func policy(push string) string {
	if push != "" {
		push = `"push":` + push + `,`
	}
	return `{"bundle":"git","digest":"00","egress":[` + egressRules + `],"git":{` + push + `"repository":"` + shopID + `","siblings":[{"access":"read","repository":"` + docsID + `"}]},` +
		`"models":[],"operations":[],"telemetry":[]}`
}

// world is a fake outside with a real git server.
type world struct {
	*outside.World
	t     testing.TB
	root  string // bare repositories
	site  *outside.Site
	api   *outside.Site
	free  *outside.Site // a host without a connection
	roots *x509.CertPool

	mu       sync.Mutex
	received int      // POSTs to git-receive-pack
	seen     []string // "METHOD path?query" of every request
	auth     map[string]int
	moved    bool // answer with a rename redirect
	large    *large
	look     func(*http.Request) // at what the host is asked, nil = nobody does
}

func newWorld(t testing.TB) *world {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	w := &world{World: base, t: t, root: t.TempDir(), roots: x509.NewCertPool(), auth: map[string]int{}}
	w.roots.AppendCertsFromPEM(base.CA())
	for _, name := range []string{"acme/shop", "acme/docs", "acme/other", "acme/unlisted"} {
		w.seed(name)
	}
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + w.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=token"},
	}
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.RequestURI())
		w.auth[r.Header.Get("Authorization")]++
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
			w.received++
		}
		moved, large := w.moved, w.large
		if w.look != nil {
			w.look(r)
		}
		w.mu.Unlock()
		if large != nil && strings.Contains(r.URL.Path, "-lfs/") || large != nil && strings.Contains(r.URL.Path, "/info/lfs/") {
			large.ServeHTTP(rw, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/api/") {
			_, _ = io.WriteString(rw, `{"answer":"of the API"}`)
			return
		}
		if moved {
			http.Redirect(rw, r, "https://git.good.test/acme/other.git/info/refs?service=git-upload-pack", http.StatusMovedPermanently)
			return
		}
		if p := r.Header.Get("Git-Protocol"); p != "" {
			r.Header.Set("Git-Protocol", p) // net/http/cgi passes it on as HTTP_GIT_PROTOCOL
		}
		backend.ServeHTTP(rw, r)
	})
	if w.site, err = base.HTTPS("git.good.test", netip.MustParseAddr("93.184.216.35"), serve); err != nil {
		t.Fatal(err)
	}
	if w.api, err = base.HTTPS("api.good.test", netip.MustParseAddr("93.184.216.37"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		w.seen = append(w.seen, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		w.auth[r.Header.Get("Authorization")]++
		_, _ = io.WriteString(rw, `{"answer":"of the API"}`)
	})); err != nil {
		t.Fatal(err)
	}
	if w.free, err = base.HTTPS("free.good.test", netip.MustParseAddr("93.184.216.36"), serve); err != nil {
		t.Fatal(err)
	}
	return w
}

// seed makes a bare repository with two commits.
func (w *world) seed(name string) {
	w.t.Helper()
	work := w.t.TempDir()
	bare := filepath.Join(w.root, name+".git")
	run(w.t, work, nil, "init", "-q", "-b", "main")
	for i, f := range []string{"README", "src/main.go"} {
		write(w.t, filepath.Join(work, f), fmt.Sprintf("%s of %s %d\n", f, name, i))
		run(w.t, work, nil, "add", "-A")
		run(w.t, work, nil, "commit", "-q", "-m", f)
	}
	run(w.t, work, nil, "clone", "-q", "--bare", work, bare)
	for _, kv := range [][2]string{{"http.receivepack", "true"}, {"uploadpack.allowFilter", "true"}, {"uploadpack.allowAnySHA1InWant", "true"}} {
		run(w.t, bare, nil, "config", kv[0], kv[1])
	}
}

func (w *world) bare(name string) string { return filepath.Join(w.root, name+".git") }

// tip returns what a reference of the server points at, "" if there is none.
func (w *world) tip(name, ref string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "git", "-C", w.bare(name), "rev-parse", "-q", "--verify", ref).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (w *world) receives() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.received
}

// injector stands for the connection's credentials and counts what it is asked.
type injector struct {
	mu   sync.Mutex
	asks []string // "<kind> <repository>"
}

func (in *injector) Inject(_ context.Context, p *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	a := p.Action()
	repository := ""
	switch {
	case a.Fetch != nil:
		repository = a.Fetch.Repository
	case a.Push != nil:
		repository = a.Push.Repository
	}
	in.ask(string(a.Kind) + " " + repository)
	r.SetBasicAuth("x-access-token", token)
	return []secret.Value{secret.FromString(token)}, nil
}

func (in *injector) ask(what string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asks = append(in.asks, what)
}

func (in *injector) asked() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]string(nil), in.asks...)
}

// session is one session with its door, and a client's folder beside it.
type session struct {
	t      testing.TB
	w      *world
	gate   *enforcers.Gate
	rec    *recorder
	inject *injector
	proxy  string // address of a plain proxy into the door
	home   string
	env    []string
	inside map[string]string // what the mediator tells the real git
	before []git.Pushing
	dir    string // where packs wait
	roots  *x509.CertPool
	stop   func()
}

type setup struct {
	mode    receipts.Mode
	push    string // the policy's push section
	limits  quarantine.Limits
	most    int64
	blind   bool          // no Inspector
	inspect git.Inspector // in place of the real one
	gh      bool          // github.com has the repositories too
	static  bool          // the connection's credential is not narrowed
	forge   string        // the host has this provider's API beside its repositories
	pull    func(context.Context, git.PullRequest) (string, error)
	total   int64            // bytes of large files that may be uploaded
	real    *git.Credentials // in place of the injector that counts
}

const pushBranches = `{"delete":false,"deny_paths":[".github/workflows/**",".gitmodules"],"force":false,"refs":["refs/heads/gatehouse/*"]}`

func open(t testing.TB, w *world, s setup) *session {
	t.Helper()
	if s.mode == "" {
		s.mode = receipts.Hard
	}
	p := policy(s.push)
	if s.gh {
		p = strings.Replace(p, `"egress":[`, `"egress":[{"connection":"hub","host":"api.github.com","id":"egress[2]","methods":["GET","POST","PUT"],"paths":["/**"],"ports":[443],"schemes":["https"]},`+
			`{"host":"github.com","id":"git.hub","methods":[],"paths":[],"ports":[443],"schemes":["https"]},`, 1)
	}
	if s.forge != "" {
		p = strings.Replace(p, `"egress":[`, `"egress":[{"connection":"github-main","encoded_slash":true,"host":"git.good.test","id":"egress[3]","methods":["GET","POST","PUT","DELETE"],"paths":["/api/**"],"ports":[443],"schemes":["https"]},`, 1)
	}
	in := &session{t: t, w: w, rec: &recorder{}, inject: &injector{}, home: t.TempDir(), dir: t.TempDir()}
	subs := map[netip.AddrPort]netip.AddrPort{}
	for k, v := range w.Upstreams() {
		subs[netip.MustParseAddrPort(k)] = netip.MustParseAddrPort(v)
	}
	var inject upstream.Injector = in.inject
	if s.real != nil {
		inject = s.real
	}
	up, err := upstream.New(upstream.Options{Dev: &upstream.Dev{Upstreams: subs, DNS: netip.MustParseAddrPort(w.DNS.Addr()), Roots: w.roots}, Inject: inject})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := door.NewCA("s-1")
	if err != nil {
		t.Fatal(err)
	}
	pol := enforcers.Policy{Digest: receipts.Leaf([]byte(p))}
	if pol.Grants, err = enforcers.Grants([]byte(p)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"egress", "git"} {
		e, err := policies.Native(name, []byte(`{"abi":1,"bundle":`+p+`,"params":{"enforcer":"`+name+`"}}`))
		if err != nil {
			t.Fatalf("%v\n%s", err, p)
		}
		pol.Enforcers = append(pol.Enforcers, enforcers.Bound{Enforcer: e, Mode: s.mode, Builtin: true})
	}
	in.gate = enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: s.mode, Policy: pol, Recorder: in.rec, Dev: true})
	to, err := authority.New(authority.HTTPS, "git.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	api, err := authority.New(authority.HTTPS, "api.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	o := git.Options{
		Hosts: []git.Host{{Connection: "github-main", To: to, API: api, GraphQLPath: "/graphql", Static: s.static, Repositories: []git.Repository{
			{ID: shopID, Name: "acme/shop"}, {ID: docsID, Name: "acme/docs"}, {ID: otherID, Name: "acme/other"},
		}}},
		Placeholder: secret.FromString(placeholder), Readable: []string{shopID, docsID},
		Push: git.PushOptions{Dir: in.dir, ID: "s-1", Limits: s.limits, Most: s.most, Before: func(_ context.Context, p git.Pushing) error {
			in.before = append(in.before, p)
			return nil
		}},
	}
	if s.forge != "" {
		h := &o.Hosts[0]
		h.API, h.Provider, h.Static = to, s.forge, true
		h.APIPath, h.GraphQLPath = "/api/v4", "/api/graphql"
		if s.forge == git.Gitea {
			h.APIPath, h.GraphQLPath = "/api/v1", ""
		}
	}
	if s.gh {
		hub := o.Hosts[0]
		hub.Connection = "hub"
		hub.To, _ = authority.New(authority.HTTPS, "github.com", 443)
		hub.API, _ = authority.New(authority.HTTPS, "api.github.com", 443)
		o.Hosts = append(o.Hosts, hub)
	}
	if s.pull != nil {
		o.CreatePull = func(ctx context.Context, _ *enforcers.Gate, p git.PullRequest) (string, enforcers.Decision, error) {
			url, err := s.pull(ctx, p)
			return url, enforcers.Decision{}, err
		}
	}
	switch {
	case s.inspect != nil:
		o.Push.Inspect = s.inspect
	case !s.blind:
		o.Push.Inspect = inspector(t)
	}
	o.Hosts[0].Stores = []authority.Pattern{pattern(t, "store.good.test")}
	o.LFS = git.LFSOptions{Call: in.outside(up), Total: s.total}
	m, err := git.New(o)
	if err != nil {
		t.Fatal(err)
	}
	in.inside = m.Inside()
	sock := filepath.Join(t.TempDir(), "door.sock")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(context.Background(), l, in.gate, door.Options{Up: up, CA: ca, Routes: m.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	stopProxy := in.forward(sock)
	var once sync.Once
	in.stop = func() {
		once.Do(func() {
			d.Close(enforcers.CodeRevoked)
			stopProxy()
			_ = up.Close()
		})
	}
	t.Cleanup(in.stop)
	in.roots = x509.NewCertPool()
	in.roots.AppendCertsFromPEM(ca.Trust())
	trust := filepath.Join(in.home, "ca.pem")
	write(t, trust, string(ca.Trust()))
	in.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + in.home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_SSL_CAINFO=" + trust, "GIT_TERMINAL_PROMPT=0",
		"https_proxy=http://" + in.proxy, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	return in
}

func pattern(t testing.TB, s string) authority.Pattern {
	t.Helper()
	p, err := authority.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outside carries out the node's own calls, as cmd/gatehouse does.
func (s *session) outside(up *upstream.Client) func(context.Context, string, string, git.Access, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, connection, repository string, a git.Access, r *http.Request) (*http.Response, error) {
		to, err := authority.ParseHostHeader(r.URL.Scheme, r.URL.Host)
		if err != nil {
			return nil, err
		}
		node, err := up.Node(upstream.NodeOptions{Purpose: "scm.lfs", To: to, Begin: func(context.Context, string) (func(enforcers.Outcome), error) {
			return func(enforcers.Outcome) {}, nil
		}})
		if err != nil {
			return nil, err
		}
		if a != "" {
			s.inject.ask("lfs " + string(a) + " " + repository)
			r.SetBasicAuth("x-access-token", token)
		}
		return node.RoundTrip(r.WithContext(ctx))
	}
}

func inspector(t testing.TB) *quarantine.Runner {
	t.Helper()
	p, err := local.New(local.Options{Run: filepath.Join(t.TempDir(), "run"), InitPath: initPath})
	if problem.CodeOf(err) == problem.ProviderCapabilityMissing {
		t.Skipf("NOT TESTED on this machine: %v; %s", err, problem.HintOf(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &quarantine.Runner{Provider: p}
}

// forward stands for gatehouse-init: it takes proxy clients to the door.
func (s *session) forward(sock string) (stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.proxy = l.Addr().String()
	var wg sync.WaitGroup
	var mu sync.Mutex
	over := false
	conns := map[net.Conn]struct{}{}
	hold := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		if conns[c] = struct{}{}; over {
			_ = c.Close() // it came while the session ended
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("unix", sock)
			if err != nil {
				_ = c.Close()
				continue
			}
			hold(c)
			hold(d)
			wg.Go(func() { _, _ = io.Copy(d, c); _ = d.(*net.UnixConn).CloseWrite() })
			wg.Go(func() { _, _ = io.Copy(c, d); _ = c.(*net.TCPConn).CloseWrite() })
		}
	})
	return func() {
		_ = l.Close()
		mu.Lock()
		over = true
		for c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	}
}

// git runs the real git as a client of the session and returns all it printed.
func (s *session) git(dir string, args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, s.env
	cmd.WaitDelay = time.Second // a helper of git's that hangs holds the output open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs git and fails the test when it fails.
func (s *session) must(dir string, args ...string) string {
	s.t.Helper()
	out, err := s.git(dir, args...)
	if err != nil {
		s.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

const url = "https://git.good.test/"

// clone clones the session's repository into a new folder.
func (s *session) clone(args ...string) string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "shop")
	s.must("", append(append([]string{"clone", "-q"}, args...), url+"acme/shop.git", dir)...)
	return dir
}

// commit writes a file and commits it.
func (s *session) commit(dir, path, content string) string {
	s.t.Helper()
	write(s.t, filepath.Join(dir, path), content)
	s.must(dir, "add", "-A")
	s.must(dir, "commit", "-q", "-m", "change "+path)
	return s.must(dir, "rev-parse", "HEAD")
}

const patience = 10 * time.Minute // safety deadline of one command

func run(t testing.TB, dir string, stdin io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, stdin
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, said.String())
	}
	return strings.TrimSpace(out.String())
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// recorder keeps decisions and outcomes. It stands for the notary.
type recorder struct {
	mu        sync.Mutex
	decisions []decided
	outcomes  map[receipts.Hash]enforcers.Outcome
}

type decided struct {
	Action   enforcers.Action
	Decision enforcers.Decision
	Durable  bool
}

func (r *recorder) Decision(_ context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decisions = append(r.decisions, decided{*a, *d, durable})
	return receipts.Leaf(fmt.Append(nil, len(r.decisions))), nil
}

func (r *recorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = make(map[receipts.Hash]enforcers.Outcome)
	}
	r.outcomes[of] = o
}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

// of returns the decisions about one kind of action.
func (r *recorder) of(kind enforcers.Kind) []decided {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []decided
	for _, d := range r.decisions {
		if d.Action.Kind == kind {
			out = append(out, d)
		}
	}
	return out
}
