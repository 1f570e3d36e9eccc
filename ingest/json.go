package ingest

import (
	"bytes"
	"hash/maphash"
	"unicode"
	"unicode/utf8"

	"gatehouse/internal/problem"
)

// Limits of one JSON document: reference section 5.6. A document beyond Depth
// is refused; beyond the others it is quarantined without its body.
const (
	maxDepth  = 64
	maxKeys   = 20_000
	maxValues = 200_000
	maxString = 1 << 20
)

// Anomalies that a document can have.
const (
	anomalyBOM        = "bom"         // a byte order mark, skipped
	anomalyLossy      = "lossy_utf8"  // bytes that are not UTF-8; raw bytes are kept
	anomalyTwinKeys   = "twin_keys"   // one object holds two keys equal but for case
	anomalyTooLarge   = "too_complex" // keys, values or a string beyond the limits
	anomalyIDConflict = "id_conflict" // a known delivery id came with another body
	anomalyShape      = "shape"       // the body is not of the claimed kind
)

// kind of a JSON value.
type kind uint8

const (
	kindNull kind = iota + 1
	kindFalse
	kindTrue
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is one entry of a Doc: offsets into the raw bytes. 24 bytes, so that
// the index of a document stays below the size of the document.
type value struct {
	key, keyEnd uint32 // key without quotes; equal when the value has none
	start, end  uint32 // value with its quotes or brackets
	next        uint32 // index of the next sibling, 0 = last
	kind        kind
	escaped     bool // string with escapes, or bytes that are not UTF-8
	keyEscaped  bool
}

// Doc is one scanned JSON object: the raw bytes and an index over them. Nothing
// is decoded before it is asked for.
type Doc struct {
	raw    []byte
	values []value
	odd    map[string]bool // anomalies seen
	loose  bool            // white space between tokens
}

// errTooComplex marks a document beyond maxKeys, maxValues or maxString.
var errTooComplex = problem.New(problem.BadJSON, "document is beyond the limits of keys, values or string length", "")

// Scan checks that raw is one JSON object within the limits and indexes it. It
// is stricter than encoding/json where the two could disagree on the meaning:
// twin keys and bytes that are not UTF-8 are told, and nothing may follow the
// object. A leading byte order mark is skipped.
func Scan(raw []byte) (*Doc, error) {
	d := &Doc{values: make([]value, 1, 1+min(len(raw)/32, maxValues))}
	if b, ok := bytes.CutPrefix(raw, []byte("\xef\xbb\xbf")); ok {
		raw = b
		d.note(anomalyBOM)
	}
	d.raw = raw
	s := scanner{d: d, b: raw}
	s.space()
	if s.i >= len(raw) || raw[s.i] != '{' {
		return nil, problem.New(problem.BadJSON, "body is not a JSON object", "")
	}
	if err := s.value(0); err != nil {
		return nil, err
	}
	s.space()
	if s.i != len(raw) {
		return nil, s.bad("something follows the object")
	}
	return d, nil
}

func (d *Doc) note(anomaly string) {
	if d.odd == nil {
		d.odd = map[string]bool{}
	}
	d.odd[anomaly] = true
}

// scanner holds the position in b. All its methods stop at the first error.
type scanner struct {
	d    *Doc
	b    []byte
	i    int
	keys int
	twin twins
}

func (s *scanner) bad(what string) error { return problem.New(problem.BadJSON, what, "") }

func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] <= ' ' {
		s.blank()
	}
}

func (s *scanner) blank() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
			s.d.loose = true
		default:
			return
		}
	}
}

// value scans the value at s.i and appends it, and all below it, to the index.
func (s *scanner) value(depth int) error {
	if s.i >= len(s.b) {
		return s.bad("document ends early")
	}
	if len(s.d.values) > maxValues {
		return errTooComplex
	}
	at := len(s.d.values)
	s.d.values = append(s.d.values, value{start: uint32(s.i)})
	var k kind
	var escaped bool
	var err error
	switch c := s.b[s.i]; {
	case c == '{':
		k, err = kindObject, s.object(at, depth+1)
	case c == '[':
		k, err = kindArray, s.array(depth+1)
	case c == '"':
		k = kindString
		escaped, err = s.str()
	case c == '-' || c >= '0' && c <= '9':
		k, err = kindNumber, s.number()
	case c == 't':
		k, err = kindTrue, s.word("true")
	case c == 'f':
		k, err = kindFalse, s.word("false")
	case c == 'n':
		k, err = kindNull, s.word("null")
	default:
		err = s.bad("a value is expected")
	}
	v := &s.d.values[at]
	v.kind, v.escaped, v.end = k, escaped, uint32(s.i)
	return err
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return s.bad("a value is expected")
	}
	s.i += len(w)
	return nil
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	from := s.i
	if !s.digits() || zero && s.i-from > 1 {
		return s.bad("malformed number")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return s.bad("malformed number")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return s.bad("malformed number")
		}
	}
	return nil
}

// str scans the string at s.i and says whether its text differs from its bytes.
func (s *scanner) str() (escaped bool, err error) {
	s.i++
	from, ascii := s.i, true
	for {
		s.i = skip(s.b, s.i)
		if s.i == len(s.b) {
			return false, s.bad("document ends early")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			text := s.b[from:s.i]
			s.i++
			if len(text) > maxString {
				return false, errTooComplex
			}
			if !ascii && !utf8.Valid(text) {
				s.d.note(anomalyLossy)
				escaped = true
			}
			return escaped, nil
		case c < 0x20:
			return false, s.bad("control character in a string")
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		default:
			ascii = false
			s.i++
		}
	}
}

