// Package netguard says which addresses and names are outside: it reads an
// address or a canonical host and returns its class. It must never resolve a
// name, open a socket or read a configuration; the tables are compiled in.
package netguard
