package notary

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"gatehouse/internal/journal"
	"gatehouse/receipts"
)

const (
	chunkLevel  = 8 // levels below it are kept for the newest chunk only
	chunkLeaves = 1 << chunkLevel
)

// tree is the Merkle tree over all leaves of the log. It keeps the hashes at and
// above chunkLevel, a quarter byte a leaf, and finds those below by reading the
// chunk's leaves from the journal again. Its maths are tlog's.
type tree struct {
	size int64
	low  [chunkLevel][]tlog.Hash // of the chunk that is not full
	high [][]tlog.Hash           // high[i] is level chunkLevel+i
	at   []uint64                // journal position of the group with each chunk's first leaf
}

// append adds a leaf that stands in the journal group that starts at pos. It
// stores what tlog.StoredHashesForRecordHash would, level by level.
func (t *tree) append(leaf receipts.Hash, pos uint64) {
	if t.size%chunkLeaves == 0 {
		// New slices: a view may still read the old ones.
		t.low = [chunkLevel][]tlog.Hash{}
		for level := range t.low {
			t.low[level] = make([]tlog.Hash, 0, chunkLeaves>>level)
		}
		t.at = append(t.at, pos)
	}
	h := tlog.Hash(leaf)
	t.put(0, h)
	// Each set bit of the size is a complete subtree that waits for its sibling.
	for level := 0; t.size>>level&1 == 1; level++ {
		n := t.size >> level
		h = tlog.NodeHash(t.stored(level, n-1), h)
		t.put(level+1, h)
	}
	t.size++
}

// put appends a hash at a level.
func (t *tree) put(level int, h tlog.Hash) {
	if level < chunkLevel {
		t.low[level] = append(t.low[level], h)
		return
	}
	if level -= chunkLevel; level == len(t.high) {
		t.high = append(t.high, nil)
	}
	t.high[level] = append(t.high[level], h)
}

// stored returns hash n of a level, which must be one that is in memory.
func (t *tree) stored(level int, n int64) tlog.Hash {
	if level < chunkLevel {
		return t.low[level][n&(chunkLeaves>>level-1)]
	}
	return t.high[level-chunkLevel][n]
}

// view returns the tree as it is now, for reading while it grows. Its slices
// only ever grow behind what the view sees; append drops low and does not reuse
// it.
func (t *tree) view(j *journal.Journal) *view {
	v := &view{tree: *t, j: j}
	v.high = append([][]tlog.Hash(nil), t.high...)
	return v
}

// view is a tlog.HashReader. It is not safe for concurrent use.
type view struct {
	tree
	j     *journal.Journal
	chunk int64       // number of the chunk in cache
	cache []tlog.Hash // its leaves, nil if none is loaded
}

// ReadHashes implements tlog.HashReader.
func (v *view) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		level, n := tlog.SplitStoredHashIndex(x)
		h, err := v.hash(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

func (v *view) hash(level int, n int64) (tlog.Hash, error) {
	if level >= chunkLevel {
		if row := level - chunkLevel; row < len(v.high) && n < int64(len(v.high[row])) {
			return v.high[row][n], nil
		}
		return tlog.Hash{}, fmt.Errorf("tree of %d leaves has no hash %d at level %d", v.size, n, level)
	}
	chunk, in := n>>(chunkLevel-level), n&(chunkLeaves>>level-1)
	if chunk == (v.size-1)/chunkLeaves && in < int64(len(v.low[level])) {
		return v.low[level][in], nil
	}
	if err := v.load(chunk); err != nil {
		return tlog.Hash{}, err
	}
	from, to := in<<level, (in+1)<<level
	if to > int64(len(v.cache)) {
		return tlog.Hash{}, fmt.Errorf("tree of %d leaves has no hash %d at level %d", v.size, n, level)
	}
	row := append([]tlog.Hash(nil), v.cache[from:to]...)
	for len(row) > 1 {
		for i := range len(row) / 2 {
			row[i] = tlog.NodeHash(row[2*i], row[2*i+1])
		}
		row = row[:len(row)/2]
	}
	return row[0], nil
}

// load reads a chunk's leaves from the journal.
func (v *view) load(chunk int64) error {
	if v.cache != nil && v.chunk == chunk {
		return nil
	}
	if v.j == nil || chunk >= int64(len(v.at)) {
		return fmt.Errorf("tree of %d leaves has no chunk %d", v.size, chunk)
	}
	v.cache, v.chunk = nil, chunk
	leaves := make([]tlog.Hash, 0, chunkLeaves)
	first := uint64(chunk) * chunkLeaves
	for group, err := range v.j.Groups(v.at[chunk]) {
		if err != nil {
			return fmt.Errorf("tree: %w", err)
		}
		g, err := openGroup(group)
		if err != nil {
			return fmt.Errorf("tree: %w", err)
		}
		for i, leaf := range g.leaves {
			if index := g.seal.First + uint64(i); index >= first && len(leaves) < chunkLeaves {
				leaves = append(leaves, tlog.Hash(leaf))
			}
		}
		if len(leaves) == chunkLeaves {
			break
		}
	}
	v.cache = leaves
	return nil
}

// root returns the root of the first size leaves.
func (v *view) root(size uint64) (receipts.Hash, error) {
	h, err := tlog.TreeHash(int64(size), v)
	if err != nil {
		return receipts.Hash{}, fmt.Errorf("tree: %w", err)
	}
	return receipts.Hash(h), nil
}

// proof returns the inclusion path of a leaf among the first size leaves.
func (v *view) proof(index, size uint64) (receipts.Proof, error) {
	p, err := tlog.ProveRecord(int64(size), int64(index), v)
	if err != nil {
		return receipts.Proof{}, fmt.Errorf("tree: %w", err)
	}
	return receipts.Proof{Index: index, Path: hashes(p)}, nil
}

// consistency proves that the first size leaves begin with the first old ones.
func (v *view) consistency(old, size uint64) ([]receipts.Hash, error) {
	p, err := tlog.ProveTree(int64(size), int64(old), v)
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return hashes(p), nil
}

func hashes(p []tlog.Hash) []receipts.Hash {
	out := make([]receipts.Hash, len(p))
	for i, h := range p {
		out[i] = receipts.Hash(h)
	}
	return out
}
