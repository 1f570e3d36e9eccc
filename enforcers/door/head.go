package door

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Bounds on one request head.
const (
	maxHead   = 32 << 10
	maxTarget = 8 << 10
	maxMethod = 32
	maxFields = 128
)

// malformed says why a head or a body was refused before net/http saw it. The
// text is the door's own; it never repeats what the agent wrote.
type malformed string

func (m malformed) Error() string { return "malformed request: " + string(m) }

// head is one request head that passed. Only what is framed and spelled in the
// single way that every HTTP implementation reads alike gets here.
type head struct {
	method  string
	target  string
	host    string // the one Host field, not yet parsed
	hosts   int    // how many there were
	fields  http.Header
	most    int      // how many fields there may be
	values  []string // where the first values of fields lie
	length  int64    // Content-Length; -1 = chunked; 0 = no body
	old     bool     // HTTP/1.0, CONNECT only
	expect  bool     // Expect: 100-continue
	close   bool     // Connection: close
	upgrade string
	trailer http.Header // declared trailer names with nil values
}

var headEnd = []byte("\r\n\r\n")

// wholeHead returns a head that has come whole already, without waiting for more.
// It is good until the reader is used again.
func wholeHead(r *bufio.Reader) ([]byte, bool) {
	begun, _ := r.Peek(r.Buffered())
	n := bytes.Index(begun, headEnd)
	if n < 0 {
		return nil, false
	}
	n += len(headEnd)
	_, _ = r.Discard(n) // it is there
	return begun[:n], true
}

// readHead reads up to and including the empty line that ends a head.
func readHead(r *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		line, err := r.ReadSlice('\n')
		b = append(b, line...)
		switch {
		case len(b) > maxHead:
			return nil, malformed("head too long")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(b) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(b) == 2 && b[0] == '\r', len(b) > 2 && len(line) == 2 && line[0] == '\r' && b[len(b)-3] == '\n':
			return b, nil
		case len(b) < maxHead && len(line) == 1:
			return nil, malformed("bare line feed") // EG-51, and no wait for more
		}
	}
}

// parse checks a complete head and fills in h. See the package's fuzz target:
// whatever passes here net/http reads the same way.
func (h *head) parse(b []byte) error {
	text, ok := strings.CutSuffix(string(b), "\r\n\r\n")
	if !ok {
		return malformed("no end of head")
	}
	lines := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\r':
			if i+1 == len(text) || text[i+1] != '\n' {
				return malformed("bare carriage return") // EG-51
			}
		case c == '\n':
			if i == 0 || text[i-1] != '\r' {
				return malformed("bare line feed") // EG-51
			}
			lines++
		case c < ' ' && c != '\t', c == 0x7f:
			return malformed("control character") // EG-10, EG-11, EG-51
		}
	}
	line, rest, _ := strings.Cut(text, "\r\n")
	*h = head{fields: make(http.Header), most: min(lines, maxFields)}
	if err := h.requestLine(line); err != nil {
		return err
	}
	for n := 0; rest != ""; n++ {
		if n == maxFields {
			return malformed("too many fields")
		}
		line, rest, _ = strings.Cut(rest, "\r\n")
		if err := h.field(line); err != nil {
			return err
		}
	}
	return h.framing()
}

func (h *head) requestLine(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok || !ok2:
		return malformed("request line")
	case len(method) > maxMethod || !token(method):
		return malformed("method")
	case target == "" || len(target) > maxTarget || !visible(target):
		return malformed("target")
	case version != "HTTP/1.1" && (version != "HTTP/1.0" || method != http.MethodConnect):
		// EG-47: PRI * HTTP/2.0. Older Python opens its tunnels with HTTP/1.0.
		return malformed("version is not HTTP/1.1")
	}
	h.method, h.target, h.old = method, target, version == "HTTP/1.0"
	return nil
}

func (h *head) field(line string) error {
	if line == "" || line[0] == ' ' || line[0] == '\t' {
		return malformed("folded field") // EG-48, EG-51
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return malformed("field name") // EG-48: "Host :"
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	value = strings.Trim(value, " \t")
	if name == "Host" { // stands for itself, never among the fields
		h.host = value
		h.hosts++
		return nil
	}
	if before := h.fields[name]; before != nil {
		h.fields[name] = append(before, value)
		return nil
	}
	if h.values == nil { // one piece of memory for all of them: few fields have a second value
		h.values = make([]string, 0, h.most)
	}
	h.values = append(h.values, value)
	n := len(h.values)
	h.fields[name] = h.values[n-1 : n : n]
	return nil
}

// framing finds the one Host and the one way in which the body is delimited.
func (h *head) framing() error {
	switch {
	case h.hosts == 1 && h.host != "", h.hosts == 0 && h.old:
	default:
		return malformed("not exactly one Host") // EG-48
	}

	te, cl := h.fields["Transfer-Encoding"], h.fields["Content-Length"]
	switch {
	case len(te)+len(cl) > 1:
		return malformed("body framed twice") // EG-50
	case len(te) == 1:
		if !strings.EqualFold(te[0], "chunked") {
			return malformed("transfer coding") // EG-50
		}
		h.length = -1
	case len(cl) == 1:
		n, err := contentLength(cl[0])
		if err != nil {
			return err
		}
		h.length = n
	}
	delete(h.fields, "Transfer-Encoding")

	for _, v := range h.fields["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			switch strings.ToLower(strings.Trim(name, " \t")) {
			case "close":
				h.close = true
			case "host", "content-length", "transfer-encoding":
				return malformed("Connection names a framing field")
			}
		}
	}
	if e := h.fields["Expect"]; len(e) > 0 {
		if len(e) > 1 || !strings.EqualFold(e[0], "100-continue") {
			return malformed("expectation")
		}
		h.expect = h.length != 0
	}
	if u := h.fields["Upgrade"]; len(u) > 0 {
		if len(u) > 1 {
			return malformed("upgrade")
		}
		h.upgrade = strings.ToLower(u[0])
	}
	return h.trailers()
}

