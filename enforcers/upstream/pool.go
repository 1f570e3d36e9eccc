package upstream

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/internal/authority"
)

// poolKey says who may reuse a connection: the same session, going to the same
// authority, under the same policy and a rule that opens the same addresses. A
// connection's address is pinned when it is opened and never looked up again, so
// reuse needs no new check (EG-35).
type poolKey struct {
	session    string
	to         authority.Authority
	ranges     string // the rule's addresses: a would-block, which has none, goes to public ones alone
	generation uint64
}

func spelled(ranges []netip.Prefix) string {
	var b []byte
	for _, p := range ranges {
		b = append(p.AppendTo(b), ' ')
	}
	return string(b)
}

// pool holds the HTTP connections, in use or idle.
type pool struct {
	keep time.Duration
	mu   sync.Mutex
	by   map[poolKey]*clients
	look *time.Timer // of sweep; runs while there are connections
}

// clients are the connections of one key.
type clients struct {
	all  map[*client]struct{}
	free []*client // those that may take a request, the one used last at the end
}

// client is one HTTP connection. Reserve and Release on cc arbitrate its use.
type client struct {
	cc     wire
	conn   *conn
	free   bool // it stands in clients.free; guarded by the pool
	reused atomic.Bool
	used   atomic.Bool  // since the last sweep; set with the pool locked, before it is reserved
	since  atomic.Int64 // time of the last sweep that found it in use
}

// reuse returns a reserved connection of the key, or nil. Reserve may be the
// first to see that a connection broke and then runs its state hook, which takes
// it out of the pool: it must not be called with the pool locked.
func (p *pool) reuse(key poolKey) *client {
	for {
		c := p.take(key)
		if c == nil || c.cc.Reserve() == nil {
			if c != nil {
				c.reused.Store(true)
				p.offer(key, c) // HTTP/2 takes more than one
			}
			return c
		}
	}
}

// take takes the connection out that was used last.
func (p *pool) take(key poolKey) *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.by[key]
	if set == nil || len(set.free) == 0 {
		return nil
	}
	last := len(set.free) - 1
	c := set.free[last]
	set.free[last], set.free, c.free = nil, set.free[:last], false
	c.used.Store(true) // it may be reserved any time from now on
	return c
}

// offer puts a connection among those that may take a request, if it may.
func (p *pool) offer(key poolKey, c *client) {
	if c.cc.Available() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.by[key]; set != nil && !c.free {
		if _, ok := set.all[c]; ok {
			set.free, c.free = append(set.free, c), true
		}
	}
}

// lookEvery is how often the connections that nobody uses are looked at: one
// that its server gave up is a descriptor that others may need.
const lookEvery = time.Second

// add takes a new, reserved connection in. It leaves the pool when it breaks,
// when its permission ends, or after keep without use.
func (p *pool) add(key poolKey, k *conn, cc wire) *client {
	c := &client{cc: cc, conn: k}
	c.used.Store(true)
	p.mu.Lock()
	if p.by == nil {
		p.by = make(map[poolKey]*clients)
	}
	if p.by[key] == nil {
		p.by[key] = &clients{all: make(map[*client]struct{})}
	}
	p.by[key].all[c] = struct{}{}
	if p.look == nil {
		p.look = time.AfterFunc(p.every(), p.sweep)
	}
	p.mu.Unlock()
	cc.changed(func() {
		if cc.Err() != nil {
			p.drop(key, c)
			return
		}
		p.offer(key, c)
	})
	p.offer(key, c)
	return c
}

func (p *pool) every() time.Duration { return min(p.keep, lookEvery) }

