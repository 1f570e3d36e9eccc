package view

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// GroupKeys are the names that a filter of groups knows.
var GroupKeys = []string{
	"bundle", "enforcer", "floor", "group", "host", "implied", "kind", "method", "name", "own", "path", "port", "reason", "repository", "rule", "status", "verdict",
}

// GroupQuery selects and orders groups.
type GroupQuery struct {
	Terms []Term // over GroupKeys; verdict is would_block, refused or hard
	Sort  string // last (default), first, count, sessions
	// Accepts returns the lowest origin that a bundle takes; sessions below it do
	// not count. nil counts all.
	Accepts func(bundle string) event.Origin
	// Own reports whether a group is of an endpoint that the bundle's agent calls
	// for itself. nil: none is.
	Own func(g *Group) bool
}

// GroupPage is one page of groups. Total is exact, over all pages.
type GroupPage struct {
	Items []Group `json:"items"`
	Next  string  `json:"next,omitempty" doc:"cursor of the following page"`
	Total int     `json:"total" doc:"groups that the filter selects"`
}

// GroupDetail is one group with its newest attempts.
type GroupDetail struct {
	Group
	Samples []Sample `json:"samples" doc:"the newest first, at most 20"`
}

// holds judges one term of a filter.
func (g *group) holds(t *Term, row *Group) bool {
	switch t.Key {
	case "":
		for _, s := range [...]string{row.Host, row.Path, row.Name, row.Rule, row.Reason} {
			if strings.Contains(strings.ToLower(s), strings.ToLower(t.Value)) {
				return true
			}
		}
		return false
	case "verdict":
		return t.Value == "would_block" && row.WouldBlock > 0 || t.Value == "refused" && row.Refused > 0 || t.Value == "hard" && row.Hard > 0
	case "floor":
		return g.floors[t.Value] > 0
	case "implied":
		return t.Value == strconv.FormatBool(row.Implied)
	case "own":
		return t.Value == strconv.FormatBool(row.Own)
	case "port":
		return t.Value == strconv.Itoa(row.Port)
	}
	return glob(t.Value, row.word(t.Key))
}

func (r *Group) word(key string) string {
	switch key {
	case "bundle":
		return r.Bundle
	case "enforcer":
		return r.Enforcer
	case "group":
		return r.ID
	case "host":
		return r.Host
	case "kind":
		return r.Kind
	case "method":
		return r.Method
	case "name":
		return r.Name
	case "path":
		return r.Path
	case "reason":
		return r.Reason
	case "repository":
		return r.Repository
	case "rule":
		return r.Rule
	case "status":
		return r.Status
	}
	return ""
}

func (q *GroupQuery) rank(row *Group) int64 {
	switch q.Sort {
	case "first":
		return row.First.UnixNano()
	case "count":
		return int64(row.WouldBlock + row.Refused)
	case "sessions":
		return int64(row.Sessions)
	}
	return row.Last.UnixNano()
}

func (q *GroupQuery) accepts(bundle string) event.Origin {
	if q.Accepts == nil {
		return "" // below everything
	}
	return q.Accepts(bundle)
}

type ranked struct {
	g    *group
	rank int64
}

// selected returns the groups of a query in its order.
func (v *View) selected(q GroupQuery, now time.Time) []ranked {
	accepts := map[string]event.Origin{}
	var out []ranked
	var scratch Group
	for _, g := range v.groups.byID {
		from, ok := accepts[g.row.Bundle]
		if !ok {
			from = q.accepts(g.row.Bundle)
			accepts[g.row.Bundle] = from
		}
		v.groups.light(&scratch, g, from, now)
		scratch.Own = q.Own != nil && q.Own(&scratch)
		if matchTerms(q.Terms, func(t *Term) bool { return g.holds(t, &scratch) }) {
			out = append(out, ranked{g, q.rank(&scratch)})
		}
	}
	slices.SortFunc(out, func(a, b ranked) int {
		if c := cmp.Compare(b.rank, a.rank); c != 0 {
			return c
		}
		return strings.Compare(a.g.row.ID, b.g.row.ID)
	})
	return out
}

// Groups lists groups, by default the one that was seen last first. A cursor
// names a place in the order, so that pages do not repeat what stays where it is;
// a group that moves up while somebody reads is seen on the first page again.
func (v *View) Groups(q GroupQuery, after string, n int) (GroupPage, error) {
	switch q.Sort {
	case "", "last", "first", "count", "sessions":
	default:
		return GroupPage{}, problem.New(problem.Usage, "groups are not sorted by "+q.Sort, "Sort by last, first, count or sessions.")
	}
	rank, id, err := parseGroupCursor(q.Sort, after)
	if err != nil {
		return GroupPage{}, err
	}
	now := v.o.Clock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := v.selected(q, now)
	p := GroupPage{Items: []Group{}, Total: len(all)}
	at := 0
	if after != "" {
		at, _ = slices.BinarySearchFunc(all, struct{}{}, func(x ranked, _ struct{}) int {
			if x.rank > rank || x.rank == rank && x.g.row.ID <= id {
				return -1
			}
			return 1
		})
	}
	for _, x := range all[at:] {
		if len(p.Items) == limit(n) {
			last := all[at+len(p.Items)-1]
			p.Next = groupCursor(q.Sort, last.rank, last.g.row.ID)
			break
		}
		row := v.groups.shown(x.g, q.accepts(x.g.row.Bundle), now)
		row.Own = q.Own != nil && q.Own(&row)
		p.Items = append(p.Items, row)
	}
	return p, nil
}

