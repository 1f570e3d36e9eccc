package event

import "slices"

// Scopes of what an event takes away.
const (
	StopInstallation = "installation"  // an app was removed or suspended
	StopRepository   = "repository"    // a repository was taken out of reach
	StopMember       = "member"        // a person lost access
	StopOrganization = "organization"  // an authorization was revoked as a whole
	StopTeam         = "team"          // a team was taken out of reach
	StopAgentSession = "agent_session" // a person said stop
)

// The facts that carry it.
const (
	factStopScope = "stop.scope"
	listStopIDs   = "stop.ids"
)

// SetStop marks e as taking authority away from these ids. Without an id it
// does nothing: what is to be stopped is not known.
func (e *Event) SetStop(scope string, ids ...string) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return
	}
	if e.Facts == nil {
		e.Facts = map[string]string{}
	}
	if e.Lists == nil {
		e.Lists = map[string][]string{}
	}
	e.Facts[factStopScope], e.Lists[listStopIDs] = scope, ids
}

// Stop returns what e takes away: sessions that hang on one of the ids end, and
// none starts. ok is false for any other event (IN-23).
func (e *Event) Stop() (scope string, ids []string, ok bool) {
	scope, ok = e.Facts[factStopScope]
	return scope, e.Lists[listStopIDs], ok
}
