package receipts

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gatehouse/internal/canon"
)

// MaxGroup is the largest number of leaves under one seal.
const MaxGroup = 1024

// sealVersion is the first word of a seal.
const sealVersion = "gatehouse-seal/1"

var sealEncoding = base64.RawURLEncoding.Strict()

// Seal is one signature over a group of leaves that became durable together:
// events and receipts alike. Its signed text fixes the group's place in the
// node's log (First, Count), its leaves (Root) and the seal before it (Prev),
// so seals form a chain that fixes the order of all sessions of the node.
type Seal struct {
	Origin string // log origin
	KeyID  string // of the seal key
	First  uint64 // log index of the group's first leaf
	Count  int    // leaves in the group, 1..MaxGroup
	Root   Hash   // RFC 6962 root over the leaves
	Prev   Hash   // Hash of the previous seal; zero only when First is 0
	Sig    [ed25519.SignatureSize]byte

	tree *Tree // the group's tree when made by SealGroup or Bind
}

// SealGroup signs leaves, which begin at log index first, with the seal key.
// prev is the Hash of the log's previous seal.
func SealGroup(key crypto.Signer, keyID, origin string, first uint64, prev Hash, leaves []Hash) (*Seal, error) {
	s := &Seal{Origin: origin, KeyID: keyID, First: first, Count: len(leaves), Prev: prev, tree: &Tree{}}
	s.tree.Append(leaves...)
	var err error
	if s.Root, err = s.tree.Root(uint64(len(leaves))); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	sig, err := sign(key, s.Text())
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	copy(s.Sig[:], sig)
	return s, nil
}

// check enforces what every seal has whatever its signature says.
func (s *Seal) check() error {
	if err := CheckName(s.Origin); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	if err := checkKeyID(s.KeyID); err != nil {
		return fmt.Errorf("key id: %w", err)
	}
	if s.Count < 1 || s.Count > MaxGroup { // RC-20, RC-45
		return fmt.Errorf("group of %d leaves", s.Count)
	}
	if s.First+uint64(s.Count) > canon.MaxInt || s.First > canon.MaxInt {
		return errors.New("log index above 2^53-1")
	}
	if (s.First == 0) != s.Prev.IsZero() {
		return errors.New("only the first seal of a log has no previous seal")
	}
	return nil
}

// checkKeyID reports why s is not "name+xxxxxxxx".
func checkKeyID(s string) error {
	name, hash, ok := strings.Cut(s, "+")
	if !ok || len(hash) != 8 || strings.Trim(hash, "0123456789abcdef") != "" {
		return errors.New("not of the form name+xxxxxxxx")
	}
	return CheckName(name)
}

// Text returns the signed bytes: seven lines.
func (s *Seal) Text() []byte { return s.append(nil, '\n') }

// append writes the signed fields, each followed by sep.
func (s *Seal) append(b []byte, sep byte) []byte {
	b = append(b, sealVersion...)
	b = append(append(b, sep), s.Origin...)
	b = append(append(b, sep), s.KeyID...)
	b = strconv.AppendUint(append(b, sep), s.First, 10)
	b = strconv.AppendInt(append(b, sep), int64(s.Count), 10)
	b = canon.AppendDigest(append(b, sep), s.Root)
	b = canon.AppendDigest(append(b, sep), s.Prev)
	return append(b, sep)
}

// Hash identifies the seal in the next one: SHA-256 of its signed bytes.
func (s *Seal) Hash() Hash { return sha256.Sum256(s.Text()) }

// Encode returns the seal as one line of eight words, the form in which the
// journal and the log stream hold it.
func (s *Seal) Encode() []byte {
	return sealEncoding.AppendEncode(s.append(nil, ' '), s.Sig[:])
}

// Note returns the seal as a C2SP signed note, for stock note tools.
func (s *Seal) Note() []byte {
	name, hash, _ := strings.Cut(s.KeyID, "+")
	n, _ := strconv.ParseUint(hash, 16, 32)
	sig := binary.BigEndian.AppendUint32(nil, uint32(n))
	var b bytes.Buffer
	b.Write(s.Text())
	fmt.Fprintf(&b, "\n— %s %s\n", name, base64.StdEncoding.EncodeToString(append(sig, s.Sig[:]...)))
	return b.Bytes()
}

// ParseSeal reads exactly what Encode writes. The signature is not checked.
func ParseSeal(line []byte) (*Seal, error) {
	w := strings.Split(string(line), " ")
	if len(line) > maxLine || len(w) != 8 {
		return nil, errors.New("seal: eight words expected")
	}
	s, err := parseSealWords(w)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(s.Encode(), line) {
		return nil, errors.New("seal: not in its only spelling")
	}
	return s, nil
}

