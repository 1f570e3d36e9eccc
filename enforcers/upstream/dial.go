package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"gatehouse/enforcers"
)

// conn is one pinned connection. Its address was judged and never changes; it
// closes when the permission it was opened under ends.
type conn struct {
	net.Conn
	at         string          // its address as judged, before any redirection
	life       context.Context // closes it with its end
	redirected bool            // dev mode: dialed elsewhere
	tls        *tls.Conn       // set once verified, nil for plain connections
	sent       atomic.Uint64
	dry        bool // nothing is read from the socket; only for who reads
	stop       func() bool
	left       func() // gives its place back, nil before it has one
}

// Write counts before it writes: who asks in between whether anything went out
// must not be told that nothing did.
func (k *conn) Write(b []byte) (int, error) {
	k.sent.Add(uint64(len(b)))
	n, err := k.Conn.Write(b)
	k.sent.Add(-uint64(len(b) - n))
	return n, err
}

// errDry is like a deadline that has passed: TLS reads on after it.
var errDry net.Error = dry{}

type dry struct{}

func (dry) Error() string   { return "nothing is read from the socket now" }
func (dry) Timeout() bool   { return true }
func (dry) Temporary() bool { return true }

// Read reads from the socket, unless nothing is to be read from it now.
func (k *conn) Read(b []byte) (int, error) {
	if k.dry {
		return 0, errDry
	}
	return k.Conn.Read(b)
}

func (k *conn) Close() error {
	k.stop()
	if k.left != nil {
		k.left()
	}
	return k.Conn.Close()
}

// maxAttempts bounds how many addresses of one name are tried. Every one of
// them was judged.
const maxAttempts = 4

// dial connects to the first address that answers.
func (c *Client) dial(ctx context.Context, l leave, addrs []netip.Addr, own map[netip.Addr]bool) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeouts.Connect)
	defer cancel()
	var errs []error
	for _, a := range addrs[:min(len(addrs), maxAttempts)] {
		k, err := c.dialOne(ctx, l, netip.AddrPortFrom(a.Unmap(), l.to.Port()), own)
		if err == nil {
			return k, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	err := errors.Join(errs...)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fail(enforcers.CodeTimeout, "the upstream did not accept the connection in time", err)
	}
	return nil, fail(enforcers.CodeConnect, "no connection to the upstream", err)
}

func (c *Client) dialOne(ctx context.Context, l leave, judged netip.AddrPort, own map[netip.Addr]bool) (*conn, error) {
	target, redirected := judged, false
	if c.o.Dev != nil {
		if to, ok := c.o.Dev.Upstreams[judged]; ok {
			target, redirected = to, true
		}
	}
	network := "tcp4"
	if target.Addr().Is6() {
		network = "tcp6"
	}
	d := net.Dialer{
		FallbackDelay: -1,
		// An independent second check: whatever the lines above got wrong, the
		// socket is not connected to an address this function did not judge.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			got, err := netip.ParseAddrPort(address)
			if err != nil || got != target {
				return fmt.Errorf("dialing %s instead of the judged address", address)
			}
			if redirected {
				return checkRedirection(judged, got)
			}
			return c.admit(got.Addr(), l.ranges, own)
		},
	}
	raw, err := d.DialContext(ctx, network, target.String())
	if err != nil {
		return nil, err
	}
	peer, err := netip.ParseAddrPort(raw.RemoteAddr().String())
	if err != nil || netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()) != target {
		_ = raw.Close()
		return nil, fail(enforcers.CodePeer, "the connected peer is not the judged address", err)
	}
	k := &conn{Conn: raw, at: judged.Addr().String(), life: l.life, redirected: redirected}
	// The session's end or a policy change closes the socket, whoever holds it.
	k.stop = context.AfterFunc(l.life, func() { _ = raw.Close() })
	return k, nil
}
