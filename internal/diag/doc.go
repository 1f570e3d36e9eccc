// Package diag is how a node tells its operator what it does. It writes log
// lines to a stream, serves metrics, liveness, readiness and profiles on the
// private listener, and reads nothing else. It must never print a secret, and
// nothing it shows may take part in a decision.
package diag
