// Package model mediates calls to language models. It reads requests that a
// sandbox sends to a model connection, by the connection's base URL on the door
// or by the provider's own host, builds their model.call actions, and relays
// the answers of permitted ones while it reads what they used. It must never
// decide, dial, hold a credential, or pass on a part of a request that it does
// not know.
//
// # What passes
//
// Each provider has a closed list of routes, body fields and content-block
// types. What is not in it is refused, because an unknown field may make the
// provider fetch, store or run something for the agent, or cost what nobody
// counted. What a URL leads to is fetched by the door, each hop an http.request of
// its own, and sent inline: the provider is given no address.
// Whatever authenticates a request is taken out of it: only the session's
// placeholder may stand there, and the real credential is added outside, last.
//
// # Money
//
// The worst case of a call is held in the session's budget before anything is
// decided. A bound on output tokens that the budget does not pay for is lowered
// to what it does pay for; the answer's header and the receipt say so. The
// outcome is charged what the provider reports; a stream that ends before it
// does is read on for a while, and costs what was held if that does not help.
package model
