package canon

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// MaxInt is the largest integer of the profile, the largest that every JSON
// reader holds exactly (RFC 7493).
const MaxInt = 1<<53 - 1

// MaxDepth is the deepest nesting of objects and arrays.
const MaxDepth = 16

// Errors of Writer and Scanner, for errors.Is.
var (
	ErrText   = errors.New("canon: string outside the profile")
	ErrKey    = errors.New("canon: key outside the profile")
	ErrOrder  = errors.New("canon: keys not in rising order")
	ErrNumber = errors.New("canon: number outside the profile")
	ErrTime   = errors.New("canon: malformed time")
	ErrDigest = errors.New("canon: malformed digest")
	ErrDepth  = errors.New("canon: nested too deep")
	ErrSyntax = errors.New("canon: not canonical JSON")
)

// Writer appends one canonical JSON value to a buffer. The caller walks its
// schema in key order; a wrong order, a repeated key or a value outside the
// profile is remembered and returned by Bytes, so that calls need no checks in
// between. The zero Writer is ready for use. A Writer is not for concurrent use.
type Writer struct {
	buf   []byte
	err   error
	depth int
	level [MaxDepth + 1]level // level[0] is the document itself
}

// level is one open object or array. The last key is remembered by its place
// in the buffer: a string here would cost a write barrier for each key.
type level struct {
	keyAt, keyEnd int
	count         int
	object        bool
	keyed         bool // a key waits for its value
}

// Bytes returns the buffer, or the first error. The document must be complete.
func (w *Writer) Bytes() ([]byte, error) {
	if w.err == nil && (w.depth != 0 || w.level[0].count != 1) {
		w.err = fmt.Errorf("%w: incomplete document", ErrSyntax)
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.buf, nil
}

// Fail makes err, unless nil, the result if there is no earlier one.
func (w *Writer) Fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// value prepares for one value: the comma in an array, the check that an
// object member has its key, and that a document is one value.
func (w *Writer) value() bool {
	l := &w.level[w.depth]
	switch {
	case w.err != nil:
	case l.object && !l.keyed:
		w.err = fmt.Errorf("%w: value without key", ErrSyntax)
	case l.object:
		l.keyed = false
	case w.depth == 0 && l.count > 0:
		w.err = fmt.Errorf("%w: second document", ErrSyntax)
	case l.count > 0:
		w.buf = append(w.buf, ',')
	}
	l.count++
	return w.err == nil
}

func (w *Writer) begin(c byte, object bool) {
	if !w.value() {
		return
	}
	if w.depth == MaxDepth {
		w.err = ErrDepth
		return
	}
	w.buf = append(w.buf, c)
	w.depth++
	w.level[w.depth] = level{object: object}
}

func (w *Writer) end(c byte, object bool) {
	if w.err != nil {
		return
	}
	if w.depth == 0 || w.level[w.depth].object != object || w.level[w.depth].keyed {
		w.err = fmt.Errorf("%w: unexpected end", ErrSyntax)
		return
	}
	w.buf = append(w.buf, c)
	w.depth--
}

// Object opens an object.
func (w *Writer) Object() { w.begin('{', true) }

// EndObject closes the innermost object.
func (w *Writer) EndObject() { w.end('}', true) }

// Array opens an array.
func (w *Writer) Array() { w.begin('[', false) }

// EndArray closes the innermost array.
func (w *Writer) EndArray() { w.end(']', false) }

// Key writes the key of the next member. Keys must rise.
func (w *Writer) Key(key string) {
	l := &w.level[w.depth]
	switch {
	case w.err != nil:
	case !l.object || l.keyed:
		w.err = fmt.Errorf("%w: key %q not expected", ErrSyntax, key)
	default:
		w.err = CheckKey(key)
	}
	if w.err != nil {
		return
	}
	if l.count > 0 {
		if last := string(w.buf[l.keyAt:l.keyEnd]); key <= last {
			w.err = fmt.Errorf("%w: %q after %q", ErrOrder, key, last)
			return
		}
		w.buf = append(w.buf, ',')
	}
	l.keyAt, l.keyEnd, l.keyed = len(w.buf)+1, len(w.buf)+1+len(key), true
	w.buf = append(between(w.buf, key), ':')
}

// String writes s.
func (w *Writer) String(s string) {
	if w.value() {
		b, err := AppendString(w.buf, s)
		w.buf, w.err = b, err
	}
}

// Cleaned writes Clean(s).
func (w *Writer) Cleaned(s string) {
	switch {
	case !w.value():
	case plain(s):
		w.buf = between(w.buf, s)
	default:
		w.buf = quote(w.buf, Clean(s))
	}
}

// Int writes n, -MaxInt to MaxInt, where the schema allows negative numbers.
func (w *Writer) Int(n int64) {
	if !w.value() {
		return
	}
	if n > MaxInt || n < -MaxInt {
		w.err = fmt.Errorf("%w: %d", ErrNumber, n)
		return
	}
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

// Bool writes b.
func (w *Writer) Bool(b bool) {
	if w.value() {
		w.buf = strconv.AppendBool(w.buf, b)
	}
}

// Keys returns the keys of m in the order the profile wants.
func Keys[V any](m map[string]V) []string { return AppendKeys(make([]string, 0, len(m)), m) }

// AppendKeys is Keys behind keys, whose capacity it uses.
func AppendKeys[V any](keys []string, m map[string]V) []string {
	start := len(keys)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys[start:])
	return keys
}
