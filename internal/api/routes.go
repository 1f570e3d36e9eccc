package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

func config() huma.Config {
	c := huma.DefaultConfig("Gatehouse operator API", "v1")
	c.Info.Description = "Lists are views: late and never what a decision reads. Text in untrusted_text, transcripts and payloads was written by strangers."
	// No documentation page: it would load scripts from elsewhere.
	c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", nil
	c.RejectUnknownQueryParameters = true
	c.AllowAdditionalPropertiesByDefault = true // answers may grow; clients ignore what they do not know
	c.Transformers = []huma.Transformer{asProblem}
	return c
}

// Paging is the query of every list.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"64" doc:"next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

// Body is any JSON answer.
type Body[T any] struct{ Body T }

// Named is an answer that names one thing.
type Named struct {
	ID string `json:"id"`
}

// Reason says why the node is not ready.
type Reason struct {
	Name   string       `json:"name"`
	Code   problem.Code `json:"code"`
	Detail string       `json:"detail"`
	Hint   string       `json:"hint,omitempty"`
}

// Status is the node as a whole.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Ready   bool      `json:"ready"`
	Reasons []Reason  `json:"reasons" doc:"why it is not ready"`
	Bus     BusStatus `json:"bus"`
	Running int       `json:"running" doc:"sessions that run now"`
	Dev     bool      `json:"dev,omitempty" doc:"development substitutions are in force"`
}

// BusStatus is how far the streams are.
type BusStatus struct {
	Connected bool   `json:"connected"`
	Embedded  bool   `json:"embedded"`
	Phase     string `json:"phase" doc:"idle, reconciling, pumping or stopped"`
	Stored    uint64 `json:"stored" doc:"journal position up to which every record is on its stream"`
	Durable   uint64 `json:"durable" doc:"journal position up to which records are on disk"`
}

// Applied is what became of a bundle.
type Applied struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Mode   string `json:"mode"`
	Result string `json:"result" doc:"applied, unchanged or waiting"`
	Note   string `json:"note,omitempty"`
}

// Link is a one-time login link.
type Link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// LogProof shows that the log holds one receipt.
type LogProof struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"`
	Index   uint64 `json:"index" doc:"log index of the receipt"`
	Size    uint64 `json:"size" doc:"leaves under the checkpoint"`
	Receipt string `json:"receipt" doc:"the receipt's exact bytes, as text"`
	Proof   string `json:"proof" doc:"C2SP tlog-proof"`
}

// Consistency shows that a log only grew.
type Consistency struct {
	From uint64   `json:"from"`
	To   uint64   `json:"to"`
	Path []string `json:"path" doc:"hashes of the RFC 6962 consistency proof"`
}

// Keyset is a node's keyset.
type Keyset struct {
	Note string `json:"note" doc:"signed by the root key; check it against the fingerprint you pinned"`
}

type none struct{}

// ByID is the path of every route about one thing. It is exported because huma
// fills no embedded field that is not.
type ByID struct {
	ID string `path:"id" maxLength:"256"`
}

