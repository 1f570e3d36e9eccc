package receipts

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Limits on the text that this package parses: RC-45.
const (
	maxNote = 1 << 20 // a signed note
	maxLine = 8 << 10 // one line of framing or one message header
)

// noteSigner is a note.Signer over a crypto.Signer, so that a key may stay in
// a KMS. It makes plain Ed25519 signatures, or timestamped ones when at is set.
type noteSigner struct {
	name string
	alg  byte
	key  crypto.Signer
	at   *time.Time
}

func (s *noteSigner) Name() string { return s.name }

func (s *noteSigner) KeyHash() uint32 {
	pub, _ := s.key.Public().(ed25519.PublicKey)
	return keyHash(s.name, s.alg, pub)
}

func (s *noteSigner) Sign(msg []byte) ([]byte, error) {
	if s.alg == algEd25519 {
		return sign(s.key, msg)
	}
	if s.at == nil || s.at.Unix() < 0 {
		return nil, errors.New("sign: no time")
	}
	sig, err := sign(s.key, cosigned(msg, uint64(s.at.Unix())))
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint64(nil, uint64(s.at.Unix())), sig...), nil
}

// cosigned returns the bytes that a C2SP tlog-cosignature signs.
func cosigned(msg []byte, unix uint64) []byte {
	b := append([]byte("cosignature/v1\ntime "), appendUint(nil, unix)...)
	b = append(b, '\n')
	return append(b, msg...)
}

// cosignVerifier is a note.Verifier of timestamped signatures. Verify leaves
// the time in at.
type cosignVerifier struct {
	name string
	pub  ed25519.PublicKey
	at   uint64 // seconds since 1970
}

func (v *cosignVerifier) Name() string    { return v.name }
func (v *cosignVerifier) KeyHash() uint32 { return keyHash(v.name, algCosignature, v.pub) }

func (v *cosignVerifier) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(sig)
	if at > 1<<40 || !ed25519.Verify(v.pub, cosigned(msg, at), sig[8:]) {
		return false
	}
	v.at = at
	return true
}

// exactNote reports whether b is the only spelling of n: every signature line
// verified, none repeated, none foreign, base64 in its canonical form. Go's
// note package ignores what it does not know, and a byte that is ignored could
// be changed unseen.
func exactNote(b []byte, n *note.Note) bool {
	if len(n.UnverifiedSigs) > 0 {
		return false
	}
	out := append([]byte(n.Text), '\n')
	for _, s := range n.Sigs {
		raw, err := strictBase64.DecodeString(s.Base64)
		if err != nil || len(raw) < 4 {
			return false
		}
		out = append(out, "— "...)
		out = append(out, s.Name...)
		out = append(out, ' ')
		out = strictBase64.AppendEncode(out, raw)
		out = append(out, '\n')
	}
	return bytes.Equal(out, b)
}
