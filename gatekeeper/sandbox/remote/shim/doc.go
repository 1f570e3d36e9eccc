// Package shim is the process that stands between a remote sandbox and its
// session's door. It reads the session's key from standard input, accepts on a
// socket that it is given, and carries each connection to the door over TLS
// 1.3. It runs as a user of its own: it must never be readable by the agent,
// write the key anywhere, or connect to another place than the one it was told.
package shim
