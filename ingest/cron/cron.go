package cron

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// Name is the source token, Kind the kind of every event of this package.
const (
	Name = "cron"
	Kind = "slot"
)

// grace is how late a slot may be fired and still not be a missed one.
const grace = time.Minute

// window is how far back missed slots are looked for.
const window = 45 * 24 * time.Hour

// nap is the longest wait between two looks at the clock, because a wall clock
// can be set and a machine can sleep.
const nap = 30 * time.Second

// Missed says what happens to slots that came while no node ran.
type Missed string

// The policies.
const (
	MissedSkip Missed = "skip" // nothing; the default
	MissedLast Missed = "last" // the newest of them runs
	MissedAll  Missed = "all"  // each runs, at most Cap of them
)

// defaultCap bounds MissedAll.
const defaultCap = 24

// Job is one configured schedule.
type Job struct {
	Endpoint string // its name, a token
	Schedule *Schedule
	Facts    map[string]string // the operator's own, closed form
	Missed   Missed
	Cap      int // 0 means 24
}

// Clock is what the runner knows of time.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// System is the machine's clock.
type System struct{}

// Now returns the current time.
func (System) Now() time.Time { return time.Now() }

// After is time.After.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Options configures a Runner.
type Options struct {
	Journal *journal.Journal
	Jobs    []Job
	Clock   Clock // System by default
	// Known reports whether another node stored an event already. It is asked
	// before a missed slot is made up for; nil on a single node.
	Known func(ctx context.Context, subject string) (bool, error)
	Log   *slog.Logger
}

// Runner fires the slots of its jobs.
type Runner struct {
	o    Options
	last map[string]time.Time // newest slot of each job; from then on
}

// New checks the jobs and folds the journal into the newest slot of each.
func New(ctx context.Context, o Options) (*Runner, error) {
	if o.Clock == nil {
		o.Clock = System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, last: map[string]time.Time{}}
	now := o.Clock.Now()
	for i := range o.Jobs {
		j := &o.Jobs[i]
		switch j.Missed {
		case "":
			j.Missed = MissedSkip
		case MissedSkip, MissedLast, MissedAll:
		default:
			return nil, problem.New(problem.ConfigInvalid, fmt.Sprintf("schedule %s: unknown missed %q", j.Endpoint, j.Missed), "Use skip, last or all.")
		}
		if j.Cap <= 0 {
			j.Cap = defaultCap
		}
		if _, ok := r.last[j.Endpoint]; ok {
			return nil, problem.New(problem.EndpointNameTaken, fmt.Sprintf("two schedules are named %q", j.Endpoint), "Rename one of them.")
		}
		// A job that never ran missed nothing.
		r.last[j.Endpoint] = now
		if _, err := j.event(j.Schedule.Next(now), false).Encode(); err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, fmt.Sprintf("schedule %s: a name or fact is not an id, enum or number", j.Endpoint),
				"Facts hold no blanks, quotes or sentences.")
		}
	}
	if err := r.fold(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runner) fold(ctx context.Context) error {
	if len(r.o.Jobs) == 0 {
		return nil // nothing to look for in a journal of months
	}
	for group, err := range r.o.Journal.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("fold slots: %w", err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindEvent || !strings.HasPrefix(rec.Subject, event.SubjectPrefix+Name+".") {
				continue
			}
			h, err := event.ReadHead(rec.Data)
			if err != nil {
				return fmt.Errorf("fold slots: record %d: %w", rec.Pos, err)
			}
			slot, err := time.Parse(time.RFC3339, h.Delivery)
			if _, ok := r.last[h.Endpoint]; ok && err == nil {
				r.last[h.Endpoint] = slot
			}
		}
	}
	return nil
}

