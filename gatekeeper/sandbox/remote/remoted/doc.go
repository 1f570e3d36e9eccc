// Package remoted is the reference server of docs/api/remote-provider.yaml: it
// runs the sandboxes of another machine's sessions with any sandbox.Provider of
// this one. It takes requests of the one node that has its token, starts a shim
// per door under a user of its own, and forgets a session when it is deleted,
// when its run has nobody who reads it, or when its lease ends.
//
// It must never let an agent near a door's key, keep anything of a session that
// is over, or answer for its provider: what the probe found is passed on as it
// is.
package remoted
