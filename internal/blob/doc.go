// Package blob keeps byte strings under their SHA-256: it reads and writes one
// file a blob in one folder. It must never give out bytes that do not have the
// digest they were asked by, and never report a blob stored before it is
// durable: written to a temporary file, synced, renamed, folder synced.
package blob
