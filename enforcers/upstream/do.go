package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
)

// Do sends r to where p leads and nowhere else: the scheme, the host and the
// Host field come from p, and for an http.request the method, path and query
// too, so that what was judged is what is sent. It uses p up and writes its
// outcome, at the latest when the response's body is closed. Redirects are not
// followed and nothing is retried.
//
// An error is a *problem.Error whose code stands in the outcome as well.
func (c *Client) Do(p *enforcers.Permit, r *http.Request) (*http.Response, error) {
	return c.DoKeeping(p, r, nil)
}

// DoKeeping is Do, and asks keep about a redirect in an answer to a request that
// carried a credential. A nil keep keeps nothing.
func (c *Client) DoKeeping(p *enforcers.Permit, r *http.Request, keep Keeper) (*http.Response, error) {
	if err := p.Use(); err != nil {
		p.Void(string(problem.CodeOf(err)))
		return nil, err
	}
	now := time.Now()
	x := &exchange{p: p, client: c}
	x.m = meter{permit: p, limits: p.Grant().Limits.Or(), began: now, at: now, ctx: &x.course}
	x.course.start(r.Context(), p.Context(), &x.m)

	out, err := x.request(r)
	if err != nil {
		return nil, x.end(enforcers.NotForwarded, err)
	}
	resp, effect, err := c.send(x, out)
	if err != nil {
		return nil, x.end(effect, err)
	}
	x.m.head(resp.StatusCode, 0, headSize("", "", resp.Header))
	cleanResponse(resp.Header)
	cleanResponse(resp.Trailer)
	if len(x.watch) > 0 {
		body, err := guardAnswer(resp, p.To(), c.tripwire(p, x.watch), p.Action().Kind != enforcers.ModelCall, keep)
		if err != nil {
			_ = resp.Body.Close()
			x.tripped(c, err)
			return nil, x.end(enforcers.Forwarded, err)
		}
		resp.Body = body
	}
	resp.Request = r
	x.body = download{ReadCloser: resp.Body, x: x}
	resp.Body = &x.body
	return resp, nil
}

// send puts out on a connection. A pooled connection may have been given up by
// the server a moment ago: then a request that cannot have had an effect, since
// nothing of it went out or its method has none, is sent once more on a new
// one. Nothing else is ever sent twice.
func (c *Client) send(x *exchange, out *http.Request) (resp *http.Response, effect string, err error) {
	ctx, l := &x.course, leaveOf(x.p)
	acquire := c.acquire
	if len(out.Header["Upgrade"]) > 0 {
		acquire = c.dedicated
	}
	k, err := acquire(ctx, l)
	effect = enforcers.NotForwarded
	query := out.URL.RawQuery
	for {
		if err != nil {
			return nil, effect, err
		}
		x.m.pin(k.conn.at)
		out.URL.RawQuery = query // without what was added to it the first time
		if x.watch, err = c.inject(ctx, x.p, out, k); err != nil {
			k.cc.Release()
			return nil, effect, err
		}
		x.m.head(0, headSize(out.Method, out.URL.RequestURI(), out.Header), 0)
		before := k.conn.sent.Load()
		resp, err = k.cc.RoundTrip(out)
		switch {
		case err == nil:
			if len(out.Header["Upgrade"]) > 0 {
				// Nothing else closes a connection that switched protocols.
				own := k.conn
				x.own = own
				context.AfterFunc(ctx, func() { _ = own.Close() })
			}
			return resp, "", nil
		case k.conn.sent.Load() != before:
			effect = enforcers.Unknown
		}
		harmless := effect == enforcers.NotForwarded || out.Method == http.MethodGet || out.Method == http.MethodHead
		if !k.reused.Load() || !harmless || out.Body != nil || ctx.Err() != nil {
			return nil, effect, err
		}
		k, err = c.fresh(ctx, l)
	}
}

// exchange is one request under way.
type exchange struct {
	p      *enforcers.Permit
	m      meter
	course course
	client *Client
	own    *conn          // a connection nobody else uses, closed with the body
	watch  []secret.Value // what must not come back in the answer
	body   download
	once   sync.Once
}

// tripped ends the session when err says that the answer held the credential.
func (x *exchange) tripped(c *Client, err error) {
	if problem.CodeOf(err) != enforcers.CodeReflected {
		return
	}
	x.p.EndSession(enforcers.CodeReflected)
	if c.o.Tripped != nil {
		c.o.Tripped(x.p.Session(), x.p.Action().Connection)
	}
}

// end writes the outcome of an exchange that brought no response.
func (x *exchange) end(effect string, err error) error {
	err = classify(err, x.p.Context(), x.course.why())
	x.finish(effect, string(problem.CodeOf(err)))
	return err
}

func (x *exchange) finish(effect, code string) {
	x.once.Do(func() {
		x.course.stop()
		x.m.mu.Lock()
		o := x.m.outcome(effect, code)
		x.m.mu.Unlock()
		if code == enforcers.CodeAddressNotPublic {
			o.Address = code
		}
		x.p.Done(o)
	})
}

