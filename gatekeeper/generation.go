package gatekeeper

import (
	"context"
	"log/slog"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/receipts"
)

// Replacement is what a running session's door judges by from now on, because
// another version of its bundle came into force.
type Replacement struct {
	Bundle *bundle.Bundle
	Digest [32]byte
	Policy []byte // compiled for the session
	// Narrower says that the version the session was opened under covers this
	// one. If it does not, the session must not gain what is new in it: the door
	// lets pass what both versions allow.
	Narrower bool
}

// replacer is a Door whose policy can change under a running session. It cuts
// what rests on the policy before, within a second.
type replacer interface {
	Replace(ctx context.Context, r Replacement) error
}

// changed tells whether running sessions are judged anew: another version, or
// another mode of the whole bundle. A session keeps the mode it was opened in,
// which its receipts and its probe stand for; what it has open is cut.
func changed(t receipts.Type, c receipts.Change) bool {
	return t == receipts.TypeBundleApply || c.Enforcer == "" && c.From != c.To
}

// renew brings the version now in force to the sessions that run under an
// earlier one.
func (g *Gatekeeper) renew(ctx context.Context, b *bundle.Bundle) {
	g.mu.Lock()
	var running []*session
	for _, s := range g.live {
		if s.choice.Bundle.Name == b.Name {
			running = append(running, s)
		}
	}
	g.mu.Unlock()
	for _, s := range running {
		s.renew(ctx, b)
	}
}

// renew replaces the policy of the session's door. A session to which the new
// policy cannot be brought ends.
func (s *session) renew(ctx context.Context, b *bundle.Bundle) {
	s.mu.Lock()
	door := s.door
	s.mu.Unlock()
	d, ok := door.(replacer)
	if !ok {
		return // it has no door yet: openDoor looks again
	}
	subject := s.choice.Subject
	subject.Upstreams = s.g.o.Upstreams
	policy, err := b.Policy(nil, subject) // the sets that the version holds
	if err == nil {
		narrower, _ := s.choice.Bundle.Covers(b)
		err = d.Replace(ctx, Replacement{Bundle: b, Digest: b.Digest(), Policy: policy, Narrower: narrower})
	}
	if err != nil {
		s.g.o.Log.Error("a session cannot go on under the new version of its bundle", slog.String("session", s.id), slog.Any("err", err))
		s.cancel(end{reason: reasonRevoked})
	}
}

// doorOpened notes the session's door and brings it what has come into force
// since the session was admitted.
func (s *session) doorOpened(door Door) {
	s.mu.Lock()
	s.door = door
	s.mu.Unlock()
	s.g.registry.mu.Lock()
	now := s.g.registry.byName[s.choice.Bundle.Name]
	s.g.registry.mu.Unlock()
	if now != nil && now.bundle.Digest() != s.made.digest {
		s.renew(s.ctx, now.bundle)
	}
}
