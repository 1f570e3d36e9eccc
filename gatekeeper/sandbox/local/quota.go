//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
//     the last walk's duration, the session's folders are counted, and with them
//     the files that have lost their last name and are still open or mapped;
//   - a file system with less than reserveBytes or reserveFiles left ends the
//     sessions that wrote to it, so that the journal has space: those that use
//     much, and those that ran while it lost much more than it had to lose.
//
// A nameless file that is under way between two sockets can be counted by nobody.
// The kernel tells how many descriptors wait in a socket: while any do, what the
// disk lost is held against the session.
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
	init  int // the sandbox's PID 1, 0 = none whose files could be open

	closed bool // the last walk met a folder that this user may not read
	away   bool // the last walk met a socket in which descriptors wait
}

// run returns why the quota is exceeded, or nil when ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var nextWalk time.Time
	var headroom, freeAtWalk int64
	atFirst := int64(-1) // bytes free when the session began
	for {
		free, files, err := freeOn(w.dirs[0])
		if err != nil {
			return fmt.Errorf("quota: %w", err)
		}
		atFirst = max(atFirst, free)
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
		case used >= 0 && w.closed && atFirst-free > w.limit:
			// An ordinary user's node cannot look into a folder of mode 0: what the
			// disk lost since the session began is then held against it.
			return fmt.Errorf("quota: folders that cannot be counted, and the disk lost %d bytes, %d allowed", atFirst-free, w.limit)
		case used >= 0 && w.away && atFirst-free > w.limit:
			return fmt.Errorf("quota: files under way in sockets, and the disk lost %d bytes, %d allowed", atFirst-free, w.limit)
		case used >= 0 && (free < reserveBytes || files < reserveFiles) && (used > reserveBytes/8 || atFirst-free > reserveBytes):
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
	linked := make(map[uint64]bool)
	w.away = false
	used := w.nameless(ctx, linked)
	inodes := 0
	w.closed = false
	for _, dir := range w.dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return 0, fmt.Errorf("quota: %w", err)
		}
		err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				w.closed = w.closed || errors.Is(err, fs.ErrPermission)
				return nil // unreadable or gone
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

// nameless sums the files that were unlinked and that a process of the sandbox
// still holds, open or mapped, which no folder shows. Every thread is asked: it
// may have a descriptor table of its own.
func (w *watcher) nameless(ctx context.Context, seen map[uint64]bool) (used int64) {
	var at unix.Stat_t
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", w.init))
	if w.init == 0 || err != nil || unix.Stat(w.dirs[0], &at) != nil {
		return 0
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		if here, err := os.Readlink(process + "/ns/pid"); err != nil || here != space {
			continue // another's, or gone
		}
		holders, _ := filepath.Glob(process + "/task/*/fd")
		for _, dir := range append(holders, process+"/map_files") {
			if ctx.Err() != nil {
				return used
			}
			used += w.namelessIn(dir, at.Dev, seen)
		}
	}
	return used
}

// namelessIn sums them for one folder of links to files.
func (w *watcher) namelessIn(dir string, device uint64, seen map[uint64]bool) (used int64) {
	d, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(d.Fd()), name, &st, 0) != nil {
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			w.away = w.away || waiting(filepath.Join(filepath.Dir(dir), "fdinfo", name))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 || st.Dev != device || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		used += st.Blocks * 512
	}
	return used
}

// waiting reports whether descriptors wait in a unix socket.
func waiting(fdinfo string) bool {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return false // gone, or no such file for a mapping
	}
	_, rest, found := strings.Cut(string(b), "scm_fds:")
	if !found {
		return false
	}
	count, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	return count != "0"
}