func parseSealWords(w []string) (*Seal, error) {
	if w[0] != sealVersion {
		if strings.HasPrefix(w[0], "gatehouse-seal/") {
			return nil, fmt.Errorf("seal: %w: %.40q", ErrUnsupported, w[0])
		}
		return nil, errors.New("seal: not a seal")
	}
	s := &Seal{Origin: w[1], KeyID: w[2]}
	var err error
	if s.First, err = parseNumber([]byte(w[3])); err != nil {
		return nil, fmt.Errorf("seal: first index: %w", err)
	}
	count, err := parseNumber([]byte(w[4]))
	if err != nil || count > MaxGroup {
		return nil, errors.New("seal: malformed count")
	}
	s.Count = int(count)
	if s.Root, err = ParseHash(w[5]); err != nil {
		return nil, fmt.Errorf("seal: root: %w", err)
	}
	if s.Prev, err = ParseHash(w[6]); err != nil {
		return nil, fmt.Errorf("seal: previous seal: %w", err)
	}
	sig, err := sealEncoding.DecodeString(w[7])
	if err != nil || len(sig) != len(s.Sig) {
		return nil, errors.New("seal: malformed signature")
	}
	copy(s.Sig[:], sig)
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return s, nil
}

// Bind gives a parsed seal its leaves, all of them in order, so that Proof and
// Header work. Leaves that do not hash to Root are an error.
func (s *Seal) Bind(leaves []Hash) error {
	t := &Tree{}
	t.Append(leaves...)
	root, err := t.Root(t.Size())
	if err != nil {
		return err
	}
	if len(leaves) != s.Count || root != s.Root {
		return fmt.Errorf("seal at %d: the leaves are not the sealed ones", s.First)
	}
	s.tree = t
	return nil
}

// Proof returns the inclusion path of the group's i-th leaf. The seal must hold
// its leaves (SealGroup or Bind) and i must be below Count; anything else is a
// mistake of the caller and panics like a slice index.
func (s *Seal) Proof(i int) Proof {
	if s.tree == nil {
		panic("receipts: Proof of a seal without its leaves")
	}
	p, err := s.tree.Proof(uint64(i), uint64(s.Count))
	if err != nil {
		panic("receipts: " + err.Error())
	}
	return p
}

// Header returns the value of the Gatehouse-Seal message header for the group's
// i-th leaf: the seal line, the position and the path. See Proof for i.
func (s *Seal) Header(i int) string {
	return string(s.Encode()) + " " + strconv.Itoa(i) + " " + formatPath(s.Proof(i).Path)
}

// SealHeader is a parsed Gatehouse-Seal header: evidence about one leaf.
type SealHeader struct {
	Seal  *Seal
	Proof Proof
}

// ParseHeader reads exactly what Header writes. Nothing in it is verified.
func ParseHeader(v string) (*SealHeader, error) {
	if len(v) > maxLine {
		return nil, errors.New("seal header: too long")
	}
	w := strings.Split(v, " ")
	if len(w) != 10 {
		return nil, errors.New("seal header: ten words expected")
	}
	s, err := parseSealWords(w)
	if err != nil {
		return nil, err
	}
	i, err := parseNumber([]byte(w[8]))
	if err != nil || i >= uint64(s.Count) {
		return nil, errors.New("seal header: position outside the group")
	}
	path, err := appendPath(nil, []byte(w[9]))
	if err != nil {
		return nil, fmt.Errorf("seal header: %w", err)
	}
	if string(s.Encode())+" "+string(w[8])+" "+formatPath(path) != v {
		return nil, errors.New("seal header: not in its only spelling")
	}
	return &SealHeader{Seal: s, Proof: Proof{Index: i, Path: path}}, nil
}

// Index is the log index of the leaf.
func (h *SealHeader) Index() uint64 { return h.Seal.First + h.Proof.Index }

// Verify checks that leaf is the sealed one and that the seal is by a key of ks
// that is good for it. ErrKey in the error's tree means the signature is not by
// a trusted key; any other error is evidence of tampering.
func (h *SealHeader) Verify(leaf Hash, ks *Keyset) error {
	if err := h.Proof.Check(uint64(h.Seal.Count), h.Seal.Root, leaf); err != nil {
		return err
	}
	return h.Seal.Verify(ks)
}

// Verify checks the seal's signature, and that its key is in ks with the
// purpose seal, for this log, and good for every index of the group.
func (s *Seal) Verify(ks *Keyset) error {
	if s.Origin != ks.Origin { // RC-21
		return fmt.Errorf("seal at %d: origin %s in a log of %s", s.First, s.Origin, ks.Origin)
	}
	k, ok := ks.Find(SealKey, s.KeyID)
	if !ok { // RC-10
		return fmt.Errorf("seal at %d: %w: %s is not in the keyset", s.First, ErrKey, s.KeyID)
	}
	if !ed25519.Verify(k.Public, s.Text(), s.Sig[:]) {
		return fmt.Errorf("seal at %d: wrong signature", s.First)
	}
	if !k.Covers(s.First, uint64(s.Count)) { // RC-11
		return fmt.Errorf("seal at %d: %w: %s is good for [%d, %d)", s.First, ErrKey, s.KeyID, k.From, k.Until)
	}
	return nil
}

// formatPath writes a path as one word, "-" when it is empty.
func formatPath(path []Hash) string {
	if len(path) == 0 {
		return "-"
	}
	b := make([]byte, 0, len(path)*(canon.DigestLen+1))
	for i, h := range path {
		if i > 0 {
			b = append(b, ',')
		}
		b = canon.AppendDigest(b, h)
	}
	return string(b)
}
