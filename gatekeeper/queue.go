package gatekeeper

import (
	"context"
	"sync"
)

// queue hands out the places in which sessions may run: so many on the node,
// and so many for one concurrency key. Waiting is first come, first served
// among those whose key has room.
type queue struct {
	mu      sync.Mutex
	limit   int
	running int
	byKey   map[string]int
	waiting []*place
}

// place is one session's wait. An empty key is limited by the node alone.
type place struct {
	key   string
	max   int
	ready chan struct{}
}

func newQueue(limit int) *queue { return &queue{limit: limit, byKey: map[string]int{}} }

// enter waits for a place, or for ctx's end. leave gives the place back and is
// called exactly once when err is nil.
func (q *queue) enter(ctx context.Context, key string, limit int) (leave func(), err error) {
	p := &place{key: key, max: limit, ready: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, p)
	q.serve()
	q.mu.Unlock()
	select {
	case <-p.ready:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case <-p.ready: // served at the same moment
			q.give(p)
		default:
			q.remove(p)
		}
		return nil, context.Cause(ctx)
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.give(p)
	}, nil
}

// serve starts whoever has room. The caller holds mu.
func (q *queue) serve() {
	for i := 0; i < len(q.waiting) && q.running < q.limit; {
		p := q.waiting[i]
		if p.key != "" && q.byKey[p.key] >= p.max {
			i++
			continue
		}
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
		q.running++
		if p.key != "" {
			q.byKey[p.key]++
		}
		close(p.ready)
	}
}

func (q *queue) give(p *place) {
	q.running--
	if p.key != "" {
		if q.byKey[p.key]--; q.byKey[p.key] == 0 {
			delete(q.byKey, p.key)
		}
	}
	q.serve()
}

func (q *queue) remove(p *place) {
	for i, w := range q.waiting {
		if w == p {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
}
