package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
)

// NodeOptions fix what one of the node's own callers may do.
type NodeOptions struct {
	Purpose   string              // for example "scm.mint", "oidc", "notify": stands in the receipt
	To        authority.Authority // the one place it may call, https or, in dev mode, http
	Addresses []netip.Prefix      // the only addresses the name may have; nil = public ones
	Roots     *x509.CertPool      // nil = the Client's
	Timeout   time.Duration       // of one call, body included; 0 = 1 min

	// Begin writes the call's receipt to the node's control chain before
	// anything is resolved, and returns what writes its outcome. An error stops
	// the call.
	Begin func(ctx context.Context, method string) (done func(enforcers.Outcome), err error)

	// Inject adds a credential, last, once the connection is up and its certificate
	// verified. An error stops the call before its first byte. Nil = the caller
	// brings its own.
	Inject func(ctx context.Context, r *http.Request) error
}

// Node is an http.RoundTripper for the node's own calls: minting, sign-in,
// notifications, reconciling. It needs no Permit because it is fixed to one
// authority; every address check holds for it as for a session.
type Node struct {
	c *Client
	o NodeOptions
}

// Node returns the client of one purpose.
func (c *Client) Node(o NodeOptions) (*Node, error) {
	switch {
	case o.To.IsZero() || o.Purpose == "" || o.Begin == nil:
		return nil, errors.New("a node client needs a purpose, an authority and a receipt")
	case o.To.Scheme() != authority.HTTPS && (o.To.Scheme() != authority.HTTP || c.o.Dev == nil):
		return nil, errors.New("the node calls over https only")
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	return &Node{c: c, o: o}, nil
}

// RoundTrip carries out one call. A request to any other place, a redirect
// included, is an error.
func (n *Node) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := authority.ParseHostHeader(r.URL.Scheme, r.URL.Host)
	if err != nil || to != n.o.To {
		return nil, fail(enforcers.CodePermit, "the node's "+n.o.Purpose+" client is fixed to another place", err)
	}
	done, err := n.o.Begin(r.Context(), r.Method)
	if err != nil {
		return nil, fail(enforcers.CodeReceiptUnavailable, "the call's receipt could not be written", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), n.o.Timeout)
	call := &nodeCall{done: done, cancel: cancel, life: context.Background(), ctx: ctx}
	k, err := n.c.acquire(ctx, leave{
		to: to, ranges: n.o.Addresses, roots: n.o.Roots, life: context.Background(),
		key: poolKey{session: "node " + n.o.Purpose, to: to},
	})
	if err != nil {
		return nil, call.end(enforcers.NotForwarded, err)
	}
	call.out.Address = k.conn.at
	out := r.Clone(ctx)
	out.Host = to.HostHeader()
	if n.o.Inject != nil {
		if err := n.o.Inject(ctx, out); err != nil {
			k.cc.Release()
			return nil, call.end(enforcers.NotForwarded, fail(enforcers.CodeCredential, "the credential could not be added", err))
		}
	}
	before := k.conn.sent.Load()
	resp, err := k.cc.RoundTrip(out)
	if err != nil {
		effect := enforcers.Unknown
		if k.conn.sent.Load() == before {
			effect = enforcers.NotForwarded
		}
		return nil, call.end(effect, err)
	}
	call.out.Status = resp.StatusCode
	call.out.Up = headSize(out.Method, out.URL.RequestURI(), out.Header) + uint64(max(0, out.ContentLength))
	call.out.Down = headSize("", "", resp.Header)
	resp.Body = &nodeBody{resp.Body, call}
	return resp, nil
}

// Dial opens one connection to the client's place for a protocol that is not HTTP:
// TLS from its first byte, certificate verified, or plain in dev mode. method
// stands in the receipt; Close writes its outcome. The whole of it takes Timeout
// at most.
func (n *Node) Dial(ctx context.Context, method string) (net.Conn, error) {
	done, err := n.o.Begin(ctx, method)
	if err != nil {
		return nil, fail(enforcers.CodeReceiptUnavailable, "the call's receipt could not be written", err)
	}
	ctx, cancel := context.WithTimeout(ctx, n.o.Timeout)
	call := &nodeCall{done: done, cancel: cancel, life: context.Background(), ctx: ctx}
	k, err := n.c.open(ctx, leave{
		to: n.o.To, ranges: n.o.Addresses, roots: n.o.Roots, life: context.Background(), old: true,
		key: poolKey{session: "node " + n.o.Purpose, to: n.o.To},
	})
	if err != nil {
		return nil, call.end(enforcers.NotForwarded, err)
	}
	call.out.Address = k.at
	c := &nodeConn{Conn: k, under: k, call: call}
	if k.tls != nil {
		c.Conn = k.tls
	}
	c.stop = context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) }) // what waits ends
	return c, nil
}

// nodeConn is a connection of the node's own.
type nodeConn struct {
	net.Conn
	under *conn
	call  *nodeCall
	stop  func() bool
	down  atomic.Uint64
}

func (c *nodeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.down.Add(uint64(n))
	return n, err
}

func (c *nodeConn) Close() error {
	c.stop()
	err := c.Conn.Close()
	_ = c.under.Close()
	c.call.out.Up, c.call.out.Down = c.under.sent.Load(), c.down.Load()
	_ = c.call.end(enforcers.Forwarded, nil)
	return err
}

// nodeCall is one call under way.
type nodeCall struct {
	done   func(enforcers.Outcome)
	cancel context.CancelFunc
	life   context.Context
	ctx    context.Context
	out    enforcers.Outcome
	once   sync.Once
}

func (c *nodeCall) end(effect string, err error) error {
	if err != nil {
		err = classify(err, c.life, context.Cause(c.ctx))
	}
	c.once.Do(func() {
		c.cancel()
		c.out.Effect = effect
		if err != nil {
			c.out.Code = string(problem.CodeOf(err))
			if c.out.Code == enforcers.CodeAddressNotPublic {
				c.out.Address = c.out.Code
			}
		}
		c.done(c.out)
	})
	return err
}

type nodeBody struct {
	io.ReadCloser
	call *nodeCall
}

func (b *nodeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.call.out.Down += uint64(n)
	return n, err
}

func (b *nodeBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.call.end(enforcers.Forwarded, nil)
	return err
}
