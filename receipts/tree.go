package receipts

import (
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof is the RFC 6962 inclusion path of one leaf.
type Proof struct {
	Index uint64 // of the leaf in its tree
	Path  []Hash // from the leaf's sibling upwards
}

// Check verifies that leaf is the p.Index-th of size leaves under root.
func (p Proof) Check(size uint64, root, leaf Hash) error {
	if size > maxTree || p.Index >= size || len(p.Path) > maxPath {
		return fmt.Errorf("inclusion: leaf %d of %d with a path of %d", p.Index, size, len(p.Path))
	}
	var buf [maxPath]tlog.Hash
	for i, h := range p.Path {
		buf[i] = tlog.Hash(h)
	}
	if err := tlog.CheckRecord(buf[:len(p.Path)], int64(size), tlog.Hash(root), int64(p.Index), tlog.Hash(leaf)); err != nil {
		return fmt.Errorf("inclusion of leaf %d of %d: %w", p.Index, size, err)
	}
	return nil
}

// CheckConsistency verifies that the tree with size leaves under root begins
// with the tree of oldSize leaves under oldRoot.
func CheckConsistency(path []Hash, size uint64, root Hash, oldSize uint64, oldRoot Hash) error {
	if size > maxTree || oldSize > size || oldSize == 0 || len(path) > maxPath {
		return fmt.Errorf("consistency: from %d to %d with a path of %d", oldSize, size, len(path))
	}
	if err := tlog.CheckTree(tlogPath(path), int64(size), tlog.Hash(root), int64(oldSize), tlog.Hash(oldRoot)); err != nil {
		return fmt.Errorf("consistency from %d to %d: %w", oldSize, size, err)
	}
	return nil
}

const (
	maxTree = 1 << 53 // log indices are integers of the JSON profile
	maxPath = 64      // longer than any path in a tree of maxTree leaves
)

func tlogPath(path []Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(path))
	for i, h := range path {
		out[i] = tlog.Hash(h)
	}
	return out
}

func hashPath(path []tlog.Hash) []Hash {
	out := make([]Hash, len(path))
	for i, h := range path {
		out[i] = Hash(h)
	}
	return out
}

// Tree is an RFC 6962 tree held in memory: the hashes that tlog stores, in
// tlog's order. Its zero value is the empty tree.
type Tree struct {
	size   int64
	stored []tlog.Hash
}

// ReadHashes makes a Tree a tlog.HashReader.
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x < 0 || x >= int64(len(t.stored)) {
			return nil, fmt.Errorf("tree has no hash %d", x)
		}
		out[i] = t.stored[x]
	}
	return out, nil
}

// Append adds leaves. It stores what tlog.StoredHashesForRecordHash gives for
// each, without a slice for each.
func (t *Tree) Append(leaves ...Hash) {
	t.stored = slices.Grow(t.stored, 2*len(leaves))
	for _, leaf := range leaves {
		h := tlog.Hash(leaf)
		t.stored = append(t.stored, h)
		// Each set bit of the size is a complete subtree that waits for its sibling.
		for level := 0; t.size>>level&1 == 1; level++ {
			h = tlog.NodeHash(t.stored[tlog.StoredHashIndex(level, t.size>>level-1)], h)
			t.stored = append(t.stored, h)
		}
		t.size++
	}
}

// Size returns the number of leaves.
func (t *Tree) Size() uint64 { return uint64(t.size) }

// Root returns the root of the first size leaves.
func (t *Tree) Root(size uint64) (Hash, error) {
	if size > uint64(t.size) {
		return Hash{}, fmt.Errorf("tree of %d leaves has no root of %d", t.size, size)
	}
	h, err := tlog.TreeHash(int64(size), t)
	if err != nil {
		return Hash{}, fmt.Errorf("tree: %w", err)
	}
	return Hash(h), nil
}

// Proof returns the inclusion path of leaf index in the tree of size leaves.
func (t *Tree) Proof(index, size uint64) (Proof, error) {
	if size > uint64(t.size) || index >= size {
		return Proof{}, fmt.Errorf("tree of %d leaves has no proof of %d in %d", t.size, index, size)
	}
	p, err := tlog.ProveRecord(int64(size), int64(index), t)
	if err != nil {
		return Proof{}, fmt.Errorf("tree: %w", err)
	}
	return Proof{Index: index, Path: hashPath(p)}, nil
}

// Consistency returns the proof that the tree of size leaves begins with the
// tree of oldSize leaves.
func (t *Tree) Consistency(oldSize, size uint64) ([]Hash, error) {
	if size > uint64(t.size) || oldSize > size || oldSize == 0 {
		return nil, fmt.Errorf("tree of %d leaves has no consistency from %d to %d", t.size, oldSize, size)
	}
	p, err := tlog.ProveTree(int64(size), int64(oldSize), t)
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return hashPath(p), nil
}