// sweep drops the connections that are of no more use, and comes again as long
// as there are any. A timer for each of them would have to be set with each
// request.
func (p *pool) sweep() {
	type entry struct {
		key poolKey
		c   *client
	}
	var all []entry
	p.mu.Lock()
	for key, set := range p.by {
		for c := range set.all {
			all = append(all, entry{key, c})
		}
	}
	if len(all) == 0 {
		p.look = nil
	}
	p.mu.Unlock()
	now := time.Now().UnixNano()
	for _, e := range all {
		switch {
		case e.c.used.Swap(false), e.c.cc.InFlight() > 0:
			e.c.since.Store(now)
		case e.c.cc.leave(now-e.c.since.Load() >= int64(p.keep)):
			p.dropIf(e.key, e.c, func() bool { return !e.c.used.Load() }) // or somebody took it a moment ago
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.look != nil {
		p.look.Reset(p.every())
	}
}

// drop closes a connection and forgets it.
func (p *pool) drop(key poolKey, c *client) { p.dropIf(key, c, func() bool { return true }) }

// dropIf is drop, unless ok says no while nobody can take the connection.
func (p *pool) dropIf(key poolKey, c *client, ok func() bool) {
	p.mu.Lock()
	if !ok() {
		p.mu.Unlock()
		return
	}
	if set := p.by[key]; set != nil {
		delete(set.all, c)
		if c.free {
			set.free, c.free = slices.DeleteFunc(set.free, func(o *client) bool { return o == c }), false
		}
		if len(set.all) == 0 {
			delete(p.by, key)
		}
	}
	p.mu.Unlock()
	_ = c.cc.Close()
	_ = c.conn.Close()
}

func (p *pool) close() {
	p.mu.Lock()
	all := p.by
	p.by = nil
	if p.look != nil {
		p.look.Stop()
		p.look = nil
	}
	p.mu.Unlock()
	for _, set := range all {
		for c := range set.all {
			_ = c.cc.Close()
			_ = c.conn.Close()
		}
	}
}

// acquire returns a reserved HTTP connection for l, reused or new.
func (c *Client) acquire(ctx context.Context, l leave) (*client, error) {
	if k := c.pool.reuse(l.key); k != nil {
		return k, nil
	}
	return c.fresh(ctx, l)
}

// fresh opens a new HTTP connection for l and returns it reserved.
func (c *Client) fresh(ctx context.Context, l leave) (*client, error) {
	k, cc, err := c.http(ctx, l)
	if err != nil {
		return nil, err
	}
	return c.pool.add(l.key, k, cc), nil
}

// dedicated opens a connection for one request that may switch protocols. It
// is never shared; whoever has the response closes it.
func (c *Client) dedicated(ctx context.Context, l leave) (*client, error) {
	l.old = true
	k, cc, err := c.http(ctx, l)
	if err != nil {
		return nil, err
	}
	return &client{cc: cc, conn: k}, nil
}

func (c *Client) http(ctx context.Context, l leave) (*conn, wire, error) {
	k, err := c.open(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	cc, err := c.httpConn(ctx, l, k)
	if err != nil {
		_ = k.Close()
		return nil, nil, err
	}
	return k, cc, nil
}

// httpConn makes an HTTP connection of an open one, reserved.
func (c *Client) httpConn(ctx context.Context, l leave, k *conn) (wire, error) {
	if !l.old && (k.tls == nil || k.tls.ConnectionState().NegotiatedProtocol != "h2") {
		return newHTTP1(k, c.o.Timeouts.Header), nil
	}
	return c.sharedConn(ctx, l.to, k)
}

// sharedConn has net/http speak on a connection. The transport is given the
// connection and can open no other; it follows nothing, retries nothing and
// reads no proxy from the environment.
func (c *Client) sharedConn(ctx context.Context, to authority.Authority, k *conn) (wire, error) {
	given := func(context.Context, string, string) (net.Conn, error) {
		if k.tls != nil {
			return k.tls, nil
		}
		return k, nil
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	t := &http.Transport{
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		DialContext:            given,
		DialTLSContext:         given,
		DisableCompression:     true,
		ResponseHeaderTimeout:  c.o.Timeouts.Header,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHead,
	}
	cc, err := t.NewClientConn(ctx, to.Scheme(), to.HostPort())
	if err != nil {
		return nil, err
	}
	if err := cc.Reserve(); err != nil {
		_ = cc.Close()
		return nil, err
	}
	return shared{cc}, nil
}

// maxHead bounds a response's head.
const maxHead = 64 << 10
