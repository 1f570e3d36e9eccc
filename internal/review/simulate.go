package review

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// Window bounds a simulation. The zero Window is the last 30 days and 20,000
// actions.
type Window struct {
	Since, Until time.Time
	Actions      int // at most 200,000
}

// Bounds of a simulation.
const (
	defaultDays    = 30
	defaultActions = 20_000
	mostActions    = 200_000
	maxChanged     = 500 // groups that a result lists
	maxPicked      = 20  // samples of a group
)

// Simulation is what a candidate would have made of past actions in hard mode.
type Simulation struct {
	Bundle string    `json:"bundle"`
	Digest string    `json:"digest" doc:"of the candidate"`
	Base   string    `json:"base" doc:"of the version in force"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`

	Sessions int    `json:"sessions" doc:"sessions of the bundle in the window whose actions were judged again"`
	Stopped  int    `json:"stopped" doc:"of these: sessions in which the candidate would have refused something that passed"`
	Missed   int    `json:"missed" doc:"of these: sessions that the candidate would not have started, by its match and accepts"`
	Actions  uint64 `json:"actions" doc:"actions judged again"`

	NewlyBlocked uint64 `json:"newly_blocked" doc:"allowed then, refused by the candidate"`
	NewlyAllowed uint64 `json:"newly_allowed" doc:"denied then, allowed by the candidate"`
	StillBlocked uint64 `json:"still_blocked"`
	StillAllowed uint64 `json:"still_allowed"`
	WouldStop    uint64 `json:"would_stop" doc:"passed then, refused by the candidate in hard mode: newly blocked and would-blocks that stay"`

	Blocked []Changed `json:"blocked" doc:"newly blocked, by group"`
	Allowed []Changed `json:"allowed" doc:"newly allowed, by group"`
	Left    []Changed `json:"left" doc:"would-blocks that the candidate would refuse too, by group"`

	Unknown map[string]uint64 `json:"unknown" doc:"actions that could not be judged again, by reason; action_not_kept counts those whose action expired"`
	Cut     bool              `json:"cut" doc:"the window holds more actions than were asked for; the newest sessions were judged"`
	Limits  []string          `json:"limits" doc:"what a simulation cannot know"`
}

// Changed is one group of actions on which the two disagree.
type Changed struct {
	Group    view.Group    `json:"group" doc:"the key of the group; its counts are in count"`
	Count    uint64        `json:"count"`
	Sessions int           `json:"sessions"`
	Rule     string        `json:"rule" doc:"the candidate's rule"`
	Reason   string        `json:"reason" doc:"the candidate's reason"`
	Samples  []view.Sample `json:"samples" doc:"at most 20, the newest first"`

	last string // session counted last
}

// Simulate judges the past actions of a bundle's sessions under a candidate, in
// hard mode, with the real enforcers. source is the candidate as YAML; its name
// says which bundle's past is judged. It runs off the live path.
func (r *Review) Simulate(ctx context.Context, source []byte, w Window) (Simulation, error) {
	next, err := bundle.Parse(source)
	if err != nil {
		return Simulation{}, err
	}
	if pinned, err := next.Pin(r.o.Sets); err == nil {
		next = pinned // the version that proposing it would make
	}
	f, err := r.inForce(ctx, next.Name)
	if err != nil {
		return Simulation{}, err
	}
	modes := map[string]bundle.Mode{}
	for name, e := range f.Bundle.Enforcers {
		modes[name] = e.Mode
	}
	return r.simulate(ctx, f.Bundle, next.WithModes(bundle.Hard, modes), w)
}

func (r *Review) simulate(ctx context.Context, base, next *bundle.Bundle, w Window) (Simulation, error) {
	now := r.o.Clock()
	if w.Until.IsZero() {
		w.Until = now
	}
	if w.Since.IsZero() {
		w.Since = w.Until.AddDate(0, 0, -defaultDays)
	}
	if w.Actions <= 0 {
		w.Actions = defaultActions
	}
	if w.Actions > mostActions {
		return Simulation{}, problem.New(problem.Usage, fmt.Sprintf("a simulation judges at most %d actions", mostActions), "choose a shorter window")
	}
	a, b := base.Digest(), next.Digest()
	s := Simulation{
		Bundle: next.Name, Digest: hex.EncodeToString(b[:]), Base: hex.EncodeToString(a[:]), Since: w.Since, Until: w.Until,
		Blocked: []Changed{}, Allowed: []Changed{}, Left: []Changed{}, Unknown: map[string]uint64{},
	}
	x, err := r.newBench(ctx, next)
	if err != nil {
		return s, err
	}
	defer x.close(ctx)
	run := &simulation{r: r, bench: x, s: &s, left: w.Actions, changed: map[string]map[string]*Changed{"blocked": {}, "allowed": {}, "left": {}}}
	for cursor := ""; ; {
		page, err := r.o.View.Sessions(view.SessionFilter{Bundle: next.Name}, cursor, view.MaxLimit)
		if err != nil {
			return s, err
		}
		for i := range page.Items {
			row := &page.Items[i]
			if row.State == "refused" || row.Started.Before(w.Since) || !row.Started.Before(w.Until) {
				continue
			}
			if run.left <= 0 {
				s.Cut = true
				break
			}
			if err := run.session(ctx, row); err != nil {
				return s, err
			}
		}
		if cursor = page.Next; cursor == "" || s.Cut {
			break
		}
	}
	s.Blocked, s.Allowed, s.Left = run.list("blocked"), run.list("allowed"), run.list("left")
	s.Limits = limits(&s, x.missing)
	return s, nil
}

