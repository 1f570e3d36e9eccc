package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"gatehouse/internal/problem"
)

// replaySuffix is what the folder beside an export is called that keeps what
// `receipts replay` needs besides: the judged actions under the leaf hashes of
// their receipts, without bodies and values, and the policies of sessions. It is
// no part of the record and proves nothing by itself.
const replaySuffix = ".replay"

func replayAction(export, leaf string) string {
	return filepath.Join(export+replaySuffix, leaf+".json")
}

func replayPolicy(export, session string) string {
	return filepath.Join(export+replaySuffix, filepath.Base(session)+".policy.json")
}

// runReplay writes that folder while a run goes on.
type runReplay struct {
	export string
	kept   *actions
	stop   context.CancelFunc
	done   chan error
}

// keepReplay makes the folder and starts to write what is judged.
func keepReplay(ctx context.Context, export string, log *slog.Logger) (*runReplay, error) {
	if err := os.MkdirAll(export+replaySuffix, 0o700); err != nil {
		return nil, problem.Wrap(err, problem.Usage, "couldn't make the folder "+export+replaySuffix, "")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &runReplay{export: export, kept: newActions(log), stop: stop, done: make(chan error, 1)}
	go func() { r.done <- r.kept.run(ctx, r) }()
	return r, nil
}

// PutAction writes one action.
func (r *runReplay) PutAction(_ context.Context, leaf string, action []byte) error {
	return os.WriteFile(replayAction(r.export, leaf), action, 0o600)
}

// finish writes what is left, and the policy of the session, once nothing is
// judged any more. dir is the run's state folder.
func (r *runReplay) finish(ctx context.Context, dir, session string) error {
	r.stop()
	if err := <-r.done; err != nil {
		return err
	}
	r.kept.drain(ctx, r)
	if n := r.kept.dropped.Load(); n > 0 {
		r.kept.log.Warn("actions not kept for replay", slog.Uint64("actions", n))
	}
	b, err := os.ReadFile(filepath.Join(dir, "sessions", filepath.Base(session), judgedByFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil // refused before there was a door
	}
	if err == nil {
		err = os.WriteFile(replayPolicy(r.export, session), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("couldn't keep the session's policy for replay: %w", err)
	}
	return nil
}
