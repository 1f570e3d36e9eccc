package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Limits of one image, all layers together.
const (
	maxEntries = 1_000_000
	maxBytes   = 32 << 30
	maxName    = 4096
	maxLinks   = 40
)

// Whiteouts of the OCI layer format.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// unpacker writes layers into one folder. Every path goes through root, so that
// no name and no link of an archive leads out of it.
type unpacker struct {
	root    *os.Root
	entries int
	bytes   int64
}

// layers unpacks all layers of a manifest, each checked twice: the bytes as they
// are stored, and what they hold against the image's configuration.
func (u *unpacker) layers(l *layout, m document) error {
	raw, err := l.read(m.Config.Digest)
	if err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	if len(config.RootFS.DiffIDs) != len(m.Layers) {
		return fmt.Errorf("%d layers and %d names for them", len(m.Layers), len(config.RootFS.DiffIDs))
	}
	for i, d := range m.Layers {
		if err := u.layer(l, d, config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func (u *unpacker) layer(l *layout, d descriptor, diffID string) error {
	blob, err := l.blob(d.Digest)
	if err != nil {
		return err
	}
	defer blob.Close()
	stored, held := sha256.New(), sha256.New()
	packed := io.TeeReader(io.LimitReader(blob, maxBytes), stored)
	var plain io.Reader
	switch {
	case slices.Contains(plainTypes, d.MediaType):
		plain = packed
	case slices.Contains(gzipTypes, d.MediaType):
		z, err := gzip.NewReader(packed)
		if err != nil {
			return err
		}
		plain = z
	default:
		return fmt.Errorf("cannot unpack %q; save the image with gzip layers", d.MediaType)
	}
	plain = io.LimitReader(plain, maxBytes) // whatever it says that it holds
	if err := u.tar(io.TeeReader(plain, held)); err != nil {
		return err
	}
	// What is behind the archive's end counts for both digests.
	if _, err := io.Copy(io.Discard, io.TeeReader(plain, held)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil {
		return err
	}
	if digestOf(stored) != d.Digest || digestOf(held) != diffID {
		return errors.New("the bytes are not what their digest says")
	}
	return nil
}

func digestOf(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

func (u *unpacker) tar(r io.Reader) error {
	t := tar.NewReader(r)
	made := map[string]bool{} // by this layer: an opaque folder keeps them
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if u.entries++; u.entries > maxEntries || len(h.Name) > maxName {
			return errors.New("too many entries, or a name too long")
		}
		if err := u.entry(h, t, made); err != nil {
			return fmt.Errorf("%.100q: %w", h.Name, err)
		}
	}
}

// entry writes one member of a layer.
func (u *unpacker) entry(h *tar.Header, r io.Reader, made map[string]bool) error {
	name := path.Clean("/" + h.Name)[1:]
	if name == "" {
		return nil // the root folder itself
	}
	dir, base := path.Split(name)
	dir, err := u.inside(path.Clean("/" + dir)[1:])
	if err != nil {
		return err
	}
	at := path.Join(dir, base)
	switch {
	case base == opaque:
		return u.empty(dir, made)
	case strings.HasPrefix(base, whiteout):
		return u.root.RemoveAll(path.Join(dir, strings.TrimPrefix(base, whiteout)))
	}
	made[at] = true
	if h.Typeflag == tar.TypeDir {
		return u.folder(at, h.FileInfo().Mode().Perm())
	}
	// A file takes the place of whatever a lower layer had there.
	if err := u.root.RemoveAll(at); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(at, h, r)
	case tar.TypeSymlink:
		if len(h.Linkname) > maxName {
			return errors.New("link too long")
		}
		return u.root.Symlink(h.Linkname, at) // followed inside a sandbox, never here
	case tar.TypeLink:
		target := path.Clean("/" + h.Linkname)[1:]
		parent, err := u.inside(path.Clean("/" + path.Dir(target))[1:])
		if err != nil {
			return err
		}
		return u.root.Link(path.Join(parent, path.Base(target)), at)
	}
	return nil // devices, pipes and what else is no file of a root file system here
}

// inside returns a folder's real path below the root, made when it is not there.
// An absolute link means the image's own root.
func (u *unpacker) inside(dir string) (string, error) {
	at, rest, links := "", dir, 0
	for rest != "" && rest != "." {
		first, after, _ := strings.Cut(rest, "/")
		rest = after
		switch next := path.Join(at, first); {
		case first == "" || first == ".":
			continue
		case first == "..":
			at = path.Dir("/" + at)[1:]
			continue
		default:
			fi, err := u.root.Lstat(next)
			if errors.Is(err, fs.ErrNotExist) {
				// Not left to the node's umask: another user reads it.
				if err := errors.Join(u.root.Mkdir(next, 0o755), u.root.Chmod(next, 0o755)); err != nil {
					return "", err
				}
				at = next
				continue
			}
			if err != nil {
				return "", err
			}
			if fi.Mode()&fs.ModeSymlink == 0 {
				if !fi.IsDir() {
					return "", errors.New("a file stands where a folder must be")
				}
				at = next
				continue
			}
			if links++; links > maxLinks {
				return "", errors.New("too many links")
			}
			target, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(target, "/") {
				at = ""
			}
			rest = path.Join(target, rest)
			rest = strings.TrimPrefix(rest, "/")
		}
	}
	return at, nil
}

func (u *unpacker) folder(at string, mode fs.FileMode) error {
	fi, err := u.root.Lstat(at)
	if err == nil && !fi.IsDir() {
		if err := u.root.RemoveAll(at); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.root.Mkdir(at, 0o755); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return u.root.Chmod(at, mode|0o700) // the node must get in to unpack and remove it
}

func (u *unpacker) file(at string, h *tar.Header, r io.Reader) error {
	if u.bytes += h.Size; h.Size < 0 || u.bytes > maxBytes {
		return errors.New("the image is too large")
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	// No set-user-id and no set-group-id bit: nothing inside gains by them (SB-29).
	return errors.Join(err, f.Chmod(h.FileInfo().Mode().Perm()), f.Close())
}

// empty removes what lower layers put into a folder.
func (u *unpacker) empty(dir string, made map[string]bool) error {
	if dir == "" {
		dir = "."
	}
	d, err := u.root.Open(dir)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if at := path.Join(dir, n); !made[at] {
			if err := u.root.RemoveAll(at); err != nil {
				return err
			}
		}
	}
	return nil
}
