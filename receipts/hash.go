package receipts

import (
	"crypto/sha256"
	"encoding/base64"
)

// Hash is a SHA-256 digest, written as base64url without padding.
type Hash [sha256.Size]byte

// Leaf returns the RFC 6962 leaf hash of a record: SHA-256(0x00 || payload).
// It is the only receipt hash: chain link, tree leaf and message id.
func Leaf(payload []byte) Hash {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(payload)
	return Hash(h.Sum(nil))
}

// String returns the base64url form.
func (h Hash) String() string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// IsZero reports whether h is the zero hash, which stands for "none".
func (h Hash) IsZero() bool { return h == Hash{} }
