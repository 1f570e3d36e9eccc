package canon

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Scanner reads one canonical JSON value. Like Writer it remembers the first
// error, so that a schema can be walked without checks in between; after an
// error every method returns a zero value. A Scanner keeps no reference to its
// input in the strings it returns. Limits on size are the caller's.
type Scanner struct {
	src   []byte
	pos   int
	err   error
	depth int
	level [MaxDepth + 1]level
}

// Reset makes s read src from its start.
func (s *Scanner) Reset(src []byte) {
	s.src, s.pos, s.err, s.depth, s.level[0] = src, 0, nil, 0, level{}
}

// Err returns the first error so far.
func (s *Scanner) Err() error { return s.err }

// Fail makes err, unless nil, the result if there is no earlier one.
func (s *Scanner) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// End reports the first error, or that something follows the value.
func (s *Scanner) End() error {
	if s.err == nil && (s.depth != 0 || s.level[0].count != 1 || s.pos != len(s.src)) {
		s.syntax("end of document expected")
	}
	return s.err
}

func (s *Scanner) syntax(what string) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: %s at byte %d", ErrSyntax, what, s.pos)
	}
}

// peek returns the next byte, 0 at the end or after an error. A 0 byte is
// nowhere valid, so the two need no telling apart.
func (s *Scanner) peek() byte {
	if s.err != nil || s.pos >= len(s.src) {
		return 0
	}
	return s.src[s.pos]
}

// value prepares for one value, as Writer.value does.
func (s *Scanner) value() bool {
	if s.err != nil {
		return false
	}
	l := &s.level[s.depth]
	switch {
	case l.object:
		if !l.keyed {
			s.syntax("value without key")
			return false
		}
		l.keyed = false
	case s.depth == 0:
		if l.count > 0 {
			s.syntax("second value")
			return false
		}
	case l.count > 0:
		if s.peek() != ',' {
			s.syntax("comma expected")
			return false
		}
		s.pos++
	}
	l.count++
	return true
}

func (s *Scanner) begin(c byte, object bool) bool {
	if !s.value() {
		return false
	}
	if s.peek() != c {
		s.syntax(string(c) + " expected")
		return false
	}
	if s.depth == MaxDepth {
		s.err = ErrDepth
		return false
	}
	s.pos++
	s.depth++
	l := &s.level[s.depth]
	*l = level{object: object}
	return true
}

func (s *Scanner) end(c byte, object bool) {
	if s.err != nil {
		return
	}
	if s.depth == 0 || s.level[s.depth].object != object || s.level[s.depth].keyed || s.peek() != c {
		s.syntax(string(c) + " expected")
		return
	}
	s.pos++
	s.depth--
}

// Object enters an object.
func (s *Scanner) Object() { s.begin('{', true) }

// Array enters an array.
func (s *Scanner) Array() { s.begin('[', false) }

// EndArray leaves an array; More must have returned false.
func (s *Scanner) EndArray() { s.end(']', false) }

// More reports whether the array has another element.
func (s *Scanner) More() bool { c := s.peek(); return c != 0 && c != ']' }

// EndObject leaves an object. A member that the schema did not ask for is an
// UnknownKeyError.
func (s *Scanner) EndObject() {
	if s.err == nil && s.depth > 0 && s.level[s.depth].object && s.peek() != '}' {
		if key, ok := s.readKey(); ok {
			s.err = &UnknownKeyError{Key: key}
		}
		return
	}
	s.end('}', true)
}

// UnknownKeyError is a well-formed member that the schema does not have, or
// has elsewhere: a repeated or misplaced key ends here too.
type UnknownKeyError struct{ Key string }

// Error names the key.
func (e *UnknownKeyError) Error() string { return fmt.Sprintf("canon: unexpected key %q", e.Key) }

// TryKey consumes the next member's key if it is key, and reports whether it
// was. A schema asks for its keys in rising order; keys that a document lacks
// are then simply not met.
func (s *Scanner) TryKey(key string) bool {
	if s.err != nil {
		return false
	}
	l := &s.level[s.depth]
	if !l.object || l.keyed {
		s.syntax("key not expected")
		return false
	}
	p := s.pos
	if l.count > 0 {
		if p >= len(s.src) || s.src[p] != ',' {
			return false
		}
		p++
	}
	n := p + len(key) + 3 // quotes and colon
	if n > len(s.src) || s.src[p] != '"' || string(s.src[p+1:n-2]) != key || s.src[n-2] != '"' || s.src[n-1] != ':' {
		return false
	}
	s.pos = n
	l.count++
	l.keyed = true
	return true
}

// Key consumes the next member's key in an object whose keys are data, and
// returns false at its end. Keys must rise.
func (s *Scanner) Key() (string, bool) {
	if s.err != nil || s.peek() == '}' {
		return "", false
	}
	first := s.level[s.depth].count == 0
	key, ok := s.readKey()
	if !ok {
		return "", false
	}
	l := &s.level[s.depth]
	if last := s.src[l.keyAt:l.keyEnd]; !first && key <= string(last) {
		s.err = fmt.Errorf("%w: %q after %q", ErrOrder, key, last)
		return "", false
	}
	l.keyEnd = s.pos - 2 // before the quote and the colon
	l.keyAt = l.keyEnd - len(key)
	l.count++
	l.keyed = true
	return key, true
}

