// Package problem is the one error vocabulary of Gatehouse: a code from a
// closed enum, a message and a hint, rendered alike by the CLI and as RFC 9457
// problem JSON. It reads and writes nothing. It must never be used for a
// verdict: a deny is a value, not an error.
package problem
