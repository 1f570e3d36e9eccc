package upstream

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/internal/authority"
)

// poolKey says who may reuse a connection: the same session, going to the same
// authority, under the same policy. A connection's address is pinned when it
// is opened and never looked up again, so reuse needs no new check (EG-35).
type poolKey struct {
	session    string
	to         authority.Authority
	generation uint64
}

// pool holds the HTTP connections, in use or idle.
type pool struct {
	keep time.Duration
	mu   sync.Mutex
	by   map[poolKey]map[*client]struct{}
}

// client is one HTTP connection. Reserve and Release on cc arbitrate its use.
type client struct {
	cc     *http.ClientConn
	conn   *conn
	idle   *time.Timer
	reused atomic.Bool
}

// reuse returns a reserved connection of the key, or nil. Reserve may be the
// first to see that a connection broke and then runs its state hook, which takes
// it out of the pool: it must not be called with the pool locked.
func (p *pool) reuse(key poolKey) *client {
	p.mu.Lock()
	known := slices.Collect(maps.Keys(p.by[key]))
	p.mu.Unlock()
	for _, c := range known {
		if c.cc.Reserve() == nil {
			c.idle.Stop()
			c.reused.Store(true)
			return c
		}
	}
	return nil
}

// add takes a new, reserved connection in. It leaves the pool when it breaks,
// when its permission ends, or after keep without use.
func (p *pool) add(key poolKey, k *conn, cc *http.ClientConn) *client {
	c := &client{cc: cc, conn: k}
	c.idle = time.AfterFunc(p.keep, func() {
		if c.cc.InFlight() == 0 { // it may have been reserved a moment ago
			p.drop(key, c)
		}
	})
	c.idle.Stop()
	p.mu.Lock()
	if p.by == nil {
		p.by = make(map[poolKey]map[*client]struct{})
	}
	if p.by[key] == nil {
		p.by[key] = make(map[*client]struct{})
	}
	p.by[key][c] = struct{}{}
	p.mu.Unlock()
	cc.SetStateHook(func(cc *http.ClientConn) {
		switch {
		case cc.Err() != nil:
			p.drop(key, c)
		case cc.InFlight() == 0:
			c.idle.Reset(p.keep)
		}
	})
	return c
}

// drop closes a connection and forgets it.
func (p *pool) drop(key poolKey, c *client) {
	p.mu.Lock()
	delete(p.by[key], c)
	if len(p.by[key]) == 0 {
		delete(p.by, key)
	}
	p.mu.Unlock()
	c.idle.Stop()
	_ = c.cc.Close()
	_ = c.conn.Close()
}

func (p *pool) close() {
	p.mu.Lock()
	all := p.by
	p.by = nil
	p.mu.Unlock()
	for _, set := range all {
		for c := range set {
			c.idle.Stop()
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

func (c *Client) http(ctx context.Context, l leave) (*conn, *http.ClientConn, error) {
	k, err := c.open(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	cc, err := c.httpConn(ctx, l.to, k)
	if err != nil {
		_ = k.Close()
		return nil, nil, err
	}
	return k, cc, nil
}

// httpConn makes an HTTP connection of an open one. The transport is given the
// connection and can open no other; it follows nothing, retries nothing and
// reads no proxy from the environment.
func (c *Client) httpConn(ctx context.Context, to authority.Authority, k *conn) (*http.ClientConn, error) {
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
	return cc, nil
}

// maxHead bounds a response's head.
const maxHead = 64 << 10
