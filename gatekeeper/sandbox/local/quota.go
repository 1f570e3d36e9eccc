//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The quota is watched, not reserved: Linux offers per-folder limits only with
// file system features that a node may lack. Three means together keep the
// node's disk (SB-38):
//
//   - RLIMIT_FSIZE: no single file may exceed the quota;
//   - four times a second statfs says how much the file system lost; when that could
//     exceed what the session has left, or at the latest every walkEvery times
//     the last walk's duration, the session's folders are counted;
//   - a file system with less than reserveBytes or reserveFiles left ends the
//     sessions that wrote to it, so that the journal has space.
//
// A session can therefore overshoot its quota by what it writes in a
// quarter of a second plus one walk, and is then ended.
const (
	lookEvery    = 250 * time.Millisecond
	walkEvery    = 20
	maxInodes    = 2_000_000
	maxDepth     = 256
	reserveBytes = 512 << 20
	reserveFiles = 10_000
)

// watcher measures the writable folders of one session.
type watcher struct {
	dirs  []string
	limit int64
}

// run returns why the quota is exceeded, or nil when ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var nextWalk time.Time
	var headroom, freeAtWalk int64
	for {
		free, files, err := freeOn(w.dirs[0])
		if err != nil {
			return fmt.Errorf("quota: %w", err)
		}
		used := int64(-1)
		if time.Now().After(nextWalk) || freeAtWalk-free > headroom || free < reserveBytes || files < reserveFiles {
			began := time.Now()
			if used, err = w.measure(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			headroom, freeAtWalk = w.limit-used, free
			nextWalk = time.Now().Add(max(4*lookEvery, walkEvery*time.Since(began)))
		}
		switch {
		case used > w.limit:
			return fmt.Errorf("quota: %d bytes in workspace, home, tmp and out, %d allowed", used, w.limit)
		case used >= 0 && (free < reserveBytes || files < reserveFiles) && used > reserveBytes/8:
			return fmt.Errorf("quota: the node's disk has %d bytes and %d files left", free, files)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func freeOn(dir string) (bytes, files int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	files = int64(st.Ffree)
	if st.Files == 0 {
		files = 1 << 62 // a file system without a fixed number of inodes
	}
	return int64(st.Bavail) * st.Bsize, files, nil
}

// errTooMany ends a session whose folders cannot be counted in reasonable time.
var errTooMany = fmt.Errorf("quota: more than %d files, or folders deeper than %d", maxInodes, maxDepth)

// measure sums the disk blocks of the folders. The agent changes them while
// they are walked: nothing outside is ever opened (os.Root), no link is
// followed, and what vanishes is skipped (SB-34).
func (w *watcher) measure(ctx context.Context) (int64, error) {
	var used int64
	inodes := 0
	linked := make(map[uint64]bool)
	for _, dir := range w.dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return 0, fmt.Errorf("quota: %w", err)
		}
		err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // unreadable or gone; its blocks are counted by its parent's entry
			}
			if inodes++; inodes > maxInodes || strings.Count(path, "/") > maxDepth {
				return errTooMany
			}
			if inodes%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			fi, err := d.Info()
			if err != nil {
				return nil
			}
			st, ok := fi.Sys().(*syscall.Stat_t)
			if !ok {
				return errors.New("quota: no block count")
			}
			if st.Nlink > 1 && !fi.IsDir() {
				if linked[st.Ino] {
					return nil
				}
				linked[st.Ino] = true
			}
			used += st.Blocks * 512
			return nil
		})
		root.Close()
		if err != nil {
			return 0, err
		}
	}
	return used, nil
}
