package event

import (
	"crypto/sha256"
	"encoding/hex"
)

// SubjectPrefix begins the NATS subject of every event.
const SubjectPrefix = "gatehouse.v1.events."

// Subject is the NATS subject of e: gatehouse.v1.events.<source>.<endpoint>.
// <kind>.<action|none>.<lower hex SHA-256 of the id>. The stream keeps one
// message a subject, which makes an event id write-once. e must have passed
// Encode: the tokens are closed there.
func (e *Event) Subject() string {
	action := e.Action
	if action == "" {
		action = "none"
	}
	return SubjectPrefix + e.Source + "." + e.Endpoint + "." + e.Kind + "." + action + "." + digest([]byte(e.ID))
}

// Slug names the entity in branch names and in per-entity limits: pr-<number>,
// issue-<number>, or for a workflow run without exactly one same-repository
// pull request wf-<workflow id>-<8 hex of SHA-256(head branch)>; any other
// entity is e-<16 hex of SHA-256(kind, id)>. It holds only [a-z0-9-] and is
// unique within a repository, not beyond: key it with the repository id.
func (e *Event) Slug() string {
	n := e.Entity
	switch {
	case n.Kind == "pull_request" && n.Number != "":
		return "pr-" + n.Number
	case n.Kind == "issue" && n.Number != "":
		return "issue-" + n.Number
	case n.Kind == "workflow_run" && len(e.Lists["pull_requests"]) == 1:
		return "pr-" + e.Lists["pull_requests"][0]
	case n.Kind == "workflow_run" && e.Facts["workflow_id"] != "" && e.Facts["branch_hash"] != "":
		return "wf-" + e.Facts["workflow_id"] + "-" + e.Facts["branch_hash"]
	}
	sum := sha256.Sum256([]byte(n.Kind + "\x00" + n.ID))
	return "e-" + hex.EncodeToString(sum[:8])
}
