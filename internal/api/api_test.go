package api_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

var update = flag.Bool("update", false, "write docs/api/openapi.yaml")

// pages walks a list over real HTTP and returns the ids.
func pages(t *testing.T, b *browser, path string, limit int) (ids []string, n int) {
	t.Helper()
	for cursor := ""; ; {
		q := url.Values{"limit": {fmt.Sprint(limit)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		r, body := b.do(http.MethodGet, path+sep+q.Encode(), "", nil)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
			t.Fatal(r.Status, body)
		}
		var p view.Page[struct {
			ID  string
			Seq *int
		}]
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		for _, i := range p.Items {
			if i.Seq != nil {
				i.ID = fmt.Sprint(*i.Seq)
			}
			ids = append(ids, i.ID)
		}
		n++
		if cursor = p.Next; cursor == "" {
			return ids, n
		}
	}
}

func TestPaging(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	newest := func(id func(int) string, from int) (out []string) {
		for i := sessions - 1; i >= from; i-- {
			out = append(out, id(i))
		}
		return out
	}
	cases := map[string]struct {
		path  string
		limit int
		want  []string
		pages int
	}{
		"sessions":         {"/v1/sessions", 5, newest(sessionID, 0), 3},
		"sessions_exactly": {"/v1/sessions", 12, newest(sessionID, 0), 1},
		"filtered":         {"/v1/sessions?state=ended&bundle=fix", 4, newest(sessionID, 1), 3},
		"refused":          {"/v1/sessions?state=refused", 4, []string{sessionID(0)}, 1},
		"none":             {"/v1/sessions?bundle=none", 4, nil, 1},
		"events":           {"/v1/events", 5, newest(eventID, 0), 3},
		"events_filtered":  {"/v1/events?state=refused", 5, []string{eventID(0)}, 1},
		"receipts":         {"/v1/sessions/" + sessionID(3) + "/receipts", 2, []string{"0", "1", "2"}, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ids, n := pages(t, b, c.path, c.limit)
			if d := cmp.Diff(c.want, ids); d != "" || n != c.pages {
				t.Fatalf("%d pages, want %d\n%s", n, c.pages, d)
			}
		})
	}
}

func TestRequestsThatDoNotFit(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	cases := map[string]struct {
		path   string
		status int
		code   problem.Code
		detail string
	}{
		"bad_cursor":     {"/v1/sessions?cursor=zzz", 400, problem.Usage, ""},
		"foreign_cursor": {"/v1/events?cursor=czE", 400, problem.Usage, ""},
		"long_cursor":    {"/v1/events?cursor=" + strings.Repeat("a", 65), 422, problem.Usage, "query.cursor"},
		"limit_zero":     {"/v1/sessions?limit=0", 422, problem.Usage, "query.limit"},
		"limit_big":      {"/v1/sessions?limit=501", 422, problem.Usage, "query.limit"},
		"limit_word":     {"/v1/sessions?limit=many", 422, problem.Usage, "query.limit"},
		"unknown_query":  {"/v1/sessions?stat=ended", 422, problem.Usage, "query.stat"},
		"unknown_state":  {"/v1/sessions?state=gone", 422, problem.Usage, "query.state"},
		"no_session":     {"/v1/sessions/none", 404, problem.NotFound, ""},
		"no_receipts":    {"/v1/sessions/none/receipts", 404, problem.NotFound, ""},
		"no_event":       {"/v1/events/none", 404, problem.NotFound, ""},
		"no_bundle":      {"/v1/bundles/none/history", 404, problem.NotFound, ""},
		"no_route":       {"/v2/sessions", 404, problem.NotFound, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, body := b.do(http.MethodGet, c.path, "", nil)
			refused(t, r, body, c.status, c.code)
			var p api.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || !strings.Contains(p.Detail, c.detail) {
				t.Fatalf("detail %q", p.Detail)
			}
		})
	}
	t.Run("body_too_large", func(t *testing.T) {
		r, body := b.do(http.MethodPost, "/v1/bundles", strings.Repeat("a", 1<<20+1), nil)
		refused(t, r, body, http.StatusRequestEntityTooLarge, problem.Usage)
	})
}

func TestThings(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	get := func(path string, out any) {
		t.Helper()
		r, body := b.do(http.MethodGet, path, "", nil)
		if r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, body)
		}
		if err := json.Unmarshal([]byte(body), out); err != nil {
			t.Fatal(err)
		}
	}
	var s view.Session
	if get("/v1/sessions/"+sessionID(2), &s); s.ID != sessionID(2) || s.State != "ended" || s.Counts.Deny != 1 {
		t.Errorf("session %+v", s)
	}
	var e view.EventDetail
	if get("/v1/events/"+url.PathEscape(eventID(2)), &e); e.ID != eventID(2) || e.Seal != view.SealValid || len(e.Passages) != 1 || e.Sessions[0].ID != sessionID(2) {
		t.Errorf("event %+v", e)
	}
	var bundles view.Page[view.Bundle]
	if get("/v1/bundles", &bundles); len(bundles.Items) != 1 || bundles.Items[0].Name != "fix" || bundles.Items[0].Mode != "shadow" {
		t.Errorf("bundles %+v", bundles)
	}
	var h view.Page[view.Change]
	if get("/v1/bundles/fix/history", &h); len(h.Items) != 1 || h.Items[0].By != "config" {
		t.Errorf("history %+v", h)
	}
	var heads view.Page[view.Head]
	if get("/v1/receipts/head", &heads); len(heads.Items) != 1 || heads.Items[0].Node != "n1" || heads.Items[0].Sealed == 0 {
		t.Errorf("heads %+v", heads)
	}
	var st api.Status
	if get("/v1/status", &st); st.Node != "n1" || st.Ready || st.Reasons[0].Code != problem.StreamFenced {
		t.Errorf("status %+v", st)
	}
}

