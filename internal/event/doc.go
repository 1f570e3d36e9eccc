// Package event defines the normalized inbound event and its canonical
// CloudEvents 1.0 form. It reads and writes bytes only. It must never turn
// Text into a fact, raise an origin, or name anything after a sender's string:
// subjects are built from closed tokens and a hash.
package event
