package ui

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"gatehouse/enforcers/spend"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// Act is a kind of change that a role may or may not make.
type Act string

// Acts, in the words of the API's steps.
const (
	ActReview  Act = "review"  // mark groups
	ActPropose Act = "propose" // a version
	ActPromote Act = "promote" // a mode
	ActApprove Act = "approve" // say yes to a proposal
	ActReject  Act = "reject"  // say no to one
	ActNarrow  Act = "narrow"  // roll back, pause: what one person may
	ActResume  Act = "resume"  // end a pause
	ActOperate Act = "operate" // kill, retry, redeliver
)

// Person is who looks at a page.
type Person struct {
	By   gatekeeper.By
	CSRF string // value that each form must send back as "csrf"; "" where the login needs none
	// May returns nil, or the problem that keeps the person from a change. A page
	// asks it again when the change is made.
	May func(Act) error
}

func (p Person) may(a Act) bool { return p.May(a) == nil }

// Node is what every page says of the node.
type Node struct {
	Name    string
	Version string
	Started time.Time
	Dev     bool
	Running int
	Behind  uint64   // journal records that are not on their stream yet
	Faults  []string // why the node is not ready, in words
	Weaker  []string // bundles in force under the credential policy compatibility
}

// Commands are the changes a page offers, the same as the API's. Errors are
// problems.
type Commands interface {
	Kill(ctx context.Context, session string, by Person) error
	Retry(ctx context.Context, session string, by Person) (string, error)
	Redeliver(ctx context.Context, event string, by Person) (string, error)
	Logs(ctx context.Context, session string) (io.ReadCloser, error)
	// Artifacts lists the files that an agent left: names in its words, with their
	// digests in lower hex.
	Artifacts(ctx context.Context, session string) ([]Artifact, error)
}

// Artifact is a file that an agent left.
type Artifact struct{ Name, SHA256 string }

// Reviewer is what people decide from; *review.Review is one.
type Reviewer interface {
	Groups(ctx context.Context, filter, sort, after string, n int) (view.GroupPage, error)
	Group(ctx context.Context, id string) (view.GroupDetail, error)
	Mark(ctx context.Context, id, status, reason string, expires time.Time, by gatekeeper.By) (view.Mark, error)
	Explain(ctx context.Context, session, which string) (review.Trace, error)
	Suggest(ctx context.Context, id string) (review.Ladder, error)
	Simulate(ctx context.Context, source []byte, w review.Window) (review.Simulation, error)
	Ready(ctx context.Context, name string) (review.Readiness, error)
	Asked(ctx context.Context) ([]review.Asked, error)
}

// Changes are the steps by which a bundle changes: one road for the pages, the
// API and the CLI. *gatekeeper.Gatekeeper is one.
type Changes interface {
	Propose(ctx context.Context, source []byte, reason string, by gatekeeper.By) (gatekeeper.Proposal, error)
	ProposeMode(ctx context.Context, name, enforcer string, to bundle.Mode, reason string, by gatekeeper.By) (gatekeeper.Proposal, error)
	Approve(ctx context.Context, id, digest string, by gatekeeper.By) (gatekeeper.Proposal, error)
	Reject(ctx context.Context, id, reason string, by gatekeeper.By) (gatekeeper.Proposal, error)
	Rollback(ctx context.Context, name, digest, reason string, by gatekeeper.By) error
	Pause(ctx context.Context, name, reason string, by gatekeeper.By) error
	Resume(ctx context.Context, name, reason string, by gatekeeper.By) (gatekeeper.Proposal, error)
	Proposals() []gatekeeper.Proposal
	Proposal(id string) (gatekeeper.Proposal, error)
	Version(digest string) ([]byte, error)
	// Note writes down that a person takes a step about a session or an event.
	Note(ctx context.Context, step, bundle, subject string, by gatekeeper.By) error
}

// Options wire the pages. All fields but Log and Clock are required.
type Options struct {
	View      *view.View
	Review    Reviewer
	Changes   Changes
	Do        Commands
	Inventory Inventory
	Node      func() Node
	Who       func(*http.Request) Person
	Log       *slog.Logger
	// Budget returns what a session may spend; nil = the node keeps no money.
	Budget func(session string) (spend.Budget, bool)
	// Ending is closed when the node stops: live pages hang up then. nil = never.
	Ending <-chan struct{}
	// Clock is read for "ago"; nil = time.Now.
	Clock func() time.Time
}

// UI serves /ui/. It is mounted behind the operator listener's checks: exact
// Host and Origin, and a login.
type UI struct {
	o      Options
	mux    *http.ServeMux
	assets *assets
}

