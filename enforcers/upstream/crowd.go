package upstream

import (
	"sync"
	"syscall"
)

// maxPerSession is how many connections one session may hold outside at a time,
// as many as it may hold to its door: with HTTP/2 inside and HTTP/1.1 outside
// each stream would otherwise be a descriptor of the node.
const maxPerSession = 256

// ownPerSession is how many each session may hold whatever the others do.
const ownPerSession = 4

// crowd counts the connections outside, so that the descriptors of the journal,
// the streams and the hooks are not taken by sessions, nor all of theirs by a
// few.
type crowd struct {
	mu    sync.Mutex
	by    map[string]int
	all   int // beyond each session's own
	most  int // of all sessions beyond their own, 0 = not known yet
	limit func() uint64
}

// enter takes a place for a session; leave gives it back and may be called more
// than once.
func (c *crowd) enter(session string) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most == 0 {
		if c.limit == nil {
			c.limit = descriptors
		}
		c.most = max(64, int(min(c.limit(), 1<<20)/4))
	}
	n := c.by[session]
	if n >= ownPerSession && (n >= min(maxPerSession, c.most/2) || c.all >= c.most) {
		return nil, false
	}
	if c.by == nil {
		c.by = make(map[string]int)
	}
	if c.by[session]++; n >= ownPerSession {
		c.all++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.by[session]--; c.by[session] >= ownPerSession {
			c.all--
		}
		if c.by[session] == 0 {
			delete(c.by, session)
		}
	}), true
}

// descriptors is how many this process may open.
func descriptors() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return l.Cur
}
