// Package receipts is the public package for auditors: receipt types, exact
// canonical bytes, chains, seals, checkpoints, exports and their verification.
// It reads bytes and returns findings; it writes bytes for the notary. It must
// never reach the network, run a program, or hold a private key.
package receipts
