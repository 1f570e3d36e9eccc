package view

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Source is where a View reads; *bus.Bus is one.
type Source interface {
	Read(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error]
	Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error]
}

// Options bounds a View. When a bound is reached the oldest entry leaves the
// lists; the streams still hold it.
type Options struct {
	MaxSessions int // 0 = 20,000; open sessions may be twice as many
	MaxEvents   int // 0 = 20,000
	MaxGroups   int // 0 = 50,000; past it what is new is one group for each rule

	// Keyset checks the seals of what is shown in detail. nil shows them as
	// unchecked.
	Keyset *receipts.Keyset
	Clock  func() time.Time // nil = time.Now; marks expire by it
}

// View is the fold. It is safe for concurrent use.
type View struct {
	o   Options
	src Source

	mu       sync.RWMutex
	sessions sessions
	events   events
	bundles  bundles
	groups   *groups
	logs     map[string]Head
	strange  uint64
}

// New returns an empty view over src.
func New(src Source, o Options) *View {
	if o.MaxSessions == 0 {
		o.MaxSessions = 20_000
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = 20_000
	}
	if o.MaxGroups == 0 {
		o.MaxGroups = maxGroups
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	g := newGroups(o.MaxGroups)
	return &View{
		o: o, src: src, groups: g,
		sessions: sessions{max: o.MaxSessions, byID: map[string]*session{}, byEvent: map[string][]string{}, groups: g, series: series{}},
		events:   events{max: o.MaxEvents, byID: map[string]*eventRow{}},
		bundles:  bundles{byName: map[string]*bundle{}, groups: g},
		logs:     map[string]Head{},
	}
}

// streams are what a view folds, each in its own order. Nothing a fold does
// depends on how they interleave.
var streams = []string{bus.Events, bus.Sessions, bus.Log, bus.Actions}

// Run folds what the streams hold and follows them until ctx ends; then it
// returns nil.
func (v *View) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range streams {
		g.Go(func() error {
			for {
				err := v.follow(ctx, s)
				// Actions help reviewers, and no list of receipts hangs on them: when
				// somebody removed the stream, paths are missing until it is there again.
				if err == nil || s != bus.Actions || ctx.Err() != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(actionsAgain):
				}
			}
		})
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// actionsAgain is how long a view waits for a stream of actions that is gone.
const actionsAgain = 5 * time.Second

func (v *View) follow(ctx context.Context, stream string) error {
	for m, err := range v.src.Follow(ctx, stream, "", 0) {
		if err != nil {
			return fmt.Errorf("couldn't fold %s: %w", stream, err)
		}
		v.Fold(m)
	}
	return nil
}

// Load folds what the streams hold now and returns.
func (v *View) Load(ctx context.Context) error {
	for _, s := range streams {
		for m, err := range v.src.Read(ctx, s, "", 0) {
			if err != nil && s == bus.Actions && ctx.Err() == nil {
				break // as in Run
			}
			if err != nil {
				return fmt.Errorf("couldn't fold %s: %w", s, err)
			}
			v.Fold(m)
		}
	}
	return nil
}

// Fold takes one message. Messages of one subject must come in their order. A
// message that cannot be read is counted and shown nowhere.
func (v *View) Fold(m bus.Msg) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	switch root, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, "gatehouse.v1."), "."); root {
	case "events":
		err = v.events.fold(m)
	case "sessions":
		err = v.sessions.fold(m)
	case "control":
		err = v.bundles.fold(m)
	case "actions":
		err = v.groups.action(m)
	case "log":
		v.logs[rest] = v.logs[rest].after(rest, m)
	default:
		err = errors.New("unknown subject")
	}
	if err != nil {
		v.strange++
	}
}

// Page is one page of a list. Next is the cursor of the following page, "" at
// the end.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"cursor of the following page"`
}

// MaxLimit is the largest page.
const MaxLimit = 500

// limit applies the default and the bound.
func limit(n int) int {
	if n <= 0 {
		return 50
	}
	return min(n, MaxLimit)
}

func notFound(what, id string) error {
	return problem.New(problem.NotFound, fmt.Sprintf("no %s %q", what, id), "List what there is; the oldest entries leave the lists.")
}

// Snapshot is the whole state, to compare two folds with each other.
type Snapshot struct {
	Sessions []Session
	Events   []Event
	Bundles  []Bundle
	History  map[string][]Change
	Series   map[string]map[int64]Span // of a bundle, by hours since 1970
	Strange  uint64                    // messages that could not be read
}

// Snapshot returns the state sorted by id. Two views that folded the same
// messages return equal snapshots.
func (v *View) Snapshot() Snapshot {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s := Snapshot{Strange: v.strange, History: map[string][]Change{}, Series: map[string]map[int64]Span{}, Bundles: v.bundles.list()}
	for e := range v.sessions.sorted() {
		s.Sessions = append(s.Sessions, e)
	}
	for _, e := range v.events.sorted() {
		s.Events = append(s.Events, v.withSessions(e))
	}
	for name, b := range v.bundles.byName {
		s.History[name] = b.history
	}
	for name, hours := range v.sessions.series {
		s.Series[name] = map[int64]Span{}
		for at, h := range hours {
			s.Series[name][at] = *h
		}
	}
	return s
}
