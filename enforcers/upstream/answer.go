package upstream

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
)

// An answer to a request that carried a credential could bring the credential,
// or one obtained with it, into the sandbox. What follows looks for both.

// prepareInjected changes a request so that its answer can be looked into: no
// ranges, which could split a secret between two answers (EG-105), and no
// encoding.
func prepareInjected(h http.Header) {
	delete(h, "Range")
	delete(h, "If-Range")
	h["Accept-Encoding"] = []string{"identity"}
}

// guardAnswer takes out of an answer what must not enter the sandbox and
// returns its body under watch of t. An error refuses the whole answer.
//
// fields says that the answer may hand out tokens of its own. What a model
// writes may have fields of any name; it hands out none. keep is asked about a
// redirect.
func guardAnswer(resp *http.Response, to authority.Authority, t *tripwire, fields bool, keep Keeper) (io.ReadCloser, error) {
	for _, name := range []string{"Set-Cookie", "Set-Cookie2", "Authentication-Info", "Proxy-Authentication-Info"} {
		delete(resp.Header, name)
		delete(resp.Trailer, name)
	}
	if err := keep.ask(resp, to, t); err != nil {
		return nil, err
	}
	if err := t.head(resp.Header); err != nil {
		return nil, err
	}
	for _, location := range resp.Header["Location"] {
		if !sameOrigin(location, to) {
			// EG-59, EG-108: where else it leads, its query stays behind.
			return nil, fail(enforcers.CodeAnswerCredential, "the answer redirects elsewhere with a query", nil)
		}
	}
	body := resp.Body
	switch enc := strings.ToLower(strings.Join(resp.Header["Content-Encoding"], ",")); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fail(enforcers.CodeAnswerEncoding, "the answer's encoding is broken", err)
		}
		body = &unzipped{z, resp.Body}
		delete(resp.Header, "Content-Encoding")
		delete(resp.Header, "Content-Length")
		resp.ContentLength = -1
	default:
		return nil, fail(enforcers.CodeAnswerEncoding, "the answer is encoded in a way that hides what it holds", nil)
	}
	if fields {
		t.fields, t.urls = looksInto(strings.Join(resp.Header["Content-Type"], ","))
	}
	g := &guarded{ReadCloser: body, t: t, of: wide, resp: resp}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		g.of = narrow
	}
	return g, nil
}

// looksInto says what to look for in an answer of a type: token fields in JSON,
// signed URLs in every kind of text. An answer that does not say what it is, in
// a way that every client reads alike, is looked into for both.
func looksInto(contentType string) (fields, urls bool) {
	if k, ok := usual[contentType]; ok {
		return k.fields, k.urls
	}
	return parsedInto(contentType)
}

type lookedInto struct{ fields, urls bool }

// usual is what parsedInto says of the types that most answers have: to parse
// one anew costs as much as to look through a short answer.
var usual = func() map[string]lookedInto {
	m := make(map[string]lookedInto)
	for _, kind := range []string{"application/json", "application/octet-stream", "text/html", "text/plain", "text/event-stream"} {
		for _, charset := range []string{"", "; charset=utf-8", "; charset=UTF-8", ";charset=utf-8"} {
			fields, urls := parsedInto(kind + charset)
			m[kind+charset] = lookedInto{fields, urls}
		}
	}
	return m
}()

func parsedInto(contentType string) (fields, urls bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil || kind == "application/json" || strings.HasSuffix(kind, "+json") {
		return true, true
	}
	if strings.HasPrefix(kind, "text/") {
		return false, true
	}
	rest, application := strings.CutPrefix(kind, "application/")
	return false, strings.HasSuffix(kind, "+xml") || application && (rest == "xml" || strings.HasSuffix(rest, "html"))
}

func (t *tripwire) reflected() error {
	if t.signed {
		return fail(enforcers.CodeAnswerCredential, "the answer holds the signature of its own address", nil) // EG-108
	}
	return fail(enforcers.CodeReflected, "the answer holds the credential that the request carried", nil)
}

