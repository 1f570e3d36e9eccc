//go:build linux

package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of what is collected from /gatehouse/out.
const (
	maxArtifacts     = 1_000
	maxArtifactBytes = 1 << 30 // of all together
)

// collect reads the regular files below dir, by path, once the agent is gone.
// SB-34: no link is followed, nothing outside dir is opened, and pipes and
// devices are left alone. Names are the agent's words.
func collect(dir string, put func(io.Reader) (string, int64, error)) (artifacts map[string]string, skipped []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("artifacts: %w", err)
	}
	defer root.Close()
	if put == nil {
		put = hashOnly
	}
	artifacts = make(map[string]string)
	left := int64(maxArtifactBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		skip := func(why string) error {
			if len(skipped) < maxArtifacts {
				skipped = append(skipped, path+": "+why)
			}
			return nil
		}
		switch {
		case err != nil:
			return skip("unreadable")
		case d.IsDir():
			if strings.Count(path, "/") > maxDepth {
				_ = skip("too deep")
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return skip("not a regular file")
		case len(artifacts) == maxArtifacts:
			_ = skip("more than 1,000 files")
			return fs.SkipAll
		}
		// Non-blocking, for a pipe that took the file's place after the listing.
		f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return skip("unreadable")
		}
		defer f.Close()
		fi, err := f.Stat()
		switch {
		case err != nil || !fi.Mode().IsRegular():
			return skip("not a regular file")
		case fi.Size() > left:
			return skip("over 1 GiB in all")
		}
		sum, n, err := put(io.LimitReader(f, left))
		if err != nil {
			return fmt.Errorf("artifacts: %w", err)
		}
		left -= n
		artifacts[path] = sum
		return nil
	})
	return artifacts, skipped, err
}

func hashOnly(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
