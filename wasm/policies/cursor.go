package policies

// maxDepth bounds nesting in everything a cursor skips.
const maxDepth = 64

// cursor walks canonical JSON (docs/enforcer-abi.md): no insignificant
// whitespace, objects and arrays as the host's fixed writer lays them out. The
// first byte out of place sets bad, after which every method is a no-op that
// returns a zero value, so callers check once at the end. It never allocates.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

func (c *cursor) fail() { c.bad = true }

// done reports whether all input was consumed without an error.
func (c *cursor) done() bool { return !c.bad && c.i == len(c.b) }

// eat consumes the byte x.
func (c *cursor) eat(x byte) {
	if c.bad || c.i >= len(c.b) || c.b[c.i] != x {
		c.bad = true
		return
	}
	c.i++
}

// more is the loop condition over the elements of an object or array that the
// caller has opened with eat: it consumes the comma between elements, or the
// closing byte. first must be true on the first call and is cleared.
func (c *cursor) more(end byte, first *bool) bool {
	if c.bad || c.i >= len(c.b) {
		c.bad = true
		return false
	}
	x := c.b[c.i]
	if x == end {
		c.i++
		return false
	}
	if *first {
		*first = false
		return true
	}
	if x != ',' {
		c.bad = true
		return false
	}
	c.i++
	if c.i < len(c.b) && c.b[c.i] == end { // trailing comma
		c.bad = true
		return false
	}
	return true
}

// key consumes an object key and its colon. Keys with escapes are refused:
// every key of the ABI is plain ASCII.
func (c *cursor) key() []byte {
	k, esc := c.raw()
	c.eat(':')
	if esc || c.bad {
		c.bad = true
		return nil
	}
	return k
}

// raw consumes a string and returns its bytes between the quotes as they
// stand, and whether they contain an escape.
func (c *cursor) raw() (s []byte, esc bool) {
	c.eat('"')
	if c.bad {
		return nil, false
	}
	start := c.i
	end, esc := stringEnd(c.b, start)
	if end < 0 {
		c.bad = true
		return nil, false
	}
	c.i = end + 1
	return c.b[start:end], esc
}

// stringEnd returns the index of the quote that closes the string whose first
// byte is at i, or -1. Kept small and apart: in the metered module the price of
// a loop iteration is the size of the function around it.
func stringEnd(b []byte, i int) (end int, esc bool) {
	for ; i < len(b); i++ {
		switch x := b[i]; {
		case x == '"':
			return i, esc
		case x == '\\':
			esc = true
			i++
		case x < 0x20:
			return -1, false
		}
	}
	return -1, false
}

// plain consumes a string that must need no unescaping; one that does reads as
// a value that matches nothing, because no name, method or id has escapes.
func (c *cursor) plain() []byte {
	s, esc := c.raw()
	if esc {
		return unmatchable
	}
	return s
}

// unmatchable stands for a string that no rule can list.
var unmatchable = []byte{0}

// text consumes a string and unescapes it into scratch when it has to. It
// returns a view of the input or of scratch; a string too long for scratch is
// an error.
func (c *cursor) text(scratch []byte) []byte {
	s, esc := c.raw()
	if !esc {
		return s
	}
	n, ok := unescape(scratch, s)
	if !ok {
		c.bad = true
		return nil
	}
	return scratch[:n]
}

// unescape writes the unescaped form of a raw string to dst.
func unescape(dst, s []byte) (n int, ok bool) {
	for i := 0; i < len(s); i++ {
		if n >= len(dst) {
			return 0, false
		}
		x := s[i]
		if x != '\\' {
			dst[n] = x
			n++
			continue
		}
		i++
		if i >= len(s) {
			return 0, false
		}
		switch s[i] {
		case '"', '\\', '/':
			dst[n] = s[i]
		case 'b':
			dst[n] = '\b'
		case 'f':
			dst[n] = '\f'
		case 'n':
			dst[n] = '\n'
		case 'r':
			dst[n] = '\r'
		case 't':
			dst[n] = '\t'
		case 'u':
			// RFC 8785 writes \u only for control characters below 0x20.
			if i+4 >= len(s) || s[i+1] != '0' || s[i+2] != '0' {
				return 0, false
			}
			hi, lo := unhex(s[i+3]), unhex(s[i+4])
			if hi > 1 || lo > 15 {
				return 0, false
			}
			dst[n] = hi<<4 | lo
			i += 4
		default:
			return 0, false
		}
		n++
	}
	return n, true
}

func unhex(x byte) byte {
	switch {
	case '0' <= x && x <= '9':
		return x - '0'
	case 'a' <= x && x <= 'f':
		return x - 'a' + 10
	}
	return 0xff
}

// integer consumes a JSON integer within +-2^53, the range of the ABI.
func (c *cursor) integer() int64 {
	neg := false
	if !c.bad && c.i < len(c.b) && c.b[c.i] == '-' {
		neg = true
		c.i++
	}
	start, n := c.i, int64(0)
	for !c.bad && c.i < len(c.b) {
		d := c.b[c.i] - '0'
		if d > 9 {
			break
		}
		if c.i-start > 16 {
			c.bad = true
			return 0
		}
		n = n*10 + int64(d)
		c.i++
	}
	digits := c.i - start
	if c.bad || digits == 0 || n > 1<<53 || (digits > 1 && c.b[start] == '0') || (neg && n == 0) {
		c.bad = true
		return 0
	}
	if neg {
		return -n
	}
	return n
}

// boolean consumes true or false.
func (c *cursor) boolean() bool {
	switch {
	case c.word("true"):
		return true
	case c.word("false"):
		return false
	}
	c.bad = true
	return false
}

func (c *cursor) word(w string) bool {
	if c.bad || len(c.b)-c.i < len(w) || string(c.b[c.i:c.i+len(w)]) != w {
		return false
	}
	c.i += len(w)
	return true
}

// skip consumes any one value without recursion.
func (c *cursor) skip() {
	depth := 0
	for !c.bad {
		if c.i >= len(c.b) {
			c.bad = true
			return
		}
		switch x := c.b[c.i]; x {
		case '"':
			c.raw()
		case '{', '[':
			depth++
			c.i++
			if depth > maxDepth {
				c.bad = true
				return
			}
			continue // the next byte is an element or the end
		case '}', ']':
			depth--
			c.i++
			if depth < 0 {
				c.bad = true
				return
			}
		case ',', ':':
			c.i++
			if depth == 0 {
				c.bad = true
				return
			}
			continue
		default:
			c.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

// scalar consumes a number or a literal inside a skipped value.
func (c *cursor) scalar() {
	start := c.i
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ',', ':', '}', ']', '"', '{', '[':
			c.bad = c.i == start
			return
		}
		c.i++
	}
	c.bad = c.i == start
}
