package review

import (
	"maps"
	"slices"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
)

// Proposal is a change that waits for people, as CLI, API and UI show it.
type Proposal struct {
	ID        string     `json:"id" doc:"leaf of its first receipt"`
	Bundle    string     `json:"bundle"`
	Kind      string     `json:"kind" enum:"version,mode,resume"`
	Digest    string     `json:"digest" doc:"of the version that would be in force; an approval must name it"`
	Base      string     `json:"base" doc:"of the version in force when it was made"`
	Enforcer  string     `json:"enforcer,omitempty" doc:"of a mode; empty = the whole bundle"`
	From      string     `json:"from,omitempty"`
	To        string     `json:"to,omitempty"`
	By        string     `json:"by"`
	Via       string     `json:"via"`
	Token     string     `json:"token,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Time      time.Time  `json:"time"`
	Approvals []Approval `json:"approvals"`
	Needs     int        `json:"needs" doc:"people in all; a proposer whom an identity provider named counts as one"`
	Beside    []string   `json:"beside,omitempty" doc:"bundles that may take the same events, start it or be started by it: it was judged beside them"`
	Drifted   []string   `json:"drifted,omitempty" doc:"those of an open proposal that are others by now: an approval is refused with neighbour_changed, propose it again"`
	State     string     `json:"state" enum:"open,applied,rejected,replaced"`
	Ended     *time.Time `json:"ended,omitempty"`
	EndedBy   string     `json:"ended_by,omitempty"`
	Authority []string   `json:"authority,omitempty" doc:"what sessions could do that they cannot do now, in words; only in detail"`
	Diff      string     `json:"diff,omitempty" doc:"only in detail"`
	Candidate string     `json:"candidate,omitempty" doc:"the whole version as YAML; only in detail"`
}

// Approval is one person's yes.
type Approval struct {
	By    string    `json:"by"`
	Via   string    `json:"via"`
	Token string    `json:"token,omitempty"`
	Time  time.Time `json:"time"`
	Leaf  string    `json:"leaf"`
}

// Row returns a proposal as lists show it.
func Row(p gatekeeper.Proposal) Proposal {
	out := Proposal{
		ID: p.ID, Bundle: p.Bundle, Kind: p.Kind, Digest: p.Digest, Base: p.Base, Enforcer: p.Enforcer, From: string(p.From), To: string(p.To),
		By: p.By, Via: p.Via, Token: p.Token, Reason: p.Reason, Time: p.At, Approvals: []Approval{}, Needs: p.Needs, State: p.State, EndedBy: p.EndedBy,
	}
	for _, name := range slices.Sorted(maps.Keys(p.Beside)) {
		if name != "" { // too many to name
			out.Beside = append(out.Beside, name)
		}
	}
	out.Drifted = p.Drifted
	for _, a := range p.Approvals {
		out.Approvals = append(out.Approvals, Approval{By: a.By, Via: a.Via, Token: a.Token, Time: a.At, Leaf: a.Receipt})
	}
	if !p.Ended.IsZero() {
		out.Ended = &p.Ended
	}
	return out
}

// Detail adds what an approver must have seen: the whole candidate, its
// difference to the version it was made against, and what it gives, in words.
func (r *Review) Detail(p gatekeeper.Proposal) (Proposal, error) {
	out := Row(p)
	next, err := r.version(p.Digest)
	if err != nil {
		return out, err
	}
	base, err := r.version(p.Base)
	if err != nil {
		return out, err
	}
	switch p.Kind {
	case gatekeeper.ProposeVersion:
		out.Authority = Growth(base, next)
		if out.Diff, err = Diff(base, next); err != nil {
			return out, err
		}
	case gatekeeper.ProposeResume:
		out.Authority = []string{"the bundle starts sessions again"}
	default:
		what := "the bundle"
		if p.Enforcer != "" {
			what = "enforcer " + p.Enforcer
		}
		out.Authority = []string{what + " goes from " + string(p.From) + " to " + string(p.To)}
		if p.To == bundle.Shadow {
			out.Authority = append(out.Authority, "what it refuses now would pass and only be written down")
		}
	}
	src, err := Source(next)
	out.Candidate = string(src)
	return out, err
}

func (r *Review) version(digest string) (*bundle.Bundle, error) {
	raw, err := r.o.Bundles.Version(digest)
	if err != nil {
		return nil, err
	}
	return bundle.Parse(raw)
}
