package receipts

import "errors"

// Errors, for errors.Is.
var (
	// ErrUnsupported: a version, type or critical extension that this package
	// does not know. What it guards cannot be judged; the verifier exits 6.
	ErrUnsupported = errors.New("unsupported")
	// ErrCanonical: bytes that are not the canonical form of what they say.
	ErrCanonical = errors.New("not canonical")
	// ErrSchema: a receipt that breaks format v1's closed schema.
	ErrSchema = errors.New("outside the schema")
	// ErrKey: a signature by a key that is unknown, out of its log interval,
	// of another purpose, or not signed by the pinned root.
	ErrKey = errors.New("key not trusted")
)