// simulation is one run.
type simulation struct {
	r       *Review
	bench   *bench
	s       *Simulation
	left    int
	changed map[string]map[string]*Changed
}

func (m *simulation) session(ctx context.Context, row *view.Session) error {
	m.s.Sessions++
	panel, starts, err := m.panel(ctx, row)
	if err != nil {
		return err
	}
	if !starts {
		m.s.Missed++
	}
	stopped := false
	for d, err := range m.r.o.View.Decisions(ctx, row.ID) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		m.left--
		stopped = m.decision(ctx, row, panel, d) || stopped
	}
	if stopped {
		m.s.Stopped++
	}
	return nil
}

// panel returns the enforcers for a session's subject, nil when its event is
// gone, and whether the candidate would have started it.
func (m *simulation) panel(ctx context.Context, row *view.Session) (*panel, bool, error) {
	e, err := m.r.o.View.Sealed(ctx, row.Event)
	if err != nil {
		return nil, true, nil //nolint:nilerr // counted with each of its actions
	}
	facts := bundle.FactsOf(e, m.r.o.Repositories)
	b := m.bench.b
	_, match := b.Match(facts)
	starts := match || row.Parent != ""
	if b.Floor(e).Origin.Below(b.AcceptsIn(bundle.Hard, m.r.o.Clock())) {
		starts = false
	}
	subject, err := b.Subject(facts)
	if err != nil {
		return nil, starts, nil //nolint:nilerr // the candidate works on another repository
	}
	p, err := m.bench.panel(ctx, subject)
	return p, starts, err
}

// decision judges one action again and reports whether something that passed
// would have been stopped.
func (m *simulation) decision(ctx context.Context, row *view.Session, p *panel, d view.Decided) bool {
	dec := d.Receipt.Dec
	n := max(dec.Count, 1)
	allowed := dec.Verdict == receipts.Allow
	if fixed(dec) {
		m.s.Actions += n
		m.s.StillBlocked += n
		return false
	}
	action, err := m.r.o.Actions(ctx, d.Leaf)
	if err != nil {
		m.s.Unknown[notKept] += n
		return false
	}
	if p == nil {
		m.s.Unknown[noSubject] += n
		return false
	}
	kind := enforcers.Kind(d.Receipt.Act.Kind)
	if kind == enforcers.ModelCall && dec.By == "spend" {
		m.s.Unknown[otherBudget] += n
		return false
	}
	v := p.judge(ctx, kind, action)
	if v.unknown != "" {
		m.s.Unknown[v.unknown] += n
		return false
	}
	m.s.Actions += n
	switch {
	case allowed && v.allow:
		m.s.StillAllowed += n
	case allowed:
		m.s.NewlyBlocked += n
		m.note("blocked", row, d, action, v, n)
	case v.allow:
		m.s.NewlyAllowed += n
		m.note("allowed", row, d, action, v, n)
	default:
		m.s.StillBlocked += n
		if dec.Passed {
			m.note("left", row, d, action, v, n)
		}
	}
	if !v.allow && dec.Passed {
		m.s.WouldStop += n
		return true
	}
	return false
}

func (m *simulation) note(list string, row *view.Session, d view.Decided, action []byte, v verdict, n uint64) {
	g := view.GroupOf(row.Bundle, d.Receipt, action)
	c := m.changed[list][g.ID]
	if c == nil {
		if len(m.changed[list]) >= maxChanged {
			return
		}
		c = &Changed{Group: g, Rule: v.v.Rule, Reason: v.v.Reason, Samples: []view.Sample{}}
		m.changed[list][g.ID] = c
	}
	c.Count += n
	if c.last != row.ID {
		c.last = row.ID
		c.Sessions++
	}
	if len(c.Samples) < maxPicked {
		c.Samples = append(c.Samples, view.Sample{
			Session: row.ID, Seq: d.Receipt.Seq, Leaf: d.Leaf, Time: d.Receipt.T, Event: row.Event, Floor: row.Floor, Passed: d.Receipt.Dec.Passed,
		})
	}
}

func (m *simulation) list(name string) []Changed {
	out := []Changed{}
	for _, c := range m.changed[name] {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Changed) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Group.ID, b.Group.ID))
	})
	return out
}

// limits words what the result does not say.
func limits(s *Simulation, missing []string) []string {
	out := []string{
		"answers that a refused request would have brought are not known, so what the agent would have done next is not",
		"names were resolved and addresses checked at the time; that is not done again",
		"bodies, query values and header values are never kept, so rules about them are not judged again",
	}
	if n := s.Unknown[notKept]; n > 0 {
		out = append(out, fmt.Sprintf("%d actions are no longer kept and could not be judged", n))
	}
	for _, name := range missing {
		out = append(out, "enforcer "+name+" is not on this node and was not asked")
	}
	if s.Cut {
		out = append(out, "the window holds more than was judged; older sessions are not in the result")
	}
	return out
}
