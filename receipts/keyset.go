package receipts

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

const keysetVersion = "gatehouse-keyset/1"

// maxKeys bounds the keys and the earlier keysets that a keyset may list.
const maxKeys = 1000

// Keyset lists the keys of one log with their purposes and intervals. The root
// key, which is kept offline, signs it as a C2SP note; an auditor pins the
// root's Fingerprint and needs nothing else.
type Keyset struct {
	Origin string
	Serial uint64 // 1 for the first keyset of a log, rising by one
	Root   Key    // Purpose RootKey; Name and Public only
	Was    []Hash // Digest of every earlier keyset, oldest first: Serial-1 of them
	Keys   []Key  // a public key stands here once for ever, retired ones too
}

// Digest names the keyset: SHA-256 of its signed text. Genesis binds it.
func (ks *Keyset) Digest() Hash { return sha256.Sum256([]byte(ks.text())) }

// Knows reports whether d is the Digest of ks or of an earlier keyset.
func (ks *Keyset) Knows(d Hash) bool {
	if d == ks.Digest() {
		return true
	}
	for _, w := range ks.Was {
		if w == d {
			return true
		}
	}
	return false
}

// Find returns the key with this purpose and id.
func (ks *Keyset) Find(p Purpose, id string) (Key, bool) {
	for _, k := range ks.Keys {
		if k.Purpose == p && k.ID() == id {
			return k, true
		}
	}
	return Key{}, false
}

// Active returns the key of a purpose whose interval is open.
func (ks *Keyset) Active(p Purpose) (Key, bool) {
	for _, k := range ks.Keys {
		if k.Purpose == p && k.Until == 0 {
			return k, true
		}
	}
	return Key{}, false
}

// RootFingerprint returns the fingerprint of the root that the keyset names.
func (ks *Keyset) RootFingerprint() string { return Fingerprint(ks.Root.Name, ks.Root.Public) }