func TestCommands(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	cases := map[string]struct {
		method, path, body string
		status             int
		want, did          string
	}{
		"kill":      {"POST", "/v1/sessions/S1/kill", "", 202, `{"id":"S1"}`, "kill S1 by ann via ui"},
		"retry":     {"POST", "/v1/sessions/S1/retry", "", 201, `{"id":"NEW"}`, "retry S1 by ann via ui"},
		"redeliver": {"POST", "/v1/events/" + url.PathEscape("github:main:a/b") + "/redeliver", "", 201, `{"id":"NEW"}`, "redeliver github:main:a/b by ann via ui"},
		"apply":     {"POST", "/v1/bundles", "kind: Bundle\n", 200, `{"name":"fix","digest":"ab","mode":"shadow","result":"applied"}`, `apply "kind: Bundle\n" by ann via ui`},
		"logs":      {"GET", "/v1/sessions/S1/logs", "", 200, "<script>transcript of S1</script>", `reveal "" S1 by ann via ui`},
		"export":    {"GET", "/v1/receipts/export?session=S1", "", 200, strings.Repeat("receipt\n", 10000), `export "S1" 0:0 [] by ann via ui`},
		"period":    {"GET", "/v1/receipts/export?since=2026-11-20T10:00:00Z&until=2026-11-20T11:00:00Z&open=paths,refs", "", 200, strings.Repeat("receipt\n", 10000), `export "" 1795168800:1795172400 [paths refs] by ann via ui`},
		"proof":     {"GET", "/v1/sessions/S1/receipts/3/proof", "", 200, `{"session":"S1","seq":3,"index":0,"size":0,"receipt":"{\"a\":\"<&>\"}","proof":"proof"}`, "prove S1 3"},
		"envelope":  {"GET", "/v1/sessions/S1/envelope", "", 200, `{"payload":""}`, "envelope S1 by ann via ui"},
		"growth":    {"GET", "/v1/receipts/consistency?from=3&to=9", "", 200, `{"from":3,"to":9,"path":[]}`, "consistency 3 9"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			yaml := func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }
			r, body := b.do(c.method, c.path, c.body, yaml)
			if r.StatusCode != c.status || strings.TrimSpace(body) != strings.TrimSpace(c.want) || w.did.last() != c.did {
				t.Fatalf("%s %.80q did %q", r.Status, body, w.did.last())
			}
		})
		t.Run(name+"_refused", func(t *testing.T) {
			w.did.err = problem.Wrap(errors.New("cause canary"), problem.BelowAccepts, "not now", "Later.")
			defer func() { w.did.err = nil }()
			r, body := b.do(c.method, c.path, c.body, nil)
			refused(t, r, body, http.StatusUnprocessableEntity, problem.BelowAccepts)
			if strings.Contains(body, "canary") {
				t.Fatalf("the cause is in the answer: %s", body)
			}
		})
		t.Run(name+"_fails", func(t *testing.T) {
			w.did.err = errors.New("dial 10.0.0.1: canary")
			defer func() { w.did.err = nil }()
			r, body := b.do(c.method, c.path, c.body, nil)
			refused(t, r, body, http.StatusInternalServerError, problem.Internal)
			if strings.Contains(body, "canary") || !strings.Contains(w.logs.String(), "canary") {
				t.Fatalf("answer %s, log %s", body, w.logs.String())
			}
		})
	}
}

// TestFilesAreNeverPages: a transcript is text of strangers.
func TestFilesAreNeverPages(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	r, _ := b.do(http.MethodGet, "/v1/sessions/S1/logs", "", nil)
	if ct, cd := r.Header.Get("Content-Type"), r.Header.Get("Content-Disposition"); ct != "text/plain; charset=utf-8" || !strings.HasPrefix(cd, "attachment;") {
		t.Fatal(ct, cd)
	}
	r, _ = b.do(http.MethodGet, "/v1/receipts/export", "", nil)
	if ct, cd := r.Header.Get("Content-Type"), r.Header.Get("Content-Disposition"); ct != "application/octet-stream" || !strings.HasPrefix(cd, "attachment;") {
		t.Fatal(ct, cd)
	}
}