// skip returns the place of the next byte that ends a string, begins an escape,
// or is not printable ASCII.
func skip(b []byte, i int) int {
	for i < len(b) && ordinary[b[i]] {
		i++
	}
	return i
}

var ordinary = func() (t [256]bool) {
	for c := byte(0x20); c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		return s.bad("document ends early")
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return nil
	case 'u':
		if s.i+6 <= len(s.b) && hex4(s.b[s.i+2:s.i+6]) >= 0 {
			s.i += 6
			return nil
		}
	}
	return s.bad("malformed escape")
}

// hex4 reads four hex digits, or returns -1.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

func (s *scanner) array(depth int) error {
	if depth > maxDepth {
		return problem.New(problem.TooDeep, "document is nested too deep", "")
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == ']' {
		s.i++
		return nil
	}
	for prev := 0; ; {
		s.space()
		at := len(s.d.values)
		if err := s.value(depth); err != nil {
			return err
		}
		s.link(prev, at)
		prev = at
		if done, err := s.delimiter(']'); done || err != nil {
			return err
		}
	}
}

func (s *scanner) object(at, depth int) error {
	if depth > maxDepth {
		return problem.New(problem.TooDeep, "document is nested too deep", "")
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return nil
	}
	n := 0
	for prev := 0; ; {
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != '"' {
			return s.bad("a key is expected")
		}
		if s.keys++; s.keys > maxKeys {
			return errTooComplex
		}
		key := s.i + 1
		escaped, err := s.str()
		if err != nil {
			return err
		}
		keyEnd := s.i - 1
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != ':' {
			return s.bad("a colon is expected")
		}
		s.i++
		s.space()
		child := len(s.d.values)
		if err := s.value(depth); err != nil {
			return err
		}
		v := &s.d.values[child]
		v.key, v.keyEnd, v.keyEscaped = uint32(key), uint32(keyEnd), escaped
		s.link(prev, child)
		prev = child
		n++
		if done, err := s.delimiter('}'); err != nil {
			return err
		} else if done {
			s.twin.check(s.d, at+1, n)
			return nil
		}
	}
}

func (s *scanner) link(prev, at int) {
	if prev != 0 {
		s.d.values[prev].next = uint32(at)
	}
}

// delimiter reads a comma or the closing bracket.
func (s *scanner) delimiter(end byte) (done bool, err error) {
	s.space()
	if s.i >= len(s.b) {
		return false, s.bad("document ends early")
	}
	c := s.b[s.i]
	if c != end && c != ',' {
		return false, s.bad("a comma is expected")
	}
	s.i++
	return c == end, nil
}

// twins finds keys of one object that some reader would take for the same:
// equal, or equal but for case. The table is reused from object to object.
type twins struct {
	seed maphash.Seed
	slot []uint32 // index of a value, open addressing
	buf  []byte
}

func (t *twins) check(d *Doc, first, n int) {
	if n < 2 {
		return
	}
	size := 4
	for size < 2*n {
		size *= 2
	}
	if len(t.slot) == 0 {
		t.seed = maphash.MakeSeed()
	}
	if len(t.slot) < size {
		t.slot = make([]uint32, size)
	}
	slots := t.slot[:size]
	clear(slots)
	for i := uint32(first); i != 0; i = d.values[i].next {
		t.buf = foldKey(t.buf[:0], d, i)
		h := int(maphash.Bytes(t.seed, t.buf)) & (size - 1)
		for ; slots[h] != 0; h = (h + 1) & (size - 1) {
			mine := len(t.buf)
			t.buf = foldKey(t.buf, d, slots[h])
			same := bytes.Equal(t.buf[:mine], t.buf[mine:])
			t.buf = t.buf[:mine]
			if same {
				d.note(anomalyTwinKeys)
				return
			}
		}
		slots[h] = i
	}
}

// foldKey appends the key of value i with every rune replaced by the smallest
// of its case orbit, the folding that encoding/json applies to field names.
func foldKey(b []byte, d *Doc, at uint32) []byte {
	v := &d.values[at]
	key := d.raw[v.key:v.keyEnd]
	if v.keyEscaped {
		key = unquote(key)
	}
	from := len(b)
	b = append(b, key...)
	i := 0
	for folded := b[from:]; i < len(folded) && folded[i] < utf8.RuneSelf; i++ {
		if c := folded[i]; c >= 'a' && c <= 'z' {
			folded[i] = c - ('a' - 'A')
		}
	}
	b = b[:from+i]
	for i < len(key) {
		r, n := utf8.DecodeRune(key[i:])
		i += n
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		b = utf8.AppendRune(b, low)
	}
	return b
}

// unquote resolves the escapes of a scanned string. Bytes that are not UTF-8
// stay, and a lone surrogate becomes three such bytes, so that the reader of
// the text sees that it was not whole.
func unquote(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		if b[i+1] != 'u' {
			out = append(out, short[b[i+1]])
			i += 2
			continue
		}
		r := hex4(b[i+2 : i+6])
		i += 6
		if r >= 0xd800 && r < 0xdc00 && i+6 <= len(b) && b[i] == '\\' && b[i+1] == 'u' {
			if low := hex4(b[i+2 : i+6]); low >= 0xdc00 && low < 0xe000 {
				r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
				i += 6
			}
		}
		if r >= 0xd800 && r < 0xe000 {
			out = append(out, 0xed, 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

var short = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
