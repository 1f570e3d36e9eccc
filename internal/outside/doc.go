// Package outside is the fake outside world of tests and the demo: HTTPS and
// HTTP servers under a test authority and a DNS server, all on loopback, which
// count what reaches them so that a test can prove that nothing was sent. It
// reads what a node sends to its dev substitutions; it must never be reachable
// by a node that is not in dev mode.
package outside