// readKey reads `"key":` with its comma, without entering it in the level.
func (s *Scanner) readKey() (string, bool) {
	l := &s.level[s.depth]
	if !l.object || l.keyed {
		s.syntax("key not expected")
		return "", false
	}
	if l.count > 0 {
		if s.peek() != ',' {
			s.syntax("comma or end of object expected")
			return "", false
		}
		s.pos++
	}
	if s.peek() != '"' {
		s.syntax("key expected")
		return "", false
	}
	start := s.pos + 1
	end := start
	for end < len(s.src) && s.src[end] != '"' {
		end++
	}
	if end+1 >= len(s.src) || s.src[end+1] != ':' {
		s.syntax("key expected")
		return "", false
	}
	key := string(s.src[start:end])
	if err := CheckKey(key); err != nil {
		s.err = err
		return "", false
	}
	s.pos = end + 2
	return key, true
}

// Text reads a string. The result is valid until the input changes: it may
// share its memory.
func (s *Scanner) Text() []byte {
	if !s.value() {
		return nil
	}
	if s.peek() != '"' {
		s.syntax("string expected")
		return nil
	}
	start := s.pos + 1
	i, escaped, ascii := start, false, true
	for ; ; i++ {
		if i >= len(s.src) {
			s.syntax("unfinished string")
			return nil
		}
		c := s.src[i]
		if c == '"' {
			break
		}
		if c == '\\' {
			if i++; i >= len(s.src) || s.src[i] != '"' && s.src[i] != '\\' {
				s.pos = i
				s.syntax("escape that is not needed")
				return nil
			}
			escaped = true
		}
		if c < ' ' || c == 0x7f {
			s.err = fmt.Errorf("%w: control character U+%04X", ErrText, c)
			return nil
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	s.pos = i + 1
	raw := s.src[start:i]
	if escaped {
		raw = unescape(raw)
	}
	if !ascii {
		if err := checkUnicode(string(raw)); err != nil {
			s.err = err
			return nil
		}
	}
	return raw
}

func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' {
			i++
		}
		out = append(out, raw[i])
	}
	return out
}

// String reads a string.
func (s *Scanner) String() string { return string(s.Text()) }

// Uint reads 0..MaxInt.
func (s *Scanner) Uint() uint64 {
	if !s.value() {
		return 0
	}
	return s.digits()
}

// Int reads -MaxInt..MaxInt, where the schema allows negative numbers.
func (s *Scanner) Int() int64 {
	if !s.value() {
		return 0
	}
	if s.peek() != '-' {
		return int64(s.digits())
	}
	s.pos++
	n := s.digits()
	if n == 0 && s.err == nil {
		s.err = fmt.Errorf("%w: negative zero", ErrNumber)
	}
	return -int64(n)
}

func (s *Scanner) digits() uint64 {
	start := s.pos
	var n uint64
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		n = n*10 + uint64(c-'0')
		s.pos++
		if n > MaxInt { // RC-45: checked at every digit, so n cannot wrap
			s.err = fmt.Errorf("%w: above 2^53-1", ErrNumber)
			return 0
		}
	}
	switch {
	case s.pos == start:
		s.syntax("integer expected")
		return 0
	case s.src[start] == '0' && s.pos > start+1:
		s.err = fmt.Errorf("%w: leading zero", ErrNumber)
		return 0
	}
	return n
}

// Bool reads true or false.
func (s *Scanner) Bool() bool {
	if !s.value() {
		return false
	}
	for _, lit := range [...]string{"true", "false"} {
		if n := s.pos + len(lit); n <= len(s.src) && string(s.src[s.pos:n]) == lit {
			s.pos = n
			return lit == "true"
		}
	}
	s.syntax("true or false expected")
	return false
}

// Digest reads a base64url digest.
func (s *Scanner) Digest() [32]byte {
	t := s.Text()
	if s.err != nil {
		return [32]byte{}
	}
	d, err := ParseDigest(t)
	s.Fail(err)
	return d
}

// Time reads a time in TimeLayout.
func (s *Scanner) Time() time.Time {
	b := s.Text()
	if s.err != nil {
		return time.Time{}
	}
	t, err := ParseTime(b)
	s.Fail(err)
	return t
}

// Valid reports why b is not one canonical value of the profile, whatever its
// schema; nil means that it is.
func Valid(b []byte) error {
	var s Scanner
	s.Reset(b)
	s.skip()
	return s.End()
}

// skip reads one value of any kind.
func (s *Scanner) skip() {
	switch c := s.next(); {
	case c == '{':
		s.Object()
		for _, ok := s.Key(); ok; _, ok = s.Key() {
			s.skip()
		}
		s.EndObject()
	case c == '[':
		s.Array()
		for s.More() {
			s.skip()
		}
		s.EndArray()
	case c == '"':
		s.Text()
	case c == 't', c == 'f':
		s.Bool()
	default:
		s.Int()
	}
}

// next returns the first byte of the next value, behind its comma.
func (s *Scanner) next() byte {
	c := s.peek()
	if l := &s.level[s.depth]; c == ',' && !l.object && l.count > 0 && s.pos+1 < len(s.src) {
		return s.src[s.pos+1]
	}
	return c
}
