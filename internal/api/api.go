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

	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// Actor is who asks for a change. Every change is a receipt that names them.
type Actor struct {
	Name string // person or token id; "local" on the unix socket
	Via  string // cli | ui | api
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
}

// EventCommands change events.
type EventCommands interface {
	// Redeliver lets a stored event start a session again and returns it.
	Redeliver(ctx context.Context, event string, by Actor) (string, error)
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

// Options wires an API. All fields but Node, UI, Log and Clock are required.
type Options struct {
	View     *view.View
	Sessions SessionCommands
	Events   EventCommands
	Bundles  BundleCommands
	Receipts ReceiptCommands
	Status   func() Status
	Node     NodeCommands // nil: none

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
	o     Options
	mux   *http.ServeMux
	huma  huma.API
	login *login

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
	a := &API{o: o, mux: http.NewServeMux(), login: newLogin(o.Clock)}
	a.ending, a.stop = context.WithCancel(context.Background())
	a.huma = humago.New(a.mux, config())
	a.routes()
	a.mux.HandleFunc("GET /login/{token}", a.openLink)
	a.mux.HandleFunc("POST /logout", a.logout)
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
	return headers(a.hosts(a.origins(a.authenticated(a.mux))))
}

// Socket is the handler of the unix socket. Who may open the socket's file may
// do everything, so there is no other check.
func (a *API) Socket() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.mux)
	a.node(mux)
	return headers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(withActor(r.Context(), Actor{Name: "local", Via: "cli"}, true)))
	}))
}

type actorKey struct{}

type caller struct {
	Actor
	socket bool
}

func withActor(ctx context.Context, a Actor, socket bool) context.Context {
	return context.WithValue(ctx, actorKey{}, caller{a, socket})
}

// ActorOf returns who asks, for a handler that the API is mounted in front of.
func ActorOf(ctx context.Context) Actor { return callerOf(ctx).Actor }

// callerOf returns who called. Both handlers set it before a route runs.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(actorKey{}).(caller)
	return c
}
