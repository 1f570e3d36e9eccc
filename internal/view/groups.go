package view

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/receipts"
)

// Group is one thing that sessions of a bundle try and the rules deny, however
// often and under whatever URL: what a reviewer decides about.
type Group struct {
	ID         string `json:"id" doc:"fingerprint of bundle, enforcer, rule, reason and target; stable over restarts and rebuilds"`
	Bundle     string `json:"bundle"`
	Enforcer   string `json:"enforcer,omitempty" doc:"empty when the gate itself decided, because every enforcer left it alone"`
	Rule       string `json:"rule"`
	Reason     string `json:"reason"`
	Kind       string `json:"kind" doc:"action kind"`
	Scheme     string `json:"scheme,omitempty"`
	Host       string `json:"host,omitempty" doc:"labels that a machine made up are *"`
	Port       int    `json:"port,omitempty"`
	Method     string `json:"method,omitempty"`
	Path       string `json:"path,omitempty" doc:"template of the path, repository or ref; empty when the action is no longer kept"`
	Name       string `json:"name,omitempty" doc:"model, operation, child bundle or DNS type"`
	Repository string `json:"repository,omitempty" doc:"numeric id"`
	Connection string `json:"connection,omitempty"`

	WouldBlock uint64         `json:"would_block" doc:"denied, and passed in shadow"`
	Refused    uint64         `json:"refused" doc:"denied and stopped, in shadow too because it needs authority or breaks the hard set"`
	Hard       uint64         `json:"hard" doc:"of the refused: by a session in hard mode"`
	Sessions   int            `json:"sessions"`
	Counted    int            `json:"counted" doc:"of the sessions: neither killed nor below what the bundle accepts"`
	Events     int            `json:"events" doc:"independent events behind the counted sessions; a retry and a child are not independent"`
	Floors     map[string]int `json:"floors" doc:"sessions that were not killed, by the lowest origin of what they were shown"`
	First      time.Time      `json:"first"`
	Last       time.Time      `json:"last"`
	Days       []uint64       `json:"days" doc:"attempts a UTC day, the newest last, 30 of them"`

	Stale   bool   `json:"stale,omitempty" doc:"the version in force allows it by now; only the review says so"`
	Status  string `json:"status" enum:"new,kept,noise,ignored" doc:"ignored: only killed sessions, or ones below accepts, produced it"`
	Ignored string `json:"ignored,omitempty" enum:"killed,below_accepts" doc:"why an ignored group does not count"`
	Implied bool   `json:"implied,omitempty" doc:"a name or a tunnel of a host whose requests are groups of their own"`
	Own     bool   `json:"own,omitempty" doc:"an endpoint that the bundle's agent calls for itself: statistics, updates, plugins"`
	Mark    *Mark  `json:"mark,omitempty"`
}

// Statuses of a group.
const (
	StatusNew     = "new"
	StatusKept    = "kept"    // expected: a person said that it stays blocked
	StatusNoise   = "noise"   // a person said that it means nothing
	StatusIgnored = "ignored" // nobody who counts produced it
)

// Mark is what a person said about a group. It is a receipt of the control
// chain.
type Mark struct {
	Status  string     `json:"status" enum:"kept,noise,new"`
	Reason  string     `json:"reason"`
	Expires *time.Time `json:"expires,omitempty"`
	By      string     `json:"by"`
	Time    time.Time  `json:"time"`
	Leaf    string     `json:"leaf" doc:"receipt in the control chain"`
}

// Sample is one attempt of a group.
type Sample struct {
	Session string    `json:"session"`
	Seq     uint64    `json:"seq"`
	Leaf    string    `json:"leaf"`
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Floor   string    `json:"floor,omitempty"`
	Passed  bool      `json:"passed"`
}

// Extensions of receipts in the control chain. A policy.change with XGroup marks
// a group; every step that a person takes may carry a reason and the token used.
const (
	XGroup    = "review.group"
	XStatus   = "review.status"
	XExpires  = "review.expires"
	XReason   = "review.reason"
	XToken    = "review.token"
	XProposal = "review.proposal"
	XStep     = "review.step"    // pause, resume, kill, retry, redeliver, access
	XRefusal  = "review.refusal" // of access: the receipt that the session asks about
	XSubject  = "review.subject" // session or event of a step
)

// Bounds of the fold.
const (
	maxSamples = 20
	keepDays   = 30
	maxGroups  = 50_000  // past it, what is new is one group for each rule: an agent chooses names and paths
	maxActs    = 1 << 18 // actions that came before their receipts
	maxWaits   = 1 << 19 // receipts that came before their actions
)

