// Package gatekeeper decides which events start sessions and carries each
// session from admission to its end. It reads sealed events from the bus, the
// desired bundles and their modes, and this node's own journal; it writes claims,
// receipts, and the session's files under the state folder. It must never decide
// on a view, start a sandbox before its session.open is durable, let text of an
// event take part in a choice, or fall back to anything weaker than was asked.
//
// Streams, doors, chains and sandboxes are given to it as small interfaces
// (ports.go); DESIGN.md sections 4 to 7 decide.
package gatekeeper