// sameOrigin reports whether a Location leads back to the same authority or
// carries no query.
func sameOrigin(location string, to authority.Authority) bool {
	if location == "" {
		return true
	}
	u, err := url.Parse(location)
	if err != nil {
		return false
	}
	if u.RawQuery == "" && u.User == nil {
		return true
	}
	if !u.IsAbs() && u.Hostname() == "" {
		// Browsers read both of these as the start of a host.
		place, _, _ := strings.Cut(location, "?")
		return !strings.HasPrefix(place, "//") && !strings.Contains(place, `\`)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	named, err := authority.ParseHostPort(u.Scheme, u.Hostname()+":"+port)
	return err == nil && named == to && u.User == nil
}

// maxMarker is the longest that the start of a signed URL's key or of a token
// field can be, escapes included; what could be one is held back.
const maxMarker = 96

// tripwire looks for secrets and their usual encodings in a stream of bytes.
type tripwire struct {
	patterns [][]byte
	fields   bool // look for token fields as well
	urls     bool // look for signed URLs as well
	signed   bool // patterns are of a signed URL, not of a connection's credential
	longest  int
}

func newTripwire(watch []secret.Value) *tripwire {
	t := &tripwire{}
	for _, v := range watch {
		t.patterns = append(t.patterns, encodings(v.Reveal())...)
	}
	for _, p := range t.patterns {
		t.longest = max(t.longest, len(p))
	}
	return t
}

// tripwires keeps the newest tripwire of each connection: the encodings of a
// secret cost more than the answers to most requests.
type tripwires struct {
	mu sync.Mutex
	by map[string]kept
}

type kept struct {
	watch []secret.Value
	t     *tripwire
}

// of returns a tripwire of one's own for the values that a connection's
// request carried.
func (c *tripwires) of(connection string, watch []secret.Value) *tripwire {
	c.mu.Lock()
	k := c.by[connection]
	c.mu.Unlock()
	if k.t == nil || !slices.EqualFunc(k.watch, watch, func(a, b secret.Value) bool { return bytes.Equal(a.Reveal(), b.Reveal()) }) {
		k = kept{t: newTripwire(watch)}
		for _, v := range watch {
			k.watch = append(k.watch, secret.New(bytes.Clone(v.Reveal()))) // its owner may wipe it
		}
		c.mu.Lock()
		if c.by == nil {
			c.by = make(map[string]kept)
		}
		c.by[connection] = k
		c.mu.Unlock()
	}
	t := *k.t
	return &t
}

// encodings are the ways in which a server usually repeats a secret.
func encodings(s []byte) [][]byte {
	out := [][]byte{bytes.Clone(s)}
	add := func(p string) {
		if len(p) >= minSecret && !slices.ContainsFunc(out, func(q []byte) bool { return string(q) == p }) {
			out = append(out, []byte(p))
		}
	}
	h := hex.EncodeToString(s)
	add(h)
	add(strings.ToUpper(h))
	for _, p := range []string{url.QueryEscape(string(s)), url.PathEscape(string(s))} {
		add(p)
		add(lowerEscapes(p))
	}
	add(html.EscapeString(string(s)))
	add(strings.ReplaceAll(string(s), "/", `\/`))
	if j, err := json.Marshal(string(s)); err == nil && utf8.Valid(s) {
		add(string(j[1 : len(j)-1]))
	}
	var lower, upper strings.Builder
	for i := 0; i < len(h); i += 2 {
		lower.WriteString("%" + h[i:i+2])
		upper.WriteString("%" + strings.ToUpper(h[i:i+2]))
	}
	add(lower.String())
	add(upper.String())
	// Within a longer text the secret's base64 depends on where it begins; what
	// its neighbours do not touch is the same.
	for shift := range 3 {
		padded := append(make([]byte, shift), s...)
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			e := enc.EncodeToString(padded)
			from := (shift*8 + 5) / 6
			to := len(padded) * 8 / 6
			add(e[from:to])
		}
	}
	return out
}

// lowerEscapes writes percent escapes in the other case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func (t *tripwire) holds(b []byte) bool {
	return slices.ContainsFunc(t.patterns, func(p []byte) bool { return bytes.Contains(b, p) })
}

// within is holds for text in which some bytes may stand escaped: the door writes
// a path without the escapes that it does not need.
func (t *tripwire) within(text string) bool {
	return t.holds([]byte(text)) || strings.Contains(text, "%") && t.holds(unescaped(text))
}

// unescaped undoes percent escapes. What is none stays.
func unescaped(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if b, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				out = append(out, b[0])
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// head looks at the fields of an answer, or of its trailer.
func (t *tripwire) head(h http.Header) error {
	for _, values := range h {
		for _, v := range values {
			if t.within(v) {
				return t.reflected()
			}
			if signs([]byte(v)) {
				return fail(enforcers.CodeAnswerCredential, "a header of the answer holds a signed URL", nil) // EG-108
			}
		}
	}
	return nil
}

// check looks at a window and returns how much of its end must be held back,
// because it may be the start of something.
func (t *tripwire) check(window []byte) (hold int, err error) {
	if t.holds(window) {
		return 0, t.reflected()
	}
	for _, p := range t.patterns {
		// The longest end of the window that p begins with.
		for tail := window[max(0, len(window)-len(p)+1):]; len(tail) > hold; tail = tail[1:] {
			i := bytes.IndexByte(tail, p[0])
			if i < 0 || len(tail)-i <= hold {
				break
			}
			if tail = tail[i:]; bytes.HasPrefix(p, tail) {
				hold = len(tail)
			}
		}
	}
	if t.fields && tokens(window) || t.urls && holdsSignedURL(window) {
		return 0, fail(enforcers.CodeAnswerCredential, "the answer holds a token or a signed URL", nil) // EG-78, EG-108
	}
	switch tail := window[max(0, len(window)-maxMarker):]; {
	case t.fields:
		hold = max(hold, len(tail))
	case t.urls:
		// No URL reaches across a space, so a finished line is not kept waiting.
		hold = max(hold, len(tail)-1-bytes.LastIndexAny(tail, " \t\r\n"))
	}
	return hold, nil
}

// guarded is an answer's body under watch. What may be the start of a secret
// waits for the next read; everything else passes at once.
type guarded struct {
	io.ReadCloser
	t    *tripwire
	of   *windows
	resp *http.Response // its trailer is there with the body's end
	buf  *[]byte        // nil before the first read and after the last
	out  []byte         // of buf: checked, to be given out
	rest []byte         // of buf, behind out: waits for what follows
	err  error
}

// windows of one size are pooled: most answers are short. They hold nothing that
// the next answer shows, since a reader is given only what was read for it.
type windows struct {
	size int
	pool sync.Pool
}

// Streams of events are many and long, and their events short: a window is most
// of what one of them holds on to.
var (
	wide   = &windows{size: 16 << 10}
	narrow = &windows{size: 4 << 10}
)

// get returns a window of which half is left beside what may be held back.
func (w *windows) get(held int) *[]byte {
	if need := w.size/2 + held; need > w.size {
		large := make([]byte, need)
		return &large
	}
	if b, ok := w.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, w.size)
	return &b
}

func (w *windows) put(b *[]byte) {
	if len(*b) == w.size {
		w.pool.Put(b)
	}
}

func (g *guarded) Read(p []byte) (int, error) {
	for len(g.out) == 0 {
		if g.err != nil {
			g.done()
			return 0, g.err
		}
		if g.buf == nil {
			g.buf = g.of.get(g.t.longest + maxMarker)
		}
		held := copy(*g.buf, g.rest)
		n, err := g.ReadCloser.Read((*g.buf)[held:])
		window := (*g.buf)[:held+n]
		hold, trip := g.t.check(window)
		if trip == nil && errors.Is(err, io.EOF) && g.resp != nil {
			trip = g.t.head(g.resp.Trailer)
		}
		switch {
		case trip != nil:
			g.err, g.rest = trip, nil
			g.done()
			return 0, trip
		case err != nil:
			hold, g.err = 0, err // nothing follows
		}
		g.out, g.rest = window[:len(window)-hold], window[len(window)-hold:]
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// done gives the window back, once the reader has all of it.
func (g *guarded) done() {
	if g.buf != nil {
		g.of.put(g.buf)
	}
	g.buf, g.rest = nil, nil
}

// unzipped is a gzip body decoded.
type unzipped struct {
	*gzip.Reader
	src io.Closer
}

func (u *unzipped) Close() error {
	_ = u.Reader.Close()
	return u.src.Close()
}
