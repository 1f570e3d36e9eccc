package door

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// link is one HTTP/1.1 connection: the door's socket itself, or the inside of
// a tunnel.
type link struct {
	d     *Door
	nc    net.Conn
	r     *bufio.Reader
	w     *bufio.Writer
	ctx   context.Context
	to    authority.Authority // where a tunnel leads; zero outside one
	fresh bool                // no request has been read yet
	alert bool                // the client ended TLS with an alert before its first request
}

func (d *Door) link(ctx context.Context, nc net.Conn, r *bufio.Reader, to authority.Authority) *link {
	return &link{d: d, nc: nc, r: r, w: bufio.NewWriterSize(nc, 4<<10), ctx: ctx, to: to, fresh: true}
}

// serve handles one connection to the door's socket.
func (d *Door) serve(nc net.Conn) {
	defer nc.Close()
	stop := context.AfterFunc(d.ctx, func() { _ = nc.Close() })
	defer stop()
	d.link(d.ctx, nc, bufio.NewReaderSize(nc, 4<<10), authority.Authority{}).run()
}

// run serves requests until the connection is done, then closes it so that the
// peer can still read the last answer.
func (l *link) run() {
	for l.next() {
		l.fresh = false
	}
	l.linger()
}

// next serves one request and reports whether another may follow.
func (l *link) next() bool {
	h, err := l.head()
	if err != nil {
		var bad malformed
		if errors.As(err, &bad) {
			l.refuseHead(enforcers.CodeMalformed, l.to)
		}
		return false
	}
	if l.to.IsZero() {
		return l.outer(h)
	}
	return l.inner(h)
}

// head reads and checks the next request head.
func (l *link) head() (*head, error) {
	t := l.d.o.Timeouts
	wait := t.Idle
	if l.fresh && l.to.IsZero() {
		wait = t.First // EG-106
	}
	if err := l.nc.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	if _, err := l.r.Peek(1); err != nil {
		var op *net.OpError
		l.alert = l.fresh && errors.As(err, &op) && op.Op == "remote error"
		return nil, err
	}
	if err := l.nc.SetReadDeadline(time.Now().Add(min(wait, t.Head))); err != nil { // EG-65
		return nil, err
	}
	b, err := readHead(l.r)
	if err != nil {
		return nil, err
	}
	return parseHead(b)
}

// outer handles a head on the door's own socket: a CONNECT, or a plain proxy
// request in absolute form.
func (l *link) outer(h *head) bool {
	if h.method == http.MethodConnect {
		l.connect(h)
		return false
	}
	rest, ok := cutScheme(h.target, authority.HTTP)
	if !ok {
		l.refuseHead(enforcers.CodeMalformed, authority.Authority{})
		return false
	}
	host, target := cutAuthority(rest)
	to, err := authority.ParseHostHeader(authority.HTTP, host)
	if err != nil {
		l.refuseHead(enforcers.CodeBadAuthority, authority.Authority{}) // EG-10 to EG-14, EG-21
		return false
	}
	if named, err := authority.ParseHostHeader(authority.HTTP, h.host); err != nil || named != to {
		l.refuseHead(enforcers.CodeMisdirected, to) // EG-49
		return false
	}
	if code := l.d.admit(to); code != "" {
		l.refuseHead(code, to)
		return false
	}
	return l.request(h, to, target)
}

// inner handles a head inside a tunnel. Everything in it that names a host must
// name the tunnel's.
func (l *link) inner(h *head) bool {
	if h.method == http.MethodConnect {
		l.refuseHead(enforcers.CodeMethodRefused, l.to)
		return false
	}
	target := h.target
	if rest, ok := cutScheme(target, l.to.Scheme()); ok {
		var host string
		host, target = cutAuthority(rest)
		if a, err := authority.ParseHostHeader(l.to.Scheme(), host); err != nil || a != l.to {
			l.refuseHead(enforcers.CodeMisdirected, l.to) // EG-44
			return false
		}
	}
	named, err := authority.ParseHostHeader(l.to.Scheme(), h.host)
	switch {
	case err != nil:
		l.refuseHead(enforcers.CodeBadAuthority, l.to)
		return false
	case named != l.to:
		l.refuseHead(enforcers.CodeMisdirected, l.to) // EG-19, EG-42, EG-43
		return false
	}
	return l.request(h, l.to, target)
}

// request carries one request out and reports whether the connection can take
// another.
func (l *link) request(h *head, to authority.Authority, target string) bool {
	if code := refusedMethod(h.method, target); code != "" {
		l.refuseHead(code, to) // EG-54
		return false
	}
	path, query, slashed, err := splitTarget(target)
	if err != nil || (slashed && !l.d.slashAllowed(to)) {
		l.refuseHead(enforcers.CodeBadPath, to) // EG-56, EG-57
		return false
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	w := newReply(l.w, h.method)
	w.close = h.close
	b := l.body(h, w, cancel)
	w.unread = b.unread
	r := &Request{
		Request: &http.Request{
			Method: h.method, URL: &url.URL{Path: unescape(path), RawPath: path, RawQuery: query},
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: h.fields, Body: b, ContentLength: h.length, Trailer: h.trailer,
			Host: to.HostHeader(), RequestURI: target,
		},
		To: to, Path: path, Query: query, Upgrade: h.upgrade, Gate: l.d.gate, Up: l.d.o.Up, door: l.d, link: l, body: b,
	}
	if h.length == 0 {
		r.Body = http.NoBody
	}
	r.Request = r.Request.WithContext(ctx)
	l.d.run(w, r)
	b.finished()
	ok := w.finish()
	return b.settle() && ok
}

// refuseHead answers a request that never became an Action of its own kind,
// and has the refusal receipted.
func (l *link) refuseHead(code string, to authority.Authority) {
	a := l.d.gate.Action(enforcers.HTTPRequest)
	a.HTTP = &enforcers.HTTP{To: to, Body: enforcers.Body{Mode: "none"}}
	a.HardSet = code
	_, decision := l.d.gate.Decide(l.ctx, a)
	w := newReply(l.w, http.MethodGet)
	w.close = true
	Refuse(w, decision)
	w.finish()
}

// linger closes the connection. Closing a socket with unread bytes in it would
// reset it, and the peer might never see the answer.
func (l *link) linger() {
	if c, ok := l.nc.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_ = l.nc.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		_, _ = io.CopyN(io.Discard, l.r, drainLimit)
	}
	_ = l.nc.Close()
}

// refusedMethod names the methods that are for intermediaries or that echo
// what was sent (EG-54); they would reflect a credential.
func refusedMethod(method, target string) string {
	if method == http.MethodTrace || method == "TRACK" || target == "*" {
		return enforcers.CodeMethodRefused
	}
	return ""
}

// cutScheme removes "scheme://" from an absolute-form target.
func cutScheme(target, scheme string) (rest string, ok bool) {
	n := len(scheme) + len("://")
	if len(target) < n || !strings.EqualFold(target[:n], scheme+"://") {
		return target, false
	}
	return target[n:], true
}

// cutAuthority splits what follows the scheme into the authority and an
// origin-form target.
func cutAuthority(rest string) (host, target string) {
	i := strings.IndexAny(rest, "/?#")
	switch {
	case i < 0:
		return rest, "/"
	case rest[i] == '/':
		return rest[:i], rest[i:]
	default:
		return rest[:i], "/" + rest[i:]
	}
}

func unescape(path string) string {
	p, err := url.PathUnescape(path)
	if err != nil {
		return path // cannot happen: the path is canonical
	}
	return p
}
