package policies

import (
	"math/bits"
	"unsafe"
)

// maxDepth bounds nesting in everything a cursor skips.
const maxDepth = 64

// cursor walks canonical JSON (docs/enforcer-abi.md): no insignificant white
// space, keys ascending, as the host's fixed writer lays it out. The first byte
// out of place sets bad, after which every method does nothing and returns a
// zero value, so callers check once at the end. It never allocates.
//
// In WebAssembly a call costs more than a comparison, so the methods work on
// local copies and do more than one step each.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

func (c *cursor) fail() { c.bad = true }

// done reports whether all input was consumed without an error.
func (c *cursor) done() bool { return !c.bad && c.i == len(c.b) }

// has consumes lit if it comes next.
func (c *cursor) has(lit string) bool {
	if c.bad || !begins(c.b, c.i, lit) {
		return false
	}
	c.i += len(lit)
	return true
}

// begins reports whether lit stands at i. The library's comparison goes byte by
// byte in WebAssembly.
func begins(b []byte, i int, lit string) bool {
	n := len(lit)
	if len(b)-i < n {
		return false
	}
	if n < 4 {
		return string(b[i:i+n]) == lit
	}
	p, q := unsafe.Pointer(&b[i]), unsafe.Pointer(unsafe.StringData(lit))
	if n < 8 {
		return half(p, 0) == half(q, 0) && half(p, n-4) == half(q, n-4)
	}
	for k := 0; k+8 < n; k += 8 {
		if word(p, k) != word(q, k) {
			return false
		}
	}
	return word(p, n-8) == word(q, n-8)
}

// eat consumes the byte x.
func (c *cursor) eat(x byte) {
	if c.bad || c.i >= len(c.b) || c.b[c.i] != x {
		c.bad = true
		return
	}
	c.i++
}

// seek consumes the members of the open object up to and including the key,
// given with its quotes and colon. A member that is not there is an error.
func (c *cursor) seek(key string) {
	if c.bad {
		return
	}
	b, i := c.b, c.i
	for i >= 0 {
		if i < len(b) && b[i] == ',' {
			i++
		}
		// The second byte tells most keys apart, without a call.
		if i+1 < len(b) && b[i+1] == key[1] && begins(b, i, key) {
			c.i = i + len(key)
			return
		}
		i = skipMember(b, i)
	}
	c.bad = true
}

// finish consumes what is left of the open object, its end included.
func (c *cursor) finish() {
	if c.bad {
		return
	}
	b, i := c.b, c.i
	for i < len(b) && b[i] != '}' {
		if b[i] == ',' {
			i++
		}
		if i = skipMember(b, i); i < 0 {
			break
		}
	}
	if i < 0 || i >= len(b) {
		c.bad = true
		return
	}
	c.i = i + 1
}

// skipMember returns the index after the member that begins at i, or -1. It is
// lax about what it skips: the host wrote it, nothing reads it. It is the inner
// loop of every decision, so it looks for the ends of strings itself.
func skipMember(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	depth := -1 // in the key
	for i < len(b) {
		x := b[i]
		i++
		if x == '"' {
			for {
				if i+8 > len(b) {
					if i = stringEnd(b, i); i < 0 {
						return -1
					}
					break
				}
				m := marks(load64(b, i))
				if m == 0 {
					i += 8
					continue
				}
				if i += bits.TrailingZeros64(m) >> 3; b[i] == '"' {
					break
				}
				i += 2
			}
			i++
			if depth > 0 {
				continue
			}
			if depth == 0 {
				return i
			}
			if i >= len(b) || b[i] != ':' {
				return -1
			}
			i++
			depth = 0
			continue
		}
		if x|0x20 == '{' {
			if depth++; depth > maxDepth {
				return -1
			}
		} else if x|0x20 == '}' {
			if depth == 0 {
				return i - 1 // the end of what is around the value: a number stood here
			}
			if depth--; depth == 0 {
				return i
			}
		} else if x == ',' && depth == 0 {
			return i - 1 // likewise
		}
	}
	return -1
}

// skipValue returns the index after the value that begins at i, or -1.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i+1); i < 0 {
				return -1
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return -1
			}
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			i++
			continue
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return -1
}

