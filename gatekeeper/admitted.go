package gatekeeper

import (
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
)

// Admitted is an event that starts a session.
type Admitted struct {
	Session string
	Bundle  *bundle.Bundle
	Event   *event.Event
}

// tell says that an event was admitted, beside the session, which may have to
// wait for its turn.
func (g *Gatekeeper) tell(a Admitted) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.o.Admitted != nil && !g.closing {
		g.running.Go(func() { g.o.Admitted(g.base, a) })
	}
}