// trailers notes the declared trailer names. Names that would change framing,
// routing or authority after the decision are refused.
func (h *head) trailers() error {
	for _, v := range h.fields["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t"))
			if !token(name) || len(h.trailer) >= maxFields || !trailerAllowed(name) {
				return malformed("trailer")
			}
			if h.trailer == nil {
				h.trailer = make(http.Header)
			}
			h.trailer[name] = nil
		}
	}
	return nil
}

func trailerAllowed(name string) bool {
	switch name {
	case "Transfer-Encoding", "Content-Length", "Trailer", "Host", "Connection", "Authorization",
		"Proxy-Authorization", "Cookie", "Content-Type", "Content-Encoding", "Expect", "Te", "Upgrade":
		return false
	default:
		return true
	}
}

// contentLength reads digits in their only canonical form (EG-50: no sign, no
// hexadecimal, no list).
func contentLength(s string) (int64, error) {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, malformed("content length")
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || (len(s) > 1 && s[0] == '0') {
		return 0, malformed("content length")
	}
	return n, nil
}

// tokenBytes are the bytes of an RFC 9110 token.
var tokenBytes = func() (is [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[c] = true
	}
	return is
}()

// token reports whether s is a non-empty RFC 9110 token.
func token(s string) bool {
	for i := 0; i < len(s); i++ {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// visible reports whether s is printable ASCII without a space.
func visible(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// chunked reads a chunked body, strictly: no extensions, canonical line ends,
// and at its end only the declared trailers.
type chunked struct {
	r       *bufio.Reader
	left    uint64 // of the current chunk
	begun   bool   // a chunk's data has been read, its line end is due
	done    bool
	err     error
	trailer http.Header // filled at the end
}

const (
	maxChunkDigits = 8 // 4 GiB
	maxTrailers    = 8 << 10
)

func (c *chunked) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.read(p)
	if err != nil {
		if errors.Is(err, io.EOF) && !c.done {
			err = io.ErrUnexpectedEOF
		}
		c.err = err
	}
	return n, err
}

func (c *chunked) read(p []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if uint64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= uint64(n)
	return n, err
}

// next reads a chunk's size line, and the trailer section after the last.
func (c *chunked) next() error {
	if c.begun {
		if err := c.lineEnd(); err != nil {
			return err
		}
	}
	c.begun = true
	size := uint64(0)
	for digits := 0; ; digits++ {
		b, err := c.r.ReadByte()
		if err != nil {
			return err
		}
		d, ok := unhex(b)
		if !ok {
			if digits == 0 || b != '\r' {
				return malformed("chunk size") // EG-51: extensions, bare line feeds
			}
			break
		}
		if digits == maxChunkDigits {
			return malformed("chunk size")
		}
		size = size<<4 | uint64(d)
	}
	if b, err := c.r.ReadByte(); err != nil || b != '\n' {
		return or(err, malformed("chunk size"))
	}
	if size > 0 {
		c.left = size
		return nil
	}
	if err := c.trailers(); err != nil {
		return err
	}
	c.done = true
	return io.EOF
}

func (c *chunked) lineEnd() error {
	for _, want := range []byte("\r\n") {
		if b, err := c.r.ReadByte(); err != nil || b != want {
			return or(err, malformed("chunk end"))
		}
	}
	return nil
}

func (c *chunked) trailers() error {
	for total := 0; ; {
		line, err := c.r.ReadSlice('\n')
		if total += len(line); errors.Is(err, bufio.ErrBufferFull) || total > maxTrailers {
			return malformed("trailers too long") // EG-51
		}
		if err != nil {
			return err
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return malformed("trailer")
		}
		if text == "" {
			return nil
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || !token(name) {
			return malformed("trailer")
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if _, declared := c.trailer[name]; declared {
			c.trailer[name] = append(c.trailer[name], strings.Trim(value, " \t"))
		}
	}
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}

// or returns err, or other if there is none.
func or(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// fixed reads a body of a known length.
type fixed struct {
	r    *bufio.Reader
	left int64
}

func (f *fixed) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > f.left {
		p = p[:f.left]
	}
	n, err := f.r.Read(p)
	f.left -= int64(n)
	if errors.Is(err, io.EOF) && f.left > 0 {
		err = fmt.Errorf("body of %d bytes short by %d: %w", f.left+int64(n), f.left, io.ErrUnexpectedEOF)
	}
	return n, err
}