// seen is what a group keeps of a session.
type seen struct {
	id, event, floor string
	opened           uint64 // stream position of session.open
	killed           bool
	hits             []*group
}

type hit struct {
	from *seen
	n    uint64
}

type group struct {
	row     Group
	hits    []hit // by seen.opened
	floors  map[string]int
	days    []day // oldest first
	samples []sample
	next    int // place of the next sample once there are maxSamples
}

type day struct {
	n     int64 // since 1970
	count uint64
}

type sample struct {
	from   *seen
	seq    uint64
	leaf   receipts.Hash
	at     time.Time
	passed bool
}

// leafKey is enough of a leaf hash to find its action.
type leafKey [16]byte

type place struct{ bundle, host string }

type groups struct {
	max   int
	byID  map[string]*group
	hosts map[place]int // groups of http.request
	marks map[string]Mark

	// An action and its receipt come on two streams: whichever is first waits.
	acts    map[leafKey]string // template of an action whose receipt has not come
	actRing []leafKey
	actNext int
	waits   map[leafKey]wait
	shapes  map[string]string // one copy of each template
}

type wait struct {
	in   *group
	at   sample
	size uint64
}

func newGroups(max int) *groups {
	return &groups{max: max, byID: map[string]*group{}, hosts: map[place]int{}, marks: map[string]Mark{}, acts: map[leafKey]string{}, waits: map[leafKey]wait{}, shapes: map[string]string{}}
}

// decision folds one decision of a session.
func (s *groups) decision(x *seen, bundle string, r *receipts.Receipt, leaf receipts.Hash) {
	key := leafKey(leaf[:])
	act, d := r.Act, r.Dec
	if d.Verdict == receipts.Allow && len(r.X) == 0 {
		delete(s.acts, key)
		return
	}
	row := keyOf(bundle, r)
	at := sample{from: x, seq: r.Seq, leaf: leaf, at: r.T, passed: d.Passed}
	n := max(d.Count, 1)
	shape, known := s.acts[key]
	delete(s.acts, key)
	put := func(row Group) {
		if known || !hasShape(act.Kind) {
			row.Path = shape
			s.add(row, at, n, d.Mode == receipts.Hard)
			return
		}
		g := s.add(row, at, n, d.Mode == receipts.Hard)
		if len(s.waits) < maxWaits {
			s.waits[key] = wait{in: g, at: at, size: n}
		}
	}
	if d.Verdict != receipts.Allow {
		put(row)
		return
	}
	// An enforcer in shadow under a hard bundle denied what was allowed: its
	// would-block stands beside the decision.
	for k, said := range r.X {
		name, ok := strings.CutPrefix(k, "enforcer.")
		words := strings.Fields(said)
		if !ok || len(words) != 3 || words[0] != "deny" {
			continue
		}
		beside := row
		beside.Enforcer, beside.Rule, beside.Reason, beside.Path = name, words[1], words[2], shape
		at.passed = true
		s.add(beside, at, n, false)
	}
}

// keyOf is the part of a group's key that a receipt alone tells.
func keyOf(bundle string, r *receipts.Receipt) Group {
	act, d := r.Act, r.Dec
	row := Group{
		Bundle: bundle, Enforcer: d.By, Rule: d.Rule, Reason: d.Reason, Kind: act.Kind, Scheme: act.Scheme, Host: HostPattern(act.Host), Port: int(act.Port),
		Method: act.Method, Name: act.Name, Repository: act.Repository, Connection: act.Connection,
	}
	if d.Fault != "" {
		row.Reason = d.Fault
	}
	if row.Kind == "dns.query" {
		row.Name = "" // whoever asks for A asks for AAAA
	}
	return row
}

// GroupOf returns the key of the group that a decision belongs to, whatever its
// verdict: no counts and no status. action is the stored action, nil when it is
// no longer kept.
func GroupOf(bundle string, r *receipts.Receipt, action []byte) Group {
	row := keyOf(bundle, r)
	var a actionParts
	if json.Unmarshal(action, &a) == nil {
		row.Path = a.shape()
	}
	row.ID = fingerprint(&row)
	return row
}

// hasShape tells the kinds whose templates come from the action.
func hasShape(kind string) bool {
	switch kind {
	case "http.request", "git.fetch", "git.push", "telemetry.emit":
		return true
	}
	return false
}

