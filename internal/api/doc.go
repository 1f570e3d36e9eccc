// Package api is the operator's HTTP API. It reads internal/view for lists and
// calls the commands that cmd wires; it writes JSON, problem JSON (RFC 9457)
// and files. It is served on the operator listener, behind exact Host and
// Origin lists and a login, and on a 0600 unix socket for the same machine.
// It must never decide, never trust a peer address, and never show a secret.
package api
