// Gatehouse lets events start unattended coding-agent sessions without handing
// those sessions your keys.
//
// This package reads the command line and wires the rooms: serve.go joins them
// in data-flow order, and each verb has a file of its own. It holds no logic
// that a test of a room could not reach. Local verbs (receipts verify, bundle
// lint, config) call the packages; verbs about a running node call its API over
// the 0600 unix socket in the state folder.
package main
