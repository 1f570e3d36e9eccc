package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// actionQueue bounds the actions that wait for the stream. Past it they are
// dropped and counted: they help reviewers and replay, and no receipt or
// decision rests on them.
const actionQueue = 4096

// actions writes GATEHOUSE_ACTIONS, or a run's folder: each judged action under
// the leaf hash of its receipt, without bodies and values.
type actions struct {
	queue   chan storedAction
	dropped atomic.Uint64
	log     *slog.Logger
}

type storedAction struct {
	leaf   string
	action []byte
}

func newActions(log *slog.Logger) *actions {
	return &actions{queue: make(chan storedAction, actionQueue), log: log}
}

// actionStore keeps actions: the stream, or a folder.
type actionStore interface {
	PutAction(ctx context.Context, leaf string, action []byte) error
}

// run stores what is queued until ctx ends.
func (a *actions) run(ctx context.Context, to actionStore) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-a.queue:
			a.put(ctx, to, s)
		}
	}
}

// drain stores what is queued now.
func (a *actions) drain(ctx context.Context, to actionStore) {
	for {
		select {
		case s := <-a.queue:
			a.put(ctx, to, s)
		default:
			return
		}
	}
}

func (a *actions) put(ctx context.Context, to actionStore, s storedAction) {
	if err := to.PutAction(ctx, s.leaf, s.action); err != nil && ctx.Err() == nil {
		a.dropped.Add(1)
		a.log.WarnContext(ctx, "action not kept for replay", slog.String("leaf", s.leaf), slog.Any("err", err))
	}
}

// keep returns rec with every decision's action queued for the stream.
func (a *actions) keep(rec enforcers.Recorder) enforcers.Recorder { return &keeper{rec, a} }

type keeper struct {
	enforcers.Recorder
	actions *actions
}

// Decision writes the receipt, then queues the action.
func (k *keeper) Decision(ctx context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	leaf, err := k.Recorder.Decision(ctx, a, d, durable)
	if err != nil || d.Folded { // a folded refusal has no receipt of its own
		return leaf, err
	}
	b, err := a.Stored().Canonical()
	if err != nil {
		k.actions.dropped.Add(1)
		return leaf, nil
	}
	select {
	case k.actions.queue <- storedAction{leaf.String(), b}:
	default:
		k.actions.dropped.Add(1)
	}
	return leaf, nil
}
