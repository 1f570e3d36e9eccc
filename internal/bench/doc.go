// Package bench compares Gatehouse with its peers in one process and one run,
// in turns. It is a module of its own, so that no peer becomes a dependency of
// Gatehouse. It reads the corpus, writes to temporary folders and opens
// listeners on loopback; nothing imports it.
package bench
