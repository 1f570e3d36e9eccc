package gatekeeper

import (
	"fmt"
	"strings"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
)

// sessionNamespace holds the refs that sessions push by default; bundles may
// name more (Bundle.Namespaces).
const sessionNamespace = "refs/heads/gatehouse/"

// selfCaused reports whether Gatehouse itself brought the event about: an
// identity that it writes with acted, or it happened on a ref that only
// sessions push. Text takes part here because it can only refuse.
func selfCaused(e *event.Event, identities map[string]bool, namespaces []string) bool {
	if identities[e.Source+":"+e.Actor.ID] && e.Actor.ID != "" {
		return true
	}
	others, own := 0, 0
	for _, p := range e.Text {
		one, many := isRef(p.Pointer), isBranch(p.Pointer)
		if !one && !many {
			continue
		}
		ref := p.Value.Untrusted()
		if !strings.HasPrefix(ref, "refs/") {
			ref = "refs/heads/" + ref
		}
		switch ours := hasPrefixAny(ref, namespaces); {
		case one && ours:
			return true
		case many && ours:
			own++
		case many:
			others++
		}
	}
	// A commit that only sessions' branches have is a session's.
	return own > 0 && others == 0
}

// isBranch reports whether a pointer's value names one of the branches that have
// the commit that a status event is about.
func isBranch(pointer string) bool {
	return strings.HasPrefix(pointer, "/branches/") && strings.HasSuffix(pointer, "/name")
}

// isRef reports whether a pointer's value names the ref that an event is about.
func isRef(pointer string) bool {
	return pointer == "/ref" || pointer == "/deployment/ref" || strings.HasSuffix(pointer, "/head_branch") || strings.HasSuffix(pointer, "/head/ref") || strings.HasSuffix(pointer, "/head_ref")
}

// reserve judges the loop guard and, if it lets the event pass, counts the
// session at once, so that two events of one entity cannot both be the last
// one allowed. release undoes it.
func (f *fold) reserve(session string, b *bundle.Bundle, p past) (problem.Code, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, self := f.starts(p.entity, p.opened.Add(-b.PerEntity.Per))
	switch {
	case p.self && b.Self == nil:
		return problem.SelfCaused, "Gatehouse itself caused this event; bundle " + b.Name + " has no self: {max}"
	case p.self && p.entity == "":
		return problem.SelfCaused, "Gatehouse itself caused this event, and it is about nothing that self: {max} could count"
	case p.self && self >= b.Self.Max:
		return problem.SelfCaused, fmt.Sprintf("Gatehouse itself caused this event, and %d such sessions started in %s", self, b.PerEntity.Per)
	case p.entity != "" && all >= b.PerEntity.N:
		return problem.PerEntity, fmt.Sprintf("%s started %d sessions in %s; bundle %s allows %s", p.entity, all, b.PerEntity.Per, b.Name, b.PerEntity)
	}
	f.open(session, p)
	return "", ""
}

// reserveRetry counts a session that a person asked for.
func (f *fold) reserveRetry(session string, p past) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open(session, p)
}
