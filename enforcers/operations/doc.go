// Package operations carries out named operations for a session: what changes
// a tracker or a repository's host is done here, outside, and never by the
// agent itself. It reads a name, a key and JSON arguments; asks the gate; hands
// permitted calls to the operation's own code; and returns its result as JSON.
//
// It must never run an operation before its decision receipt is durable, run
// one twice under the same key, take an argument its schema does not name, or
// return a credential.
package operations
