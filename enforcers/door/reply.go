package door

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// reply writes one HTTP/1.1 response. It is the http.ResponseWriter that
// handlers get. Headers are sent with the first Flush, with the first body that
// outgrows the small buffer, or at the end; what the end finds unsent is framed
// by its length.
type reply struct {
	w       *bufio.Writer
	method  string
	header  http.Header // nil until there is a field
	status  int
	mu      sync.Mutex // guards sent against proceed
	sent    bool       // the head is on its way
	framing framing
	left    int64       // bytes a declared Content-Length still promises
	small   []byte      // body held back until the head is written
	close   bool        // the connection ends with this response
	request *body       // what is answered; nil when there was no body to speak of
	err     error       // first write error
	over    atomic.Bool // finished: the buffer is somebody else's from now on
}

type framing uint8

const (
	noBody framing = iota
	byLength
	byChunks
)

const smallBody = 2 << 10

func newReply(w *bufio.Writer, method string) *reply {
	return &reply{w: w, method: method}
}

// Header returns the response's header; changes after the head is sent reach
// declared trailers only.
func (r *reply) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r.header
}

// WriteHeader sets the status. Informational statuses are the door's own
// business and are ignored.
func (r *reply) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

// Write adds to the body.
func (r *reply) Write(b []byte) (int, error) {
	if r.over.Load() {
		return 0, http.ErrHandlerTimeout
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.err != nil {
		return 0, r.err
	}
	if !r.sent {
		if len(r.small)+len(b) <= smallBody && r.header.Get("Content-Length") == "" {
			r.small = append(r.small, b...)
			return len(b), nil
		}
		r.head(-1)
	}
	return r.body(b)
}

// Flush sends everything written so far.
func (r *reply) Flush() {
	if r.over.Load() {
		return
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if !r.sent {
		r.head(-1)
	}
	r.fail(r.w.Flush())
}

// FlushError is Flush for http.ResponseController.
func (r *reply) FlushError() error {
	r.Flush()
	return r.err
}

// switched writes the head of a protocol switch. The connection is the
// caller's from then on.
func (r *reply) switched() error {
	r.mu.Lock()
	r.sent, r.framing, r.close, r.status = true, noBody, true, http.StatusSwitchingProtocols
	r.mu.Unlock()
	_, _ = r.w.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	for name, values := range r.header {
		for _, v := range values {
			r.field(name, v)
		}
	}
	_, _ = r.w.WriteString("\r\n")
	r.fail(r.w.Flush())
	return r.err
}

// proceed answers an expectation, unless the response has begun. It may be
// called while the handler writes.
func (r *reply) proceed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.sent {
		_, _ = r.w.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
		_ = r.w.Flush()
	}
}

// head writes the status line and the header, and the body held back. length
// is the whole body's length when it is known, else -1.
func (r *reply) head(length int64) {
	r.mu.Lock()
	r.sent = true
	r.mu.Unlock()
	declared, err := strconv.ParseInt(r.header.Get("Content-Length"), 10, 64)
	switch {
	case r.status < 200, r.status == http.StatusNoContent, r.status == http.StatusNotModified:
		r.framing = noBody
		if r.status != http.StatusNotModified {
			delete(r.header, "Content-Length")
		}
	case r.method == http.MethodHead:
		r.framing = noBody
	case err == nil && declared >= 0:
		r.framing, r.left = byLength, declared
	case length >= 0:
		r.framing, r.left = byLength, length
		r.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	default:
		r.framing = byChunks
		r.Header()["Transfer-Encoding"] = []string{"chunked"}
	}
	if r.framing == byChunks {
		delete(r.header, "Content-Length")
	} else {
		delete(r.header, "Transfer-Encoding")
		delete(r.header, "Trailer")
	}
	if r.request != nil && r.request.unread() {
		r.close = true
	}
	if r.close {
		r.Header()["Connection"] = []string{"close"}
	}
	_, _ = r.w.Write(append(append(append(strconv.AppendInt(append(r.w.AvailableBuffer(), "HTTP/1.1 "...), int64(r.status), 10), ' '), http.StatusText(r.status)...), "\r\n"...))
	trailers := r.trailerNames()
	for name, values := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(trailers, name) {
			continue
		}
		for _, v := range values {
			r.field(name, v)
		}
	}
	_, err = r.w.WriteString("\r\n")
	r.fail(err)
	if len(r.small) > 0 {
		_, _ = r.body(r.small)
		r.small = nil
	}
}

// field writes one field. A line end in a value would be a second field: it
// becomes a space.
func (r *reply) field(name, v string) {
	if !token(name) {
		return
	}
	_, _ = r.w.WriteString(name)
	_, _ = r.w.WriteString(": ")
	_, _ = lineEnds.WriteString(r.w, v)
	_, _ = r.w.WriteString("\r\n")
}

var lineEnds = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")

func (r *reply) body(b []byte) (int, error) {
	var err error
	switch {
	case len(b) == 0:
	case r.framing == byChunks:
		_, _ = r.w.Write(append(strconv.AppendInt(r.w.AvailableBuffer(), int64(len(b)), 16), '\r', '\n'))
		_, _ = r.w.Write(b)
		_, err = r.w.WriteString("\r\n")
	case r.framing == noBody:
	case int64(len(b)) > r.left:
		err = http.ErrContentLength
	default:
		r.left -= int64(len(b))
		_, err = r.w.Write(b)
	}
	r.fail(err)
	return len(b), r.err
}

func (r *reply) trailerNames() []string {
	var names []string
	for _, v := range r.header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// finish completes the response and reports whether the connection can carry
// another one.
func (r *reply) finish() bool {
	defer r.over.Store(true)
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if !r.sent {
		r.head(int64(len(r.small)))
	}
	if r.framing == byChunks && r.err == nil { // what was broken off has no end
		_, _ = r.w.WriteString("0\r\n")
		for _, name := range r.trailerNames() {
			for _, v := range r.header[name] {
				r.field(name, v)
			}
		}
		for name, values := range r.header {
			if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
				for _, v := range values {
					r.field(name, v)
				}
			}
		}
		_, _ = r.w.WriteString("\r\n")
	}
	if r.framing == byLength && r.left > 0 {
		// Less than promised: only the connection's end can say so.
		r.close = true
	}
	r.fail(r.w.Flush())
	return r.err == nil && !r.close
}

// abort leaves the response visibly incomplete.
func (r *reply) abort() {
	if r.sent {
		r.fail(io.ErrUnexpectedEOF)
	}
	r.close = true
}

func (r *reply) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
