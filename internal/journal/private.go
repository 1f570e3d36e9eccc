package journal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"

	"gatehouse/internal/problem"
)

const (
	nonceSize = 12
	tagSize   = 16
)

func newAEAD(key []byte) (cipher.AEAD, error) {
	if key == nil {
		return nil, nil // no key is a state: private records are then out of reach
	}
	if len(key) != 32 {
		return nil, problem.New(problem.JournalKey, "the node key must have 32 bytes", "Restore node.key from its backup.")
	}
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

// binding is the associated data of a private record: it opens only in this
// journal, at this position, under this subject.
func (j *Journal) binding(pos uint64, subject string) []byte {
	b := make([]byte, 0, len(j.id)+9+len(subject))
	b = append(b, j.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, pos)
	b = append(b, byte(KindPrivate))
	return append(b, subject...)
}

// hide encrypts the private record r in place: data, its room in the frame, becomes
// nonce || ciphertext || tag.
func (j *Journal) hide(r *Record, data []byte) {
	// The nonce is random and not the position: a position whose group was cut
	// at start-up is given out again, and a repeated nonce would open both.
	nonce, plain := data[:nonceSize], inClear(data)
	rand.Read(nonce) // never fails since Go 1.24
	j.aead.Seal(plain[:0], nonce, plain, j.binding(r.Pos, r.Subject))
}

// inClear returns the plaintext in the room of a private record that hide has not
// seen yet.
func inClear(data []byte) []byte { return data[nonceSize : len(data)-tagSize : len(data)] }

var errPrivate = errors.New("a private record does not open with the node key")

func (j *Journal) reveal(r Record) ([]byte, error) {
	if j.aead == nil {
		return nil, nil
	}
	if len(r.Data) < nonceSize {
		return nil, errPrivate
	}
	data, err := j.aead.Open(nil, r.Data[:nonceSize], r.Data[nonceSize:], j.binding(r.Pos, r.Subject))
	if err != nil {
		return nil, errPrivate
	}
	return data, nil
}
