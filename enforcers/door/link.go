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
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// link is one HTTP/1.1 connection: the door's socket itself, or the inside of
// a tunnel.
type link struct {
	d     *Door
	nc    net.Conn
	r     *bufio.Reader           // nil once a tunnel has taken it over
	w     *bufio.Writer           // nil while nothing is written: most connections are idle
	ctx   context.Context         // ends with the link, once run has begun, and when its client has left
	gone  context.CancelCauseFunc // ends ctx
	blank *http.Request           // what every request has of ctx and protocol
	vigil vigil
	to    authority.Authority // where a tunnel leads; zero outside one
	fresh bool                // no request has been read yet
	alert bool                // the client ended TLS with an alert before its first request
}

func (d *Door) link(ctx context.Context, nc net.Conn, r *bufio.Reader, to authority.Authority) *link {
	return &link{d: d, nc: nc, r: r, ctx: ctx, to: to, fresh: true}
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}
)

func newReader(r io.Reader) *bufio.Reader {
	b := readers.Get().(*bufio.Reader)
	b.Reset(r)
	return b
}

// dropReader gives back a reader that nobody has any more.
func dropReader(r *bufio.Reader) {
	r.Reset(nil)
	readers.Put(r)
}

// writer returns the link's writer; wrote gives its buffer back.
func (l *link) writer() *bufio.Writer {
	if l.w == nil {
		l.w = writers.Get().(*bufio.Writer)
		l.w.Reset(l.nc)
	}
	return l.w
}

func (l *link) wrote() {
	if l.w != nil {
		l.w.Reset(nil)
		writers.Put(l.w)
		l.w = nil
	}
}

// serve handles one connection to the door's socket.
func (d *Door) serve(nc net.Conn) {
	defer nc.Close()
	stop := context.AfterFunc(d.ctx, func() { _ = nc.Close() })
	defer stop()
	d.link(d.ctx, nc, newReader(nc), authority.Authority{}).run()
}

// run serves requests until the connection is done, then closes it so that the
// peer can still read the last answer.
func (l *link) run() {
	l.ctx, l.gone = context.WithCancelCause(l.ctx)
	defer l.gone(nil)
	l.blank = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(l.ctx)
	for l.next() {
		l.fresh = false
	}
	l.vigil.stop()
	l.linger()
	l.wrote()
	if l.r != nil {
		dropReader(l.r)
		l.r = nil
	}
}

// next serves one request and reports whether another may follow.
func (l *link) next() bool {
	var h head
	if err := l.head(&h); err != nil {
		var bad malformed
		if errors.As(err, &bad) {
			l.refuseHead(enforcers.CodeMalformed, l.to)
		}
		return false
	}
	if l.to.IsZero() {
		return l.outer(&h)
	}
	return l.inner(&h)
}

// head reads and checks the next request head.
func (l *link) head(h *head) error {
	t := l.d.o.Timeouts
	wait := t.Idle
	if l.fresh && l.to.IsZero() {
		wait = t.First // EG-106
	}
	if err := l.nc.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := l.r.Peek(1); err != nil {
		var op *net.OpError
		l.alert = l.fresh && errors.As(err, &op) && op.Op == "remote error"
		return err
	}
	if b, ok := wholeHead(l.r); ok {
		return h.parse(b)
	}
	if err := l.nc.SetReadDeadline(time.Now().Add(min(wait, t.Head))); err != nil { // EG-65
		return err
	}
	b, err := readHead(l.r)
	if err != nil {
		return err
	}
	return h.parse(b)
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

// inner handles a head inside a tunnel.
func (l *link) inner(h *head) bool {
	return l.request(h, l.to, h.target)
}

// request carries one request out and reports whether the connection can take
// another.
func (l *link) request(h *head, to authority.Authority, target string) bool {
	path, query, code := l.d.examine(to, h.method, target, h.host)
	if code != "" {
		l.refuseHead(code, to)
		return false
	}
	defer l.wrote()
	t := &turn{plain: *l.blank}
	w, b, plain := &t.w, &t.b, &t.plain
	w.w, w.method, w.close, w.request = l.writer(), h.method, h.close, b
	b.begin(l, w, h)
	plain.Method, plain.Header, plain.ContentLength, plain.Trailer = h.method, h.fields, h.length, h.trailer
	plain.RequestURI = target
	if plain.Body = http.NoBody; h.length != 0 {
		plain.Body = b
	}
	r := l.d.newRequest(&t.r, &t.url, plain, to, path, query)
	r.Upgrade, r.link, r.body = h.upgrade, l, b
	defer r.over()
	l.d.run(w, r)
	b.finished()
	ok := w.finish()
	return b.settle() && ok
}

// turn is one request and its answer, in one piece of memory.
type turn struct {
	w     reply
	b     body
	r     Request
	plain http.Request
	url   url.URL
}

// examine checks what of a request stands against the Authority it came by:
// everything that names a host must name that one. It returns the canonical
// path and the raw query, or the code of the refusal.
func (d *Door) examine(to authority.Authority, method, target, host string) (path, query, code string) {
	if method == http.MethodConnect {
		return "", "", enforcers.CodeMethodRefused
	}
	if rest, ok := cutScheme(target, to.Scheme()); ok {
		var named string
		named, target = cutAuthority(rest)
		if a, err := authority.ParseHostHeader(to.Scheme(), named); err != nil || a != to {
			return "", "", enforcers.CodeMisdirected // EG-44
		}
	}
	same, err := to.NamedBy(host)
	switch {
	case err != nil:
		return "", "", enforcers.CodeBadAuthority
	case !same:
		return "", "", enforcers.CodeMisdirected // EG-19, EG-42, EG-43, EG-45
	case method == http.MethodTrace, method == "TRACK", target == "*":
		// For intermediaries, or echoing what was sent: they would reflect a
		// credential (EG-54).
		return "", "", enforcers.CodeMethodRefused
	}
	path, query, slashed, err := splitTarget(target)
	if err != nil || (slashed && !d.slashAllowed(to)) {
		return "", "", enforcers.CodeBadPath // EG-56, EG-57
	}
	return path, query, ""
}

// refuse answers a request that never became an Action of its own kind, and
// has the refusal receipted.
func (d *Door) refuse(ctx context.Context, w http.ResponseWriter, code string, to authority.Authority) {
	Refuse(w, d.receipt(ctx, code, to))
}

// receipt has the refusal of a request receipted.
func (d *Door) receipt(ctx context.Context, code string, to authority.Authority) enforcers.Decision {
	a := d.gate.Action(enforcers.HTTPRequest)
	a.HTTP = &enforcers.HTTP{To: to, Body: enforcers.Body{Mode: "none"}}
	a.HardSet = code
	_, decision := d.gate.Decide(ctx, a)
	return decision
}

// refuseHead is refuse for a connection that ends with the answer.
func (l *link) refuseHead(code string, to authority.Authority) {
	w := newReply(l.writer(), http.MethodGet)
	w.close = true
	l.d.refuse(l.ctx, w, code, to)
	w.finish()
}

// linger closes the connection. Closing a socket with unread bytes in it would
// reset it, and the peer might never see the answer.
func (l *link) linger() {
	if c, ok := l.nc.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_ = l.nc.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if l.r != nil {
			_, _ = io.CopyN(io.Discard, l.r, drainLimit)
		} else {
			_, _ = io.CopyN(io.Discard, l.nc, drainLimit)
		}
	}
	_ = l.nc.Close()
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
