package door

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
)

// Bounds of one HTTP/2 connection.
const (
	maxStreams     = 32
	receivePerConn = 256 << 10
	receiveStream  = 128 << 10
)

// h2 serves the HTTP/2 connections of a door. Frames are never relayed: each
// stream is a request with a decision of its own, so that a connection that
// was opened for one name cannot be used for another (EG-46).
type h2 struct {
	d     *Door
	srv   *http.Server
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (d *Door) newH2() *h2 {
	h := &h2{d: d, conns: make(chan net.Conn), done: make(chan struct{})}
	var protocols http.Protocols
	// TLS is terminated before, so that the plain connection can be watched.
	protocols.SetUnencryptedHTTP2(true)
	h.srv = &http.Server{
		Handler:        http.HandlerFunc(h.serve),
		Protocols:      &protocols,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: receivePerConn, MaxReceiveBufferPerStream: receiveStream},
		MaxHeaderBytes: maxHead,

		DisableGeneralOptionsHandler: true, // OPTIONS * is refused like any other (EG-54)
		ReadHeaderTimeout:            d.o.Timeouts.Head,
		IdleTimeout:                  d.o.Timeouts.Idle,
		BaseContext:                  func(net.Listener) context.Context { return d.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, tunnelKey{}, c)
		},
		ErrorLog: log.New(io.Discard, "", 0), // the agent's mistakes
	}
	return h
}

// tunnelKey finds the watched connection, with the Authority of its tunnel, that a
// request came by.
type tunnelKey struct{}

// take serves one connection to its end.
func (h *h2) take(ctx context.Context, c *tls.Conn, r *replayed) {
	w := watch(c, r.to, func(n int) {
		for range min(n, maxStreams) {
			h.d.receipt(ctx, enforcers.CodeMalformed, r.to)
		}
	})
	select {
	case h.conns <- w:
	case <-h.done:
		return
	case <-ctx.Done():
		return
	}
	<-r.closed
}

// Accept, Close and Addr make h2 the listener of its own server.
func (h *h2) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *h2) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *h2) Addr() net.Addr { return h.d.listener.Addr() }

func (h *h2) run() {
	context.AfterFunc(h.d.ctx, func() { _ = h.srv.Close() })
	_ = h.srv.Serve(h) // ends with the door
}

// serve handles one stream.
func (h *h2) serve(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(tunnelKey{}).(*watched)
	conn.handle()
	to, d := conn.to, h.d
	code := wellFormed(r)
	var path, query string
	if code == "" {
		path, query, code = d.examine(to, r.Method, r.RequestURI, r.Host)
	}
	if code != "" {
		d.refuse(r.Context(), w, code, to)
		return
	}
	if r.ContentLength != 0 {
		r.Body = &streamBody{ReadCloser: r.Body, rc: http.NewResponseController(w), wait: d.o.Timeouts.Body}
	} else {
		r.Body = http.NoBody
	}
	d.dispatch(w, d.newRequest(new(Request), new(url.URL), r, to, path, query))
}

// wellFormed finds what net/http lets pass in HTTP/2 and HTTP/1.1 would not: a
// Host field beside another :authority (EG-45), a :path that is a URL (EG-44) or
// has a blank in it, which would be a second word of the request line outside, a
// length that is not the body's, trailers that are none. The :scheme says
// nothing: the tunnel's is the one that counts.
func wellFormed(r *http.Request) (code string) {
	hosts, lengths := r.Header["Host"], r.Header["Content-Length"]
	switch {
	case len(hosts) > 1, len(hosts) == 1 && hosts[0] != r.Host:
		return enforcers.CodeMisdirected
	case r.Method != http.MethodConnect && r.RequestURI != "*" && !strings.HasPrefix(r.RequestURI, "/"),
		!visible(r.RequestURI), len(r.RequestURI) > maxTarget, len(r.Method) > maxMethod,
		len(lengths) > 1, len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10),
		len(r.Header) > maxFields, !trailersAllowed(r.Trailer):
		return enforcers.CodeMalformed
	}
	delete(r.Header, "Host")
	return ""
}

func trailersAllowed(t http.Header) bool {
	for name := range t {
		if !trailerAllowed(name) {
			return false
		}
	}
	return len(t) <= maxFields
}

// streamBody is a stream's body with a bound on how long a read may take.
type streamBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	wait time.Duration
}

func (b *streamBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.wait))
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyError(err)
	}
	return n, err
}

// replayed is a connection whose first bytes were read already.
type replayed struct {
	net.Conn
	r      *bufio.Reader // nil once it is read empty; only Read touches it
	to     authority.Authority
	closed chan struct{}
	once   sync.Once
}

// Read is never called twice at a time: TLS holds a lock.
func (c *replayed) Read(b []byte) (int, error) {
	if c.r != nil {
		if c.r.Buffered() > 0 {
			return c.r.Read(b)
		}
		dropReader(c.r)
		c.r = nil
	}
	return c.Conn.Read(b)
}

func (c *replayed) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *replayed) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
