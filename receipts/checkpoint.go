package receipts

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

var strictBase64 = base64.StdEncoding.Strict()

func appendUint(b []byte, n uint64) []byte { return strconv.AppendUint(b, n, 10) }

// Checkpoint is a C2SP tlog-checkpoint over all leaves of a log, signed twice
// by its checkpoint key: plainly, so that stock note tools accept it, and as a
// C2SP cosignature, which adds the time. Its last leaf is a manifest.
type Checkpoint struct {
	Origin string
	Size   uint64    // leaves
	Root   Hash      // RFC 6962 root
	Time   time.Time // asserted by the signer, whole seconds
	KeyID  string    // of the checkpoint key
}

// text is the signed text. The root is in standard base64 as C2SP has it.
func (c *Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, strictBase64.EncodeToString(c.Root[:]))
}

// SignCheckpoint returns the note of a checkpoint. c.KeyID is not read.
func SignCheckpoint(key crypto.Signer, c Checkpoint) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	b, err := note.Sign(&note.Note{Text: c.text()},
		&noteSigner{c.Origin, algEd25519, key, nil},
		&noteSigner{c.Origin, algCosignature, key, &c.Time})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return b, nil
}

func (c *Checkpoint) check() error {
	if err := CheckName(c.Origin); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	if c.Size == 0 || c.Size > maxTree {
		return fmt.Errorf("size %d", c.Size)
	}
	return nil
}

// ParseCheckpoint reads a checkpoint note and checks both signatures by a key of
// ks that is good for the checkpoint's last leaf. An error that wraps ErrKey
// says that no such key signed it. Signature lines of others (witnesses) are
// ignored.
func ParseCheckpoint(b []byte, ks *Keyset) (*Checkpoint, error) {
	c, _, err := openCheckpoint(b, ks)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return c, nil
}

func openCheckpoint(b []byte, ks *Keyset) (*Checkpoint, *note.Note, error) {
	if len(b) > maxNote {
		return nil, nil, errors.New("too long")
	}
	known := &checkpointKeys{ks: ks, cosign: map[string]*cosignVerifier{}}
	n, err := note.Open(b, known)
	if err != nil {
		var unverified *note.UnverifiedNoteError
		if errors.As(err, &unverified) {
			return nil, nil, fmt.Errorf("%w: signed by no key of the keyset", ErrKey)
		}
		return nil, nil, err
	}
	c, err := parseCheckpointText(n.Text)
	if err != nil {
		return nil, nil, err
	}
	if c.Origin != ks.Origin {
		return nil, nil, fmt.Errorf("origin %s in a log of %s", c.Origin, ks.Origin)
	}
	// Both signatures must be by one key, good for the last leaf.
	for _, k := range ks.Keys {
		if k.Purpose != CheckpointKey {
			continue
		}
		v := known.cosign[k.ID()]
		if v == nil || v.at == 0 || !signedBy(n, k) {
			continue
		}
		if !k.Covers(c.Size-1, 1) {
			return nil, nil, fmt.Errorf("%w: %s is not good for index %d", ErrKey, k.ID(), c.Size-1)
		}
		c.KeyID, c.Time = k.ID(), time.Unix(int64(v.at), 0).UTC()
		return c, n, nil
	}
	return nil, nil, fmt.Errorf("%w: both signatures of one checkpoint key expected", ErrKey)
}

func signedBy(n *note.Note, k Key) bool {
	for _, s := range n.Sigs {
		if s.Name == k.Name && s.Hash == keyHash(k.Name, algEd25519, k.Public) {
			return true
		}
	}
	return false
}

func parseCheckpointText(text string) (*Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" { // origin, size, root: no extension lines in v1
		return nil, errors.New("three lines expected")
	}
	c := &Checkpoint{Origin: lines[0]}
	var err error
	if c.Size, err = strconv.ParseUint(lines[1], 10, 53); err != nil {
		return nil, fmt.Errorf("size: %w", err)
	}
	root, err := strictBase64.DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) {
		return nil, errors.New("malformed root")
	}
	copy(c.Root[:], root)
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.text() != text {
		return nil, errors.New("not in its only spelling")
	}
	return c, nil
}

// checkpointKeys is the note.Verifiers of a keyset's checkpoint keys.
type checkpointKeys struct {
	ks     *Keyset
	cosign map[string]*cosignVerifier // by key id, once met
}

func (c *checkpointKeys) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, k := range c.ks.Keys {
		if k.Purpose != CheckpointKey || k.Name != name {
			continue
		}
		switch hash {
		case keyHash(name, algEd25519, k.Public):
			return &plainVerifier{name, hash, k.Public}, nil
		case keyHash(name, algCosignature, k.Public):
			v := c.cosign[k.ID()]
			if v == nil { // a repeated line must not forget the time of the first
				v = &cosignVerifier{name: name, pub: k.Public}
				c.cosign[k.ID()] = v
			}
			return v, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}

// plainVerifier is a note.Verifier of plain Ed25519 signatures.
type plainVerifier struct {
	name string
	hash uint32
	pub  ed25519.PublicKey
}

func (v *plainVerifier) Name() string                { return v.name }
func (v *plainVerifier) KeyHash() uint32             { return v.hash }
func (v *plainVerifier) Verify(msg, sig []byte) bool { return ed25519.Verify(v.pub, msg, sig) }
