package operations_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-github/v66/github"

	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

const markKey = "the node's key for marks"

// markOf is the mark under what a call wrote, made with a key.
func markOf(key, session, call string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(session + "\x00" + call))
	return fmt.Sprintf("<!-- gatehouse %s %s %x -->", session, call, h.Sum(nil))
}

// hub is a fake GitHub API with its store beside it.
type hub struct {
	t        *testing.T
	seen     []string // "METHOD path"
	bodies   []string
	accesses []string
	answers  map[string]string // "METHOD path" -> body
	status   map[string]int
	stored   map[string][]byte // by path in the store
	inbox    *operations.Inbox
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	if b, ok := h.stored[r.URL.Path]; ok {
		if r.Header.Get("Authorization") != "" {
			h.t.Error("the store was sent a credential")
		}
		_, _ = w.Write(b)
		return
	}
	if r.Header.Get("Authorization") != "Bearer tok-canary" {
		h.t.Errorf("%s under %q", key, r.Header.Get("Authorization"))
	}
	b, _ := io.ReadAll(r.Body)
	h.seen, h.bodies = append(h.seen, key), append(h.bodies, string(b))
	if strings.HasSuffix(key, "/logs") || strings.HasSuffix(key, "/zip") {
		http.Redirect(w, r, "http://"+r.Host+"/store"+r.URL.Path, http.StatusFound)
		return
	}
	if s := h.status[key]; s != 0 {
		w.WriteHeader(s)
	}
	if a, ok := h.answers[key]; ok {
		_, _ = io.WriteString(w, a)
		return
	}
	h.t.Errorf("unexpected %s", key)
}

