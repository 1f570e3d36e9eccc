package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"gatehouse/internal/blob"
	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// retainEvery is how often the node looks for segments that it may let go.
const retainEvery = time.Hour

// carrySubject names the snapshot that carries over what a start must know of
// segments that were let go.
const carrySubject = "retain"

// retention lets old segments of the journal go. A segment stays until all of
// these are true: it is older than `retain`; everything in it is on the streams,
// under a checkpoint, and older than the notary's newest snapshot; and what it
// says about bundles, their modes and their approvals is carried over, because
// the gatekeeper folds that from the beginning.
type retention struct {
	journal *journal.Journal
	notary  *notary.Notary
	bus     *bus.Bus
	blobs   *blob.Store
	keep    time.Duration
	log     *slog.Logger
}

// run looks once an hour until ctx ends.
func (r *retention) run(ctx context.Context) error {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		old := time.Now().Add(-r.keep)
		if before, err := r.trim(ctx, old); err != nil && ctx.Err() == nil {
			// The archive grows; nothing else depends on it.
			r.log.WarnContext(ctx, "couldn't let old segments of the journal go", slog.Any("err", err))
		} else if before > 0 {
			r.log.InfoContext(ctx, "let old segments of the journal go", slog.Uint64("before", before))
			removed, err := r.sweep(ctx, old)
			if err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "couldn't let old blobs go", slog.Any("err", err))
			}
			r.log.InfoContext(ctx, "let blobs go that nothing names any more", slog.Int("removed", removed))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// trim lets go what was written before old, and returns the oldest position that
// is left, 0 when there was nothing to let go.
func (r *retention) trim(ctx context.Context, old time.Time) (uint64, error) {
	before, err := r.journal.Before(old)
	if err != nil {
		return 0, err
	}
	if before = min(before, r.notary.Needed(), r.bus.Status().Stored+1); before == 0 {
		return 0, nil
	}
	first, carry, err := r.carry(ctx, before)
	if err != nil || first >= before {
		return 0, err
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(carry); err != nil {
		return 0, err
	}
	_, err = r.journal.Append(journal.Record{Kind: journal.KindSnapshot, Subject: carrySubject, Data: data.Bytes()}).Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("carry over: %w", err)
	}
	if err := r.journal.Trim(before); err != nil {
		return 0, err
	}
	for group, err := range r.journal.Groups(0) {
		return group[0].Pos, err
	}
	return 0, nil
}

// carry returns the journal's oldest position, and the records before a position
// that a start must still see: those of an earlier carry, and the control chain's
// about bundles.
func (r *retention) carry(ctx context.Context, before uint64) (first uint64, carry []journal.Record, err error) {
	for group, err := range r.journal.Groups(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, nil, err
		}
		if first == 0 {
			first = group[0].Pos
			if carry, err = (carried{r.journal}).before(first); err != nil {
				return 0, nil, err
			}
		}
		for _, rec := range group {
			if rec.Pos < before && lasting(rec) {
				carry = append(carry, rec)
			}
		}
		if group[len(group)-1].Pos >= before {
			break
		}
	}
	return first, carry, nil
}

// lasting reports whether a record is a receipt that the gatekeeper's state rests
// on for as long as the node lives.
func lasting(rec journal.Record) bool {
	if rec.Kind != journal.KindReceipt {
		return false
	}
	for _, t := range [...]receipts.Type{receipts.TypeBundleApply, receipts.TypeModeChange, receipts.TypeApproval} {
		if bytes.Contains(rec.Data, []byte(`"type":"`+string(t)+`"`)) {
			return true
		}
	}
	return false
}

// carried is a journal that begins with what was carried over from segments that
// are gone.
type carried struct{ *journal.Journal }

// Groups yields the carried records first when it begins at the beginning.
func (c carried) Groups(from uint64) iter.Seq2[[]journal.Record, error] {
	return func(yield func([]journal.Record, error) bool) {
		begun := from > 0
		for group, err := range c.Journal.Groups(from) {
			if !begun && err == nil {
				begun = true
				old, err := c.before(group[0].Pos)
				if err != nil {
					yield(nil, err)
					return
				}
				if len(old) > 0 && !yield(old, nil) {
					return
				}
			}
			if !yield(group, err) || err != nil {
				return
			}
		}
	}
}

// before reads the newest carry: what it holds of positions before first. The
// rest of it is still in the journal: whole segments go, and a crash may have
// come before they went.
func (c carried) before(first uint64) ([]journal.Record, error) {
	pos, ok := c.Snapshot(carrySubject)
	if !ok {
		return nil, nil
	}
	for group, err := range c.Journal.Groups(pos) {
		if err != nil {
			return nil, fmt.Errorf("carried receipts: %w", err)
		}
		for _, rec := range group {
			if rec.Pos != pos {
				continue
			}
			var carry []journal.Record
			if err := gob.NewDecoder(bytes.NewReader(rec.Data)).Decode(&carry); err != nil {
				return nil, fmt.Errorf("carried receipts: %w", err)
			}
			return slices.DeleteFunc(carry, func(r journal.Record) bool { return r.Pos >= first }), nil
		}
		break
	}
	return nil, problem.New(problem.JournalDamaged, fmt.Sprintf("no carried receipts at position %d", pos), "")
}
