// Package secret holds values that must not be printed. It reads and writes
// nothing; it must never give a value to fmt, slog, encoding/json or a
// template. Only Reveal returns the bytes, so that a search for Reveal finds
// every place where a secret is used.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const redacted = "[secret]"

// Value is a secret byte string. The zero Value is empty. It is a struct with
// an unexported field so that no encoder and no verb of fmt can reach inside.
type Value struct{ b []byte }

// New takes ownership of b.
func New(b []byte) Value { return Value{b: b} }

// FromString copies s.
func FromString(s string) Value { return Value{b: []byte(s)} }

// Reveal returns the bytes. The caller must not keep, log or modify them.
func (v Value) Reveal() []byte { return v.b }

// Empty reports whether the value has no bytes.
func (v Value) Empty() bool { return len(v.b) == 0 }

// Equal compares in constant time for equal lengths.
func (v Value) Equal(b []byte) bool { return subtle.ConstantTimeCompare(v.b, b) == 1 }

// Wipe overwrites the bytes.
func (v Value) Wipe() { clear(v.b) }

// String returns a placeholder.
func (Value) String() string { return redacted }

// GoString returns a placeholder.
func (Value) GoString() string { return redacted }

// Format writes a placeholder for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns a placeholder.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns a placeholder.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
