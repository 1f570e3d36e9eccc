// Package auth says who a request comes from and what they may do: people who
// log in at an OpenID provider, API tokens that stand for their owner, and the
// one-time links of the node's own machine. It reads cookies, bearer tokens and
// the provider's answers; it writes cookies and, through its Store, digests of
// tokens and whom each account of the provider is. It must never keep a token or cookie itself, trust a peer address, take
// a name that nobody vouched for, or let one person appear under two names.
//
// Whoever may open the node's socket, or a link made there, is "local": an
// operator without a name. Local may do everything that one person may, and is
// never one of the people that a widening needs (gatekeeper.By).
package auth
