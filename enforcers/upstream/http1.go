package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// wire is one HTTP connection outside. A reservation is made before each
// request, and used up by it or by Release.
type wire interface {
	RoundTrip(r *http.Request) (*http.Response, error)
	Reserve() error
	Release()
	InFlight() int  // requests and reservations
	Available() int // how many more it would take
	Err() error     // why it takes none any more
	Close() error
	changed(f func())        // f is told when one of the three above may have changed
	leave(expired bool) bool // reports that nobody uses it and that it is of no more use
}

// shared is a connection of net/http: HTTP/2, or one that will switch protocols.
type shared struct{ *http.ClientConn }

// RoundTrip refuses what HTTP/2 would carry and the next server behind it could
// read as more than one request.
func (s shared) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := wellFormed(r); err != nil {
		s.Release()
		return nil, err
	}
	return s.ClientConn.RoundTrip(r)
}

func (s shared) changed(f func())        { s.SetStateHook(func(*http.ClientConn) { f() }) }
func (s shared) leave(expired bool) bool { return s.Err() != nil || expired && s.InFlight() == 0 }

// http1 is an HTTP/1.1 connection on which a request is written and its answer
// read by the goroutine that asked. net/http has two of its own for each
// connection, and four changes between goroutines a request cost more than
// everything that is done on them.
type http1 struct {
	k    *conn
	nc   net.Conn        // k, or the TLS on it
	raw  syscall.RawConn // of the socket; nil when it cannot be looked at
	wait time.Duration   // for an answer's head
	left int64           // bytes that may be read until a head is whole
	r    *bufio.Reader   // nil while nobody asks

	mu    sync.Mutex
	taken bool // reserved or in use
	err   error
	hook  func()
}

var (
	errIdleGone = errors.New("the connection ended while nobody used it")
	errBusy     = errors.New("the connection is in use")
	errNoEnd    = errors.New("the connection is left in the middle of an answer")
	errSwitched = errors.New("the answer switches to a protocol that nobody asked for")
	errLongHead = errors.New("the answer's head is too long")
)

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}
)

// newHTTP1 takes an open connection over, reserved.
func newHTTP1(k *conn, wait time.Duration) *http1 {
	c := &http1{k: k, nc: k, wait: wait, taken: true}
	if k.tls != nil {
		c.nc = k.tls
	}
	if s, ok := k.Conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // nil on an error: then a request finds out
	}
	return c
}

func (c *http1) changed(f func()) { c.hook = f }

// Reserve takes the connection. Anything that came while nobody asked ends it:
// an end, or an answer to no question.
func (c *http1) Reserve() error {
	c.mu.Lock()
	switch {
	case c.err != nil:
	case c.taken:
		c.mu.Unlock()
		return errBusy
	case c.silent():
		c.taken = true
		c.mu.Unlock()
		return nil
	default:
		c.err = errIdleGone
	}
	err := c.err
	c.mu.Unlock()
	c.tell()
	return err
}

// silent looks at the socket without waiting. It must be called with mu held
// and only while nobody asks.
func (c *http1) silent() bool {
	if c.raw == nil {
		return true
	}
	quiet := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
		return true
	})
	return err == nil && quiet
}

func (c *http1) leave(expired bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case c.taken, !expired && c.silent():
		return false
	default:
		c.err = errIdleGone
	}
	return true
}

// Release gives a reservation back.
func (c *http1) Release() {
	c.mu.Lock()
	c.taken = false
	c.mu.Unlock()
	c.tell()
}

func (c *http1) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken {
		return 1
	}
	return 0
}

func (c *http1) Available() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken || c.err != nil {
		return 0
	}
	return 1
}

func (c *http1) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, whoever uses it. TLS says goodbye only when nobody
// does: else it could be made to wait for that.
func (c *http1) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	idle := !c.taken
	c.mu.Unlock()
	if idle {
		_ = c.nc.Close()
	}
	return c.k.Close()
}

func (c *http1) tell() {
	if c.hook != nil {
		c.hook()
	}
}

// Read is what the reader reads from: the connection, and of a head no more
// than maxHead.
func (c *http1) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLongHead
	}
	n, err := c.nc.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

const anyLength = 1<<63 - 1

// RoundTrip sends one request and returns its answer once the head is there. An
// error ends the connection, and so does an answer that is not read to its end.
func (c *http1) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := wellFormed(r); err != nil {
		c.Release()
		return nil, err
	}
	x := &turn{c: c, r: r}
	if x.course, _ = r.Context().(*course); x.course == nil {
		x.course, x.own = &course{}, true
		x.course.start(r.Context(), context.Background(), nil)
	}
	if err := x.course.use(c.k); err != nil { // or it would be sent before the connection ends
		x.left()
		c.Release()
		return nil, err
	}
	c.r = readers.Get().(*bufio.Reader)
	c.r.Reset(c)
	resp, err := x.ask()
	if err != nil {
		err = x.fault(err)
		x.end(false)
		return nil, err
	}
	x.keep = !resp.Close && !r.Close
	if r.Method == http.MethodHead || resp.ContentLength == 0 {
		resp.Body = http.NoBody
		x.end(true)
		return resp, nil
	}
	x.body, resp.Body = resp.Body, x
	return resp, nil
}

