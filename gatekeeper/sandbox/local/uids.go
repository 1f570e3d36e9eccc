//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"gatehouse/internal/problem"
)

// uidPool hands out bare user ids, one per session, so that two sessions never
// share a kernel user: signals, descriptors in flight, keyrings and process
// counts are then a session's own (SB-19, SB-39).
//
// Several Gatehouse processes of one machine may have the same range. An id is
// taken by binding an abstract unix socket, which only the host's network
// namespace can see and which vanishes with its process.
type uidPool struct {
	r    UIDRange
	mu   sync.Mutex
	next uint32
}

func newUIDPool(r UIDRange) *uidPool { return &uidPool{r: r, next: r.First} }

// take returns an id under which no process runs, and the lock that holds it.
func (p *uidPool) take() (uint32, *os.File, error) {
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
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		return uid, lock, err
	}
	return 0, nil, problem.New(problem.Unavailable, fmt.Sprintf("every user id of sandbox.uids %d-%d is in use", p.r.First, p.r.Last), "widen sandbox.uids or run fewer sessions at once")
}

func lockUID(uid uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock user id: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@gatehouse/uid/" + strconv.Itoa(int(uid))}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lock user id: %w", err)
	}
	return os.NewFile(uintptr(fd), "uid-lock"), nil
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
