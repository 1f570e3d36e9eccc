package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

func (c *commands) Groups(_ context.Context, filter, sort, after string, n int) (view.GroupPage, error) {
	return view.GroupPage{Items: []view.Group{{ID: "g1"}}, Total: 1}, c.note("groups %q %s %q %d", filter, sort, after, n)
}

func (c *commands) Group(_ context.Context, id string) (view.GroupDetail, error) {
	return view.GroupDetail{Group: view.Group{ID: id}, Samples: []view.Sample{}}, c.note("group %s", id)
}

func (c *commands) Suggest(_ context.Context, id string) (review.Ladder, error) {
	return review.Ladder{Rungs: []review.Rung{}}, c.note("suggest %s", id)
}

func (c *commands) Explain(_ context.Context, session, which string) (review.Trace, error) {
	return review.Trace{Receipt: view.Receipt{Leaf: "leaf-" + which, Payload: []byte("null")}, Action: []byte(`{"path":"/alert(2)"}`)}, c.note("explain %s %s", session, which)
}

func (c *commands) Simulate(_ context.Context, yaml []byte, w review.Window) (review.Simulation, error) {
	return review.Simulation{}, c.note("simulate %q %d", yaml, w.Actions)
}

func (c *commands) Ready(_ context.Context, bundle string) (review.Readiness, error) {
	return review.Readiness{}, c.note("ready %s", bundle)
}

func (c *commands) Asked(context.Context) ([]review.Asked, error) {
	return []review.Asked{}, c.note("asked")
}

func (c *commands) Mark(_ context.Context, id, status, reason string, _ time.Time, by api.Actor) (view.Mark, error) {
	return view.Mark{Status: status}, c.note("mark %s %s %q by %s via %s token %s", id, status, reason, by.Name, by.Via, by.Token)
}

const tag = `"t1"`

func (c *commands) Bundle(_ context.Context, name string) (api.BundleDetail, error) {
	return api.BundleDetail{Name: name, Tag: tag}, nil
}

func (c *commands) Version(_ context.Context, digest string) ([]byte, error) {
	return []byte("{}"), c.note("version %s", digest)
}

func (c *commands) Proposals(context.Context) ([]review.Proposal, error) {
	return []review.Proposal{{ID: "p1", State: "open", Bundle: "fix"}, {ID: "p0", State: "applied", Bundle: "fix"}}, c.note("proposals")
}

func (c *commands) Proposal(_ context.Context, id string) (review.Proposal, error) {
	return review.Proposal{ID: id}, c.note("proposal %s", id)
}

func (c *commands) Propose(_ context.Context, yaml []byte, reason string, by api.Actor) (review.Proposal, error) {
	return review.Proposal{ID: "p1"}, c.note("propose %q %q by %s via %s", yaml, reason, by.Name, by.Via)
}

func (c *commands) ProposeMode(_ context.Context, bundle, enforcer, to, reason string, by api.Actor) (review.Proposal, error) {
	return review.Proposal{ID: "p1"}, c.note("mode %s %q %s %q by %s", bundle, enforcer, to, reason, by.Name)
}

func (c *commands) Approve(_ context.Context, id, digest string, by api.Actor) (review.Proposal, error) {
	return review.Proposal{ID: id}, c.note("approve %s %s by %s via %s token %s", id, digest[:4], by.Name, by.Via, by.Token)
}

func (c *commands) Reject(_ context.Context, id, reason string, by api.Actor) (review.Proposal, error) {
	return review.Proposal{ID: id}, c.note("reject %s %q by %s", id, reason, by.Name)
}

func (c *commands) Rollback(_ context.Context, bundle, digest, reason string, by api.Actor) error {
	return c.note("rollback %s %s %q by %s", bundle, digest[:4], reason, by.Name)
}

func (c *commands) Pause(_ context.Context, bundle, reason string, by api.Actor) error {
	return c.note("pause %s %q by %s", bundle, reason, by.Name)
}

func (c *commands) Resume(_ context.Context, bundle, reason string, by api.Actor) (review.Proposal, error) {
	return review.Proposal{}, c.note("resume %s %q by %s", bundle, reason, by.Name)
}

// shelf keeps token records in memory.
type shelf struct {
	mu   sync.Mutex
	kept [][]byte
}

func (s *shelf) Append(_ context.Context, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, b)
	return nil
}