func (a *API) routes() {
	a.spendRoutes()
	get(a, "status", "/v1/status", "The node's state", func(_ context.Context, _ *none) (Status, error) { return a.o.Status(), nil })

	get(a, "list-sessions", "/v1/sessions", "Sessions, the newest first", func(_ context.Context, in *struct {
		Paging
		State  string `query:"state" enum:"admitted,preparing,running,ended,refused"`
		Reason string `query:"reason"`
		Bundle string `query:"bundle"`
		Mode   string `query:"mode" enum:"shadow,hard"`
		Event  string `query:"event"`
		Parent string `query:"parent"`
	}) (view.Page[view.Session], error) {
		return a.o.View.Sessions(view.SessionFilter{State: in.State, Reason: in.Reason, Bundle: in.Bundle, Mode: in.Mode, Event: in.Event, Parent: in.Parent}, in.Cursor, in.Limit)
	})
	get(a, "get-session", "/v1/sessions/{id}", "One session", func(_ context.Context, in *ByID) (view.Session, error) {
		return a.o.View.Session(in.ID)
	})
	get(a, "list-receipts", "/v1/sessions/{id}/receipts", "The receipts of a session, in chain order", func(ctx context.Context, in *struct {
		ByID
		Paging
	}) (view.Page[view.Receipt], error) {
		return a.o.View.Receipts(ctx, in.ID, in.Cursor, in.Limit)
	})
	get(a, "list-artifacts", "/v1/sessions/{id}/artifacts", "The files that the agent of an ended session left, in its words; reading the list is a receipt too, but for the machine's own user on the socket", func(ctx context.Context, in *ByID) (view.Page[Artifact], error) {
		all, err := a.o.Sessions.Artifacts(ctx, in.ID)
		if err == nil {
			err = a.reveal(ctx, a.bundleOf(in.ID), in.ID)
		}
		if err != nil {
			return view.Page[Artifact]{}, err
		}
		return view.Page[Artifact]{Items: all}, nil
	})
	post(a, operate, "kill-session", "/v1/sessions/{id}/kill", "End a running session", http.StatusAccepted, func(ctx context.Context, in *ByID) (Named, error) {
		return Named{in.ID}, a.o.Sessions.Kill(ctx, in.ID, callerOf(ctx).Actor)
	})
	post(a, operate, "retry-session", "/v1/sessions/{id}/retry", "Admit the session's event again", http.StatusCreated, func(ctx context.Context, in *ByID) (Named, error) {
		id, err := a.o.Sessions.Retry(ctx, in.ID, callerOf(ctx).Actor)
		return Named{id}, err
	})

	get(a, "list-events", "/v1/events", "Events, the newest first", func(_ context.Context, in *struct {
		Paging
		Source   string `query:"source"`
		Endpoint string `query:"endpoint"`
		Kind     string `query:"kind"`
		Level    string `query:"level"`
		State    string `query:"state" enum:"none,admitted,preparing,running,ended,refused" doc:"of its latest session"`
	}) (view.Page[view.Event], error) {
		return a.o.View.Events(view.EventFilter{Source: in.Source, Endpoint: in.Endpoint, Kind: in.Kind, Level: in.Level, State: in.State}, in.Cursor, in.Limit)
	})
	get(a, "get-event", "/v1/events/{id}", "One event with its facts and its untrusted text; reading it is a receipt too, but for the machine's own user on the socket", func(ctx context.Context, in *ByID) (view.EventDetail, error) {
		e, err := a.o.View.Event(ctx, in.ID)
		if err == nil {
			err = a.reveal(ctx, "", e.ID)
		}
		if err != nil {
			return view.EventDetail{}, err
		}
		return e, nil
	})
	post(a, operate, "redeliver-event", "/v1/events/{id}/redeliver", "Let a stored event start a session again", http.StatusCreated, func(ctx context.Context, in *ByID) (Named, error) {
		id, err := a.o.Events.Redeliver(ctx, in.ID, callerOf(ctx).Actor)
		return Named{id}, err
	})

	get(a, "list-bundles", "/v1/bundles", "Bundles by name", func(_ context.Context, _ *none) (view.Page[view.Bundle], error) {
		return view.Page[view.Bundle]{Items: a.o.View.Bundles()}, nil
	})
	get(a, "bundle-history", "/v1/bundles/{id}/history", "A bundle's changes, the newest first", func(_ context.Context, in *ByID) (view.Page[view.Change], error) {
		h, err := a.o.View.History(in.ID)
		return view.Page[view.Change]{Items: h}, err
	})
	post(a, apply, "apply-bundle", "/v1/bundles", "Apply one bundle", http.StatusOK, func(ctx context.Context, in *struct {
		RawBody []byte `contentType:"application/yaml"`
	}) (Applied, error) {
		return a.o.Bundles.Apply(ctx, in.RawBody, callerOf(ctx).Actor)
	})

	get(a, "receipts-head", "/v1/receipts/head", "The last seal and checkpoint of every node's log", func(_ context.Context, _ *none) (view.Page[view.Head], error) {
		return view.Page[view.Head]{Items: a.o.View.Heads()}, nil
	})
	get(a, "receipts-keyset", "/v1/receipts/keyset", "The keys that sign receipts and checkpoints, signed by the root", func(_ context.Context, _ *none) (Keyset, error) {
		return Keyset{a.o.Receipts.Keyset()}, nil
	})
	get(a, "receipts-consistency", "/v1/receipts/consistency", "Proof that the node's log only grew from one size to another", func(ctx context.Context, in *struct {
		From uint64 `query:"from" minimum:"1" required:"true"`
		To   uint64 `query:"to" minimum:"1" required:"true"`
	}) (Consistency, error) {
		return a.o.Receipts.Consistency(ctx, in.From, in.To)
	})
	get(a, "receipt-proof", "/v1/sessions/{id}/receipts/{seq}/proof", "One receipt with the proof that the node's log holds it", func(ctx context.Context, in *struct {
		ByID
		Seq uint64 `path:"seq"`
	}) (LogProof, error) {
		return a.o.Receipts.Prove(ctx, in.ID, in.Seq)
	})
	post(a, read, "login-link", "/v1/login-links", "A one-time login link, on the unix socket only", http.StatusCreated, func(ctx context.Context, _ *none) (Link, error) {
		if !callerOf(ctx).socket {
			return Link{}, problem.New(problem.OriginNotListed, "login links are made on the unix socket only", "Run gatehouse login on the node's machine.")
		}
		url, expires, err := a.LoginLink(callerOf(ctx).Name)
		return Link{url, expires}, err
	})
	a.reviews()
	a.tokens()
	a.files()
	a.stream()
	a.document()
}

// get adds a list or a thing; post adds a command.
func get[I, O any](a *API, id, path, summary string, f func(context.Context, *I) (O, error)) {
	register(a, read, http.MethodGet, id, path, summary, http.StatusOK, f)
}

func post[I, O any](a *API, n Step, id, path, summary string, status int, f func(context.Context, *I) (O, error)) {
	register(a, n, http.MethodPost, id, path, summary, status, f)
}

func register[I, O any](a *API, n Step, method, id, path, summary string, status int, f func(context.Context, *I) (O, error)) {
	huma.Register(a.huma, a.operation(n, method, id, path, summary, status), func(ctx context.Context, in *I) (*Body[O], error) {
		if err := a.allow(callerOf(ctx), n); err != nil {
			return nil, a.fail(err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, a.fail(err)
		}
		return &Body[O]{out}, nil
	})
}