// New builds the pages.
func New(o Options) (*UI, error) {
	if o.View == nil || o.Review == nil || o.Changes == nil || o.Do == nil || o.Inventory == nil || o.Node == nil || o.Who == nil {
		return nil, errors.New("ui: a part is missing")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	u := &UI{o: o, mux: http.NewServeMux()}
	var err error
	if u.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	u.mux.Handle("GET /ui/static/", u.assets)
	u.page("GET /ui/{$}", u.overview)
	u.page("GET /ui/would-blocks", u.wouldBlocks)
	u.page("GET /ui/would-blocks/{id}", u.wouldBlock)
	u.page("POST /ui/would-blocks/{id}/mark", u.mark)
	u.page("POST /ui/would-blocks/{id}/propose", u.proposeRung)
	u.page("GET /ui/would-blocks/{id}/simulate", u.simulateRung)
	u.page("POST /ui/simulate", u.simulate)
	u.page("GET /ui/proposals", u.proposals)
	u.page("GET /ui/proposals/{id}", u.proposal)
	u.page("POST /ui/proposals/{id}/approve", u.approve)
	u.page("POST /ui/proposals/{id}/reject", u.reject)
	u.page("GET /ui/sessions", u.sessions)
	u.page("GET /ui/sessions/{id}", u.session)
	u.page("GET /ui/sessions/{id}/rows", u.sessionRows)
	u.mux.HandleFunc("GET /ui/sessions/{id}/live", u.live)
	u.page("GET /ui/sessions/{id}/transcript", u.askTranscript)
	u.page("POST /ui/sessions/{id}/transcript", u.transcript)
	u.page("GET /ui/sessions/{id}/artifacts", u.askArtifacts)
	u.page("POST /ui/sessions/{id}/artifacts", u.artifacts)
	u.page("GET /ui/sessions/{id}/kill", u.askKill)
	u.page("POST /ui/sessions/{id}/kill", u.kill)
	u.page("GET /ui/sessions/{id}/retry", u.askRetry)
	u.page("POST /ui/sessions/{id}/retry", u.retry)
	u.page("GET /ui/receipts", u.receipts)
	u.page("GET /ui/receipts/{id}/{seq}", u.receipt)
	u.page("POST /ui/receipts/{id}/{seq}/reveal", u.revealAction)
	u.page("GET /ui/events", u.events)
	u.page("GET /ui/events/{id}", u.event)
	u.page("POST /ui/events/{id}/reveal", u.reveal)
	u.page("POST /ui/events/{id}/redeliver", u.redeliver)
	u.page("GET /ui/bundles", u.bundles)
	u.page("GET /ui/bundles/{name}", u.bundle)
	u.page("GET /ui/bundles/{name}/edit", u.edit)
	u.page("POST /ui/bundles/{name}/propose", u.propose)
	u.page("POST /ui/bundles/{name}/mode", u.proposeMode)
	u.page("POST /ui/bundles/{name}/rollback", u.rollback)
	u.page("POST /ui/bundles/{name}/pause", u.pause)
	u.page("POST /ui/bundles/{name}/resume", u.resume)
	u.page("GET /ui/providers", u.providers)
	u.page("GET /ui/settings", u.settings)
	u.page("GET /ui/help", u.help)
	u.download("sessions", u.sessionTable)
	u.download("events", u.eventTable)
	u.download("would-blocks", u.groupTable)
	u.page("/ui/", func(*http.Request) (answer, error) {
		return answer{}, problem.New(problem.NotFound, "there is no such page", "")
	})
	return u, nil
}

// ServeHTTP serves one request.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) { u.mux.ServeHTTP(w, r) }

// answer is what a page became.
type answer struct {
	title  string
	body   templ.Component
	part   bool   // body is a fragment for htmx, not a page
	status int    // 0 = 200
	to     string // a redirect instead
}

// page registers a page. An error is shown as a page of its own, with its code,
// hint and status.
func (u *UI) page(pattern string, f func(*http.Request) (answer, error)) {
	u.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		nonce := newNonce()
		w.Header().Set("Content-Security-Policy", policy(nonce))
		// Under no-referrer a browser sends the origin "null" with a form, which the
		// operator listener rightly refuses.
		w.Header().Set("Referrer-Policy", "same-origin")
		a, err := f(r)
		status := http.StatusOK
		if err != nil {
			p := problemOf(err)
			if status = p.Code.Status(); status >= 500 {
				u.o.Log.ErrorContext(r.Context(), "page", slog.String("path", r.URL.Path), slog.Any("err", err))
			}
			text := textOf(p)
			a = answer{title: text.title, body: failed(text, r.URL.Path, backFrom(r))}
		}
		if a.status != 0 {
			status = a.status
		}
		if a.to != "" {
			http.Redirect(w, r, a.to, http.StatusSeeOther)
			return
		}
		s := &shell{title: a.title, path: r.URL.Path, node: u.o.Node(), who: u.o.Who(r), now: u.o.Clock(), nonce: nonce, assets: u.assets.urls}
		ctx := withShell(r.Context(), s)
		body := a.body
		if !a.part {
			body = layout(s, a.body)
		}
		var out bytes.Buffer // an error must not leave half a page
		if err := body.Render(ctx, &out); err != nil {
			u.o.Log.ErrorContext(ctx, "render", slog.String("path", r.URL.Path), slog.Any("err", err))
			http.Error(w, "the page could not be made", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = out.WriteTo(w)
	})
}

// policy allows this origin and nothing else. The nonce is what htmx's gate
// asks of every element; it opens no script by itself.
func policy(nonce string) string {
	return "default-src 'none'; script-src 'self' 'nonce-" + nonce + "'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

func newNonce() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// problemOf returns err as a problem; what is none is the node's own fault and
// keeps its words to the log.
func problemOf(err error) *problem.Error {
	var p *problem.Error
	if errors.As(err, &p) {
		return p
	}
	return problem.New(problem.Internal, "the node could not make this page", "Its log says why.")
}

// shell is what all pages share.
type shell struct {
	title  string
	path   string
	node   Node
	who    Person
	now    time.Time
	nonce  string
	assets map[string]string
}

type shellKey struct{}

func withShell(ctx context.Context, s *shell) context.Context {
	return context.WithValue(ctx, shellKey{}, s)
}

// of returns the shell of the page that is being made.
func of(ctx context.Context) *shell { return ctx.Value(shellKey{}).(*shell) }
