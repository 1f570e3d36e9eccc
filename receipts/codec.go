package receipts

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"gatehouse/internal/canon"
)

// codec walks a receipt's schema once for both directions: schema.go names each
// field exactly once, in key order, and codec either writes it or reads it. An
// encoder and a decoder can therefore not drift apart.
//
// A required field always stands in the bytes. An optional one is left out when
// it is zero, and a zero that is written out is refused, so that a receipt has
// exactly one form.
type codec struct {
	b       []byte // what is written
	bad     error  // the first error in writing
	s       canon.Scanner
	reading bool
}

// codecs keeps walkers for reuse: one is over half a kilobyte and lives for a
// microsecond.
var codecs = sync.Pool{New: func() any { return new(codec) }}

// Field rules.
const (
	optional = false
	required = true
)

const (
	maxText    = 1024 // bytes of a text field
	maxToken   = 256  // bytes of a token field
	maxEntries = 256  // entries of a map or list
)

func (c *codec) err() error {
	if c.reading {
		return c.s.Err()
	}
	return c.bad
}

// fail records that field key breaks the schema.
func (c *codec) fail(key, format string, a ...any) {
	err := fmt.Errorf("%w: %s: %s", ErrSchema, key, fmt.Sprintf(format, a...))
	if c.reading {
		c.s.Fail(err)
	} else {
		c.wrong(err)
	}
}

// wrong records an error in writing.
func (c *codec) wrong(err error) {
	if c.bad == nil {
		c.bad = err
	}
}

// has starts field key and reports whether its value is to be written or read
// now. A value that is not to be written, zero and optional, does not come here:
// most fields of a receipt are absent and have to cost nothing.
func (c *codec) has(key string, need bool) bool {
	if !c.reading {
		c.key(key)
		return true
	}
	if c.s.TryKey(key) {
		return true
	}
	if need && c.s.Err() == nil {
		c.fail(key, "missing")
	}
	return false
}

// key writes the key of the next member. That the schema names its keys in rising
// order does not change from one receipt to the next: the tests hold the bytes of
// every type against a library.
func (c *codec) key(key string) {
	b := c.b
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, key...)
	c.b = append(b, '"', ':')
}

// string writes a string.
func (c *codec) string(s string) {
	b, err := canon.AppendString(c.b, s)
	if err != nil {
		c.wrong(err)
	}
	c.b = b
}

// digest writes a digest.
func (c *codec) digest(h *Hash) {
	b := canon.AppendDigest(append(c.b, '"'), *h)
	c.b = append(b, '"')
}

// wrote refuses an optional zero that stands in the bytes.
func (c *codec) wrote(key string, need, zero bool) {
	if c.reading && zero && !need {
		c.fail(key, "zero is written by leaving it out")
	}
}

// object is the object of field key, nil when it is absent. What follows the
// first question is member's, so that the question is asked in place.
func object[T any, P interface {
	*T
	fields(c *codec)
}](c *codec, key string, p *P) {
	if c.reading || *p != nil {
		member(c, key, p)
	}
}

func member[T any, P interface {
	*T
	fields(c *codec)
}](c *codec, key string, p *P) {
	if !c.has(key, optional) {
		return
	}
	if !c.reading {
		c.b = append(c.b, '{')
		(*p).fields(c)
		c.b = append(c.b, '}')
		return
	}
	c.s.Object()
	*p = new(T)
	(*p).fields(c)
	c.s.EndObject()
}

// text is a string in normalization form C without control characters.
func (c *codec) text(key string, p *string, need bool) {
	if !c.reading && !need && *p == "" || !c.has(key, need) {
		return
	}
	if c.reading {
		*p = c.s.String()
	} else {
		c.string(*p)
	}
	if len(*p) > maxText {
		c.fail(key, "%d bytes", len(*p))
	}
	if c.err() == nil && *p == "" {
		c.fail(key, "empty")
	}
}

// token is 1 to maxToken printable ASCII characters without space: ids, codes,
// rule ids, names of configured things.
func (c *codec) token(key string, p *string, need bool) {
	if c.reading || need || *p != "" {
		c.word(key, p, need)
	}
}

// word is the rest of token.
func (c *codec) word(key string, p *string, need bool) {
	if !c.has(key, need) {
		return
	}
	if c.reading {
		*p = c.s.String()
	} else {
		c.string(*p)
	}
	if !isToken(*p) && c.err() == nil {
		c.fail(key, "not a token: %.40q", *p)
	}
}

func isToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// enum is one of a closed list.
func enum[T ~string](c *codec, key string, p *T, need bool, list []T) {
	if !c.reading && !need && *p == "" || !c.has(key, need) {
		return
	}
	if !c.reading {
		c.string(string(*p))
		if !slices.Contains(list, *p) {
			c.fail(key, "%.40q is not in the closed list", string(*p))
		}
		return
	}
	b := c.s.Text()
	for _, v := range list {
		if string(b) == string(v) {
			*p = v
			return
		}
	}
	if c.err() == nil {
		c.fail(key, "%.40q is not in the closed list", b)
	}
}

