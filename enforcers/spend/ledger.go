package spend

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"gatehouse/internal/problem"
)

// Nano is an amount in nanodollars.
type Nano int64

// String returns the amount in dollars with at least two decimals.
func (n Nano) String() string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	frac := strconv.FormatInt(int64(n%1e9)+1e9, 10)[1:]
	for len(frac) > 2 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	return sign + strconv.FormatInt(int64(n/1e9), 10) + "." + frac + " USD"
}

// most is the largest amount that a receipt can carry (canon.MaxInt).
const most Nano = 1<<53 - 1

// Kinds of budgets.
const (
	KindSession = "session"
	KindBundle  = "bundle_day"
	KindNode    = "node_day"
)

// Session describes one session's place in the tree.
type Session struct {
	ID     string
	Parent string // "" for a root
	Bundle string //
	Limit  Nano   // for the session and all below it; 0 = no money may be spent
	PerDay Nano   // of the bundle, 0 = no bound
}

// Options configure a Ledger.
type Options struct {
	PerDay Nano             // the node's, 0 = no bound
	Clock  func() time.Time // nil = time.Now
}

// Ledger is the only judge of whether a call can be paid. It is safe for
// concurrent use.
type Ledger struct {
	clock  func() time.Time
	perDay Nano

	mu       sync.Mutex // guards everything below; one lock makes a hold atomic over its path
	sessions map[string]*budget
	days     map[dayKey]*budget
	bundles  map[string]Nano // bundle -> per day, as the newest session has it
	pending  map[[32]byte]*Hold
}

// dayKey names one UTC day of a bundle, or of the node when bundle is "".
type dayKey struct {
	bundle string
	day    day
}

// day is a UTC day, counted from 1970.
type day int64

func dayOf(t time.Time) day { return day(t.Unix() / 86400) }

// String returns the day as YYYY-MM-DD.
func (d day) String() string { return time.Unix(int64(d)*86400, 0).UTC().Format(time.DateOnly) }

// budget is one node of the spend tree.
type budget struct {
	kind, id    string
	bundle      string
	day         day     // the budget's own, or a session's last
	parent      *budget // of a session
	limit       Nano
	limited     bool
	spent, held Nano
	calls       uint64
	open        bool   // of a session: calls may be held
	ended       bool   // of a session: it never will be open again
	frozen      string // code; nothing is held any more
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Ledger{
		clock: o.Clock, perDay: o.PerDay,
		sessions: map[string]*budget{}, days: map[dayKey]*budget{}, bundles: map[string]Nano{}, pending: map[[32]byte]*Hold{},
	}
}

// Open makes a session able to spend. A child's parent must be open.
func (l *Ledger) Open(s Session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.sessions[s.ID]
	if b != nil && (b.limited || b.ended) {
		return problem.New(problem.Conflict, "session "+s.ID+" has a budget already", "")
	}
	var parent *budget
	if s.Parent != "" {
		if parent = l.sessions[s.Parent]; parent == nil || !parent.open {
			return problem.New(problem.NotFound, "the parent session "+s.Parent+" has no open budget", "")
		}
	}
	if b == nil {
		b = &budget{kind: KindSession, id: s.ID}
		l.sessions[s.ID] = b
	}
	b.parent, b.bundle, b.limit, b.limited, b.open, b.day = parent, s.Bundle, s.Limit, true, true, dayOf(l.clock())
	l.bundles[s.Bundle] = s.PerDay
	for k, d := range l.days {
		if k.bundle == s.Bundle && k.bundle != "" {
			d.limit, d.limited = s.PerDay, s.PerDay > 0
		}
	}
	return nil
}

// Close ends a session: it holds nothing new. What is held stays until it is
// settled. A session below it, should one be left, can hold nothing either.
func (l *Ledger) Close(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.sessions[session]; b != nil {
		b.open, b.ended = false, true
	}
	l.forget()
}

// forget drops days that are over and sessions that ended before today, unless
// something is still held of them. It must be called with mu held.
func (l *Ledger) forget() {
	today := dayOf(l.clock())
	for k, d := range l.days {
		if k.day != today && d.held == 0 {
			delete(l.days, k)
		}
	}
	needed := map[*budget]bool{}
	for _, b := range l.sessions {
		if b.ended && b.held == 0 && b.day != today {
			continue
		}
		for p := b; p != nil; p = p.parent {
			needed[p] = true
		}
	}
	for id, b := range l.sessions {
		if !needed[b] {
			delete(l.sessions, id)
		}
	}
}

// path returns every budget that pays for a call of b at t, the session first.
// It must be called with mu held.
func (l *Ledger) path(b *budget, t time.Time) []*budget {
	day := dayOf(t)
	path := make([]*budget, 0, 6)
	for p := b; p != nil; p = p.parent {
		path = append(path, p)
	}
	for _, p := range path {
		if p.kind != KindSession || p.bundle == "" {
			continue
		}
		if d := l.day(dayKey{p.bundle, day}); !slices.Contains(path, d) {
			path = append(path, d)
		}
	}
	return append(path, l.day(dayKey{"", day}))
}

func (l *Ledger) day(k dayKey) *budget {
	d := l.days[k]
	if d == nil {
		d = &budget{kind: KindBundle, id: k.bundle, day: k.day, limit: l.bundles[k.bundle]}
		if k.bundle == "" {
			d.kind, d.id, d.limit = KindNode, "node", l.perDay
		}
		d.limited = d.limit > 0
		l.days[k] = d
	}
	return d
}

// Budget is one node of the tree as people see it.
type Budget struct {
	Kind      string `json:"kind"` // session | bundle_day | node_day
	ID        string `json:"id"`
	Parent    string `json:"parent,omitempty"` // of a session
	Bundle    string `json:"bundle,omitempty"`
	Day       string `json:"day,omitempty"`
	Limit     Nano   `json:"limit"` // 0 with Unlimited
	Unlimited bool   `json:"unlimited,omitempty"`
	Spent     Nano   `json:"spent"`
	Held      Nano   `json:"held"`
	Calls     uint64 `json:"calls"`
	Open      bool   `json:"open,omitempty"`
	Frozen    string `json:"frozen,omitempty"`
}

// Budgets returns every budget: days first, then sessions, by id.
func (l *Ledger) Budgets() []Budget {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Budget, 0, len(l.sessions)+len(l.days))
	for _, d := range l.days {
		out = append(out, d.shown())
	}
	for _, s := range l.sessions {
		out = append(out, s.shown())
	}
	slices.SortFunc(out, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Day, b.Day), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func rank(kind string) int { return slices.Index([]string{KindNode, KindBundle, KindSession}, kind) }

func (b *budget) shown() Budget {
	s := Budget{
		Kind: b.kind, ID: b.id, Bundle: b.bundle, Limit: b.limit, Unlimited: !b.limited,
		Spent: b.spent, Held: b.held, Calls: b.calls, Open: b.open, Frozen: b.frozen,
	}
	if b.kind != KindSession {
		s.Day = b.day.String()
	}
	if b.kind == KindBundle {
		s.Bundle = b.id
	}
	if b.parent != nil {
		s.Parent = b.parent.id
	}
	return s
}

// Session returns one session's budget.
func (l *Ledger) Session(id string) (Budget, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.sessions[id]
	if b == nil {
		return Budget{}, false
	}
	return b.shown(), true
}