func (s *shelf) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, b := range s.kept {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// met are the records of people who logged in at the provider and may do anything.
func met(now time.Time, people ...string) (out [][]byte) {
	for _, p := range people {
		out = append(out, fmt.Appendf(nil, `{"account":{"issuer":"https://idp.test","sub":%q,"claim":"email","person":%q,"groups":["all"],"kept":%q}}`, p, p, now.Format(time.RFC3339)))
	}
	return out
}

// people is a world whose Auth keeps tokens; token makes one for a person.
func people(t *testing.T, change ...func(*api.Options)) (w *world, token func(person string, at time.Time, roles ...auth.Role) string) {
	t.Helper()
	var a *auth.Auth
	w = newWorld(t, func(o *api.Options) {
		var err error
		if a, err = auth.New(auth.Options{URL: o.URL, Loopback: true, Clock: o.Clock, Store: &shelf{kept: met(o.Clock(), "ann", "ann@example.com")}, OIDC: &auth.OIDC{
			Issuer: "https://idp.test", ClientID: "gatehouse", Exit: http.DefaultTransport, Roles: map[string][]auth.Role{"all": {auth.Admin}},
		}}); err != nil {
			t.Fatal(err)
		}
		o.Auth = a
		for _, f := range change {
			f(o)
		}
	})
	return w, func(person string, at time.Time, roles ...auth.Role) string {
		t.Helper()
		text, _, err := a.NewToken(t.Context(), auth.Identity{Person: person, Kind: auth.KindOIDC, At: at, Roles: roles}, "test", roles, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func bearer(text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+text)
		r.Header.Del("Origin")
		r.Header.Del("Sec-Fetch-Site")
	}
}

var digestOf = strings.Repeat("ab", 32)

// steps are the routes that change something, each with the act it needs.
var steps = map[string]struct{ method, path, body, did string }{
	"operate":   {"POST", "/v1/sessions/S1/kill", "", "kill S1 by %s via api"},
	"redeliver": {"POST", "/v1/events/E1/redeliver", "", "redeliver E1 by %s via api"},
	"review":    {"POST", "/v1/would-blocks/g1/mark", `{"status":"noise","reason":"x"}`, `mark g1 noise "x" by %s via api token `},
	"propose":   {"POST", "/v1/bundles/fix/proposals?reason=why", "name: fix", `propose "name: fix" "why" by %s via api`},
	"promote":   {"POST", "/v1/bundles/fix/promote", `{"to":"hard","reason":"quiet"}`, `mode fix "" hard "quiet" by %s`},
	"approve":   {"POST", "/v1/proposals/p1/approve", `{"digest":"` + digestOf + `"}`, "approve p1 abab by %s via api token "},
	"reject":    {"POST", "/v1/proposals/p1/reject", `{"reason":"no"}`, `reject p1 "no" by %s`},
	"rollback":  {"POST", "/v1/bundles/fix/rollback", `{"digest":"` + digestOf + `","reason":"broke"}`, `rollback fix abab "broke" by %s`},
	"pause":     {"POST", "/v1/bundles/fix/pause", `{"reason":"odd"}`, `pause fix "odd" by %s`},
	"resume":    {"POST", "/v1/bundles/fix/resume", `{"reason":"ok"}`, `resume fix "ok" by %s`},
	"apply":     {"POST", "/v1/bundles", "name: fix", `apply "name: fix" by %s via api`},
	"export":    {"GET", "/v1/receipts/export", "", `export "" 0:0 [] by %s via api`},
}

func TestRolesAreHeld(t *testing.T) {
	w, token := people(t)
	b := w.operator()
	may := map[auth.Role]string{
		auth.Viewer:   "",
		auth.Auditor:  "export",
		auth.Reviewer: "review propose promote",
		auth.Approver: "review propose promote reject resume approve rollback pause",
		auth.Operator: "operate redeliver propose promote resume rollback pause apply",
		auth.Admin:    "operate redeliver review propose promote approve reject rollback pause resume apply export",
	}
	for role, allowed := range may {
		text := token("ann@example.com", w.now, role)
		for name, s := range steps {
			t.Run(string(role)+"_"+name, func(t *testing.T) {
				r, body := b.do(s.method, s.path, s.body, func(r *http.Request) {
					bearer(text)(r)
					if strings.HasPrefix(s.body, "{") {
						r.Header.Set("Content-Type", "application/json")
					} else if s.body != "" {
						r.Header.Set("Content-Type", "application/yaml")
					}
				})
				ok := false
				for _, a := range strings.Fields(allowed) {
					ok = ok || a == name
				}
				if !ok {
					refused(t, r, body, http.StatusForbidden, problem.Forbidden)
					return
				}
				if r.StatusCode >= 300 || !strings.HasPrefix(w.did.last(), fmt.Sprintf(s.did, "ann@example.com")) {
					t.Errorf("%s %s: did %q", r.Status, body, w.did.last())
				}
			})
		}
	}
}

func TestTokensSpeakForTheirOwner(t *testing.T) {
	w, token := people(t)
	text := token("ann@example.com", w.now, auth.Approver)
	b := w.operator()
	if r, body := b.do("GET", "/v1/would-blocks?q=status:new&sort=count&limit=7", "", bearer(text)); r.StatusCode != http.StatusOK || w.did.last() != `groups "status:new" count "" 7` {
		t.Fatal(r.Status, body, w.did.last())
	}
	// On the socket too: the token's owner asks, not the machine's user.
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/v1/proposals/p1/reject", strings.NewReader(`{"reason":"no"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+text)
	rec := newRecorder()
	w.Socket().ServeHTTP(rec, req)
	if rec.status != http.StatusOK || w.did.last() != `reject p1 "no" by ann@example.com` {
		t.Errorf("%d, did %q", rec.status, w.did.last())
	}
	req.Header.Set("Authorization", "Bearer gatehouse_at_wrong")
	rec = newRecorder()
	w.Socket().ServeHTTP(rec, req)
	if rec.status != http.StatusUnauthorized {
		t.Errorf("a wrong token became the machine's user: %d", rec.status)
	}
	// A browser's request with a stranger's origin gains nothing by a token.
	r, body := b.do("POST", "/v1/proposals/p1/reject", `{"reason":"no"}`, func(r *http.Request) {
		bearer(text)(r)
		r.Header.Set("Origin", "https://evil.example")
	})
	refused(t, r, body, http.StatusForbidden, problem.OriginNotListed)
}

// Whoever is shown text of strangers over the network, or by a token, is named in
// a receipt first, as on the pages; without it nothing is shown.
func TestRevealIsWrittenDown(t *testing.T) {
	w, token := people(t)
	b := w.operator()
	text := token("ann@example.com", w.now, auth.Viewer)
	for name, c := range map[string]struct{ path, shows, did string }{
		"event": {"/v1/events/" + url.PathEscape(eventID(1)), "alert(1)", `reveal "" ` + eventID(1)},
		"logs":  {"/v1/sessions/" + sessionID(1) + "/logs", "transcript of", `reveal "fix" ` + sessionID(1)},
		"list":  {"/v1/sessions/" + sessionID(1) + "/artifacts", "report of", `reveal "fix" ` + sessionID(1)},
		"file":  {"/v1/sessions/" + sessionID(1) + "/artifacts/" + strings.Repeat("ab", 32), "artifact of", `reveal "fix" ` + sessionID(1)},
		"trace": {"/v1/sessions/" + sessionID(1) + "/receipts/1/explain", "alert(2)", `reveal "" leaf-1`},
	} {
		t.Run(name, func(t *testing.T) {
			r, body := b.do(http.MethodGet, c.path, "", bearer(text))
			if r.StatusCode != http.StatusOK || !strings.Contains(body, c.shows) || w.did.last() != c.did+" by ann@example.com via api" {
				t.Errorf("%s %.200s did %q", r.Status, body, w.did.last())
			}
			w.did.mute = problem.New(problem.Unavailable, "the journal is full", "")
			r, body = b.do(http.MethodGet, c.path, "", bearer(text))
			w.did.mute = nil
			if r.StatusCode < 400 || strings.Contains(body, c.shows) {
				t.Errorf("shown without a receipt: %s %.200s", r.Status, body)
			}
			for via, auth := range map[string]string{"": "", c.did + " by ann@example.com via cli": "Bearer " + text} {
				w.did.calls = nil
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if auth != "" {
					req.Header.Set("Authorization", auth)
				}
				rec := newRecorder()
				w.Socket().ServeHTTP(rec, req)
				if got := w.did.last(); rec.status != http.StatusOK || !strings.Contains(rec.body.String(), c.shows) || strings.HasPrefix(got, "reveal") != (via != "") || via != "" && got != via {
					t.Errorf("on the socket as %q: %d, did %q", auth, rec.status, got)
				}
			}
		})
	}
}

type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func TestOldLoginsDoNotPromote(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	json := func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }
	if r, body := b.do("POST", steps["promote"].path, steps["promote"].body, json); r.StatusCode != http.StatusCreated {
		t.Fatal(r.Status, body)
	}
	w.later(11 * time.Minute)
	for _, name := range []string{"promote", "approve"} {
		r, body := b.do("POST", steps[name].path, steps[name].body, json)
		refused(t, r, body, http.StatusForbidden, problem.LoginAgain)
	}
	if r, body := b.do("POST", steps["pause"].path, steps["pause"].body, json); r.StatusCode != http.StatusOK {
		t.Error("pausing must not wait for a login:", r.Status, body)
	}
}

func TestIfMatch(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	r, _ := b.do("GET", "/v1/bundles/fix", "", nil)
	if r.Header.Get("ETag") != tag {
		t.Fatalf("ETag %q", r.Header.Get("ETag"))
	}
	for match, status := range map[string]int{"": 200, tag: 200, "*": 200, `"t0"`: 412} {
		r, body := b.do("POST", steps["pause"].path, steps["pause"].body, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			if match != "" {
				r.Header.Set("If-Match", match)
			}
		})
		if r.StatusCode != status {
			t.Errorf("If-Match %s: %s %s", match, r.Status, body)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t, nil)
	b := w.operator().login()
	send := func(key, body string) (*http.Response, string) {
		return b.do("POST", steps["pause"].path, body, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", key)
		})
	}
	count := func() int { w.did.mu.Lock(); defer w.did.mu.Unlock(); return len(w.did.calls) }
	_, first := send("k1", steps["pause"].body)
	n := count()
	r, again := send("k1", steps["pause"].body)
	if r.StatusCode != http.StatusOK || again != first || count() != n || r.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s %q, want %q, did %d more", r.Status, again, first, count()-n)
	}
	r, body := send("k1", `{"reason":"another"}`)
	refused(t, r, body, http.StatusConflict, problem.Conflict)
	if send("k2", steps["pause"].body); count() != n+1 {
		t.Error("another key did nothing")
	}
	w.did.err = fmt.Errorf("disk")
	send("k3", steps["pause"].body)
	w.did.err = nil
	if r, _ := send("k3", steps["pause"].body); r.StatusCode != http.StatusOK {
		t.Error("a failure was kept for good:", r.Status)
	}
	w.later(24 * time.Hour)
	b.login()
	n = count()
	if send("k1", steps["pause"].body); count() != n+1 {
		t.Error("the key was kept for more than a day")
	}
}