// Run fires slots until ctx ends, and then returns nil. It returns early when the
// journal fails.
func (r *Runner) Run(ctx context.Context) error {
	for {
		now := r.o.Clock.Now()
		for i := range r.o.Jobs {
			if err := r.fire(ctx, &r.o.Jobs[i], now); ctx.Err() != nil {
				return nil
			} else if err != nil {
				return err
			}
		}
		wait := nap
		for i := range r.o.Jobs {
			j := &r.o.Jobs[i]
			if next := j.Schedule.Next(r.last[j.Endpoint]); !next.IsZero() {
				wait = min(wait, max(next.Sub(r.o.Clock.Now()), time.Millisecond))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.o.Clock.After(wait):
		}
	}
}

// fire writes the events of all slots of a job that have come. While the disk is
// full they wait: they are due again at the next look.
func (r *Runner) fire(ctx context.Context, j *Job, now time.Time) error {
	due, missed, upto := r.due(j, now)
	for i, slot := range append(missed, due...) {
		err := r.write(ctx, j, slot, i < len(missed))
		switch {
		case problem.CodeOf(err) == problem.JournalFull:
			r.o.Log.LogAttrs(ctx, slog.LevelError, "cron.waits", slog.Any("err", err))
			return nil
		case err != nil:
			return err
		}
		r.last[j.Endpoint] = slot
	}
	r.last[j.Endpoint] = upto
	return nil
}

// due returns the slots since the last one, oldest first: those of the missed
// that the policy makes up for, and those that are on time. upto is the newest
// slot that came.
func (r *Runner) due(j *Job, now time.Time) (due, missed []time.Time, upto time.Time) {
	upto = r.last[j.Endpoint]
	if old := now.Add(-window); upto.Before(old) {
		upto = old
	}
	for {
		slot := j.Schedule.Next(upto)
		if slot.IsZero() || slot.After(now) {
			break
		}
		upto = slot
		if now.Sub(slot) <= grace {
			due = append(due, slot)
			continue
		}
		if missed = append(missed, slot); len(missed) > j.Cap {
			missed = missed[1:]
		}
	}
	switch {
	case j.Missed == MissedSkip:
		missed = nil
	case j.Missed == MissedLast && len(missed) > 1:
		missed = missed[len(missed)-1:]
	}
	return due, missed, upto
}

func (r *Runner) write(ctx context.Context, j *Job, slot time.Time, missed bool) error {
	e := j.event(slot, missed)
	data, err := e.Encode()
	if err != nil {
		return fmt.Errorf("schedule %s: %w", j.Endpoint, err)
	}
	if missed && r.o.Known != nil {
		known, err := r.o.Known(ctx, e.Subject())
		if err != nil {
			return fmt.Errorf("schedule %s: ask for a missed slot: %w", j.Endpoint, err)
		}
		if known {
			return nil
		}
	}
	if _, err := r.o.Journal.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: data}).Wait(ctx); err != nil {
		return fmt.Errorf("schedule %s: %w", j.Endpoint, err)
	}
	r.o.Log.LogAttrs(ctx, slog.LevelInfo, "cron.fired", slog.String("event", e.ID), slog.Bool("missed", missed))
	return nil
}

// event is a function of the job and the slot, so that replicas write the same
// bytes.
func (j *Job) event(slot time.Time, missed bool) *event.Event {
	at := slot.Format(time.RFC3339)
	facts := map[string]string{}
	maps.Copy(facts, j.Facts)
	facts["slot"], facts["missed"] = at, "false"
	if missed {
		facts["missed"] = "true"
	}
	payload := fmt.Appendf(nil, `{"schedule":%q,"slot":%q}`, j.Endpoint, at)
	sum := sha256.Sum256(payload)
	return &event.Event{
		ID: Name + ":" + j.Endpoint + ":" + at, Source: Name, Endpoint: j.Endpoint, Kind: Kind, EntityPath: "schedule/" + j.Endpoint,
		Time: slot.UTC(), Received: slot.UTC(), Delivery: at, Trust: event.TrustOperator, BodySHA256: hex.EncodeToString(sum[:]),
		Entity: event.Entity{Kind: "schedule", ID: j.Endpoint}, Actor: event.Actor{Kind: "system", Level: event.Operator},
		Auth: event.Auth{Scheme: "none"}, Facts: facts, Prov: map[string]event.Origin{"": event.Operator}, Payload: payload,
	}
}
