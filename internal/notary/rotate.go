package notary

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Files of a key change under way. While nextFile is there the keys do not load:
// the log may already say that the change happened.
const (
	nextFile   = "keyset.next"
	nextSuffix = ".next"
)

// KeyChange is one change of a node's keyset. The zero Purpose with Retire ends
// the log: nothing can be sealed after it.
type KeyChange struct {
	Purpose receipts.Purpose // whose active key ends and gets a successor
	Retire  bool             // end both keys, without successors
	Revoke  bool             // the ended key's secret is lost
	From    uint64           // with Revoke: first log index at which it was no longer the node's alone
}

// ChangeKeys ends keys of a log that nobody else has open and puts successors in
// force. The receipts that say so are sealed by the outgoing key and covered by
// an outgoing checkpoint; the root signs the keyset that follows. It returns the
// new keyset's note. dir is the key folder, which LoadKeys read; the process
// must load the keys again before anything else is written.
//
// A change that was cut short is finished by the next call, whatever it asks
// for: the log may have said already that it happened.
func ChangeKeys(ctx context.Context, dir string, n *Notary, c KeyChange) (note []byte, err error) {
	keys := n.o.Keys
	next, err := keys.unfinished(dir)
	if err != nil {
		return nil, err
	}
	if next != nil {
		if end, size := ended(keys.keyset, next), n.Size(); size > end || size+steps(keys.keyset, next) < end {
			return nil, inconsistent(0, fmt.Errorf("a key change at index %d was cut short and the log has %d leaves", end, size))
		}
	}
	if next == nil {
		if next, err = keys.prepare(dir, n.Size(), c); err != nil {
			return nil, err
		}
	}
	if err := n.tell(ctx, next); err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	// From here on the new keyset is in force.
	if err := os.Rename(filepath.Join(dir, nextFile), filepath.Join(dir, keysetFile)); err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	if err := errors.Join(adopt(dir, sealFile), adopt(dir, checkpointFile), syncDir(dir)); err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	return readKeyFile(dir, keysetFile)
}

// prepare writes the successors and the keyset that names them, before the log
// says anything.
func (k *Keys) prepare(dir string, size uint64, c KeyChange) (*receipts.Keyset, error) {
	if k.root == nil {
		return nil, problem.New(problem.KeysMissing, "the root key is not here", "Bring it for the change: --root-key FILE.")
	}
	if c.Revoke && c.From > size {
		return nil, problem.New(problem.Usage, fmt.Sprintf("the log has only %d leaves", size), "Name the first index that cannot be trusted.")
	}
	next := k.keyset.Next()
	purposes := []receipts.Purpose{c.Purpose}
	if c.Retire {
		purposes = []receipts.Purpose{receipts.SealKey, receipts.CheckpointKey}
	}
	fresh := map[receipts.Purpose]ed25519.PrivateKey{}
	if !c.Retire {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("change keys: %w", err)
		}
		fresh[c.Purpose] = private
	}
	// key.retire or key.revoke for each, key.add for each, and a manifest.
	until := size + uint64(len(purposes)+len(fresh)) + 1
	for _, p := range purposes {
		i := activeIndex(next, p)
		if i < 0 {
			return nil, problem.New(problem.KeysInvalid, "there is no active "+string(p)+" key", "")
		}
		old := &next.Keys[i]
		old.Until = until
		if c.Revoke {
			old.Until, old.Revoked = max(c.From, old.From, 1), true
		}
		if private, ok := fresh[p]; ok {
			next.Keys = append(next.Keys, receipts.Key{Purpose: p, Name: old.Name, Public: public(private), From: until})
		}
	}
	if err := next.Follows(k.keyset); err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	note, err := next.Sign(k.root)
	if err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	for p, private := range fresh {
		b, err := encodeKey(private)
		if err != nil {
			return nil, fmt.Errorf("change keys: %w", err)
		}
		if err := replaceFile(dir, fileOf(p)+nextSuffix, b); err != nil {
			return nil, fmt.Errorf("change keys: %w", err)
		}
	}
	if err := errors.Join(replaceFile(dir, nextFile, note), syncDir(dir)); err != nil {
		return nil, fmt.Errorf("change keys: %w", err)
	}
	return next, nil
}

