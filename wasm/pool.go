package wasm

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// pool holds the instances of one (module, configure message). One call at a
// time uses an instance; instances are closed here and nowhere else.
type pool struct {
	module    *Module
	key       [32]byte
	configure []byte
	users     int           // guarded by module.mu
	turns     chan struct{} // one token per instance that may exist
	used      atomic.Int64  // ledger time of the last take

	mu     sync.Mutex
	image  *image      // nil until there was an instance, and for the built-in module
	idle   []*instance // last in, first out: a quiet pool keeps one warm instance
	closed bool
}

func newPool(m *Module, key [32]byte, configure []byte) *pool {
	n := runtime.GOMAXPROCS(0)
	p := &pool{module: m, key: key, configure: configure, turns: make(chan struct{}, n)}
	for range n {
		p.turns <- struct{}{}
	}
	return p
}

// take returns a ready instance, waiting while all are busy. The caller holds
// module.life for reading until it has put or dropped the instance.
func (p *pool) take(ctx context.Context) (*instance, error) {
	select {
	case <-p.turns:
	default:
		select {
		case <-p.turns:
		case <-ctx.Done():
			return nil, fault(HostError, "no instance became free in time")
		}
	}
	live := p.module.host.live
	p.used.Store(live.tick())
	p.mu.Lock()
	if p.closed || p.module.closed {
		p.mu.Unlock()
		p.turns <- struct{}{}
		return nil, fault(HostError, "the enforcer is closed")
	}
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return in, nil
	}
	img := p.image
	p.mu.Unlock()
	live.admit(p)
	in, err := p.make(img)
	if err != nil {
		live.leave()
		p.turns <- struct{}{}
		return nil, err
	}
	return in, nil
}

// make returns a new instance, from the pool's image when there is one.
func (p *pool) make(img *image) (*instance, error) {
	if img != nil {
		return fromImage(p.module, img)
	}
	in, err := configured(p.module, p.configure)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.image == nil {
		p.image = in.image
	}
	p.mu.Unlock()
	return in, nil
}

// put gives a healthy instance back.
func (p *pool) put(in *instance) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.drop(in)
		return
	}
	p.idle = append(p.idle, in)
	p.mu.Unlock()
	p.turns <- struct{}{}
}

// drop closes an instance that must not be used again: it faulted, or the pool
// is closed.
func (p *pool) drop(in *instance) {
	in.close()
	p.module.host.live.leave()
	p.turns <- struct{}{}
}

// evict closes one idle instance and reports whether there was one.
func (p *pool) evict() bool {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		return false
	}
	in := p.idle[0]
	p.idle = append(p.idle[:0], p.idle[1:]...)
	p.mu.Unlock()
	in.close()
	return true
}

// close closes the idle instances now and the busy ones as they come back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	live := p.module.host.live
	live.forget(p)
	for _, in := range idle {
		in.close()
		live.leave()
	}
}

// ledger counts the live instances of a host and makes room for new ones.
type ledger struct {
	limit int
	clock atomic.Int64

	created, faulted, slow atomic.Int64

	mu    sync.Mutex
	count int
	pools map[*pool]struct{} // every pool that ever had an instance and is not closed
}

func (l *ledger) tick() int64 { return l.clock.Add(1) }

// admit counts one more instance of p. Over the limit it closes the idle
// instance of the pool that was used longest ago; when every instance is busy
// the limit gives way, since the busy ones are bounded by the pools' turns.
func (l *ledger) admit(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools == nil {
		l.pools = make(map[*pool]struct{})
	}
	l.pools[p] = struct{}{}
	l.count++
	l.created.Add(1)
	for l.count > l.limit {
		var oldest *pool
		for q := range l.pools {
			if q != p && q.hasIdle() && (oldest == nil || q.used.Load() < oldest.used.Load()) {
				oldest = q
			}
		}
		if oldest == nil || !oldest.evict() {
			return
		}
		l.count--
	}
}

func (l *ledger) leave() {
	l.mu.Lock()
	l.count--
	l.mu.Unlock()
}

func (l *ledger) forget(p *pool) {
	l.mu.Lock()
	delete(l.pools, p)
	l.mu.Unlock()
}

func (p *pool) hasIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}
