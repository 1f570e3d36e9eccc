package ui_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/ui"
)

// hands notes what a page had done.
type hands struct {
	ui.Commands
	did []string
	err error
}

func (h *hands) Kill(_ context.Context, id string, by ui.Person) error {
	h.did = append(h.did, "kill "+id+" by "+by.By.Name)
	return h.err
}

func (h *hands) Redeliver(_ context.Context, id string, by ui.Person) (string, error) {
	h.did = append(h.did, "redeliver "+id+" by "+by.By.Name)
	return "01new", h.err
}

func (h *hands) Logs(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("<script>alert(1)</script>\u202e")), nil
}

// changes and reviewer know nothing.
type changes struct{ ui.Changes }

func (changes) Proposals() []gatekeeper.Proposal { return nil }

func (changes) Proposal(string) (gatekeeper.Proposal, error) {
	return gatekeeper.Proposal{}, problem.New(problem.NotFound, "there is no such proposal", "")
}

// nothing is a node without anything.
type nothing struct{}

func (nothing) Providers(context.Context) ([]ui.Provider, error) { return nil, nil }
func (nothing) Settings(context.Context) (ui.Settings, error)    { return ui.Settings{}, nil }

type reviewer struct {
	ui.Reviewer
	view *view.View
}

func (r reviewer) Groups(_ context.Context, _, sort, after string, n int) (view.GroupPage, error) {
	return r.view.Groups(view.GroupQuery{Sort: sort}, after, n)
}

func (r reviewer) Group(_ context.Context, id string) (view.GroupDetail, error) {
	return r.view.Group(id, nil)
}

func (reviewer) Asked(context.Context) ([]review.Asked, error) { return nil, nil }

func pages(t *testing.T, change ...func(*ui.Options)) (*ui.UI, *hands) {
	t.Helper()
	h, v := &hands{}, view.New(nil, view.Options{})
	o := ui.Options{
		View: v, Do: h, Changes: changes{}, Review: reviewer{view: v}, Inventory: nothing{},
		Node: func() ui.Node { return ui.Node{Name: "node-1", Version: "test", Started: time.Unix(0, 0)} },
		Who: func(*http.Request) ui.Person {
			return ui.Person{By: gatekeeper.By{Name: "ann <b>", Via: "ui"}, CSRF: "token-1", May: func(ui.Act) error { return nil }}
		},
		Clock: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) },
	}
	for _, c := range change {
		c(&o)
	}
	u, err := ui.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return u, h
}

