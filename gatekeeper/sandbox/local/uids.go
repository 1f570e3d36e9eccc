//go:build linux

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"gatehouse/internal/problem"
)

// uidPool hands out bare user ids, one per session, so that two sessions never
// share a kernel user: signals, descriptors in flight, keyrings and process
// counts are then a session's own (SB-19, SB-39).
//
// Several Gatehouse processes of one machine may have the same range. An id is
// taken by locking a file in a folder that only root can enter: no other user of
// the machine can hold one, and a lock vanishes with its process.
type uidPool struct {
	r    UIDRange
	mu   sync.Mutex
	next uint32
}

func newUIDPool(r UIDRange) *uidPool { return &uidPool{r: r, next: r.First} }

// take returns an id under which no process runs, and the lock that holds it.
func (p *uidPool) take() (uint32, *uidLock, error) {
	busy, err := usersWithProcesses()
	if err != nil {
		return 0, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range uint64(p.r.Last-p.r.First) + 1 {
		uid := p.next
		if p.next++; p.next > p.r.Last {
			p.next = p.r.First
		}
		if busy[uid] {
			continue
		}
		lock, err := lockUID(uid)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		return uid, lock, err
	}
	return 0, nil, problem.New(problem.Unavailable, fmt.Sprintf("every user id of sandbox.uids %d-%d is in use", p.r.First, p.r.Last), "widen sandbox.uids or run fewer sessions at once")
}

// uidLocks is the folder of the locks. It is root's alone.
const uidLocks = "/run/gatehouse/uids"

// uidLock holds one user id.
type uidLock struct{ f *os.File }

// Close gives the id back and leaves no file.
func (l *uidLock) Close() error {
	err := os.Remove(l.f.Name()) // still locked: nobody else has it open for long
	return errors.Join(err, l.f.Close())
}

func lockUID(uid uint32) (*uidLock, error) {
	if err := closedFolder(filepath.Dir(uidLocks)); err != nil {
		return nil, fmt.Errorf("lock user id: %w", err)
	}
	if err := closedFolder(uidLocks); err != nil {
		return nil, fmt.Errorf("lock user id: %w", err)
	}
	path := filepath.Join(uidLocks, strconv.FormatUint(uint64(uid), 10))
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock user id: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock user id: %w", err)
		}
		// Whoever held it before may have removed the file in between.
		opened, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, there) {
			return &uidLock{f}, nil
		}
		_ = f.Close()
	}
}

// closedFolder makes a folder that only its owner, who is root, may enter.
func closedFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || !fi.IsDir() || st.Uid != 0 || fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not root's alone", dir)
	}
	return nil
}

// usersWithProcesses returns the owners of all processes: a node that was
// killed may have left a session dying for a moment.
func usersWithProcesses() (map[uint32]bool, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	users := make(map[uint32]bool)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+name, &st) == nil {
			users[st.Uid] = true
		}
	}
	return users, nil
}