func (s *groups) add(row Group, at sample, n uint64, hard bool) *group {
	row.ID = fingerprint(&row)
	g := s.byID[row.ID]
	if g == nil && len(s.byID) >= s.max {
		row = Group{Bundle: row.Bundle, Enforcer: row.Enforcer, Rule: row.Rule, Reason: row.Reason, Kind: row.Kind, Host: anything, Path: "**"}
		row.ID = fingerprint(&row)
		g = s.byID[row.ID]
	}
	if g == nil {
		row.First = at.at
		g = &group{row: row, floors: map[string]int{}}
		s.byID[row.ID] = g
		if row.Kind == "http.request" {
			s.hosts[place{row.Bundle, row.Host}]++
		}
	}
	g.row.First, g.row.Last = earlier(g.row.First, at.at), later(g.row.Last, at.at)
	switch {
	case at.passed:
		g.row.WouldBlock += n
	default:
		g.row.Refused += n
		if hard {
			g.row.Hard += n
		}
	}
	g.hit(at.from, n)
	g.day(at.at, n)
	if len(g.samples) < maxSamples {
		g.samples = append(g.samples, at)
	} else {
		g.samples[g.next] = at
		g.next = (g.next + 1) % maxSamples
	}
	return g
}

func (g *group) find(x *seen) (int, bool) {
	return slices.BinarySearchFunc(g.hits, x.opened, func(h hit, opened uint64) int {
		switch {
		case h.from.opened < opened:
			return -1
		case h.from.opened > opened:
			return 1
		}
		return 0
	})
}

func (g *group) hit(x *seen, n uint64) {
	i, ok := g.find(x)
	if ok {
		g.hits[i].n += n
		return
	}
	g.hits = slices.Insert(g.hits, i, hit{x, n})
	x.hits = append(x.hits, g)
	if !x.killed {
		g.floors[x.floor]++
	}
}

func (g *group) day(at time.Time, n uint64) {
	d := at.Unix() / 86400
	if last := len(g.days) - 1; last >= 0 && g.days[last].n >= d {
		for i := last; i >= 0; i-- {
			if g.days[i].n == d {
				g.days[i].count += n
				return
			}
		}
		return // older than what is kept, by another node's clock
	}
	g.days = append(g.days, day{d, n})
	if len(g.days) > keepDays+1 {
		g.days = g.days[1:]
	}
}

// remove takes back what add counted, when the action shows that the attempt
// belongs to another group.
func (s *groups) remove(g *group, w wait) {
	if w.at.passed {
		g.row.WouldBlock -= w.size
	} else {
		g.row.Refused -= w.size
	}
	if i, ok := g.find(w.at.from); ok {
		if g.hits[i].n -= w.size; g.hits[i].n == 0 {
			g.hits = slices.Delete(g.hits, i, i+1)
			x := w.at.from
			x.hits = slices.DeleteFunc(x.hits, func(o *group) bool { return o == g })
			if !x.killed {
				if g.floors[x.floor]--; g.floors[x.floor] == 0 {
					delete(g.floors, x.floor)
				}
			}
		}
	}
	d := w.at.at.Unix() / 86400
	for i := range g.days {
		if g.days[i].n == d {
			g.days[i].count -= w.size
		}
	}
	g.samples = slices.DeleteFunc(g.samples, func(o sample) bool { return o.leaf == w.at.leaf })
	g.next = 0
	if len(g.hits) == 0 {
		delete(s.byID, g.row.ID)
		key := place{g.row.Bundle, g.row.Host}
		if g.row.Kind == "http.request" {
			if s.hosts[key]--; s.hosts[key] == 0 {
				delete(s.hosts, key)
			}
		}
	}
}

// actionParts are what a template is made of.
type actionParts struct {
	Kind string `json:"kind"`
	HTTP *struct {
		Path string `json:"path"`
	} `json:"http_request"`
	Fetch *struct {
		Path string `json:"path"`
	} `json:"git_fetch"`
	Push *struct {
		Path     string `json:"path"`
		Commands []struct {
			Ref string `json:"ref"`
		} `json:"commands"`
	} `json:"git_push"`
	Telemetry *struct {
		Path string `json:"path"`
	} `json:"telemetry_emit"`
}

func (a *actionParts) shape() string {
	switch {
	case a.HTTP != nil:
		return PathShape(a.HTTP.Path)
	case a.Fetch != nil:
		return a.Fetch.Path
	case a.Push != nil:
		shape := a.Push.Path
		if len(a.Push.Commands) > 0 {
			shape += " " + refShape(a.Push.Commands[0].Ref)
		}
		return shape
	case a.Telemetry != nil:
		return PathShape(a.Telemetry.Path)
	}
	return ""
}