func TestPagesNeedTheirForm(t *testing.T) {
	did := 0
	w := newWorld(t, func(o *api.Options) {
		o.UI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, _ := auth.From(r.Context())
			if r.Method == http.MethodPost {
				did++
			}
			fmt.Fprint(w, id.CSRF)
		})
	})
	b := w.operator().login()
	_, csrf := b.do("GET", "/ui/", "", nil)
	form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
	r, body := b.do("POST", "/ui/sessions/S1/kill", "", form)
	refused(t, r, body, http.StatusForbidden, problem.OriginNotListed)
	if r, body := b.do("POST", "/ui/sessions/S1/kill", "csrf="+csrf, form); r.StatusCode != http.StatusOK || did != 1 {
		t.Fatal(r.Status, body, did)
	}
	r, _ = w.operator().do("GET", "/ui/sessions?q=x", "", func(r *http.Request) { r.Header.Set("Accept", "text/html") })
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/login?to=%2Fui%2Fsessions%3Fq%3Dx" {
		t.Error(r.Status, r.Header.Get("Location"))
	}
}

func TestTokenRoutes(t *testing.T) {
	w, _ := people(t)
	b := w.operator().login()
	r, body := b.do("POST", "/v1/tokens", `{"name":"ci","roles":["reviewer"],"life":"24h"}`, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
	})
	var made api.NewToken
	if err := json.Unmarshal([]byte(body), &made); err != nil || r.StatusCode != http.StatusCreated || made.Text == "" || made.Person != "ann" {
		t.Fatal(r.Status, body, err)
	}
	if _, body := b.do("GET", "/v1/tokens", "", nil); strings.Contains(body, made.Text) || !strings.Contains(body, made.ID) {
		t.Errorf("list: %s", body)
	}
	if r, _ := b.do("GET", "/v1/sessions", "", bearer(made.Text)); r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
	if r, body := b.do("POST", "/v1/tokens/"+made.ID+"/revoke", "", nil); r.StatusCode != http.StatusOK {
		t.Error(r.Status, body)
	}
	r, body = w.operator().do("GET", "/v1/sessions", "", bearer(made.Text))
	refused(t, r, body, http.StatusUnauthorized, problem.Unauthenticated)
}

func TestProposalList(t *testing.T) {
	b := newWorld(t, nil).operator().login()
	if _, body := b.do("GET", "/v1/proposals?state=open&bundle=fix", "", nil); !strings.Contains(body, `"p1"`) || strings.Contains(body, `"p0"`) {
		t.Error(body)
	}
}
