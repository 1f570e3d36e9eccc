package review

import (
	"context"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/internal/view"
)

// Asked is a session's request for what a receipt refused. It is a pointer to the
// group that people decide about, never a word of the agent's, and grants nothing.
type Asked struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Bundle  string    `json:"bundle,omitempty"`
	Leaf    string    `json:"leaf" doc:"the request's receipt in the control chain"`
	Refusal string    `json:"refusal" doc:"leaf of the decision that it asks about"`
	Known   bool      `json:"known" doc:"the session's chain has that decision; what follows is empty otherwise"`
	Seq     uint64    `json:"seq,omitempty" doc:"number of the decision in the session's chain"`
	Kind    string    `json:"kind,omitempty"`
	Target  string    `json:"target,omitempty"`
	Method  string    `json:"method,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Group   string    `json:"group,omitempty" doc:"group of would-blocks that it belongs to"`
	Status  string    `json:"status,omitempty" doc:"of the group"`
}

// maxAsked bounds the list; the control chain keeps all of it.
const maxAsked = 200

// Asked lists the newest requests for access, the newest first, at most 200.
func (r *Review) Asked(ctx context.Context) ([]Asked, error) {
	out := []Asked{}
	missing := map[string]map[string]int{} // session -> refusal -> place in out
	r.mu.Lock()
	for _, s := range r.o.View.Steps("") {
		if s.Step != gatekeeper.StepAccess || len(out) == maxAsked {
			continue
		}
		a, known := r.asked[s.Leaf]
		if !known {
			a = Asked{Time: s.Time, Session: s.Subject, Leaf: s.Leaf, Refusal: s.Refusal}
			if missing[s.Subject] == nil {
				missing[s.Subject] = map[string]int{}
			}
			missing[s.Subject][s.Refusal] = len(out)
		}
		out = append(out, a)
	}
	r.mu.Unlock()
	for session, of := range missing {
		if err := r.find(ctx, session, of, out); err != nil {
			return nil, err
		}
	}
	accepts, err := r.accepts(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := map[string]Asked{} // what left the list leaves memory
	for i := range out {
		if out[i].Known {
			kept[out[i].Leaf] = out[i]
		}
		if out[i].Group == "" {
			continue
		}
		if g, err := r.o.View.Group(out[i].Group, accepts); err == nil {
			out[i].Status = g.Status
		}
	}
	r.asked = kept
	return out, nil
}

// find reads a session's chain once for all that it asks about. A session that left
// the lists, or a decision that its chain does not have, stays unknown.
func (r *Review) find(ctx context.Context, session string, of map[string]int, out []Asked) error {
	row, err := r.o.View.Session(session)
	if err != nil {
		return nil
	}
	for d, err := range r.o.View.Decisions(ctx, session) {
		if err != nil {
			return err
		}
		i, ok := of[d.Leaf]
		if !ok {
			continue
		}
		action, err := r.o.Actions(ctx, d.Leaf)
		if err != nil {
			action = nil // no longer kept: the group is found by what the receipt says
		}
		a := &out[i]
		a.Known, a.Bundle, a.Seq = true, row.Bundle, d.Receipt.Seq
		a.Kind, a.Target, a.Method, a.Verdict, a.Rule, a.Reason = d.Row.Kind, d.Row.Target, d.Row.Method, d.Row.Verdict, d.Row.Rule, d.Row.Reason
		a.Group = view.GroupOf(row.Bundle, d.Receipt, action).ID
		delete(of, d.Leaf)
		if len(of) == 0 {
			return nil
		}
	}
	return nil
}
