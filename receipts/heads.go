package receipts

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gatehouse/internal/canon"
)

// append writes the head as the line that is hashed into ManifestDoc.Heads.
func (h Head) append(b []byte) []byte {
	b = append(b, "gatehouse-head/1 "...)
	b = append(b, h.Session...)
	b = appendUint(append(b, ' '), h.Seq)
	b = canon.AppendDigest(append(b, ' '), h.Leaf)
	return append(b, ' ', h.state())
}

// state is "o" for open, "c" for closed.
func (h Head) state() byte {
	if h.Closed {
		return 'c'
	}
	return 'o'
}

func (h Head) leaf() Hash { return Leaf(h.append(nil)) }

// headsTree builds the tree of heads, which must be sorted by session.
func headsTree(heads []Head) (*Tree, error) {
	t := &Tree{}
	for i, h := range heads {
		if i > 0 && heads[i-1].Session >= h.Session {
			return nil, errors.New("heads are not sorted by session")
		}
		if !isToken(h.Session) {
			return nil, errors.New("head of a malformed session id")
		}
		t.Append(h.leaf())
	}
	return t, nil
}

// HeadsRoot returns ManifestDoc.Heads for heads, sorting them by session in
// place. No heads give the zero hash.
func HeadsRoot(heads []Head) (Hash, error) {
	slices.SortFunc(heads, func(a, b Head) int { return strings.Compare(a.Session, b.Session) })
	if len(heads) == 0 {
		return Hash{}, nil
	}
	t, err := headsTree(heads)
	if err != nil {
		return Hash{}, err
	}
	return t.Root(t.Size())
}

// HeadProof is one session's head with its path under ManifestDoc.Heads.
type HeadProof struct {
	Head
	Proof Proof
}

// ProveHead returns the proof of a session's head among heads, which are those
// the manifest was made from. A session that is not among them is an error.
func ProveHead(heads []Head, session string) (HeadProof, error) {
	heads = slices.Clone(heads)
	slices.SortFunc(heads, func(a, b Head) int { return strings.Compare(a.Session, b.Session) })
	i, ok := slices.BinarySearchFunc(heads, session, func(h Head, s string) int { return strings.Compare(h.Session, s) })
	if !ok {
		return HeadProof{}, fmt.Errorf("no head of session %s", strconv.Quote(session))
	}
	t, err := headsTree(heads)
	if err != nil {
		return HeadProof{}, err
	}
	p, err := t.Proof(uint64(i), t.Size())
	if err != nil {
		return HeadProof{}, err
	}
	return HeadProof{Head: heads[i], Proof: p}, nil
}

// Check verifies the head against the manifest that states it.
func (p HeadProof) Check(m *ManifestDoc) error {
	if err := p.Proof.Check(m.Tree, m.Heads, p.Head.leaf()); err != nil {
		return fmt.Errorf("head of %s: %w", p.Session, err)
	}
	return nil
}