// action folds one stored action: it gives a group its template.
func (s *groups) action(m bus.Msg) error {
	var a actionParts
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return err
	}
	leaf, err := receipts.ParseHash(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if err != nil {
		return err
	}
	if !hasShape(a.Kind) {
		return nil
	}
	key, shape := leafKey(leaf[:]), a.shape()
	if known, ok := s.shapes[shape]; ok {
		shape = known
	} else if len(s.shapes) < maxActs {
		s.shapes[shape] = shape
	}
	if w, ok := s.waits[key]; ok {
		delete(s.waits, key)
		row, hard := w.in.row, w.in.row.Hard > 0 && !w.at.passed
		s.remove(w.in, w)
		if hard {
			w.in.row.Hard -= min(w.size, w.in.row.Hard)
		}
		s.add(Group{
			Bundle: row.Bundle, Enforcer: row.Enforcer, Rule: row.Rule, Reason: row.Reason, Kind: row.Kind, Scheme: row.Scheme, Host: row.Host, Port: row.Port,
			Method: row.Method, Name: row.Name, Repository: row.Repository, Connection: row.Connection, Path: shape,
		}, w.at, w.size, hard)
		return nil
	}
	// Nobody says that a receipt will come: the oldest make room.
	if len(s.actRing) < maxActs {
		s.actRing = append(s.actRing, key)
	} else {
		delete(s.acts, s.actRing[s.actNext])
		s.actRing[s.actNext] = key
		s.actNext = (s.actNext + 1) % maxActs
	}
	s.acts[key] = shape
	return nil
}

// ended folds the end of a session: what a killed one tried counts no more.
func (s *groups) ended(x *seen, reason string) {
	switch reason {
	case "cancelled", "revoked", "receipt_flood":
	default:
		return
	}
	x.killed = true
	for _, g := range x.hits {
		if g.floors[x.floor]--; g.floors[x.floor] == 0 {
			delete(g.floors, x.floor)
		}
	}
}

// mark folds what a person said about a group.
func (s *groups) mark(r *receipts.Receipt, leaf receipts.Hash) {
	m := Mark{Status: r.X[XStatus], Reason: r.X[XReason], By: r.Change.By, Time: r.T, Leaf: leaf.String()}
	if at, err := time.Parse(time.RFC3339, r.X[XExpires]); err == nil {
		m.Expires = &at
	}
	if m.Status == StatusNew {
		delete(s.marks, r.X[XGroup])
		return
	}
	s.marks[r.X[XGroup]] = m
}

// counted returns how many of the group's sessions count under accepts.
func (g *group) counted(accepts event.Origin) int {
	n := 0
	for floor, sessions := range g.floors {
		if !event.Origin(floor).Below(accepts) {
			n += sessions
		}
	}
	return n
}

// light fills what filters and sorting need.
func (s *groups) light(row *Group, g *group, accepts event.Origin, now time.Time) {
	*row = g.row
	row.Sessions = len(g.hits)
	row.Counted = g.counted(accepts)
	row.Status = StatusNew
	if m, ok := s.marks[row.ID]; ok && (m.Expires == nil || now.Before(*m.Expires)) {
		row.Status, row.Mark = m.Status, &m
	} else if row.Counted == 0 {
		row.Status, row.Ignored = StatusIgnored, "killed"
		if len(g.floors) > 0 {
			row.Ignored = "below_accepts"
		}
	}
	row.Implied = (row.Kind == "dns.query" || row.Kind == "net.connect") && s.hosts[place{row.Bundle, row.Host}] > 0
}

// shown is a whole row; filters and sorting need only part of it.
func (s *groups) shown(g *group, accepts event.Origin, now time.Time) (row Group) {
	s.light(&row, g, accepts, now)
	row.Floors = maps.Clone(g.floors)
	events := map[string]bool{}
	for _, h := range g.hits {
		if !h.from.killed && !event.Origin(h.from.floor).Below(accepts) {
			events[h.from.event] = true
		}
	}
	row.Events = len(events)
	row.Days = make([]uint64, keepDays)
	today := now.Unix() / 86400
	for _, d := range g.days {
		if i := keepDays - 1 - int(today-d.n); i >= 0 && i < keepDays {
			row.Days[i] = d.count
		}
	}
	return row
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
