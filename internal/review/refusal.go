package review

import (
	"context"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// StepNotify is the step of the control chain that says that people were told of
// the first refusal after a promotion; its subject is the promotion's leaf.
const StepNotify = "notify"

// Refusal is the first refusal after a bundle was turned to hard.
type Refusal struct {
	Bundle    string    `json:"bundle"`
	Promotion string    `json:"promotion" doc:"leaf of the mode.change"`
	Promoted  time.Time `json:"promoted"`
	By        string    `json:"by" doc:"who promoted it last"`
	Session   string    `json:"session"`
	Seq       uint64    `json:"seq"`
	Leaf      string    `json:"leaf"`
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`
	Host      string    `json:"host,omitempty"`
	Method    string    `json:"method,omitempty"`
	Name      string    `json:"name,omitempty"`
	Rule      string    `json:"rule"`
	Reason    string    `json:"reason"`
	Group     string    `json:"group"`
}

// FirstRefusals returns, for each bundle in hard mode, the earliest refusal that is
// still known after its last promotion, unless the control chain says that people
// were told. Nothing of it is in the words of an agent: no path, no query.
func (r *Review) FirstRefusals(ctx context.Context) ([]Refusal, error) {
	all, err := r.o.Bundles.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	var out []Refusal
	for _, f := range all {
		if f.Bundle.Mode != bundle.Hard {
			continue
		}
		p, ok := r.promotion(f.Bundle.Name)
		if !ok || r.told(p.Leaf) {
			continue
		}
		if x, ok := r.first(f.Bundle, p); ok {
			out = append(out, x)
		}
	}
	return out, nil
}

// promotion returns the change that turned a bundle to hard, none for one that
// began there.
func (r *Review) promotion(name string) (view.Change, bool) {
	history, err := r.o.View.History(name)
	if err != nil {
		return view.Change{}, false
	}
	for _, c := range history { // the newest first
		if c.Type == string(receipts.TypeModeChange) && c.Enforcer == "" && c.Result == "applied" && c.From != c.To && c.To == string(bundle.Hard) {
			return c, true
		}
	}
	return view.Change{}, false
}

func (r *Review) told(promotion string) bool {
	for _, s := range r.o.View.Steps(promotion) {
		if s.Step == StepNotify {
			return true
		}
	}
	return false
}

func (r *Review) first(b *bundle.Bundle, p view.Change) (out Refusal, found bool) {
	for _, g := range r.o.View.GroupsOf(b.Name, b.Accepts) {
		if g.Hard == 0 || g.Last.Before(p.Time) {
			continue
		}
		d, err := r.o.View.Group(g.ID, nil)
		if err != nil {
			continue
		}
		for _, s := range d.Samples {
			if s.Passed || s.Time.Before(p.Time) || found && !s.Time.Before(out.Time) {
				continue
			}
			found = true
			out = Refusal{
				Bundle: b.Name, Promotion: p.Leaf, Promoted: p.Time, By: p.By, Session: s.Session, Seq: s.Seq, Leaf: s.Leaf, Time: s.Time,
				Kind: g.Kind, Host: g.Host, Method: g.Method, Name: g.Name, Rule: g.Rule, Reason: g.Reason, Group: g.ID,
			}
		}
	}
	return out, found
}
