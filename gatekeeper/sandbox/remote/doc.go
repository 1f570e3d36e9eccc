// Package remote runs sessions in sandboxes on another machine. It reads a
// sandbox.Spec, asks the machine for a sandbox in the terms of
// docs/api/remote-provider.yaml, and joins the sandbox's door to the session's
// own: connections come back through a shim that shows a key which lives as
// long as the session. It keeps the transcript and the artifacts here.
//
// It must never believe the other machine where it can look itself: what the
// door met is asked of the door, artifacts are hashed again, and what the
// machine says is bounded and judged. It can not see who ran the probe, so such
// sessions are observed at level 2 at most, and hard mode asks for a report of
// gatehouse conformance run. It must never hand the machine a secret other than
// the session's own key to its door.
package remote
