package review

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// builtins are the enforcers that decide from the bundle: the only ones that may
// allow.
var builtins = []string{"egress", "git", "spend"}

// bench judges stored actions under one candidate. The enforcers are the real
// ones, in wasm; the policy is compiled for each session's subject as admission
// does it.
type bench struct {
	r       *Review
	b       *bundle.Bundle
	modules map[string]*wasm.Module
	own     []*wasm.Module               // closed with the bench
	panels  map[[sha256.Size]byte]*panel // by policy
	missing []string                     // added enforcers whose code is not here
}

// panel is one policy's enforcers.
type panel struct {
	seats []seat
}

type seat struct {
	e       *wasm.Enforcer
	builtin bool
}

func (r *Review) newBench(ctx context.Context, b *bundle.Bundle) (*bench, error) {
	x := &bench{r: r, b: b, modules: map[string]*wasm.Module{}, panels: map[[sha256.Size]byte]*panel{}}
	std, err := r.o.Host.Builtin(ctx)
	if err != nil {
		return nil, fmt.Errorf("couldn't load the built-in enforcers: %w", err)
	}
	for _, name := range builtins {
		x.modules[name] = std
	}
	for _, name := range slices.Sorted(maps.Keys(b.Enforcers)) {
		e := b.Enforcers[name]
		if e.Mode != bundle.Hard {
			continue // takes no part in what a hard session decides
		}
		if r.o.Module == nil {
			x.missing = append(x.missing, name)
			continue
		}
		code, limits, err := r.o.Module(e.Module)
		if err != nil {
			x.missing = append(x.missing, name)
			continue
		}
		mod, err := r.o.Host.LoadLimited(ctx, name, code, limits)
		if err != nil {
			x.close(ctx)
			return nil, fmt.Errorf("couldn't load enforcer %s: %w", name, err)
		}
		x.modules[name], x.own = mod, append(x.own, mod)
	}
	return x, nil
}

func (x *bench) close(ctx context.Context) {
	for _, p := range x.panels {
		for _, s := range p.seats {
			s.e.Close()
		}
	}
	for _, m := range x.own {
		_ = m.Close(context.WithoutCancel(ctx))
	}
}

// panel returns the enforcers for a subject.
func (x *bench) panel(ctx context.Context, s bundle.Subject) (*panel, error) {
	s.Upstreams = x.r.o.Upstreams
	policy, err := x.b.Policy(x.r.o.Sets, s)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(policy)
	if p := x.panels[key]; p != nil {
		return p, nil
	}
	p := &panel{}
	x.panels[key] = p
	for _, name := range slices.Concat(builtins, slices.Sorted(maps.Keys(x.b.Enforcers))) {
		mod := x.modules[name]
		if mod == nil {
			continue
		}
		params, builtin := wasm.BuiltinParams(name), slices.Contains(builtins, name)
		if !builtin {
			if params, err = x.b.Enforcers[name].Settings(); err != nil {
				return nil, err
			}
		}
		e, err := mod.Enforcer(ctx, wasm.Configure(policy, params))
		if err != nil {
			return nil, fmt.Errorf("couldn't configure enforcer %s: %w", name, err)
		}
		p.seats = append(p.seats, seat{e, builtin})
	}
	return p, nil
}

// verdict is what a hard session would have decided.
type verdict struct {
	allow   bool
	v       enforcers.Verdict
	by      string
	unknown string // why nothing can be said, "" if something can
}

// Why a past action cannot be judged again.
const (
	notKept     = "action_not_kept" // kept for 30 days
	needsBody   = "body_not_kept"   // an enforcer judges bodies, which are never kept
	notJudged   = "enforcer_missing"
	noSubject   = "event_not_kept"
	faulted     = "enforcer_failed"
	otherBudget = "depends_on_spend" // money that was spent then is not spent again
)

// judge asks the panel. Deny wins over allow, allow over abstain, and all
// abstaining is a deny; only a built-in allows (enforcers.Gate decides the same).
func (p *panel) judge(ctx context.Context, kind enforcers.Kind, action []byte) verdict {
	out := verdict{v: enforcers.Verdict{Effect: enforcers.Deny, Rule: enforcers.RuleDefault, Reason: enforcers.CodeNotListed}}
	for _, s := range p.seats {
		if !slices.Contains(s.e.Kinds(), kind) {
			continue
		}
		if mode, _ := s.e.Body(); mode != "" && carriesBody(action) {
			out.unknown = needsBody
			return out
		}
		v, err := s.e.Decide(ctx, action)
		if err != nil {
			out.unknown = faulted
			return out
		}
		switch {
		case v.Effect == enforcers.Deny:
			return verdict{v: v, by: s.e.Name()}
		case v.Effect == enforcers.Allow && s.builtin && !out.allow:
			out.allow, out.v, out.by = true, v, s.e.Name()
		}
	}
	return out
}

func carriesBody(action []byte) bool {
	var a struct {
		HTTP *struct {
			Body struct {
				Mode string `json:"mode"`
			} `json:"body"`
		} `json:"http_request"`
	}
	return json.Unmarshal(action, &a) == nil && a.HTTP != nil && a.HTTP.Body.Mode != "none" && a.HTTP.Body.Mode != ""
}

// fixed reports whether a decision did not come from the bundle, so that no other
// bundle changes it.
func fixed(d *receipts.Dec) bool {
	return d.Rule == enforcers.RuleHardSet || d.Rule == enforcers.RuleGate
}