func (ks *Keyset) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\norigin %s\nserial %d\nroot %s\n", keysetVersion, ks.Origin, ks.Serial, ks.Root.VKey())
	for _, w := range ks.Was {
		fmt.Fprintf(&b, "was %s\n", w)
	}
	for _, k := range ks.Keys {
		until := "-"
		if k.Until != 0 {
			until = strconv.FormatUint(k.Until, 10)
		}
		fmt.Fprintf(&b, "key %s %s %d %s", k.Purpose, k.VKey(), k.From, until)
		if k.Revoked {
			b.WriteString(" revoked")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// check enforces the rules that hold whoever signed.
func (ks *Keyset) check() error {
	if err := CheckName(ks.Origin); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	if err := CheckName(ks.Root.Name); err != nil || len(ks.Root.Public) != ed25519.PublicKeySize {
		return errors.New("malformed root key")
	}
	if len(ks.Keys) > maxKeys || len(ks.Was) > maxKeys || ks.Serial != uint64(len(ks.Was))+1 {
		return errors.New("serial is not the number of earlier keysets plus one")
	}
	seen := map[string]bool{string(ks.Root.Public): true}
	end := map[Purpose]uint64{} // end of the last interval by purpose
	open := map[Purpose]bool{}
	for _, k := range ks.Keys {
		if k.Purpose != SealKey && k.Purpose != CheckpointKey {
			return fmt.Errorf("key of purpose %.20q", k.Purpose)
		}
		if err := CheckName(k.Name); err != nil || len(k.Public) != ed25519.PublicKeySize {
			return errors.New("malformed key")
		}
		if k.Purpose == CheckpointKey && k.Name != ks.Origin {
			return errors.New("the name of a checkpoint key is the origin")
		}
		// A key has one purpose and one interval for ever: a retired key that
		// comes back would make old signatures current again (RC-11).
		if seen[string(k.Public)] {
			return fmt.Errorf("key %s stands twice", k.ID())
		}
		seen[string(k.Public)] = true
		if open[k.Purpose] || k.From < end[k.Purpose] || k.Until != 0 && k.Until < k.From {
			return fmt.Errorf("intervals of %s keys overlap", k.Purpose)
		}
		if k.Revoked && k.Until == 0 {
			return fmt.Errorf("key %s is revoked without an index", k.ID())
		}
		open[k.Purpose], end[k.Purpose] = k.Until == 0, k.Until
	}
	return nil
}

// Sign returns the keyset as a note signed by the root key.
func (ks *Keyset) Sign(root crypto.Signer) ([]byte, error) {
	if err := ks.check(); err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	pub, ok := root.Public().(ed25519.PublicKey)
	if !ok || !pub.Equal(ks.Root.Public) {
		return nil, errors.New("keyset: signed by another key than its root")
	}
	b, err := note.Sign(&note.Note{Text: ks.text()}, &noteSigner{ks.Root.Name, algEd25519, root, nil})
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	return b, nil
}

// ParseKeyset reads exactly what Sign writes and checks the root's signature.
// root is the pinned fingerprint; if it is not the enclosed root's, or is
// empty, the keyset is returned together with an error that wraps ErrKey: it
// is then consistent in itself but proves nothing about who made it.
func ParseKeyset(b []byte, root string) (*Keyset, error) {
	ks, err := parseKeyset(b)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	switch {
	case root == "":
		return ks, fmt.Errorf("keyset: %w: no root fingerprint given", ErrKey)
	case root != ks.RootFingerprint():
		return ks, fmt.Errorf("keyset: %w: its root is %s", ErrKey, ks.RootFingerprint())
	}
	return ks, nil
}

func parseKeyset(b []byte) (*Keyset, error) {
	if len(b) > maxNote {
		return nil, errors.New("too long")
	}
	text, _, ok := bytes.Cut(b, []byte("\n\n"))
	if !ok {
		return nil, errors.New("not a signed note")
	}
	ks, err := parseKeysetText(string(text) + "\n")
	if err != nil {
		return nil, err
	}
	if err := ks.check(); err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(ks.Root.VKey())
	if err != nil {
		return nil, err
	}
	n, err := note.Open(b, note.VerifierList(v))
	if err != nil {
		return nil, err
	}
	if n.Text != ks.text() || !exactNote(b, n) {
		return nil, errors.New("not in its only spelling")
	}
	return ks, nil
}

func parseKeysetText(text string) (*Keyset, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != keysetVersion {
		if strings.HasPrefix(lines[0], "gatehouse-keyset/") {
			return nil, fmt.Errorf("%w: %.40q", ErrUnsupported, lines[0])
		}
		return nil, errors.New("not a keyset")
	}
	ks := &Keyset{}
	for _, line := range lines[1:] {
		w := strings.Split(line, " ")
		var err error
		switch {
		case w[0] == "origin" && len(w) == 2:
			ks.Origin = w[1]
		case w[0] == "serial" && len(w) == 2:
			ks.Serial, err = strconv.ParseUint(w[1], 10, 64)
		case w[0] == "root" && len(w) == 2:
			ks.Root.Purpose = RootKey
			ks.Root.Name, ks.Root.Public, err = parseVKey(w[1])
		case w[0] == "was" && len(w) == 2:
			var h Hash
			h, err = ParseHash(w[1])
			ks.Was = append(ks.Was, h)
		case w[0] == "key" && (len(w) == 5 || len(w) == 6 && w[5] == "revoked"):
			var k Key
			k, err = parseKeyLine(w)
			ks.Keys = append(ks.Keys, k)
		default:
			return nil, fmt.Errorf("unexpected line %.40q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w[0], err)
		}
	}
	return ks, nil
}

func parseKeyLine(w []string) (Key, error) {
	k := Key{Purpose: Purpose(w[1]), Revoked: len(w) == 6}
	var err error
	if k.Name, k.Public, err = parseVKey(w[2]); err != nil {
		return Key{}, err
	}
	if k.From, err = strconv.ParseUint(w[3], 10, 53); err != nil {
		return Key{}, err
	}
	if w[4] != "-" {
		if k.Until, err = strconv.ParseUint(w[4], 10, 53); err != nil {
			return Key{}, err
		}
		if k.Until == 0 {
			return Key{}, errors.New("an interval that ends at 0")
		}
	}
	return k, nil
}

// Next returns a copy with the next serial, to be changed and signed.
func (ks *Keyset) Next() *Keyset {
	next := *ks
	next.Serial++
	next.Was = append(slices.Clone(ks.Was), ks.Digest())
	next.Keys = slices.Clone(ks.Keys)
	return &next
}

// Follows reports why ks may not be the successor of old: it must have the same
// log and root, name old among its predecessors, and may add keys and end open
// intervals, but take nothing back. A key that was retired stays retired (RC-11).
func (ks *Keyset) Follows(old *Keyset) error {
	switch {
	case ks.Origin != old.Origin || ks.Root.VKey() != old.Root.VKey():
		return errors.New("keyset: another log or root")
	case ks.Serial != old.Serial+1 || !slices.Equal(ks.Was, append(slices.Clone(old.Was), old.Digest())):
		return errors.New("keyset: not the next one")
	case len(ks.Keys) < len(old.Keys):
		return errors.New("keyset: a key is gone")
	}
	for i, was := range old.Keys {
		is := ks.Keys[i]
		if is.Purpose != was.Purpose || is.VKey() != was.VKey() || is.From != was.From {
			return fmt.Errorf("keyset: key %s has changed", was.ID())
		}
		ended := was.Until == 0 && is.Until != 0
		revoked := is.Revoked && !was.Revoked && (ended || is.Until <= was.Until)
		if !ended && !revoked && (is.Until != was.Until || is.Revoked != was.Revoked) {
			return fmt.Errorf("keyset: the end of key %s is taken back", was.ID())
		}
	}
	return nil
}