// number is 0..limit.
func number[T ~int | ~int64 | ~uint16 | ~uint64](c *codec, key string, p *T, need bool, limit uint64) {
	switch {
	case c.reading:
		*p = T(c.readNumber(key, need, limit))
	case *p < 0:
		c.fail(key, "%d is outside 0..%d", *p, limit)
	case need || *p > 0:
		c.writeNumber(key, uint64(*p), limit)
	}
}

func (c *codec) writeNumber(key string, n, limit uint64) {
	if n > limit {
		c.fail(key, "%d is outside 0..%d", n, limit)
		return
	}
	c.key(key)
	c.b = strconv.AppendUint(c.b, n, 10)
}

func (c *codec) readNumber(key string, need bool, limit uint64) uint64 {
	if !c.has(key, need) {
		return 0
	}
	n := c.s.Uint()
	if n > limit {
		c.fail(key, "%d is outside 0..%d", n, limit)
		return 0
	}
	c.wrote(key, need, n == 0)
	return n
}

// count is 0..2^53-1.
func (c *codec) count(key string, p *uint64, need bool) { number(c, key, p, need, canon.MaxInt) }

// flag is a boolean.
func (c *codec) flag(key string, p *bool, need bool) {
	if !c.reading && !need && !*p || !c.has(key, need) {
		return
	}
	if !c.reading {
		c.b = strconv.AppendBool(c.b, *p)
		return
	}
	*p = c.s.Bool()
	c.wrote(key, need, !*p)
}

// hash is a digest; a required one is never zero.
func (c *codec) hash(key string, p *Hash, need bool) {
	if !c.reading && !need && p.IsZero() || !c.has(key, need) {
		return
	}
	if c.reading {
		*p = c.s.Digest()
	} else {
		c.digest(p)
	}
	if p.IsZero() && c.err() == nil {
		c.fail(key, "zero digest")
	}
}

// time is a moment after 1970.
func (c *codec) time(key string, p *time.Time, need bool) {
	if !c.reading && !need && p.IsZero() || !c.has(key, need) {
		return
	}
	if c.reading {
		*p = c.s.Time()
	} else {
		b, err := canon.AppendTime(append(c.b, '"'), *p)
		if err != nil {
			c.wrong(err)
		}
		c.b = append(b, '"')
	}
	if p.Unix() <= 0 && c.err() == nil {
		c.fail(key, "time before 1970")
	}
}

// list is a list of texts in the order given.
func (c *codec) list(key string, p *[]string) {
	if !c.reading && len(*p) == 0 || !c.has(key, optional) {
		return
	}
	if !c.reading {
		c.b = append(c.b, '[')
		for i, v := range *p {
			if i > 0 {
				c.b = append(c.b, ',')
			}
			c.string(v)
		}
		c.b = append(c.b, ']')
	} else {
		c.s.Array()
		for c.s.More() && len(*p) <= maxEntries {
			*p = append(*p, c.s.String())
		}
		c.s.EndArray()
	}
	if len(*p) > maxEntries {
		c.fail(key, "%d entries", len(*p))
	}
	for _, v := range *p {
		if v == "" || len(v) > maxText {
			c.fail(key, "entry of %d bytes", len(v))
		}
	}
	c.wrote(key, optional, len(*p) == 0)
}

// mapping is a map with printable ASCII keys.
func mapping[V any](c *codec, key string, p *map[string]V, value func(c *codec, key string, v V) V) {
	if !c.reading && len(*p) == 0 || !c.has(key, optional) {
		return
	}
	if len(*p) > maxEntries {
		c.fail(key, "%d entries", len(*p))
		return
	}
	if !c.reading {
		c.b = append(c.b, '{')
		var buf [8]string // a usual map sorts its keys without allocating
		for _, k := range canon.AppendKeys(buf[:0], *p) {
			if err := canon.CheckKey(k); err != nil {
				c.wrong(err)
			}
			c.key(k)
			value(c, key, (*p)[k])
		}
		c.b = append(c.b, '}')
		return
	}
	c.s.Object()
	m := make(map[string]V)
	for k, ok := c.s.Key(); ok; k, ok = c.s.Key() {
		if len(m) == maxEntries {
			c.fail(key, "more than %d entries", maxEntries)
			return
		}
		var none V
		m[k] = value(c, key, none)
	}
	c.s.EndObject()
	*p = m
	c.wrote(key, optional, len(m) == 0)
}

// Map values: each writes v, or returns what it reads.
func hashValue(c *codec, key string, v Hash) Hash {
	if c.reading {
		v = c.s.Digest()
	} else {
		c.digest(&v)
	}
	if c.err() == nil && v.IsZero() {
		c.fail(key, "zero digest")
	}
	return v
}

func countValue(c *codec, key string, v uint64) uint64 {
	if c.reading {
		return c.s.Uint()
	}
	if v > canon.MaxInt {
		c.fail(key, "%d is above %d", v, uint64(canon.MaxInt))
	}
	c.b = strconv.AppendUint(c.b, v, 10)
	return v
}

func textValue(c *codec, key string, v string) string {
	if c.reading {
		v = c.s.String()
	} else {
		c.string(v)
	}
	if len(v) > maxText {
		c.fail(key, "value of %d bytes", len(v))
	}
	return v
}
