package policies

import "math/bits"

// step is one thing to do on the way through objects whose keys ascend: find a
// member, skipping those before it, and read it; or leave the object.
type step struct {
	read        reading
	slot        slot   // where the value goes
	n           int    // length of the key with its quotes and colon
	first, mask uint64 // its first eight bytes, and which of them count
	last        uint64 // the last eight, if there are more
}

// reading says what a step does with what it found.
type reading uint8

const (
	readEnd    reading = iota // skip to the end of the object
	readText                  // the bytes between the quotes, as they stand
	readScalar                // a number or boolean, as it stands
	readObject                // enter it
)

// slot names a value of an action that walk brings back.
type slot uint8

const (
	slotNone slot = iota
	slotConnection
	slotMethod
	slotPath
	slotHost
	slotIP
	slotPort
	slotScheme
	slotUpgrade
	slotKind
	slotBlind
	slotLiteral
	slotName
	slots
)

// values are what the walks through one action found, nil where nothing was.
type values [slots][]byte

// find returns the step to a member. A key has at most thirteen letters.
func find(key string, read reading, slot slot) step {
	text := `"` + key + `":`
	s := step{read: read, slot: slot, n: len(text)}
	for i := 0; i < len(text) && i < 8; i++ {
		s.first |= uint64(text[i]) << (8 * i)
		s.mask |= 0xff << (8 * i)
	}
	for i := 0; i < 8 && len(text) > 8; i++ {
		s.last |= uint64(text[len(text)-8+i]) << (8 * i)
	}
	return s
}

// leave is the step over what is left of an object and its end.
var leave = step{read: readEnd}

// walk carries out steps, which is most of a decision about egress. One function
// takes many steps and calls only to skip: in WebAssembly a call costs more than a
// dozen comparisons. It is lax about what it skips: the host wrote it, nothing
// reads it.
func (c *cursor) walk(steps []step, found *values) {
	if c.bad {
		return
	}
	b, i := c.b, c.i
next:
	for k := range steps {
		s := &steps[k]
		for {
			if i < len(b) {
				if b[i] == ',' {
					i++
				} else if b[i] == '}' && s.read == readEnd {
					i++
					continue next
				}
			}
			// Does the member begin here that the step looks for?
			var w uint64
			if i+8 <= len(b) {
				w = load64(b, i)
			} else {
				w = tail(b, i)
			}
			if (w^s.first)&s.mask == 0 && s.read != readEnd && (s.n <= 8 || i+s.n <= len(b) && load64(b, i+s.n-8) == s.last) {
				break
			}
			if i = skipMember(b, i); i < 0 {
				c.bad = true
				return
			}
		}
		i += s.n
		end := i
		switch s.read {
		case readText:
			i++
			if end = i; i > len(b) || b[i-1] != '"' {
				c.bad = true
				return
			}
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
				return
			}
			found[s.slot] = b[i:end]
			i = end + 1
		case readScalar:
			for end < len(b) && b[end] != ',' && b[end] != '}' {
				end++
			}
			found[s.slot] = b[i:end]
			i = end
		case readObject:
			if i >= len(b) || b[i] != '{' {
				c.bad = true
				return
			}
			i++
		}
	}
	c.i = i
}

// tail is load64 for the last few bytes of a message, zeros behind them.
func tail(b []byte, i int) (w uint64) {
	for n := len(b) - 1; n >= i; n-- {
		w = w<<8 | uint64(b[n])
	}
	return w
}
