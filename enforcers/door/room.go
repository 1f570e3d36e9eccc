package door

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// ownConns is how many connections every door may hold whatever the others do.
const ownConns = 8

// Room bounds the connections of all doors of one node together, so that
// sessions, however many there are, leave the journal, the streams and the hooks
// their descriptors. Each door has a few places of its own; the others are
// shared.
type Room struct {
	shared chan struct{}
	most   int64 // doors
	doors  atomic.Int64
}

// NewRoom returns the room of a process that may open so many descriptors; 0 asks
// the system. Doors get a quarter of them, half of it as places of their own.
func NewRoom(descriptors uint64) *Room {
	if descriptors == 0 {
		var l syscall.Rlimit
		if descriptors = 1024; syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
			descriptors = l.Cur
		}
	}
	part := max(32, int(min(descriptors, 1<<20)/8))
	return &Room{shared: make(chan struct{}, part), most: int64(max(2, part/ownConns))}
}

// join is for one door, until the returned function is called.
func (r *Room) join() (leave func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	if r.doors.Add(1) > r.most {
		r.doors.Add(-1)
		return nil, errors.New("the node has no descriptors for another door")
	}
	return sync.OnceFunc(func() { r.doors.Add(-1) }), nil
}

// enter waits for a place: one of own first, then a shared one. It returns nil
// when ctx ends.
func (r *Room) enter(ctx context.Context, own chan struct{}) (leave func()) {
	back := func(places chan struct{}) func() { return func() { <-places } }
	if r == nil {
		return func() {}
	}
	select {
	case own <- struct{}{}:
		return back(own)
	default:
	}
	select {
	case own <- struct{}{}:
		return back(own)
	case r.shared <- struct{}{}:
		return back(r.shared)
	case <-ctx.Done():
		return nil
	}
}