func ask(t *testing.T, u *ui.UI, method, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	u.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	r := w.Result()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

// Nothing was observed: every page says that this is no evidence, and how to
// begin.
func TestEmptyStates(t *testing.T) {
	u, _ := pages(t)
	for path, says := range map[string]string{
		"/ui/":                          "No bundle is loaded",
		"/ui/would-blocks":              "no evidence that nothing would be blocked",
		"/ui/would-blocks?q=host:*.com": "Nothing observed yet",
		"/ui/sessions":                  "No session yet",
		"/ui/sessions?q=bundle:fix-ci":  "No session fits the filter",
		"/ui/events":                    "gatehouse endpoint test main",
		"/ui/bundles":                   "every event is refused",
		"/ui/proposals":                 "No proposal yet",
		"/ui/providers":                 "gatehouse doctor",
		"/ui/settings":                  "nobody can be a second person",
		"/ui/help":                      "Single-key shortcuts",
	} {
		t.Run(path, func(t *testing.T) {
			r, body := ask(t, u, http.MethodGet, path)
			if r.StatusCode != http.StatusOK || !strings.Contains(body, says) {
				t.Errorf("status %d, without %q:\n%s", r.StatusCode, says, body)
			}
			if !strings.Contains(body, "ann &lt;b&gt;") || strings.Contains(body, "ann <b>") {
				t.Error("the person's name is not escaped")
			}
		})
	}
}

// used is a node whose bundles run under one provider.
type used struct {
	nothing
	by []ui.ProviderUse
}

func (u used) Providers(context.Context) ([]ui.Provider, error) {
	return []ui.Provider{{Name: "local", UsedBy: u.by}}, nil
}

// What is weaker than it looks is said on top: on every page what holds for the
// node, on the overview what holds for a bundle.
func TestBanners(t *testing.T) {
	node := ui.Node{Name: "node-1", Weaker: []string{"old-agent"}, Faults: []string{"a credential could not be revoked"}}
	u, _ := pages(t, func(o *ui.Options) {
		o.Node = func() ui.Node { return node }
		o.Inventory = used{by: []ui.ProviderUse{{Bundle: "fell-back", Configured: "hard", Effective: "shadow"}, {Bundle: "promoted", Configured: "shadow", Effective: "hard"}, {Bundle: "same", Configured: "hard", Effective: "hard"}}}
	})
	for _, path := range []string{"/ui/", "/ui/sessions", "/ui/settings"} {
		_, body := ask(t, u, http.MethodGet, path)
		for _, says := range []string{"Compatibility.", "/ui/bundles/old-agent", "a credential could not be revoked"} {
			if !strings.Contains(body, says) {
				t.Errorf("%s does not say %q", path, says)
			}
		}
	}
	_, body := ask(t, u, http.MethodGet, "/ui/")
	for name, class := range map[string]string{"fell-back": "banner bad", "promoted": "banner warn", "same": ""} {
		before, _, found := strings.Cut(body, `<a href="/ui/bundles/`+name+`">`)
		at := strings.LastIndex(before, `<p class="`)
		if found != (class != "") || found && !strings.HasPrefix(before[at:], `<p class="`+class+`"`) {
			t.Errorf("%s: found %v, want a banner of class %q", name, found, class)
		}
	}
}

// outward finds what would leave the page's origin.
var outward = regexp.MustCompile(`(?i)(src|href|action|hx-get|hx-post)="(https?:)?//`)

// A page loads and asks its own origin only, runs no inline script and no inline
// style, and every element that htmx acts on carries the page's nonce.
func TestPolicy(t *testing.T) {
	u, _ := pages(t)
	for _, path := range []string{"/ui/", "/ui/sessions", "/ui/events", "/ui/bundles", "/ui/would-blocks", "/ui/help", "/ui/nowhere"} {
		r, body := ask(t, u, http.MethodGet, path)
		csp := r.Header.Get("Content-Security-Policy")
		nonce := regexp.MustCompile(`'nonce-([\w-]{20,})'`).FindStringSubmatch(csp)
		if nonce == nil || !strings.HasPrefix(csp, "default-src 'none'; script-src 'self' 'nonce-") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: %s", path, csp)
		}
		if m := outward.FindString(body); m != "" {
			t.Errorf("%s leads elsewhere: %s", path, m)
		}
		for _, bad := range []string{"<style", " style=", " onclick=", "javascript:"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
		for _, s := range regexp.MustCompile(`<script[^>]*>`).FindAllString(body, -1) {
			if !strings.Contains(s, ` src="/ui/static/`) {
				t.Errorf("%s: an inline script %s", path, s)
			}
		}
		if again, _ := ask(t, u, http.MethodGet, path); again.Header.Get("Content-Security-Policy") == csp {
			t.Error("two pages share a nonce")
		}
	}
}

func TestStaticFilesAreNamedByTheirContent(t *testing.T) {
	u, _ := pages(t)
	_, body := ask(t, u, http.MethodGet, "/ui/")
	found := regexp.MustCompile(`/ui/static/[\w.-]+`).FindAllString(body, -1)
	if len(found) < 5 {
		t.Fatalf("files %v", found)
	}
	for _, f := range found {
		r, b := ask(t, u, http.MethodGet, f)
		if r.StatusCode != http.StatusOK || b == "" || !strings.Contains(r.Header.Get("Cache-Control"), "immutable") || r.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", f, r.StatusCode, r.Header)
		}
	}
	for _, f := range []string{"/ui/static/", "/ui/static/NOTICE.md", "/ui/static/app.css", "/ui/static/../ui.go", "/ui/static/%2e%2e/ui.go"} {
		if r, _ := ask(t, u, http.MethodGet, f); r.StatusCode == http.StatusOK {
			t.Errorf("%s is served", f)
		}
	}
}

