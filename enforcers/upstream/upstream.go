package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"gatehouse/enforcers"
)

// Options configure a Client.
type Options struct {
	Resolver netip.AddrPort // the DNS server asked; required unless Dev.DNS is set
	Roots    *x509.CertPool // nil = the system's
	Own      []netip.Addr   // public addresses of this node that its interfaces do not show
	Internal []netip.Prefix // internal_networks: the most a rule's addresses may open
	Inject   Injector       // nil = no credential is ever added
	Dev      *Dev           // nil outside dev mode
	Timeouts Timeouts
}

// Timeouts bound one exchange. Zero fields take the defaults.
type Timeouts struct {
	Resolve   time.Duration // both queries, 0 = 5 s
	Connect   time.Duration // all attempts, 0 = 10 s
	Handshake time.Duration // TLS, 0 = 10 s
	Header    time.Duration // from the request's last byte to the response's head, 0 = 10 min
	Pooled    time.Duration // a connection kept without use, 0 = 90 s
}

// Dev redirects dials for tests and the demo. Each is applied at the dial,
// after every address check; a key is a public address.
type Dev struct {
	Upstreams map[netip.AddrPort]netip.AddrPort // judged address -> loopback address dialed
	DNS       netip.AddrPort                    // replaces Options.Resolver
	Roots     *x509.CertPool                    // trusted for redirected dials only
}

// Injector adds a connection's credential to a request. It is called last,
// after the connection is up and its certificate verified, and only for a
// Permit whose rule grants the connection. An error stops the request.
type Injector interface {
	Inject(ctx context.Context, p *enforcers.Permit, r *http.Request) error
}

// Client carries out permitted actions. It is safe for concurrent use.
type Client struct {
	o Options
}

// New returns a Client.
func New(o Options) (*Client, error) {
	if o.Dev != nil && o.Dev.DNS.IsValid() {
		o.Resolver = o.Dev.DNS
	}
	if !o.Resolver.IsValid() {
		return nil, errors.New("no resolver configured")
	}
	return &Client{o: o}, nil
}

// Do sends r to where p leads and nowhere else: r.URL's scheme and host and
// r.Host are overwritten. It uses p up and writes its outcome, at the latest
// when the response's body is closed. Redirects are not followed.
func (c *Client) Do(p *enforcers.Permit, r *http.Request) (*http.Response, error) {
	return nil, errors.ErrUnsupported
}

// Dial opens a connection to where p leads. The outcome is written when the
// connection is closed.
func (c *Client) Dial(ctx context.Context, p *enforcers.Permit) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Close drops every connection.
func (c *Client) Close() error { return nil }
