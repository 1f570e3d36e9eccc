// Package event defines the normalized inbound event and its canonical
// CloudEvents form. It reads and writes bytes only; it must never turn Text
// into a fact or raise an origin.
package event