// request builds what is sent from what was permitted.
func (x *exchange) request(r *http.Request) (*http.Request, error) {
	to := x.p.To()
	if s := to.Scheme(); s != authority.HTTP && s != authority.HTTPS {
		return nil, fail(enforcers.CodePermit, "the permit is for a tunnel, not a request", nil)
	}
	if r.ContentLength > x.m.limits.Up {
		return nil, fail(enforcers.CodeUpCap, "the request is larger than the rule allows", nil) // EG-93
	}
	head := int64(headSize(r.Method, r.URL.RequestURI(), r.Header))
	if x.m.declared = r.ContentLength >= 0; !x.p.Sent(max(r.ContentLength, 0) + max(head-freeHead, 0)) {
		return nil, unlisted()
	}
	out := r.WithContext(&x.course)
	out.Header = maps.Clone(r.Header)
	if out.Header == nil {
		out.Header = make(http.Header)
	}
	stripHopByHop(out.Header)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // keeps net/http from adding its own
	}
	out.URL = &url.URL{Scheme: to.Scheme(), Host: to.HostPort()}
	out.Host = to.HostHeader()
	out.RequestURI, out.Close = "", false
	out.TransferEncoding = nil
	if h := x.p.Action().HTTP; h != nil {
		// Opaque is sent as it stands: the canonical path that was judged.
		out.Method = h.Method
		out.URL.Opaque, out.URL.RawQuery = h.Path, h.Query
	} else {
		out.URL.Path, out.URL.RawPath, out.URL.RawQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
	}
	out.Body = nil
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = &upload{ReadCloser: r.Body, m: &x.m}
	}
	out.GetBody = nil
	return out, nil
}

// inject adds the connection's credential, last. It is never called for a
// would-block, and never for a connection that is not verified TLS (EG-66).
func (c *Client) inject(ctx context.Context, p *enforcers.Permit, out *http.Request, k *client) ([]secret.Value, error) {
	name := p.Action().Connection
	switch {
	case p.Action().Signed != nil:
		return sign(p, out, k)
	case name == "":
		return nil, nil
	}
	granted := p.Grant().Connection
	switch {
	case p.WouldBlock(), granted != "" && granted != name:
		return nil, fail(enforcers.CodeCredential, "the permit does not cover the connection's credential", nil)
	case k.conn.tls == nil:
		return nil, fail(enforcers.CodeCredential, "a credential is never added to an unencrypted request", nil)
	case out.Method == http.MethodTrace || out.Method == "TRACK":
		return nil, fail(enforcers.CodeMethodRefused, "a credential is never added to a method that echoes", nil) // EG-54
	case c.o.Inject == nil:
		return nil, fail(enforcers.CodeCredential, "no credential is configured for the connection", nil)
	}
	prepareInjected(out.Header)
	watch, err := c.o.Inject.Inject(ctx, p, out)
	if err != nil {
		if problem.CodeOf(err) == problem.Internal {
			err = fail(enforcers.CodeCredential, "the connection's credential is not available", err)
		}
		return nil, err
	}
	return watch, nil
}

// download is a response body on its way in. Closing it writes the outcome.
// After a protocol switch each direction has a goroutine of its own, and either
// may close it.
type download struct {
	io.ReadCloser
	x   *exchange
	mu  sync.Mutex
	err error // why it ended, if for a reason; guarded by mu
}

func (d *download) failed(err error) {
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
}

func (d *download) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	if n > 0 {
		if limit := d.x.m.add(0, n); limit != nil {
			d.failed(limit)
			return 0, limit
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		d.x.tripped(d.x.client, err)
		err = classify(err, d.x.p.Context(), d.x.course.why())
		d.failed(err)
	}
	return n, err
}

// Write sends to the upstream after a protocol switch.
func (d *download) Write(b []byte) (int, error) {
	w, ok := d.ReadCloser.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	if err := d.x.m.add(len(b), 0); err != nil {
		d.failed(err)
		return 0, err
	}
	return w.Write(b)
}

func (d *download) Close() error {
	code := ""
	d.mu.Lock()
	why := d.err
	d.mu.Unlock()
	if life := d.x.p.Context(); life.Err() != nil {
		why = context.Cause(life)
	}
	if why != nil {
		code = string(problem.CodeOf(why))
	}
	err := d.ReadCloser.Close()
	if d.x.own != nil {
		_ = d.x.own.Close()
	}
	d.x.finish(enforcers.Forwarded, code)
	return err
}

// hopByHop are the fields that concern one connection only, and the proxy's
// own, which name the session to nobody (EG-71).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// stripHopByHop removes connection-level fields, those that Connection names
// included. A protocol switch keeps its two.
func stripHopByHop(h http.Header) {
	upgrade := ""
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			if name == "Upgrade" && len(h["Upgrade"]) == 1 {
				upgrade = h["Upgrade"][0]
			}
			delete(h, name)
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
	if strings.EqualFold(upgrade, "websocket") {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
}

// cleanResponse removes what would lead the client around the door, hints at
// other endpoints and protocols (EG-61), what only the door may say, and
// connection-level fields.
func cleanResponse(h http.Header) {
	stripHopByHop(h)
	for _, name := range []string{"Alt-Svc", "Alternate-Protocol", "Alt-Used", "Proxy-Authenticate", "Gatehouse-Receipt"} {
		delete(h, name)
	}
}

// headSize is what a head takes on an HTTP/1.1 wire.
func headSize(method, target string, h http.Header) uint64 {
	n := len(method) + len(target) + len("  HTTP/1.1\r\n\r\n")
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return uint64(n)
}