func TestFailuresArePages(t *testing.T) {
	u, h := pages(t)
	h.err = problem.New(problem.Conflict, "the session has ended <i>", "Look at its result.")
	for name, c := range map[string]struct {
		method, path string
		status       int
		says         string
	}{
		"no_page":     {http.MethodGet, "/ui/nowhere", 404, "There is no such page."},
		"no_session":  {http.MethodGet, "/ui/sessions/01x", 404, "not_found"},
		"no_receipt":  {http.MethodGet, "/ui/receipts/01x/what", 404, "named by its number"},
		"no_filter":   {http.MethodGet, "/ui/sessions?q=colour:red", 400, "no filter is called colour"},
		"no_cursor":   {http.MethodGet, "/ui/sessions?cursor=%00", 400, "usage"},
		"refused":     {http.MethodPost, "/ui/sessions/01x/kill", 409, "The session has ended &lt;i&gt;."},
		"wrong_verb":  {http.MethodPost, "/ui/sessions", 404, ""},
		"no_bundle":   {http.MethodGet, "/ui/bundles/none", 404, "gatehouse bundle apply"},
		"no_proposal": {http.MethodGet, "/ui/proposals/none", 404, ""},
		"no_group":    {http.MethodGet, "/ui/would-blocks/none", 404, ""},
		"bad_percent": {http.MethodGet, "/ui/sessions?q=%zz", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, body := ask(t, u, c.method, c.path)
			if r.StatusCode != c.status || !strings.Contains(strings.ToLower(body), strings.ToLower(c.says)) {
				t.Errorf("status %d, want %d with %q:\n%s", r.StatusCode, c.status, c.says, body)
			}
		})
	}
}

// What the node's own fault says stays in its log.
func TestInternalFaultsAreNotShown(t *testing.T) {
	u, h := pages(t)
	h.err = errors.New("open /secret/place: permission denied")
	r, body := ask(t, u, http.MethodPost, "/ui/sessions/01x/kill")
	if r.StatusCode != http.StatusInternalServerError || strings.Contains(body, "secret") {
		t.Errorf("%d:\n%s", r.StatusCode, body)
	}
}

func TestChangesNameThePerson(t *testing.T) {
	u, h := pages(t)
	r, _ := ask(t, u, http.MethodPost, "/ui/events/"+url.PathEscape("github:main:1")+"/redeliver")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/ui/sessions/01new" || len(h.did) != 1 || h.did[0] != "redeliver github:main:1 by ann <b>" {
		t.Errorf("%d %v %v", r.StatusCode, r.Header, h.did)
	}
}

func TestPartsAreRequired(t *testing.T) {
	if _, err := ui.New(ui.Options{}); err == nil {
		t.Error("pages without parts")
	}
}

// What is built is what the templates say.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	templates, err := filepath.Glob("*.templ")
	if err != nil || len(templates) == 0 {
		t.Fatal(err)
	}
	for _, name := range templates {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "tool", "templ", "generate", "-path", dir).CombinedOutput(); err != nil {
		t.Fatalf("templ: %v\n%s", err, out)
	}
	for _, name := range templates {
		name = strings.TrimSuffix(name, ".templ") + "_templ.go"
		want, err1 := os.ReadFile(filepath.Join(dir, name))
		got, err2 := os.ReadFile(name)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its template makes: run make pages", name)
		}
	}
}

