package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// auditCopies copies the receipts of bundles that have auditors of their own to
// the stream that these read. Copies come after the original, from the journal;
// no decision waits for one and none is ever read back by a decision.
type auditCopies struct {
	bus     *bus.Bus
	journal *journal.Journal
	origin  string
	every   time.Duration // how often who may read is asked
	log     *slog.Logger
}

const auditorsEvery = 5 * time.Second

// run starts and ends a copier as bundles get and lose their auditors.
func (a *auditCopies) run(ctx context.Context) error {
	running := map[string]context.CancelFunc{}
	var group sync.WaitGroup
	defer group.Wait()
	for {
		names, err := a.bus.Audited(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "couldn't ask for the auditors", slog.Any("err", err))
		}
		if err == nil {
			wanted := map[string]bool{}
			for _, name := range names[:min(len(names), bus.MaxAudited)] {
				if wanted[name] = true; running[name] != nil {
					continue
				}
				one, cancel := context.WithCancel(ctx)
				running[name] = cancel
				group.Go(func() { a.follow(one, name) })
			}
			for name, cancel := range running {
				if !wanted[name] {
					cancel()
					delete(running, name)
				}
			}
		}
		if !rest(ctx, a.every) {
			for _, cancel := range running {
				cancel()
			}
			return nil
		}
	}
}

// rest waits, and reports whether ctx is still alive.
func rest(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}

// follow copies what is missing and then what comes, until ctx ends or the
// journal is closed. After any failure it begins again behind its last copy.
func (a *auditCopies) follow(ctx context.Context, bundle string) {
	for ctx.Err() == nil {
		err := a.once(ctx, bundle)
		if ctx.Err() != nil || errors.Is(err, errJournalEnd) {
			return
		}
		a.log.WarnContext(ctx, "an auditor's copies wait", slog.String("bundle", bundle), slog.Any("err", err))
		if !rest(ctx, a.every) {
			return
		}
	}
}

var errJournalEnd = errors.New("the journal has ended")

func (a *auditCopies) once(ctx context.Context, bundle string) error {
	var from uint64
	last, pos, err := a.bus.LastCopy(ctx, bundle, "*")
	switch {
	case errors.Is(err, bus.ErrNotFound):
	case err != nil:
		return err
	default:
		// Positions of an earlier shard of this node mean nothing here.
		if r, err := receipts.Decode(last.Data); err == nil && r.Log == a.origin {
			from = pos + 1
		}
	}
	err = a.copy(ctx, bundle, from, from)
	if problem.CodeOf(err) == problem.JournalTrimmed && from > 0 {
		// NATS was away for longer than the journal is kept: the chains show the gap,
		// and exports of the archive close it.
		a.log.WarnContext(ctx, "an auditor's copies have a gap", slog.String("bundle", bundle), slog.String("code", string(problem.JournalTrimmed)))
		err = a.copy(ctx, bundle, 0, from)
	}
	return err
}

// copy follows the journal and copies what stands at from or behind it.
func (a *auditCopies) copy(ctx context.Context, bundle string, start, from uint64) error {
	member := map[string]bool{} // open session -> whether it is one of the bundle's
	for group, err := range a.journal.Follow(ctx, start) {
		if code := problem.CodeOf(err); code == problem.JournalClosed || code == problem.JournalFailed {
			return errJournalEnd
		}
		if err != nil {
			return err
		}
		sealed, err := notary.Encode(group)
		if err != nil {
			return err
		}
		for _, s := range sealed {
			if s.Pos < from || s.Kind != journal.KindReceipt {
				continue
			}
			session, ok := strings.CutPrefix(s.Subject, "gatehouse.v1.sessions.")
			if !ok {
				continue
			}
			if ok, err = a.belongs(ctx, member, bundle, session, s); err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := a.bus.PutCopy(ctx, bundle, session, s.Pos, bus.Msg{Data: s.Data, Header: s.Header}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// belongs reports whether a receipt's session is one of the bundle's. A session
// that opened before this process began to read is one if it was copied then.
func (a *auditCopies) belongs(ctx context.Context, member map[string]bool, bundle, session string, s notary.Sealed) (bool, error) {
	typ := receipts.Type(s.Header[receipts.HeaderType])
	ok, known := member[session]
	switch {
	case typ == receipts.TypeSessionOpen:
		r, err := receipts.Decode(s.Data)
		if err != nil {
			return false, err
		}
		ok = r.Open.Bundle == bundle
	case !known:
		_, _, err := a.bus.LastCopy(ctx, bundle, session)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return false, err
		}
		ok = err == nil
	}
	member[session] = ok
	if typ == receipts.TypeSessionClose {
		delete(member, session)
	}
	return ok, nil
}
