package receipts

import (
	"crypto/sha256"
	"fmt"

	"gatehouse/internal/canon"
)

// Hash is a SHA-256 digest, written as base64url without padding.
type Hash [sha256.Size]byte

// Leaf returns the RFC 6962 leaf hash of a record: SHA-256(0x00 || payload).
// It is the only receipt hash: chain link, tree leaf and message id.
func Leaf(payload []byte) (leaf Hash) {
	h := sha256.New() // on the stack
	h.Write([]byte{0})
	h.Write(payload)
	h.Sum(leaf[:0])
	return leaf
}

// Genesis is Prev of a chain's first receipt. It binds the chain to its log,
// its session and the keyset in force, so that a chain cannot be moved.
func Genesis(log, session string, keyset Hash) Hash {
	b := make([]byte, 0, 128)
	b = append(b, "gatehouse-genesis/1\n"...)
	b = append(b, log...)
	b = append(b, '\n')
	b = append(b, session...)
	b = append(b, '\n')
	b = canon.AppendDigest(b, keyset)
	return sha256.Sum256(b)
}

// String returns the base64url form.
func (h Hash) String() string { return string(canon.AppendDigest(nil, h)) }

// IsZero reports whether h is the zero hash, which stands for "none".
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads what String writes and nothing else.
func ParseHash(s string) (Hash, error) {
	h, err := canon.ParseDigest([]byte(s))
	if err != nil {
		return Hash{}, fmt.Errorf("hash: %w", err)
	}
	return h, nil
}
