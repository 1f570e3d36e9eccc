package receipts

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Purpose says what a key may sign. Every purpose has its own key.
type Purpose string

// The purposes of format v1.
const (
	SealKey       Purpose = "seal"
	CheckpointKey Purpose = "checkpoint"
	RootKey       Purpose = "root"
)

// C2SP signature types: the byte in front of the public key in a key hash.
const (
	algEd25519     = 0x01
	algCosignature = 0x04 // Ed25519 with a timestamp, C2SP tlog-cosignature
)

// Key is one public key of a Keyset with the log indices it is good for. Time
// plays no part: clocks are only asserted, the log index is sealed.
type Key struct {
	Purpose Purpose
	Name    string // C2SP key name: no space, no plus
	Public  ed25519.PublicKey
	From    uint64 // first log index it may sign
	Until   uint64 // first log index it may no longer sign, 0 = open
	Revoked bool   // its secret is lost from Until on; see docs/receipts-spec.md
}

// ID is the C2SP key id: the name, a plus and the first four bytes of the
// fingerprint in lower hex.
func (k Key) ID() string { return KeyID(k.Name, k.Public) }

// Covers reports whether the key may sign the leaves first..first+count-1.
func (k Key) Covers(first, count uint64) bool {
	if first < k.From || count == 0 || first+count < first {
		return false
	}
	return k.Until == 0 || first+count <= k.Until
}

// VKey is the verifier key in the text form of C2SP signed-note, which
// golang.org/x/mod/sumdb/note and other note tools read.
func (k Key) VKey() string {
	data := append([]byte{algEd25519}, k.Public...)
	return k.ID() + "+" + base64.StdEncoding.EncodeToString(data)
}

// KeyID returns Key.ID of a name and an Ed25519 public key.
func KeyID(name string, pub ed25519.PublicKey) string {
	return fmt.Sprintf("%s+%08x", name, keyHash(name, algEd25519, pub))
}

// Fingerprint is what an auditor pins: SHA-256 over the C2SP key description
// (name, newline, signature type, public key) in 64 lower-hex digits. Its first
// eight digits are those of the key id.
func Fingerprint(name string, pub ed25519.PublicKey) string {
	d := keyDigest(name, algEd25519, pub)
	return hex.EncodeToString(d[:])
}

func keyDigest(name string, alg byte, pub ed25519.PublicKey) Hash {
	b := make([]byte, 0, len(name)+2+len(pub))
	b = append(b, name...)
	b = append(b, '\n', alg)
	return sha256.Sum256(append(b, pub...))
}

func keyHash(name string, alg byte, pub ed25519.PublicKey) uint32 {
	d := keyDigest(name, alg, pub)
	return binary.BigEndian.Uint32(d[:4])
}

// parseVKey reads exactly what Key.VKey writes.
func parseVKey(s string) (name string, pub ed25519.PublicKey, err error) {
	name, rest, _ := strings.Cut(s, "+")
	_, data, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algEd25519 {
		return "", nil, errors.New("malformed verifier key")
	}
	if err := CheckName(name); err != nil {
		return "", nil, err
	}
	pub = ed25519.PublicKey(raw[1:])
	if (Key{Name: name, Public: pub}).VKey() != s {
		return "", nil, errors.New("verifier key is not in its only spelling")
	}
	return name, pub, nil
}

// CheckName reports why s may not be a log origin or a key name: 1 to 200
// printable ASCII characters without space and plus (C2SP signed-note).
func CheckName(s string) error {
	if s == "" || len(s) > 200 {
		return fmt.Errorf("name of %d bytes", len(s))
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c > '~' || c == '+' {
			return fmt.Errorf("byte 0x%02x in a name", c)
		}
	}
	return nil
}

// sign makes an Ed25519 signature with a key that may live elsewhere (KMS).
func sign(key crypto.Signer, msg []byte) ([]byte, error) {
	if _, ok := key.Public().(ed25519.PublicKey); !ok {
		return nil, errors.New("not an Ed25519 key")
	}
	sig, err := key.Sign(nil, msg, crypto.Hash(0))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if len(sig) != ed25519.SignatureSize {
		return nil, errors.New("sign: not an Ed25519 signature")
	}
	return sig, nil
}
