package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// Options configure a Client.
type Options struct {
	Resolver netip.AddrPort // the DNS server asked; required unless Dev.DNS is set
	Roots    *x509.CertPool // nil = the system's
	Own      []netip.Addr   // public addresses of this node that its interfaces do not show
	Internal []netip.Prefix // internal_networks: the most a rule's addresses may open
	Inject   Injector       // nil = no credential is ever added, and a Permit that needs one fails
	Dev      *Dev           // nil outside dev mode
	Timeouts Timeouts

	// Tripped is told that an answer held the connection's credential. The
	// session is revoked already; the credential should be replaced.
	Tripped func(session, connection string)
}

// Timeouts bound one exchange. Zero fields take the defaults.
type Timeouts struct {
	Resolve   time.Duration // both queries, 0 = 5 s
	Connect   time.Duration // all attempts, 0 = 10 s
	Handshake time.Duration // TLS, 0 = 10 s
	Header    time.Duration // from the request's last byte to the response's head, 0 = 10 min
	Pooled    time.Duration // a connection kept without use, 0 = 90 s
}

func (t Timeouts) or() Timeouts {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&t.Resolve, 5 * time.Second}, {&t.Connect, 10 * time.Second}, {&t.Handshake, 10 * time.Second},
		{&t.Header, 10 * time.Minute}, {&t.Pooled, 90 * time.Second},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	return t
}

// Dev redirects dials for tests and the demo. A redirection is applied at the
// dial, after every address check; its key is a public address.
type Dev struct {
	Upstreams map[netip.AddrPort]netip.AddrPort // judged address -> loopback address dialed
	DNS       netip.AddrPort                    // replaces Options.Resolver
	Roots     *x509.CertPool                    // trusted for redirected dials only
}

// Client carries out permitted actions. It is safe for concurrent use.
type Client struct {
	o    Options
	dns  resolver
	pool pool

	crowd     crowd
	tripwires tripwires
}

// New returns a Client. It refuses a redirection whose key is not public or
// whose target is not loopback: dev mode must not become a way around.
func New(o Options) (*Client, error) {
	o.Timeouts = o.Timeouts.or()
	if o.Dev != nil {
		if o.Dev.DNS.IsValid() {
			o.Resolver = o.Dev.DNS
		}
		for from, to := range o.Dev.Upstreams {
			if err := checkRedirection(from, to); err != nil {
				return nil, err
			}
		}
	}
	if !o.Resolver.IsValid() {
		return nil, errors.New("no resolver configured")
	}
	c := &Client{o: o, dns: resolver{server: o.Resolver, timeout: o.Timeouts.Resolve}}
	c.pool.keep = o.Timeouts.Pooled
	return c, nil
}

// Close drops every pooled connection, in use or not.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// leave is the permission one connection rests on, from a Permit or from the
// node itself. It is the only thing below this line that says where to go.
type leave struct {
	to     authority.Authority
	ranges []netip.Prefix  // the rule's addresses, nil = public ones
	life   context.Context // its end closes the connection
	key    poolKey
	roots  *x509.CertPool // nil = the Client's
	old    bool           // HTTP/1.1 only: the request switches protocols
}

func leaveOf(p *enforcers.Permit) leave {
	ranges := p.Grant().Addresses
	return leave{
		to: p.To(), ranges: ranges, life: p.Context(),
		key: poolKey{session: p.Session(), to: p.To(), ranges: spelled(ranges), generation: p.Generation()},
	}
}

// open resolves, checks and dials; for https it also verifies. Everything
// before the first dial is done for the whole answer set.
func (c *Client) open(ctx context.Context, l leave) (_ *conn, err error) {
	left, ok := c.crowd.enter(l.key.session)
	if !ok {
		return nil, fail(enforcers.CodeConnect, "too many connections are open", nil)
	}
	defer func() {
		if err != nil {
			left()
		}
	}()
	addrs, err := c.resolve(ctx, l.to)
	if err != nil {
		return nil, err
	}
	own, err := ownAddresses()
	if err != nil {
		return nil, fail(enforcers.CodeLoop, "the node's own addresses cannot be read", err)
	}
	for _, a := range addrs {
		// EG-32, EG-33: one bad address refuses the set.
		if err := c.admit(a, l.ranges, own); err != nil {
			return nil, err
		}
	}
	k, err := c.dial(ctx, l, addrs, own)
	if err != nil {
		return nil, err
	}
	k.left = left
	if l.to.Scheme() != authority.HTTPS {
		return k, nil
	}
	if err := c.verify(ctx, l, k); err != nil {
		_ = k.Close()
		return nil, err
	}
	return k, nil
}

// resolve returns the addresses of a name, or the literal itself.
func (c *Client) resolve(ctx context.Context, to authority.Authority) ([]netip.Addr, error) {
	if to.IsZero() {
		return nil, fail(enforcers.CodePermit, "the permission leads nowhere", nil)
	}
	if a, ok := to.Addr(); ok {
		return []netip.Addr{a}, nil
	}
	return c.dns.lookup(ctx, to.Host())
}

// verify runs the TLS handshake and checks the certificate against the
// permitted name.
func (c *Client) verify(ctx context.Context, l leave, k *conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeouts.Handshake)
	defer cancel()
	roots := l.roots
	switch {
	case k.redirected:
		roots = c.o.Dev.Roots
	case roots == nil:
		roots = c.o.Roots
	}
	protocols := []string{"h2", "http/1.1"}
	if l.old {
		protocols = protocols[1:]
	}
	k.tls = tls.Client(k, &tls.Config{
		ServerName: l.to.Host(),
		RootCAs:    roots,
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
	})
	if err := k.tls.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, net.ErrClosed) {
			return fail(enforcers.CodeTimeout, "the TLS handshake took too long", err)
		}
		return fail(enforcers.CodeTLS, "the upstream's certificate could not be verified", err) // EG-67
	}
	return nil
}