// GroupsOf returns every group of a bundle, the one seen last first.
func (v *View) GroupsOf(bundle string, accepts event.Origin) []Group {
	now := v.o.Clock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	q := GroupQuery{Terms: []Term{{Key: "bundle", Value: bundle}}, Accepts: func(string) event.Origin { return accepts }}
	out := []Group{}
	for _, x := range v.selected(q, now) {
		out = append(out, v.groups.shown(x.g, accepts, now))
	}
	return out
}

// Group returns one group with its newest attempts.
func (v *View) Group(id string, accepts func(bundle string) event.Origin) (GroupDetail, error) {
	now := v.o.Clock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	g := v.groups.byID[id]
	if g == nil {
		return GroupDetail{}, notFound("group", id)
	}
	q := GroupQuery{Accepts: accepts}
	from := q.accepts(g.row.Bundle)
	d := GroupDetail{Group: v.groups.shown(g, from, now), Samples: []Sample{}}
	for _, s := range g.samples {
		d.Samples = append(d.Samples, Sample{Session: s.from.id, Seq: s.seq, Leaf: s.leaf.String(), Time: s.at, Event: s.from.event, Floor: s.from.floor, Passed: s.passed})
	}
	slices.SortFunc(d.Samples, func(a, b Sample) int { return b.Time.Compare(a.Time) })
	return d, nil
}

// GroupSessions returns the ids of the sessions in which a group was seen, the
// newest first.
func (v *View) GroupSessions(id string) []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	g := v.groups.byID[id]
	if g == nil {
		return nil
	}
	out := make([]string, 0, len(g.hits))
	for _, h := range slices.Backward(g.hits) {
		out = append(out, h.from.id)
	}
	return out
}

// Stopped counts the sessions of a bundle that count under accepts, and those of
// them in which at least one would-block of a group happened that is not noise:
// what hard mode would have stopped.
func (v *View) Stopped(bundle string, accepts event.Origin) (stopped, sessions int) {
	now := v.o.Clock()
	v.mu.RLock()
	defer v.mu.RUnlock()
	hit := map[string]bool{}
	for _, g := range v.groups.byID {
		if g.row.Bundle != bundle || g.row.WouldBlock == 0 {
			continue
		}
		var row Group
		if v.groups.light(&row, g, accepts, now); row.Status == StatusNoise {
			continue
		}
		for _, h := range g.hits {
			hit[h.from.id] = true
		}
	}
	for id, x := range v.sessions.byID {
		if x.row.Bundle != bundle || x.row.State == "refused" || x.seen == nil || x.seen.killed || event.Origin(x.row.Floor).Below(accepts) {
			continue
		}
		sessions++
		if hit[id] {
			stopped++
		}
	}
	return stopped, sessions
}

// Kinds returns how often a session of the bundle was started by each source,
// endpoint and kind: what was seen of its triggers.
func (v *View) Kinds(bundle string) map[Trigger]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[Trigger]int{}
	for _, x := range v.sessions.byID {
		if x.row.Bundle != bundle || x.row.State == "refused" {
			continue
		}
		if e := v.events.byID[x.row.Event]; e != nil {
			out[Trigger{e.row.Source, e.row.Endpoint, e.row.Kind, e.row.Action}]++
		}
	}
	return out
}

// Trigger is what started a session.
type Trigger struct{ Source, Endpoint, Kind, Action string }

func groupCursor(sort string, rank int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("g" + sort + ":" + strconv.FormatInt(rank, 36) + ":" + id))
}

func parseGroupCursor(sort, s string) (rank int64, id string, err error) {
	if s == "" {
		return 0, "", nil
	}
	bad := problem.New(problem.Usage, "cursor not understood", "Take the cursor from the page before, or leave it out.")
	b, derr := base64.RawURLEncoding.DecodeString(s)
	parts := strings.Split(string(b), ":")
	if derr != nil || len(parts) != 3 || parts[0] != "g"+sort {
		return 0, "", bad
	}
	if rank, err = strconv.ParseInt(parts[1], 36, 64); err != nil {
		return 0, "", bad
	}
	return rank, parts[2], nil
}
