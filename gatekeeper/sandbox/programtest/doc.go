// Package programtest builds the programs that sandboxes are made of,
// gatehouse-init and gatehouse-remote, and starts the latter as operators do: for
// tests. It writes into the folders it is given and a temporary one. No program
// may import it (archtest).
package programtest
