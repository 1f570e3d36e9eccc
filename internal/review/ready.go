package review

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/view"
)

// Readiness is a checklist for turning a bundle to hard, never a score. Editing a
// bundle does not begin it anew: sessions and triggers count whatever version they
// ran under, and their actions are judged again under the version in force.
type Readiness struct {
	Bundle   string     `json:"bundle"`
	Digest   string     `json:"digest" doc:"version in force"`
	Mode     string     `json:"mode"`
	Ready    bool       `json:"ready" doc:"every item holds"`
	Items    []Item     `json:"items"`
	Stopped  int        `json:"stopped" doc:"promoted now it would have stopped this many of the sessions"`
	Sessions int        `json:"sessions" doc:"sessions judged again"`
	Expect   string     `json:"expect" doc:"the same in a sentence"`
	Never    []string   `json:"never" doc:"triggers of the bundle that no session was started by"`
	Sim      Simulation `json:"simulation"`
}

// Item is one line of the checklist.
type Item struct {
	ID   string `json:"id" enum:"observed,triggers,quiet,decided,replayed,faults,chain,sets,provider,conformance"`
	OK   bool   `json:"ok"`
	Text string `json:"text" doc:"what holds, or what is missing"`
	Link string `json:"link,omitempty" doc:"page that shows or mends it, below /ui"`
}

// quietDays is how long no new group may have appeared.
const quietDays = 14

// keepSimulation is how long a readiness rests on one simulation.
const keepSimulation = 30 * time.Second

// Ready returns the checklist of a bundle.
func (r *Review) Ready(ctx context.Context, name string) (Readiness, error) {
	f, err := r.inForce(ctx, name)
	if err != nil {
		return Readiness{}, err
	}
	b := f.Bundle
	sim, err := r.current(ctx, b)
	if err != nil {
		return Readiness{}, err
	}
	out := Readiness{Bundle: name, Digest: sim.Digest, Mode: string(b.Mode), Sim: sim, Stopped: sim.Stopped, Sessions: sim.Sessions, Never: r.never(b)}
	out.Expect = fmt.Sprintf("promoted now it would have stopped %d of %s", out.Stopped, plural(out.Sessions, "session"))
	if out.Sessions == 0 {
		out.Expect = "nothing was observed: that is no evidence that nothing would be stopped"
	}
	open, newest := r.undecided(b, sim)
	now := r.o.Clock()
	page, sessions := "/ui/would-blocks?q=bundle:"+name, "/ui/sessions?q=bundle:"+name
	item := func(id string, ok bool, yes, no, link string) {
		text := yes
		if !ok {
			text = no
		}
		out.Items = append(out.Items, Item{ID: id, OK: ok, Text: text, Link: link})
	}
	item("observed", out.Sessions > 0, fmt.Sprintf("sessions judged, of the last %d days: %d", defaultDays, out.Sessions), "no session in the last 30 days", sessions)
	item("triggers", len(out.Never) == 0, "every trigger was seen", "never seen: "+strings.Join(out.Never, "; "), "/ui/events")
	quiet := int(now.Sub(newest).Hours() / 24)
	item("quiet", newest.IsZero() || quiet >= quietDays, fmt.Sprintf("no new group in %d days", quietDays), fmt.Sprintf("the newest group appeared %s ago, and %d quiet days are asked for", plural(quiet, "day"), quietDays), page)
	item("decided", open == 0, "every group is decided", plural(open, "group")+" neither allowed nor marked", page+undecidedTerms)
	unexplained := r.unexplained(b, sim)
	item("replayed", unexplained == 0 && out.Sessions > 0, "judged again in hard mode, nothing unexplained is refused", "judged again in hard mode, refused and marked by nobody: "+plural(unexplained, "group"), "/ui/bundles/"+name)
	faults, broken := r.health(name)
	item("faults", faults == 0, "no enforcer failed", "enforcers failed "+plural(faults, "time"), sessions)
	item("chain", broken == 0, "the chains of its sessions are whole", plural(broken, "session")+" with a gap or an admitted loss in the chain", sessions)
	if len(b.Sets) > 0 && r.o.Sets != nil {
		changes := b.SetChanges(r.o.Sets)
		var words []string
		for _, c := range changes {
			words = append(words, c.String())
		}
		item("sets", len(changes) == 0, "the node's egress sets are those that this version holds",
			"the node's files are not what this version holds: "+strings.Join(words, "; ")+". Apply the bundle again to ask for them", "/ui/bundles/"+name)
	}
	if r.o.Checks != nil {
		out.Items = append(out.Items, r.o.Checks(ctx, b)...)
	}
	out.Ready = !slices.ContainsFunc(out.Items, func(i Item) bool { return !i.OK })
	return out, nil
}