// TestCutFileIsNoticed: an export that fails in the middle must not look whole.
func TestCutFileIsNoticed(t *testing.T) {
	w := newWorld(t, nil)
	c := w.socket()
	read := func() (string, error) {
		f, err := c.File(t.Context(), "/v1/receipts/export", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(f)
		return string(b), err
	}
	if b, err := read(); err != nil || len(b) != 80000 {
		t.Fatal(len(b), err)
	}
	w.did.late = errors.New("journal gone")
	if b, err := read(); err == nil {
		t.Fatalf("%d bytes and no error", len(b))
	}
	if !strings.Contains(w.logs.String(), "journal gone") {
		t.Fatal("not logged")
	}
}

// TestOpenAPI keeps docs/api/openapi.yaml, the served document and the routes in step.
func TestOpenAPI(t *testing.T) {
	w := newWorld(t, nil)
	doc, err := w.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../docs/api/openapi.yaml"
	if *update {
		if err := os.MkdirAll("../../docs/api", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(doc)); d != "" {
		t.Fatalf("run with -update:\n%s", d)
	}
	b := w.operator().login()
	if r, body := b.do(http.MethodGet, "/openapi.yaml", "", nil); r.StatusCode != http.StatusOK || body != string(want) {
		t.Fatalf("served: %s", r.Status)
	}
	_, body := b.do(http.MethodGet, "/openapi.json", "", nil)
	var spec struct {
		OpenAPI    string
		Paths      map[string]map[string]struct{ Responses map[string]any }
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(body), &spec); err != nil {
		t.Fatal(err)
	}
	var routes []string
	for path, methods := range spec.Paths {
		for method, op := range methods {
			routes = append(routes, strings.ToUpper(method)+" "+path)
			if op.Responses["default"] == nil {
				t.Errorf("%s %s names no problem", method, path)
			}
			// Each documented route answers; an unknown one says "no such route".
			r, body := b.do(strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "x"), "", nil)
			if strings.Contains(body, "no such route") {
				t.Errorf("%s %s: %s", method, path, r.Status)
			}
		}
	}
	slices.Sort(routes)
	wantRoutes := []string{
		"GET /v1/access-requests", "GET /v1/bundle-versions/{id}", "GET /v1/bundles", "GET /v1/bundles/{id}", "GET /v1/bundles/{id}/history", "GET /v1/bundles/{id}/readiness",
		"GET /v1/events", "GET /v1/events/{id}", "GET /v1/proposals", "GET /v1/proposals/{id}", "GET /v1/receipts/consistency", "GET /v1/receipts/export",
		"GET /v1/receipts/head", "GET /v1/receipts/keyset", "GET /v1/receipts/stream", "GET /v1/receipts/{id}/action",
		"GET /v1/sessions", "GET /v1/sessions/{id}", "GET /v1/sessions/{id}/artifacts", "GET /v1/sessions/{id}/artifacts/{sha256}", "GET /v1/sessions/{id}/envelope", "GET /v1/sessions/{id}/logs", "GET /v1/sessions/{id}/receipts",
		"GET /v1/sessions/{id}/receipts/{seq}/explain", "GET /v1/sessions/{id}/receipts/{seq}/proof",
		"GET /v1/spend", "GET /v1/status", "GET /v1/steps", "GET /v1/tokens", "GET /v1/would-blocks", "GET /v1/would-blocks/{id}", "GET /v1/would-blocks/{id}/suggestions",
		"POST /v1/bundles", "POST /v1/bundles/{id}/pause", "POST /v1/bundles/{id}/promote", "POST /v1/bundles/{id}/proposals", "POST /v1/bundles/{id}/resume", "POST /v1/bundles/{id}/rollback",
		"POST /v1/events/{id}/redeliver", "POST /v1/login-links", "POST /v1/proposals/{id}/approve", "POST /v1/proposals/{id}/reject",
		"POST /v1/sessions/{id}/kill", "POST /v1/sessions/{id}/retry", "POST /v1/simulations", "POST /v1/tokens", "POST /v1/tokens/{id}/revoke", "POST /v1/would-blocks/{id}/mark",
	}
	if d := cmp.Diff(wantRoutes, routes); d != "" {
		t.Error(d)
	}
	if !strings.HasPrefix(spec.OpenAPI, "3.1") || spec.Components.Schemas["ErrorModel"] != nil {
		t.Error("not OpenAPI 3.1, or huma's own errors are documented")
	}
}

func TestUIIsMountedBehindTheSameDoor(t *testing.T) {
	w := newWorld(t, func(o *api.Options) {
		o.UI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	})
	b := w.operator()
	if r, _ := b.do(http.MethodGet, "/ui/sessions", "", nil); r.StatusCode != http.StatusUnauthorized {
		t.Fatal(r.Status)
	}
	b.login()
	if _, body := b.do(http.MethodGet, "/ui/sessions", "", nil); body != "page /ui/sessions" {
		t.Fatal(body)
	}
	if r, _ := b.do(http.MethodGet, "/", "", nil); r.Header.Get("Location") != "/ui/" {
		t.Fatal(r.Status)
	}
}

func TestNewRefusesMissingParts(t *testing.T) {
	if _, err := api.New(api.Options{}); err == nil {
		t.Fatal("an empty API was built")
	}
}