// A role that may not make a change is told so, and nothing is done.
func TestChangesAskTheRole(t *testing.T) {
	asked := map[ui.Act]bool{}
	u, h := pages(t, func(o *ui.Options) {
		o.Who = func(*http.Request) ui.Person {
			return ui.Person{May: func(a ui.Act) error { asked[a] = true; return problem.New(problem.Forbidden, "your role may not", "") }}
		}
	})
	for path, act := range map[string]ui.Act{
		"/ui/sessions/01x/kill": ui.ActOperate, "/ui/sessions/01x/retry": ui.ActOperate, "/ui/events/x/redeliver": ui.ActOperate,
		"/ui/would-blocks/x/mark": ui.ActReview, "/ui/would-blocks/x/propose": ui.ActPropose, "/ui/bundles/x/propose": ui.ActPropose, "/ui/bundles/x/mode": ui.ActPromote,
		"/ui/proposals/x/approve": ui.ActApprove, "/ui/proposals/x/reject": ui.ActReject,
		"/ui/bundles/x/rollback": ui.ActNarrow, "/ui/bundles/x/pause": ui.ActNarrow, "/ui/bundles/x/resume": ui.ActResume,
	} {
		clear(asked)
		r, body := ask(t, u, http.MethodPost, path)
		if r.StatusCode != http.StatusForbidden || !strings.Contains(body, "Your role may not.") || !asked[act] || len(h.did) != 0 {
			t.Errorf("%s: %d, asked %v, did %v", path, r.StatusCode, asked, h.did)
		}
	}
}

// A download is the list under its filter; what a stranger wrote is no formula.
func TestDownloads(t *testing.T) {
	u, _ := pages(t)
	for path, want := range map[string]string{
		"/ui/sessions.csv?q=state:ended": "session,state,reason,bundle,mode,event,allow,would_block,deny,fault,spent_nanodollars,started\n",
		"/ui/events.csv":                 "event,source,endpoint,kind,actor,level,anomalies,received\n",
		"/ui/would-blocks.csv":           "group,bundle,kind,method,target,rule,reason,would_block,refused,sessions,events,status,first,last\n",
		"/ui/sessions.ndjson":            "",
	} {
		if r, body := ask(t, u, http.MethodGet, path); r.StatusCode != http.StatusOK || body != want || !strings.Contains(r.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %d %q %v", path, r.StatusCode, body, r.Header)
		}
	}
	if r, _ := ask(t, u, http.MethodGet, "/ui/sessions.csv?q=colour:red"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a filter that is none: %d", r.StatusCode)
	}
}

// A bundle that cannot be read is shown again as it was sent, with what is wrong.
func TestEditorKeepsItsText(t *testing.T) {
	v := view.New(nil, view.Options{})
	r := receipts.Receipt{
		V: 1, Log: "gatehouse.example/node-1", Session: receipts.ControlSession, Epoch: 1, T: time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC), Type: receipts.TypeBundleApply,
		Prev: receipts.Genesis("gatehouse.example/node-1", receipts.ControlSession, receipts.Hash{2}), Obs: &receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"},
		Change: &receipts.Change{Bundle: "fix", Digest: receipts.Hash{1}, By: "config", Via: "config", Result: "applied", To: receipts.Shadow},
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v.Fold(bus.Msg{Stream: bus.Log, Subject: "gatehouse.v1.control.node-1", Data: data})
	u, _ := pages(t, func(o *ui.Options) { o.View, o.Review = v, reviewer{view: v} })
	send := func(name string) (int, string) {
		req := httptest.NewRequest(http.MethodPost, "/ui/simulate", strings.NewReader(url.Values{"bundle": {name}, "source": {"egress: [<b>"}, "reason": {"why not"}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		u.ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	status, body := send("fix")
	if status < 400 || status >= 500 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{`rows="28"`, "egress: [&lt;b&gt;</textarea>", `value="why not"`, "config_invalid"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	// Of a bundle that nobody has, there is no editor.
	if _, body := send("none"); strings.Contains(body, "<textarea") {
		t.Error("an editor for a bundle that is none")
	}
}