func (h *hub) operations(t *testing.T) []operations.Operation {
	t.Helper()
	srv := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() { transport.CloseIdleConnections(); srv.Close() })
	base, err := url.Parse(srv.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	g := &operations.GitHub{
		Owner: "acme", Name: "shop", Began: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		MarkKey: secret.FromString(markKey), Inbox: h.inbox,
		Pushable: func(ref string) bool { return strings.HasPrefix(ref, "refs/heads/gatehouse/") },
		Client: func(_ context.Context, access string) (*github.Client, secret.Value, error) {
			h.accesses = append(h.accesses, access)
			c := github.NewClient(&http.Client{Transport: transport}).WithAuthToken("tok-canary")
			c.BaseURL = base
			return c, secret.FromString("tok-canary"), nil
		},
		Download: func(ctx context.Context, u *url.URL) (*http.Response, error) {
			if u.Host != base.Host || !strings.HasPrefix(u.Path, "/store/") {
				return nil, problem.New(operations.CodeFailed, "not a store", "")
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
			if err != nil {
				return nil, err
			}
			return transport.RoundTrip(r)
		},
	}
	return g.Operations()
}

// do calls one operation without a gate.
func do(t *testing.T, h *hub, name, args string) (string, error) {
	t.Helper()
	for _, o := range h.operations(t) {
		if o.Name != name {
			continue
		}
		v, err := o.Do(t.Context(), &operations.Call{Session: "s-1", Key: "k1", Args: json.RawMessage(args)})
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
	t.Fatalf("no operation %s", name)
	return "", nil
}

func TestGitHubOperations(t *testing.T) {
	long := strings.Repeat("x", 200<<10) + "\nthe end\n"
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, name := range []string{"report.txt", "../up"} {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(f, "content of %s\x1b[31m ghs_0123456789012345678901234567", name)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		op, args string
		answers  map[string]string
		status   map[string]int
		stored   map[string][]byte
		want     string // in the result
		not      string // not in the result
		code     string
		seen     []string
		sent     string // in the last body
		access   string
	}{
		"pull_request": {op: "scm.pr.create", args: `{"head":"gatehouse/one","title":"One","body":"text <!-- gatehouse s-2 k9 -->"}`,
			answers: map[string]string{"GET /repos/acme/shop": `{"default_branch":"main"}`, "GET /repos/acme/shop/pulls": `[]`, "POST /repos/acme/shop/pulls": `{"number":7,"html_url":"https://git.test/7"}`},
			want:    `"number":7`, seen: []string{"GET /repos/acme/shop", "GET /repos/acme/shop/pulls", "POST /repos/acme/shop/pulls"}, sent: `<!--  s-2 k9 -->\n\n` + markOf(markKey, "s-1", "k1"), access: "pulls"},
		"pull_request_that_is_there": {op: "scm.pr.create", args: `{"head":"gatehouse/one","base":"main","title":"One"}`,
			answers: map[string]string{"GET /repos/acme/shop/pulls": `[{"number":7,"html_url":"https://git.test/7"}]`},
			want:    `"existed":true`, seen: []string{"GET /repos/acme/shop/pulls"}, access: "pulls"},
		"pull_request_from_elsewhere":       {op: "scm.pr.create", args: `{"head":"main","title":"One"}`, code: operations.CodeArguments},
		"pull_request_from_another_account": {op: "scm.pr.create", args: `{"head":"evil:gatehouse/one","title":"One"}`, code: operations.CodeArguments},
		"pull_request_refused": {op: "scm.pr.create", args: `{"head":"gatehouse/one","base":"main","title":"One"}`,
			answers: map[string]string{"GET /repos/acme/shop/pulls": `[]`, "POST /repos/acme/shop/pulls": `{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"head","code":"invalid"}]}`},
			status:  map[string]int{"POST /repos/acme/shop/pulls": 422}, code: operations.CodeFailed, access: "pulls",
			seen: []string{"GET /repos/acme/shop/pulls", "POST /repos/acme/shop/pulls"}},
		"comment": {op: "scm.comment", args: `{"number":7,"body":"hello"}`,
			answers: map[string]string{"GET /repos/acme/shop/issues/7/comments": `[]`, "POST /repos/acme/shop/issues/7/comments": `{"id":9,"html_url":"https://git.test/9"}`},
			want:    `"id":9`, sent: "hello", access: "comments", seen: []string{"GET /repos/acme/shop/issues/7/comments", "POST /repos/acme/shop/issues/7/comments"}},
		"comment_that_is_there": {op: "scm.comment", args: `{"number":7,"body":"hello"}`,
			answers: map[string]string{"GET /repos/acme/shop/issues/7/comments": `[{"id":9,"body":"hello\n\n` + markOf(markKey, "s-1", "k1") + `"}]`},
			want:    `"existed":true`, access: "comments", seen: []string{"GET /repos/acme/shop/issues/7/comments"}},
		"M-21_comment_of_a_bystander": {op: "scm.comment", args: `{"number":7,"body":"hello"}`, // who knows the session and its key, and not the node's
			answers: map[string]string{"GET /repos/acme/shop/issues/7/comments": `[{"id":9,"body":"\n\n<!-- gatehouse s-1 k1 -->"},{"id":10,"body":"\n\n` + markOf("", "s-1", "k1") + `"},{"id":11,"body":"\n\n` + markOf(markKey, "s-1", "k2") + `"}]`,
				"POST /repos/acme/shop/issues/7/comments": `{"id":12}`},
			want: `"existed":false`, access: "comments", sent: "hello", seen: []string{"GET /repos/acme/shop/issues/7/comments", "POST /repos/acme/shop/issues/7/comments"}},
		"status": {op: "scm.commit.status", args: `{"sha":"0123456789012345678901234567890123456789","state":"success","context":"gatehouse/tests"}`,
			answers: map[string]string{"POST /repos/acme/shop/statuses/0123456789012345678901234567890123456789": `{"id":3,"state":"success"}`},
			want:    `"state":"success"`, access: "statuses", seen: []string{"POST /repos/acme/shop/statuses/0123456789012345678901234567890123456789"}},
		"logs": {op: "scm.run.logs", args: `{"job":5}`, stored: map[string][]byte{"/store/repos/acme/shop/actions/jobs/5/logs": []byte(long)},
			want: `the end`, access: "logs", seen: []string{"GET /repos/acme/shop/actions/jobs/5/logs"}},
		"artifact_listed": {op: "scm.artifact.get", args: `{"artifact":6}`, stored: map[string][]byte{"/store/repos/acme/shop/actions/artifacts/6/zip": archive.Bytes()},
			want: `"untrusted_files":["report.txt","../up"]`, access: "logs", seen: []string{"GET /repos/acme/shop/actions/artifacts/6/zip"}},
		"artifact_file": {op: "scm.artifact.get", args: `{"artifact":6,"path":"report.txt"}`, stored: map[string][]byte{"/store/repos/acme/shop/actions/artifacts/6/zip": archive.Bytes()},
			want: `content of report.txt[31m [credential removed]`, not: "ghs_", access: "logs", seen: []string{"GET /repos/acme/shop/actions/artifacts/6/zip"}},
		"artifact_is_none": {op: "scm.artifact.get", args: `{"artifact":6}`, stored: map[string][]byte{"/store/repos/acme/shop/actions/artifacts/6/zip": []byte("PK nonsense")},
			code: operations.CodeFailed, access: "logs", seen: []string{"GET /repos/acme/shop/actions/artifacts/6/zip"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hub{t: t, answers: c.answers, status: c.status, stored: c.stored}
			got, err := do(t, h, c.op, c.args)
			if (err == nil) != (c.code == "") || err != nil && string(problem.CodeOf(err)) != c.code {
				t.Fatalf("%v, want code %q", err, c.code)
			}
			if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) || len(got) > 256<<10 {
				t.Errorf("result of %d bytes: %.300s", len(got), got)
			}
			if diff := cmp.Diff(c.seen, h.seen); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if c.sent != "" && !strings.Contains(h.bodies[len(h.bodies)-1], c.sent) {
				t.Errorf("sent %s", h.bodies[len(h.bodies)-1])
			}
			if len(h.accesses) > 1 || len(h.accesses) == 1 && h.accesses[0] != c.access {
				t.Errorf("accesses %q, want %q", h.accesses, c.access)
			}
		})
	}
}

func TestSchemas(t *testing.T) {
	h := &hub{t: t}
	d, _, _ := desk(t, "hard", h.operations(t)...)
	for name, c := range map[string]struct{ op, args string }{
		"status_under_a_foreign_name": {"scm.commit.status", `{"sha":"0123456789012345678901234567890123456789","state":"success","context":"ci/required"}`},
		"status_of_a_branch":          {"scm.commit.status", `{"sha":"main","state":"success","context":"gatehouse/x"}`},
		"comment_elsewhere":           {"scm.comment", `{"number":7,"body":"x","repository":"acme/other"}`},
		"comment_zero":                {"scm.comment", `{"number":0,"body":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := d.Call(t.Context(), c.op, "k", []byte(c.args))
			if problem.CodeOf(err) != operations.CodeArguments {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestDownloadsOneAtATime: a zip file of 32 MiB takes three times as much to be
// read; calls at once would make the node hold as many.
func TestDownloadsOneAtATime(t *testing.T) {
	var under, most atomic.Int32
	var archive bytes.Buffer
	if err := zip.NewWriter(&archive).Close(); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/store/x", http.StatusFound)
	}))
	defer srv.Close()
	base, err := url.Parse(srv.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	g := &operations.GitHub{
		Owner: "acme", Name: "shop",
		Client: func(context.Context, string) (*github.Client, secret.Value, error) {
			c := github.NewClient(nil)
			c.BaseURL = base
			return c, secret.FromString("tok-canary"), nil
		},
		Download: func(context.Context, *url.URL) (*http.Response, error) {
			n := under.Add(1)
			for o := most.Load(); n > o && !most.CompareAndSwap(o, n); o = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			under.Add(-1)
			return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(archive.Bytes()))}, nil
		},
	}
	var wg sync.WaitGroup
	for _, o := range g.Operations() {
		args := map[string]string{"scm.run.logs": `{"job":1}`, "scm.artifact.get": `{"artifact":1}`}[o.Name]
		for range 4 {
			if args != "" {
				wg.Go(func() {
					if _, err := o.Do(t.Context(), &operations.Call{Session: "s-1", Key: "k1", Args: json.RawMessage(args)}); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
}
