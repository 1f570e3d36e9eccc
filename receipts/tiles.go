package receipts

import (
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// tileHeight is that of C2SP tlog-tiles: 256 hashes a full tile.
const tileHeight = 8

// WriteTiles calls put for every C2SP hash tile that a log of size leaves has
// and one of oldSize leaves had not, with the tile's path ("tile/0/x001/067",
// "tile/1/000.p/7") and content. r reads the log's stored hashes; a Tree does. A
// partial tile may be deleted once the full one is written.
func WriteTiles(oldSize, size uint64, r tlog.HashReader, put func(path string, data []byte) error) error {
	if size > maxTree || oldSize > size {
		return fmt.Errorf("tiles: from %d to %d", oldSize, size)
	}
	for _, t := range tlog.NewTiles(tileHeight, int64(oldSize), int64(size)) {
		data, err := tlog.ReadTileData(t, r)
		if err != nil {
			return fmt.Errorf("tiles: %w", err)
		}
		if err := put(tilePath(t), data); err != nil {
			return fmt.Errorf("tiles: %w", err)
		}
	}
	return nil
}

// tilePath is tlog's path without the height, which C2SP fixes at 8.
func tilePath(t tlog.Tile) string {
	return "tile/" + strings.TrimPrefix(t.Path(), fmt.Sprintf("tile/%d/", tileHeight))
}

// Tiles makes proofs about a checkpoint's tree from hash tiles. Every tile that
// it reads is first checked against the checkpoint's root, so the folder need
// not be trusted.
type Tiles struct {
	size uint64
	r    tlog.HashReader
}

// OpenTiles reads tiles below fsys as WriteTiles names them.
func OpenTiles(fsys fs.FS, cp *Checkpoint) *Tiles {
	tree := tlog.Tree{N: int64(cp.Size), Hash: tlog.Hash(cp.Root)}
	return &Tiles{cp.Size, tlog.TileHashReader(tree, &tileFolder{fsys})}
}

// Proof returns the inclusion path of leaf index in the checkpoint's tree.
func (t *Tiles) Proof(index uint64) (Proof, error) {
	if index >= t.size {
		return Proof{}, fmt.Errorf("tiles: no leaf %d in a tree of %d", index, t.size)
	}
	p, err := tlog.ProveRecord(int64(t.size), int64(index), t.r)
	if err != nil {
		return Proof{}, fmt.Errorf("tiles: %w", err)
	}
	return Proof{Index: index, Path: hashPath(p)}, nil
}

// Consistency returns the proof that the checkpoint's tree begins with the tree
// of oldSize leaves.
func (t *Tiles) Consistency(oldSize uint64) ([]Hash, error) {
	if oldSize == 0 || oldSize > t.size {
		return nil, fmt.Errorf("tiles: no consistency from %d to %d", oldSize, t.size)
	}
	p, err := tlog.ProveTree(int64(t.size), int64(oldSize), t.r)
	if err != nil {
		return nil, fmt.Errorf("tiles: %w", err)
	}
	return hashPath(p), nil
}

// tileFolder is a tlog.TileReader over files.
type tileFolder struct{ fs.FS }

func (*tileFolder) Height() int { return tileHeight }

func (f *tileFolder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	out := make([][]byte, len(tiles))
	for i, t := range tiles {
		data, err := fs.ReadFile(f, tilePath(t))
		if err != nil {
			return nil, err
		}
		out[i] = data
	}
	return out, nil
}

// SaveTiles does nothing: the folder is the store.
func (*tileFolder) SaveTiles([]tlog.Tile, [][]byte) {}
