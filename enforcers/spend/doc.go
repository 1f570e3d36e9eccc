// Package spend keeps the money of session trees. It reads the embedded price
// table and, at start, the node's own receipts; it writes nothing: what it
// knows beyond its memory stands in the decision and outcome receipts that its
// callers have written. It must never admit a call whose worst case does not
// fit into every budget above it, take a client's word for what was used, or
// round in a client's favour.
//
// # Money
//
// Amounts are whole nanodollars (Nano), rates are picodollars a token, and a
// call's cost is rounded up once.
//
// # Budgets
//
// A call is paid by its session and by everything above it: the parent
// sessions up to the root, the UTC day of each bundle among them, and the
// node's own UTC day (its static share of the organisation's money). A child
// has no money of its own: its limit is one more bound inside its parent's.
// Hold takes the worst case from all of them or from none; Settle puts what
// was really spent in its place.
//
// # Receipts
//
// The decision receipt carries held, the outcome receipt spent. Fold reads them
// back: not_forwarded costs nothing, forwarded costs what it says, and a
// decision without an outcome, or with an unknown one that names no amount,
// costs what was held.
package spend
