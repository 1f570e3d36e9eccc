// Package notary writes a node's log of receipts: it keeps one chain for each
// session and one for the node, seals every journal group, signs checkpoints and
// writes exports. It reads and writes the journal, its key folder and the folders
// that keep its checkpoints, and nothing else. It must never let two writers
// extend one chain, seal a receipt that no chain of its own made, put a secret
// into a receipt, or report a receipt written before it is durable.
//
// # Records
//
// What it appends to the journal, and under which subject:
//
//	KindReceipt     gatehouse.v1.sessions.<session>  a session's chain; a leaf
//	KindReceipt     gatehouse.v1.control.<node>      the control chain; a leaf
//	KindSeal        gatehouse.v1.log.<node>          receipts.Seal.Encode, last in each group that has leaves
//	KindCheckpoint  gatehouse.v1.log.<node>          a checkpoint note; no leaf, for it cannot cover itself
//	KindPrivate     notary.key.<session>             the session's commitment key; never published
//	KindPrivate,    notary                           state of all chains (it holds commitment keys), and
//	KindSnapshot    notary                           the tree, together a snapshot to start from
//
// Records of KindEvent, which ingest appends, are leaves too.
//
// # Order
//
// A chain's place (seq, prev) is given under the chain's lock together with the
// place in the journal, so that both orders are one. The Seal hook then sees
// groups in log order on the journal's writer goroutine; heads, totals and the
// tree are advanced there, and a manifest states them as of exactly one log
// size. Locks are taken in the order Chain.mu, journal, Notary.mu.
package notary