// stringEnd returns the index of the quote that closes the string whose first
// byte is at i, or -1. It looks at eight bytes at a time.
func stringEnd(b []byte, i int) int {
	for i+8 <= len(b) {
		m := marks(load64(b, i))
		if m == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(m) >> 3; b[i] == '"' {
			return i
		}
		i += 2
	}
	for i < len(b) {
		switch b[i] {
		case '"':
			return i
		case '\\':
			i++
		}
		i++
	}
	return -1
}

// marks sets the top bit of every byte that is a quote or a backslash. It is
// exact up to the first one.
func marks(v uint64) uint64 {
	q, s := v^0x2222222222222222, v^0x5c5c5c5c5c5c5c5c // zero there
	return ((q-0x0101010101010101)&^q | (s-0x0101010101010101)&^s) & 0x8080808080808080
}

// load64 reads eight bytes in the order of the machine; only their positions
// relative to each other matter on little-endian machines, the only ones there
// are builds for. The compiler has no combined load for WebAssembly.
//
// The caller has checked that i+8 <= len(b): checking it here again costs as much
// as the rest.
func load64(b []byte, i int) uint64 { return word(unsafe.Pointer(unsafe.SliceData(b)), i) }

func half(p unsafe.Pointer, i int) uint32 { return *(*uint32)(unsafe.Add(p, i)) }

func word(p unsafe.Pointer, i int) uint64 { return *(*uint64)(unsafe.Add(p, i)) }

// raw consumes a string and returns its bytes between the quotes as they
// stand.
func (c *cursor) raw() []byte {
	b, i := c.b, c.i
	if c.bad || i >= len(b) || b[i] != '"' {
		c.bad = true
		return nil
	}
	end := i + 1
	for {
		if end+8 > len(b) {
			end = stringEnd(b, end)
			break
		}
		m := marks(load64(b, end))
		if m == 0 {
			end += 8
			continue
		}
		if end += bits.TrailingZeros64(m) >> 3; b[end] == '"' {
			break
		}
		end += 2
	}
	if end < 0 {
		c.bad = true
		return nil
	}
	c.i = end + 1
	return b[i+1 : end]
}

// unescape writes the unescaped form of a raw string to dst. Quote and
// backslash are the only escapes of the canonical profile (internal/canon).
func unescape(dst, s []byte) (n int, ok bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return 0, false
			}
		}
		if n == len(dst) {
			return 0, false
		}
		dst[n] = s[i]
		n++
	}
	return n, true
}

// integer consumes a JSON integer within +-(2^53-1), the range of the ABI.
func (c *cursor) integer() int64 {
	if c.bad {
		return 0
	}
	b, i := c.b, c.i
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}
	start, n := i, int64(0)
	for i < len(b) && b[i]-'0' <= 9 {
		if i-start > 16 {
			c.bad = true
			return 0
		}
		n = n*10 + int64(b[i]-'0')
		i++
	}
	digits := i - start
	if digits == 0 || n > 1<<53-1 || (digits > 1 && b[start] == '0') || (neg && n == 0) {
		c.bad = true
		return 0
	}
	c.i = i
	if neg {
		return -n
	}
	return n
}

// boolean consumes true or false.
func (c *cursor) boolean() bool {
	if c.bad || c.i >= len(c.b) {
		c.bad = true
		return false
	}
	// Most are false: one comparison.
	yes := c.b[c.i] == 't'
	lit := "false"
	if yes {
		lit = "true"
	}
	if !c.has(lit) {
		c.bad = true
		return false
	}
	return yes
}

// value consumes any one value and returns its bytes.
func (c *cursor) value() []byte {
	if c.bad {
		return nil
	}
	start := c.i
	end := skipValue(c.b, start)
	if end <= start {
		c.bad = true
		return nil
	}
	c.i = end
	return c.b[start:end]
}

// more is the loop condition over the elements of an array or object that the
// caller has opened: it consumes the comma between elements, or the closing
// byte. first must be true on the first call and is cleared.
func (c *cursor) more(end byte, first *bool) bool {
	b, i := c.b, c.i
	if c.bad || i >= len(b) {
		c.bad = true
		return false
	}
	if b[i] == end {
		c.i = i + 1
		return false
	}
	if *first {
		*first = false
		return true
	}
	if b[i] != ',' || i+1 >= len(b) || b[i+1] == end {
		c.bad = true
		return false
	}
	c.i = i + 1
	return true
}
