// Package agent is the agent's side of Gatehouse: http://gatehouse.internal/agent/v1/
// on the session's own door. It reads the session it was made for and the
// requests of whoever is inside; it writes answers, and asks the gate before it
// has a child started. It has no operator handlers, knows no other session, and
// must never answer with a secret, another session's data, or a reason to try a
// refused thing in another way.
//
// Resources, each with its own handler:
//
//	session              what this session is, may reach and when it ends
//	event                event.json, as delivered
//	explain/<receipt>    why a decision of this session came out as it did
//	children[/<id>]      start a session of a named bundle; see what became of it
//	refusals             the newest things that were stopped, with their hints
//	access               ask a reviewer for what was refused; grants nothing
//
// Rooms above add further ones (operations) through Options.More.
package agent
