package gatekeeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/problem"
)

// A bundle whose sessions fail one after the other is paused: something is
// wrong with it, and every further event would only cost. It is the node that
// pauses, with a receipt like a person's; resuming takes a person.

// streaks counts failures in a row by bundle.
type streaks struct {
	mu     sync.Mutex
	failed map[string]int
}

// fails reports whether a session that ended so has failed by itself. What
// somebody ended, or the node's death, says nothing about the bundle.
func fails(reason string) (failed, counts bool) {
	switch reason {
	case sandbox.Faulted, sandbox.Timeout:
		return true, true
	case sandbox.Completed, reasonNoEffect:
		return false, true
	}
	return false, false
}

// note counts one end and returns how many in a row failed.
func (s *streaks) note(bundle, reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]int{}
	}
	switch failed, counts := fails(reason); {
	case failed:
		s.failed[bundle]++
	case counts:
		delete(s.failed, bundle)
	}
	return s.failed[bundle]
}

// forget begins a new count, as after a pause.
func (s *streaks) forget(bundle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, bundle)
}

// byNode is who acts when nobody has to be asked.
var byNode = By{Name: "gatehouse", Via: ByConfig}

// streak pauses a session's bundle when it has failed too often in a row.
func (s *session) streak(ctx context.Context, reason string) {
	limit, name := s.g.o.Failures, s.choice.Bundle.Name
	n := s.g.streaks.note(name, reason)
	if limit <= 0 || n < limit || s.g.base.Err() != nil {
		return
	}
	s.g.streaks.forget(name)
	why := fmt.Sprintf("%d sessions in a row failed, the last is %s", n, s.id)
	err := s.g.Pause(ctx, name, why, byNode)
	if err != nil && problem.CodeOf(err) != problem.Conflict { // paused already
		s.g.o.Log.ErrorContext(ctx, "couldn't pause a bundle that fails", slog.String("bundle", name), slog.Any("err", err))
		return
	}
	s.g.o.Log.WarnContext(ctx, "bundle paused", slog.String("bundle", name), slog.String("why", why))
}
