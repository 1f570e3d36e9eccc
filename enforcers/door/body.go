package door

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/problem"
)

// drainLimit is how much of an unread body is read away to keep a connection.
const drainLimit = 64 << 10

// body is a request's body. Once it has been read to its end the connection is
// watched, so that a client that leaves ends what is done for it.
type body struct {
	l      *link
	w      *reply
	src    io.Reader
	length int64
	expect bool

	closing atomic.Bool // set before the deadline that wakes a reader, so that the reader's own cannot win

	mu    sync.Mutex // held during a read; the transport may still read when the handler is done
	read  int64
	err   error         // io.EOF at the end, or what broke it
	watch chan struct{} // closed when the watcher ends; nil when there is none
	gone  bool          // the watcher saw the client leave
}

// begin makes b the body of the request that has just been read from l.
func (b *body) begin(l *link, w *reply, h *head) {
	b.l, b.w, b.length, b.expect = l, w, h.length, h.expect
	switch {
	case h.length < 0:
		b.src = &chunked{r: l.r, trailer: h.trailer}
	case h.length > 0:
		b.src = &fixed{r: l.r, left: h.length}
	default:
		b.err = io.EOF
		l.vigil.start(b)
	}
}

// Read reads the body; the first read answers an expectation.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if b.closing.Load() { // the connection is the next request's
		return 0, http.ErrBodyReadAfterClose
	}
	if b.expect {
		b.expect = false // EG-53: only what is let through is asked for
		b.w.proceed()
	}
	if err := b.l.nc.SetReadDeadline(time.Now().Add(b.l.d.o.Timeouts.Body)); err != nil {
		b.err = bodyError(err)
		return 0, b.err
	}
	if b.closing.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.err = io.EOF
		b.l.vigil.start(b)
	case err != nil:
		b.err = bodyError(err)
	}
	return n, b.err
}

// bodyError gives a broken body the code that the outcome will carry.
func bodyError(err error) error {
	var bad malformed
	switch {
	case errors.As(err, &bad):
		return problem.Wrap(err, enforcers.CodeMalformed, "the request's body is malformed", "")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.Wrap(err, enforcers.CodeClientSlow, "the request's body stopped coming", "")
	default:
		return problem.Wrap(err, enforcers.CodeClientGone, "the client left", "")
	}
}

// Close is for the transport; the connection is settled by the link.
func (b *body) Close() error { return nil }

// watchAfter is how long a request is under way before its client is watched.
// Most are done by then, on a node at its limit too, which is where it matters
// that watching costs as much as reading a request.
const watchAfter = 250 * time.Millisecond

// vigil begins to watch for the client's end. One timer serves all requests of a
// link: it runs to its end, and then looks whether the newest of them has been
// under way for long enough. What it finds of a request that is over does nothing:
// a body that is closing is not watched.
type vigil struct {
	mu    sync.Mutex
	timer *time.Timer // nil before the first request
	runs  bool
	body  *body     // of the newest request, if nobody watches for it yet
	since time.Time // when nothing was left to read of it
}

// start will wait for b's client to leave. It must be called with b.mu held or
// before b is shared, and only when nothing of the body is left to read.
func (v *vigil) start(b *body) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.body, v.since = b, time.Now()
	switch {
	case v.timer == nil:
		v.timer = time.AfterFunc(watchAfter, v.look)
	case !v.runs:
		v.timer.Reset(watchAfter)
	}
	v.runs = true
}

// look is what the timer does.
func (v *vigil) look() {
	v.mu.Lock()
	b := v.body
	if left := watchAfter - time.Since(v.since); b != nil && left > 0 {
		v.timer.Reset(left)
		v.mu.Unlock()
		return
	}
	v.body, v.runs = nil, false
	v.mu.Unlock()
	if b != nil {
		b.watchClient()
	}
}

// stop lets go of the newest request, which is over.
func (v *vigil) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.body = nil; v.timer != nil {
		v.timer.Stop()
	}
}

func (b *body) watchClient() {
	b.mu.Lock()
	if b.closing.Load() || b.l.nc.SetReadDeadline(time.Time{}) != nil || b.closing.Load() {
		b.mu.Unlock()
		return
	}
	done := make(chan struct{})
	b.watch = done
	b.mu.Unlock()
	defer close(done)
	// A byte of the next request stays in the buffer.
	if _, err := b.l.r.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		b.gone = true
		b.l.gone(problem.Wrap(err, enforcers.CodeClientGone, "the client left", ""))
	}
}

// finished ends reading and watching: after it nothing but the link touches
// the connection's reader.
func (b *body) finished() {
	b.closing.Store(true)
	if b.mu.TryLock() { // nobody reads
		idle := b.watch == nil
		b.mu.Unlock()
		if idle {
			return
		}
	}
	_ = b.l.nc.SetReadDeadline(time.Unix(1, 0)) // wakes whoever reads
	b.mu.Lock()
	watch := b.watch
	b.mu.Unlock()
	if watch != nil {
		<-watch
	}
	_ = b.l.nc.SetReadDeadline(time.Time{})
}

// unread reports whether so much of the body is left that the connection must
// end with this response. It is asked while the head is written.
func (b *body) unread() bool {
	if !b.mu.TryLock() {
		return false // being read right now
	}
	defer b.mu.Unlock()
	return b.err == nil && (b.expect || b.length < 0 || b.length-b.read > drainLimit)
}

// settle reads away a small rest and reports whether the connection is at the
// start of the next head.
func (b *body) settle() bool {
	switch {
	case errors.Is(b.err, io.EOF):
		return !b.gone
	case b.err != nil, b.expect:
		return false
	}
	if b.l.nc.SetReadDeadline(time.Now().Add(b.l.d.o.Timeouts.Head)) != nil {
		return false
	}
	n, err := io.CopyN(io.Discard, b.src, drainLimit+1)
	return errors.Is(err, io.EOF) && n <= drainLimit
}
