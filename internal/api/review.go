package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"gatehouse/internal/auth"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

// ReviewCommands look at what sessions try. *review.Review is behind them.
type ReviewCommands interface {
	Groups(ctx context.Context, filter, sort, after string, n int) (view.GroupPage, error)
	Group(ctx context.Context, id string) (view.GroupDetail, error)
	Suggest(ctx context.Context, id string) (review.Ladder, error)
	Explain(ctx context.Context, session, which string) (review.Trace, error)
	Simulate(ctx context.Context, yaml []byte, w review.Window) (review.Simulation, error)
	Ready(ctx context.Context, bundle string) (review.Readiness, error)
	Asked(ctx context.Context) ([]review.Asked, error)
	// Mark writes a receipt; a zero expires is none.
	Mark(ctx context.Context, id, status, reason string, expires time.Time, by Actor) (view.Mark, error)
}

// ProposalCommands change bundles in the ways that need a reason or a second
// person. Every one of them ends in the gatekeeper.
type ProposalCommands interface {
	// Bundle returns one bundle in force with a tag of its version and modes.
	Bundle(ctx context.Context, name string) (BundleDetail, error)
	// Version returns a version's canonical bytes, which are YAML.
	Version(ctx context.Context, digest string) ([]byte, error)
	Proposals(ctx context.Context) ([]review.Proposal, error)
	Proposal(ctx context.Context, id string) (review.Proposal, error)
	Propose(ctx context.Context, yaml []byte, reason string, by Actor) (review.Proposal, error)
	ProposeMode(ctx context.Context, bundle, enforcer, to, reason string, by Actor) (review.Proposal, error)
	Approve(ctx context.Context, id, digest string, by Actor) (review.Proposal, error)
	Reject(ctx context.Context, id, reason string, by Actor) (review.Proposal, error)
	Rollback(ctx context.Context, bundle, digest, reason string, by Actor) error
	Pause(ctx context.Context, bundle, reason string, by Actor) error
	// Resume returns the proposal that waits, a zero one when nothing does.
	Resume(ctx context.Context, bundle, reason string, by Actor) (review.Proposal, error)
}

// BundleDetail is one bundle in force.
type BundleDetail struct {
	Name    string            `json:"name"`
	Digest  string            `json:"digest"`
	Mode    string            `json:"mode"`
	Modes   map[string]string `json:"modes,omitempty" doc:"of the added enforcers"`
	Waiting string            `json:"waiting,omitempty" doc:"digest of a version that waits for approval"`
	Paused  bool              `json:"paused"`
	Accepts string            `json:"accepts"`
	Source  string            `json:"source" doc:"YAML, every default written out"`
	Tag     string            `json:"-"`
}