// unfinished returns the keyset of a change that was cut short, nil if there is
// none.
func (k *Keys) unfinished(dir string) (*receipts.Keyset, error) {
	note, err := readKeyFile(dir, nextFile)
	if problem.CodeOf(err) == problem.KeysMissing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	next, err := receipts.ParseKeyset(note, k.RootFingerprint())
	if err == nil {
		err = next.Follows(k.keyset)
	}
	if err != nil {
		return nil, invalidKey(nextFile, err)
	}
	return next, nil
}

// tell writes into the log what the next keyset changes, and a checkpoint of the
// outgoing key over it. What an earlier try has written is not written again.
func (n *Notary) tell(ctx context.Context, next *receipts.Keyset) error {
	events := changes(n.o.Keys.keyset, next)
	done := len(events) + 1 - int(ended(n.o.Keys.keyset, next)-n.Size())
	for i := max(done, 0); i < len(events); i++ {
		if _, err := n.control.Append(ctx, events[i]); err != nil {
			return err
		}
	}
	if done > len(events) {
		return nil
	}
	_, err := n.checkpoint(ctx)
	return err
}

// changes are the receipts that tell next's difference from old.
func changes(old, next *receipts.Keyset) (out []receipts.Receipt) {
	for i, k := range next.Keys {
		typ := receipts.TypeKeyAdd
		switch {
		case i >= len(old.Keys):
		case k.Until == old.Keys[i].Until && k.Revoked == old.Keys[i].Revoked:
			continue
		case k.Revoked:
			typ = receipts.TypeKeyRevoke
		default:
			typ = receipts.TypeKeyRetire
		}
		out = append(out, keyReceipt(typ, k))
	}
	return out
}

func keyReceipt(typ receipts.Type, k receipts.Key) receipts.Receipt {
	return receipts.Receipt{Type: typ, Key: &receipts.KeyEvent{
		Purpose: string(k.Purpose), ID: k.ID(), Public: receipts.Hash(k.Public), From: k.From, Until: k.Until,
	}}
}

// steps is how many leaves tell writes, its manifest included.
func steps(old, next *receipts.Keyset) uint64 { return uint64(len(changes(old, next))) + 1 }

// ended is the log size at which old hands over to next.
func ended(old, next *receipts.Keyset) (size uint64) {
	for i, k := range next.Keys {
		switch {
		case i >= len(old.Keys):
			size = max(size, k.From)
		case k.Until != old.Keys[i].Until && !k.Revoked:
			size = max(size, k.Until)
		}
	}
	return size
}

func activeIndex(ks *receipts.Keyset, p receipts.Purpose) int {
	for i, k := range ks.Keys {
		if k.Purpose == p && k.Until == 0 {
			return i
		}
	}
	return -1
}

// own is the keyset as the node needs it to read its own journal: a revoked key
// did seal until its successor took over, whatever an auditor makes of that.
func own(ks *receipts.Keyset) *receipts.Keyset {
	out := *ks
	out.Keys = append([]receipts.Key(nil), ks.Keys...)
	for i := range out.Keys {
		k := &out.Keys[i]
		if !k.Revoked {
			continue
		}
		k.Revoked, k.Until = false, 0
		for _, later := range ks.Keys[i+1:] {
			if later.Purpose == k.Purpose {
				k.Until = later.From
				break
			}
		}
	}
	return &out
}

// UseRoot reads a root key that is kept elsewhere. The node never needs it.
func (k *Keys) UseRoot(path string) error {
	root, err := readSigningKey(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	if !k.keyset.Root.Public.Equal(public(root)) {
		return invalidKey(filepath.Base(path), errors.New("the keyset is signed by another root"))
	}
	k.root = root
	return nil
}

func fileOf(p receipts.Purpose) string {
	if p == receipts.SealKey {
		return sealFile
	}
	return checkpointFile
}

func encodeKey(k ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// replaceFile writes a file of a change, in place of one that an earlier change
// gave up.
func replaceFile(dir, name string, b []byte) error {
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeKeyFile(path, b)
}

// adopt puts the successor of a key in its place, if there is one.
func adopt(dir, name string) error {
	err := os.Rename(filepath.Join(dir, name+nextSuffix), filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