// turn is one request and its answer, whose body it reads.
type turn struct {
	c      *http1
	r      *http.Request
	course *course
	own    bool     // course ends with the turn
	up     *sending // nil when the request has no body
	keep   bool     // both sides go on after the answer
	ended  atomic.Bool
	body   io.ReadCloser // of the answer
	err    error         // why there is no more of it
}

// left leaves the connection to the next turn, and reports whether nobody ended
// it meanwhile.
func (x *turn) left() bool {
	alone := x.course.unuse()
	if x.own {
		x.course.stop()
	}
	return alone
}

func (x *turn) ask() (*http.Response, error) {
	c := x.c
	if x.r.Body == nil {
		if err := c.put(x.r); err != nil {
			return nil, err
		}
		x.course.answerWithin(c.wait)
	} else {
		// An answer may come before the body is sent, and may be the reason to send
		// no more of it.
		x.up = newSending(x)
		go x.up.run()
	}
	resp, err := x.head()
	if x.up != nil {
		x.up.answered()
	}
	x.course.answered()
	c.left = anyLength
	return resp, err
}

// put writes a request and what it brings along.
func (c *http1) put(r *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c.nc)
	var err error
	if !bare(w, r) {
		err = r.Write(w)
	}
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	return err
}

// bare writes a request that is a head and nothing else, byte for byte as
// Request.Write does, whose values all pass through fmt. It reports false, and
// has written nothing, for one of another kind. wellFormed has seen to it that
// nothing in it is more than it seems; an error stays with w.
func bare(w *bufio.Writer, r *http.Request) bool {
	agent, named := r.Header["User-Agent"]
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Body != nil || r.ContentLength != 0 || r.Close || !named || !plainHost(r.Host) {
		return false
	}
	for _, s := range [...]string{r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", r.Host, "\r\n"} {
		_, _ = w.WriteString(s)
	}
	if len(agent) > 0 && agent[0] != "" {
		for _, s := range [...]string{"User-Agent: ", textproto.TrimString(agent[0]), "\r\n"} {
			_, _ = w.WriteString(s)
		}
	}
	_ = r.Header.WriteSubset(w, notInHeader)
	_, _ = w.WriteString("\r\n")
	return true
}

// notInHeader are fields that are not sent as they stand.
var notInHeader = map[string]bool{"Host": true, "User-Agent": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}

// plainHost reports whether a Host field is sent as it stands.
func plainHost(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune(".-:[]", c)
	})
}

// head reads the answer's head, behind those that are none yet.
func (x *turn) head() (*http.Response, error) {
	x.c.left = maxHead
	for {
		resp, err := http.ReadResponse(x.c.r, x.r)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitched
		case resp.StatusCode >= 200 || resp.StatusCode < 100:
			return resp, nil
		case resp.StatusCode == http.StatusContinue && x.up != nil:
			x.up.proceed()
		}
	}
}

// fault says why the exchange ended: the caller's end and a body that broke are
// the reasons for what the connection says then.
func (x *turn) fault(err error) error {
	if why := x.course.why(); why != nil {
		return why
	}
	if x.up != nil {
		if broken := x.up.broken(); broken != nil {
			return broken
		}
	}
	return err
}

// end gives the connection back, or ends it.
func (x *turn) end(whole bool) {
	if x.ended.Swap(true) {
		return
	}
	c := x.c
	alone := x.left()
	whole = whole && alone && x.keep && (x.up == nil || x.up.over()) && c.r.Buffered() == 0 && !c.holds()
	c.mu.Lock()
	if whole && c.err == nil {
		c.taken = false
		r := c.r
		c.r = nil
		r.Reset(nil)
		readers.Put(r)
	} else if whole = false; c.err == nil {
		c.err = errNoEnd
	}
	c.mu.Unlock()
	if !whole {
		_ = c.k.Close()
	}
	c.tell()
}

// holds reports whether TLS has something behind the answer, or an end of the
// connection: it takes more from the socket than it hands out, and what it has is
// seen by nobody who looks at the socket.
func (c *http1) holds() bool {
	if c.k.tls == nil {
		return false
	}
	var b [1]byte
	c.k.dry = true // from the socket nothing more
	_, err := c.nc.Read(b[:])
	c.k.dry = false
	return !errors.Is(err, errDry)
}

// Read reads the answer's body.
func (x *turn) Read(p []byte) (int, error) {
	if x.err != nil {
		return 0, x.err
	}
	if x.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := x.body.Read(p)
	if err != nil {
		if err != io.EOF {
			err = x.fault(err)
		}
		x.err = err
		x.end(err == io.EOF)
	}
	return n, err
}

// Close ends the connection if the body was not read to its end: nobody knows
// how much of it there is.
func (x *turn) Close() error {
	x.end(false)
	return nil
}

// blank reports whether s would be more than one word of a request line.
func blank(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// wellFormed refuses what would be another request on the wire than it is here.
func wellFormed(r *http.Request) error {
	if r.URL == nil || r.Host == "" || r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method) { // a token as well; none is GET
		return errors.New("the request has no host, or its method is malformed")
	}
	// A path is escaped when it is written; these two are written as they stand.
	if blank(r.URL.Opaque) || blank(r.URL.RawQuery) {
		return errors.New("the request's target is malformed")
	}
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name, values := range h {
			if !httpguts.ValidHeaderFieldName(name) {
				return errors.New("a field's name is malformed")
			}
			for _, v := range values {
				if !httpguts.ValidHeaderFieldValue(v) {
					return errors.New("the value of the field " + name + " is malformed")
				}
			}
		}
	}
	return nil
}
