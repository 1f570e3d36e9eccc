package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// Actor is who asks for a change. Every change is a receipt that names them.
type Actor struct {
	Name  string // person, the owner of a token; "local" on the unix socket and behind a login link
	Via   string // cli | ui | api
	Token string // id of the API token used, "" if none
}

// SessionCommands change sessions. Errors are problems.
type SessionCommands interface {
	// Kill ends a running session; it returns when the end is ordered, not when
	// it is over.
	Kill(ctx context.Context, session string, by Actor) error
	// Retry admits the session's event again and returns the new session.
	Retry(ctx context.Context, session string, by Actor) (string, error)
	// Logs returns the transcript, untrusted bytes.
	Logs(ctx context.Context, session string) (io.ReadCloser, error)
	// Artifacts lists the files that the agent of an ended session left.
	Artifacts(ctx context.Context, session string) ([]Artifact, error)
	// Artifact returns one of them by its digest, untrusted bytes.
	Artifact(ctx context.Context, session, sha256 string) (io.ReadCloser, error)
}

// Artifact is a file that an agent left in /gatehouse/out.
type Artifact struct {
	Name   string `json:"name" doc:"the agent's words"`
	SHA256 string `json:"sha256" doc:"lower hex; the session's last receipt has it too"`
}

// EventCommands change events.
type EventCommands interface {
	// Redeliver lets a stored event start a session again and returns it.
	Redeliver(ctx context.Context, event string, by Actor) (string, error)
	// Reveal writes the receipt that somebody is shown what strangers wrote: of an
	// event, or of a session of a bundle. Nothing is shown when it fails.
	Reveal(ctx context.Context, bundle, subject string, by Actor) error
}

// BundleCommands change bundles.
type BundleCommands interface {
	// Apply takes one bundle as YAML.
	Apply(ctx context.Context, yaml []byte, by Actor) (Applied, error)
}

// ReceiptCommands hand out receipts.
type ReceiptCommands interface {
	// Export writes one self-contained file. The export is itself a receipt.
	Export(ctx context.Context, w io.Writer, what ExportOf, by Actor) error
	// Envelope writes a session's digests as one DSSE envelope, and the receipt
	// that it was handed out.
	Envelope(ctx context.Context, w io.Writer, session string, by Actor) error
	// Prove shows that the log holds one receipt.
	Prove(ctx context.Context, session string, seq uint64) (LogProof, error)
	// Consistency shows that the log of one size begins with that of another.
	Consistency(ctx context.Context, from, to uint64) (Consistency, error)
	// Keyset returns the node's keyset as its root signed it.
	Keyset() string
}

// ExportOf says what an export holds. The zero value is the whole log.
type ExportOf struct {
	Session      string    // one session
	Since, Until time.Time // the sessions opened in the period
	Open         []string  // classes of committed values to disclose: paths, refs
}

// Options wires an API. All fields but Auth, Review, Proposals, Node, Spend, UI,
// Log and Clock are required.
type Options struct {
	View      *view.View
	Auth      *auth.Auth     // nil: one-time links only
	Review    ReviewCommands // nil together with Proposals: none of their routes
	Proposals ProposalCommands
	Sessions  SessionCommands
	Events    EventCommands
	Bundles   BundleCommands
	Receipts  ReceiptCommands
	Status    func() Status
	Node      NodeCommands   // nil: none
	Spend     func() Budgets // nil: an empty list

	URL      string   // of the operator listener as people open it: http://127.0.0.1:8081
	Hosts    []string // exact Host values the operator listener answers to
	Origins  []string // exact Origin values that may post
	Loopback bool     // the operator listener is bound to a loopback address: login links work
	UI       http.Handler
	Log      *slog.Logger
	Clock    func() time.Time
}

// API is the operator API.
type API struct {
	o       Options
	mux     *http.ServeMux
	huma    huma.API
	repeats *repeats

	ending context.Context // ends with Stop
	stop   context.CancelFunc
}

// Stop ends the streams, which have no end of their own. Register it with the
// server's shutdown.
func (a *API) Stop() { a.stop() }

// New builds the routes.
func New(o Options) (*API, error) {
	if o.View == nil || o.Sessions == nil || o.Events == nil || o.Bundles == nil || o.Receipts == nil || o.Status == nil {
		return nil, errors.New("api: a part is missing")
	}
	if len(o.Hosts) == 0 {
		return nil, errors.New("api: no Host is listed")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if (o.Review == nil) != (o.Proposals == nil) {
		return nil, errors.New("api: review and proposals go together")
	}
	if o.Auth == nil {
		var err error
		if o.Auth, err = auth.New(auth.Options{URL: o.URL, Loopback: o.Loopback, Log: o.Log, Clock: o.Clock}); err != nil {
			return nil, err
		}
	}
	a := &API{o: o, mux: http.NewServeMux(), repeats: newRepeats(o.Clock)}
	a.ending, a.stop = context.WithCancel(context.Background())
	a.huma = humago.New(a.mux, config())
	a.routes()
	a.logins()
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, problemOf(problem.NotFound, "no such route", "Read /openapi.yaml."))
	})
	if o.UI != nil {
		a.mux.Handle("/ui/", o.UI)
		a.mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	}
	return a, nil
}

// OpenAPI returns the OpenAPI 3.1 document as YAML.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().YAML() }

// Operator is the handler of the operator listener.
func (a *API) Operator() http.Handler {
	return headers(a.hosts(a.origins(a.authenticated(a.once(a.mux)))))
}

// Socket is the handler of the unix socket. Who may open the socket's file may
// do everything that one person may, so there is no other check; a widening still
// needs people whom an identity provider named.
func (a *API) Socket() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.once(a.mux))
	a.node(mux)
	return headers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := auth.Identity{Person: auth.Local, Name: auth.Local, Roles: auth.Roles, Kind: auth.KindSocket, At: a.o.Clock()}
		// Whoever sends a token speaks as its owner, not as the machine's user.
		if r.Header.Get("Authorization") != "" {
			var err error
			if id, err = a.o.Auth.Identify(r); err != nil {
				refuse(w, a.fail(err))
				return
			}
		}
		a.serve(mux, w, r, id, "cli", id.Kind == auth.KindSocket)
	}))
}

type actorKey struct{}

type caller struct {
	Actor
	identity auth.Identity
	socket   bool
}

func withCaller(ctx context.Context, id auth.Identity, via string, socket bool) context.Context {
	ctx = auth.With(ctx, id)
	return context.WithValue(ctx, actorKey{}, caller{Actor{Name: id.Person, Via: via, Token: id.Token}, id, socket})
}

// ActorOf returns who asks, for a handler that the API is mounted in front of.
func ActorOf(ctx context.Context) Actor { return callerOf(ctx).Actor }

// callerOf returns who called. Both handlers set it before a route runs.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(actorKey{}).(caller)
	return c
}