// current returns the simulation of the version in force, made again when it is
// older than keepSimulation or another version came.
func (r *Review) current(ctx context.Context, b *bundle.Bundle) (Simulation, error) {
	now := r.o.Clock()
	modes := map[string]bundle.Mode{}
	key := fmt.Sprintf("%x", b.Digest())
	for name, e := range b.Enforcers {
		modes[name] = e.Mode
		key += " " + name + string(e.Mode)
	}
	r.mu.Lock()
	c, ok := r.ready[b.Name]
	r.mu.Unlock()
	if ok && c.key == key && now.Sub(c.at) < keepSimulation {
		return c.sim, nil
	}
	sim, err := r.simulate(ctx, b, b.WithModes(bundle.Hard, modes), Window{})
	if err != nil {
		return sim, err
	}
	r.mu.Lock()
	r.ready[b.Name] = cached{key, now, sim}
	r.mu.Unlock()
	return sim, nil
}

// never lists the triggers of a bundle that no session was started by, in the
// bundle's order.
func (r *Review) never(b *bundle.Bundle) []string {
	seen := r.o.View.Kinds(b.Name)
	out := []string{}
	for _, t := range b.Triggers {
		for _, kind := range t.Kinds {
			want, action, has := strings.Cut(kind, ".")
			found := false
			for s := range seen {
				found = found || s.Source == t.Source && (t.Endpoint == "" || s.Endpoint == t.Endpoint) && s.Kind == want && (!has || action == "*" || s.Action == action)
			}
			if !found {
				out = append(out, strings.TrimSpace(t.Source+" "+t.Endpoint+" "+kind))
			}
		}
	}
	return out
}

// stale are the groups that the version in force allows already.
func stale(sim Simulation) map[string]bool {
	out := map[string]bool{}
	for _, c := range sim.Allowed {
		out[c.Group.ID] = true
	}
	for _, c := range sim.Left {
		delete(out, c.Group.ID)
	}
	return out
}

// undecidedTerms is what undecided counts, in the words of the list's search.
// The list also has what the version in force allows by now.
const undecidedTerms = "+status:new+implied:false+own:false+verdict:would_block"

// undecided counts the groups that a person has yet to decide, and when the
// newest of all appeared.
func (r *Review) undecided(b *bundle.Bundle, sim Simulation) (open int, newest time.Time) {
	gone := stale(sim)
	for _, g := range r.o.View.GroupsOf(b.Name, b.Accepts) {
		if g.Implied || owned(b, &g) || g.WouldBlock == 0 || g.Status == view.StatusIgnored || gone[g.ID] {
			continue
		}
		if g.First.After(newest) {
			newest = g.First
		}
		if g.Status == view.StatusNew {
			open++
		}
	}
	return open, newest
}

// unexplained counts the groups that hard mode would refuse, and that nobody
// marked.
func (r *Review) unexplained(b *bundle.Bundle, sim Simulation) int {
	status := map[string]view.Group{}
	for _, g := range r.o.View.GroupsOf(b.Name, b.Accepts) {
		status[g.ID] = g
	}
	n := 0
	for _, c := range slices.Concat(sim.Left, sim.Blocked) {
		if g, ok := status[c.Group.ID]; !ok || g.Status == view.StatusNew && !g.Implied && !owned(b, &g) {
			n++
		}
	}
	return n
}

// health counts what went wrong in a bundle's sessions.
func (r *Review) health(name string) (faults uint64, broken int) {
	for cursor := ""; ; {
		page, err := r.o.View.Sessions(view.SessionFilter{Bundle: name}, cursor, view.MaxLimit)
		if err != nil {
			return faults, broken
		}
		for i := range page.Items {
			faults += page.Items[i].Counts.Fault
			if page.Items[i].Broken != "" || page.Items[i].Losses > 0 {
				broken++
			}
		}
		if cursor = page.Next; cursor == "" {
			return faults, broken
		}
	}
}

// plural counts what has an s for more than one.
func plural[N int | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