// Reasoned is the body of a step that needs nothing but a reason.
type Reasoned struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"stands in the receipt"`
}

// MarkRequest says what a group means.
type MarkRequest struct {
	Status  string    `json:"status" enum:"kept,noise,new"`
	Reason  string    `json:"reason,omitempty" maxLength:"500" doc:"needed unless it is new again"`
	Expires time.Time `json:"expires,omitempty" doc:"when a kept group counts again"`
}

// ApprovalRequest is a yes to exactly one version.
type ApprovalRequest struct {
	Digest string `json:"digest" minLength:"64" maxLength:"64" doc:"of the version that was shown"`
}

// ModeRequest asks for another mode.
type ModeRequest struct {
	Enforcer string `json:"enforcer,omitempty" maxLength:"63" doc:"one added enforcer; the whole bundle when left out"`
	To       string `json:"to" enum:"hard,shadow"`
	Reason   string `json:"reason" minLength:"1" maxLength:"500"`
}

// RollbackRequest asks for an earlier version.
type RollbackRequest struct {
	Digest string `json:"digest" minLength:"64" maxLength:"64"`
	Reason string `json:"reason" minLength:"1" maxLength:"500"`
}

// TokenRequest asks for an API token.
type TokenRequest struct {
	Name  string   `json:"name" minLength:"1" maxLength:"64"`
	Roles []string `json:"roles" minItems:"1" enum:"viewer,reviewer,approver,operator,admin,auditor"`
	Life  string   `json:"life" maxLength:"32" doc:"such as 24h; at most 90 days, an hour for one that may approve or administer"`
}

// Version is one version of a bundle.
type Version struct {
	Digest string `json:"digest"`
	Source string `json:"source" doc:"canonical form: one line of JSON, which is YAML"`
}

// ByTag is the path of a bundle step: If-Match holds it to the bundle that was
// looked at. It is exported because huma fills no embedded field that is not.
type ByTag struct {
	ID      string `path:"id" maxLength:"63"`
	IfMatch string `header:"If-Match" maxLength:"200" doc:"ETag of the bundle as it was looked at; another state is refused"`
}

// matches refuses a step against a bundle that changed since it was looked at.
func (a *API) matches(ctx context.Context, in ByTag) error {
	if in.IfMatch == "" || in.IfMatch == "*" {
		return nil
	}
	b, err := a.o.Proposals.Bundle(ctx, in.ID)
	if err != nil {
		return err
	}
	if in.IfMatch != b.Tag {
		return problem.New(problem.CandidateChanged, "the bundle changed since you looked at it", "Load it again.")
	}
	return nil
}

// reviews adds the routes of looking at would-blocks and changing bundles.
func (a *API) reviews() {
	if a.o.Review == nil {
		return
	}
	r, p := a.o.Review, a.o.Proposals
	get(a, "list-would-blocks", "/v1/would-blocks", "Groups of what sessions try and the rules deny", func(ctx context.Context, in *struct {
		Cursor string `query:"cursor" maxLength:"256" doc:"next of the page before"`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
		Query  string `query:"q" maxLength:"1000" doc:"key:value terms, - in front to exclude; keys: bundle enforcer floor group host implied kind method name own path port reason repository rule status verdict"`
		Sort   string `query:"sort" enum:"last,first,count,sessions" default:"last"`
	}) (view.GroupPage, error) {
		return r.Groups(ctx, in.Query, in.Sort, in.Cursor, in.Limit)
	})
	get(a, "get-would-block", "/v1/would-blocks/{id}", "One group with its newest attempts", func(ctx context.Context, in *ByID) (view.GroupDetail, error) {
		return r.Group(ctx, in.ID)
	})
	get(a, "suggest-change", "/v1/would-blocks/{id}/suggestions", "Candidates that would allow a group, narrow to wide", func(ctx context.Context, in *ByID) (review.Ladder, error) {
		return r.Suggest(ctx, in.ID)
	})
	post(a, reviewing, "mark-would-block", "/v1/would-blocks/{id}/mark", "Say what a group means", http.StatusOK, func(ctx context.Context, in *struct {
		ByID
		Body MarkRequest
	}) (view.Mark, error) {
		return r.Mark(ctx, in.ID, in.Body.Status, in.Body.Reason, in.Body.Expires, callerOf(ctx).Actor)
	})
	get(a, "explain-decision", "/v1/sessions/{id}/receipts/{seq}/explain", "One decision rule by rule; what was judged is in the client's words, and reading it is a receipt too, but for the machine's own user on the socket", func(ctx context.Context, in *struct {
		ByID
		Seq string `path:"seq" maxLength:"64" doc:"number in the session, or leaf"`
	}) (review.Trace, error) {
		t, err := r.Explain(ctx, in.ID, in.Seq)
		if err == nil && len(t.Action) > 0 {
			err = a.reveal(ctx, "", t.Receipt.Leaf)
		}
		if err != nil {
			return review.Trace{}, err
		}
		return t, nil
	})
	post(a, reviewing, "simulate-bundle", "/v1/simulations", "Judge past actions again under a candidate in hard mode", http.StatusOK, func(ctx context.Context, in *struct {
		Since   time.Time `query:"since"`
		Until   time.Time `query:"until"`
		Actions int       `query:"actions" minimum:"0" maximum:"200000" doc:"at most; 0 = 20,000"`
		RawBody []byte    `contentType:"application/yaml"`
	}) (review.Simulation, error) {
		return r.Simulate(ctx, in.RawBody, review.Window{Since: in.Since, Until: in.Until, Actions: in.Actions})
	})
	get(a, "bundle-readiness", "/v1/bundles/{id}/readiness", "What still stands against turning a bundle to hard", func(ctx context.Context, in *ByID) (review.Readiness, error) {
		return r.Ready(ctx, in.ID)
	})
	a.bundle()
	get(a, "list-proposals", "/v1/proposals", "Proposals, the newest first", func(ctx context.Context, in *struct {
		State  string `query:"state" enum:"open,applied,rejected,replaced"`
		Bundle string `query:"bundle" maxLength:"63"`
	}) (view.Page[review.Proposal], error) {
		all, err := p.Proposals(ctx)
		out := view.Page[review.Proposal]{Items: []review.Proposal{}}
		for _, x := range all {
			if (in.State == "" || in.State == x.State) && (in.Bundle == "" || in.Bundle == x.Bundle) {
				out.Items = append(out.Items, x)
			}
		}
		return out, err
	})
	get(a, "get-proposal", "/v1/proposals/{id}", "One proposal with its candidate, the difference and what it gives", func(ctx context.Context, in *ByID) (review.Proposal, error) {
		return p.Proposal(ctx, in.ID)
	})
	post(a, approve, "approve-proposal", "/v1/proposals/{id}/approve", "Say yes to exactly the version that was shown", http.StatusOK, func(ctx context.Context, in *struct {
		ByID
		Body ApprovalRequest
	}) (review.Proposal, error) {
		return p.Approve(ctx, in.ID, in.Body.Digest, callerOf(ctx).Actor)
	})
	post(a, reject, "reject-proposal", "/v1/proposals/{id}/reject", "End a proposal", http.StatusOK, func(ctx context.Context, in *struct {
		ByID
		Body Reasoned
	}) (review.Proposal, error) {
		return p.Reject(ctx, in.ID, in.Body.Reason, callerOf(ctx).Actor)
	})
	get(a, "list-access-requests", "/v1/access-requests", "What agents ask reviewers for, the newest first; a request grants nothing", func(ctx context.Context, _ *struct{}) (view.Page[review.Asked], error) {
		all, err := a.o.Review.Asked(ctx)
		return view.Page[review.Asked]{Items: all}, err
	})
	get(a, "list-steps", "/v1/steps", "What people did to sessions and events, the newest first", func(_ context.Context, in *struct {
		Subject string `query:"subject" maxLength:"256"`
	}) (view.Page[view.Step], error) {
		return view.Page[view.Step]{Items: a.o.View.Steps(in.Subject)}, nil
	})
}

// bundleDetail adds the one answer that carries an ETag.
func (a *API) bundleDetail() {
	type answer struct {
		ETag string `header:"ETag"`
		Body BundleDetail
	}
	huma.Register(a.huma, a.operation(read, http.MethodGet, "get-bundle", "/v1/bundles/{id}", "One bundle in force", http.StatusOK), func(ctx context.Context, in *ByID) (*answer, error) {
		if err := a.allow(callerOf(ctx), read); err != nil {
			return nil, a.fail(err)
		}
		b, err := a.o.Proposals.Bundle(ctx, in.ID)
		if err != nil {
			return nil, a.fail(err)
		}
		return &answer{b.Tag, b}, nil
	})
}

// bundle adds the routes of one bundle.
func (a *API) bundle() {
	p := a.o.Proposals
	a.bundleDetail()
	get(a, "bundle-version", "/v1/bundle-versions/{id}", "A bundle version in canonical form, which is YAML", func(ctx context.Context, in *ByID) (Version, error) {
		b, err := p.Version(ctx, in.ID)
		return Version{in.ID, string(b)}, err
	})
	post(a, propose, "propose-version", "/v1/bundles/{id}/proposals", "Make a version wait for approval", http.StatusCreated, func(ctx context.Context, in *struct {
		ByTag
		Reason  string `query:"reason" required:"true" minLength:"1" maxLength:"500"`
		RawBody []byte `contentType:"application/yaml"`
	}) (review.Proposal, error) {
		if err := a.matches(ctx, in.ByTag); err != nil {
			return review.Proposal{}, err
		}
		return p.Propose(ctx, in.RawBody, in.Reason, callerOf(ctx).Actor)
	})
	post(a, promote, "promote-bundle", "/v1/bundles/{id}/promote", "Ask for another mode of a bundle, or of one added enforcer", http.StatusCreated, func(ctx context.Context, in *struct {
		ByTag
		Body ModeRequest
	}) (review.Proposal, error) {
		if err := a.matches(ctx, in.ByTag); err != nil {
			return review.Proposal{}, err
		}
		return p.ProposeMode(ctx, in.ID, in.Body.Enforcer, in.Body.To, in.Body.Reason, callerOf(ctx).Actor)
	})
	post(a, narrow, "rollback-bundle", "/v1/bundles/{id}/rollback", "Put an earlier version back in force; under hard mode one that the present version covers", http.StatusOK, func(ctx context.Context, in *struct {
		ByTag
		Body RollbackRequest
	}) (Named, error) {
		if err := a.matches(ctx, in.ByTag); err != nil {
			return Named{}, err
		}
		return Named{in.ID}, p.Rollback(ctx, in.ID, in.Body.Digest, in.Body.Reason, callerOf(ctx).Actor)
	})
	post(a, narrow, "pause-bundle", "/v1/bundles/{id}/pause", "Stop a bundle from starting sessions", http.StatusOK, func(ctx context.Context, in *struct {
		ByTag
		Body Reasoned
	}) (Named, error) {
		if err := a.matches(ctx, in.ByTag); err != nil {
			return Named{}, err
		}
		return Named{in.ID}, p.Pause(ctx, in.ID, in.Body.Reason, callerOf(ctx).Actor)
	})
	post(a, resume, "resume-bundle", "/v1/bundles/{id}/resume", "End a pause; under hard mode that waits for approval", http.StatusOK, func(ctx context.Context, in *struct {
		ByTag
		Body Reasoned
	}) (review.Proposal, error) {
		if err := a.matches(ctx, in.ByTag); err != nil {
			return review.Proposal{}, err
		}
		return p.Resume(ctx, in.ID, in.Body.Reason, callerOf(ctx).Actor)
	})
}

// NewToken is an API token as it is shown once.
type NewToken struct {
	auth.Token
	Text string `json:"text" doc:"the token itself; it is shown here and kept nowhere"`
}

// tokens adds the routes of API tokens.
func (a *API) tokens() {
	get(a, "list-tokens", "/v1/tokens", "API tokens: one's own, everybody's for who administers", func(ctx context.Context, _ *none) (view.Page[auth.Token], error) {
		return view.Page[auth.Token]{Items: a.o.Auth.Tokens(callerOf(ctx).identity)}, nil
	})
	post(a, makeTokens, "make-token", "/v1/tokens", "Make an API token for oneself", http.StatusCreated, func(ctx context.Context, in *struct {
		Body TokenRequest
	}) (NewToken, error) {
		life, err := time.ParseDuration(in.Body.Life)
		if err != nil {
			return NewToken{}, problem.New(problem.Usage, "life is not a duration", "Write 24h.")
		}
		var roles []auth.Role
		for _, r := range in.Body.Roles {
			roles = append(roles, auth.Role(r))
		}
		text, t, err := a.o.Auth.NewToken(ctx, callerOf(ctx).identity, in.Body.Name, roles, life)
		return NewToken{t, text}, err
	})
	post(a, ownTokens, "revoke-token", "/v1/tokens/{id}/revoke", "End a token", http.StatusOK, func(ctx context.Context, in *ByID) (Named, error) {
		return Named{in.ID}, a.o.Auth.Revoke(ctx, callerOf(ctx).identity, in.ID)
	})
}
