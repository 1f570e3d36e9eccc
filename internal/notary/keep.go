package notary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// checkpointName is the newest checkpoint's name in a folder of Options.Keep,
// beside the C2SP tiles.
const checkpointName = "checkpoint"

// keeper writes checkpoints and tiles into one folder.
type keeper struct {
	dir  string
	size uint64 // of the checkpoint there
}

// recall reads what the folders keep and refuses a log that is behind it, or
// another one: a rolled back journal would be sealed a second time.
func (n *Notary) recall() error {
	ks := own(n.o.Keys.keyset)
	for _, dir := range n.o.Keep {
		k := &keeper{dir: dir}
		n.keepers = append(n.keepers, k)
		note, err := os.ReadFile(filepath.Join(dir, checkpointName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			n.complain(dir, err) // a copy that cannot be read protects nothing, and says so
			continue
		}
		cp, err := receipts.ParseCheckpoint(note, ks)
		if err != nil {
			return problem.Wrap(err, problem.LogInconsistent, "the checkpoint kept in "+dir+" is not one of this log", "Find out who wrote it before you remove it.")
		}
		size := uint64(n.tree.size)
		if cp.Size > size { // RC-16
			return inconsistent(n.next, fmt.Errorf("the checkpoint kept in %s is of %d leaves, the journal has %d", dir, cp.Size, size))
		}
		root, err := n.tree.view(n.j).root(cp.Size)
		if err != nil {
			return err
		}
		if root != cp.Root { // RC-14
			return inconsistent(n.next, fmt.Errorf("the checkpoint kept in %s has another root at size %d", dir, cp.Size))
		}
		k.size = cp.Size
	}
	return nil
}

// keep writes the newest checkpoint and the tiles it needs into every folder.
// Tiles go first, so that a checkpoint there can always be proven from there. A
// folder that fails is reported and catches up with the next checkpoint.
func (n *Notary) keep(e *ending) {
	for _, k := range n.keepers {
		n.mu.Lock()
		v := n.tree.view(n.j)
		n.mu.Unlock()
		err := receipts.WriteTiles(k.size, e.checkpoint.Size, v, k.put)
		if err == nil {
			err = k.put(checkpointName, e.note)
		}
		if err != nil {
			n.complain(k.dir, err)
			continue
		}
		k.size = e.checkpoint.Size
	}
}

func (n *Notary) complain(dir string, err error) {
	if n.o.Kept != nil {
		n.o.Kept(dir, err)
	}
}

// openFolder makes a folder, and those above it, for everybody to read, as what is
// kept is to be served: under the node's own umask they would be closed.
func openFolder(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = openFolder(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // not a folder: the file below it says so
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// put writes a file so that a reader sees it whole or not at all.
func (k *keeper) put(name string, b []byte) error {
	path := filepath.Join(k.dir, filepath.FromSlash(name))
	if err := openFolder(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	// The partial versions of a tile are of no use beside the full one.
	return os.RemoveAll(path + ".p")
}
