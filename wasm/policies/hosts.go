package policies

// hostIndex finds the rules whose host pattern matches a name in one pass over
// the name, whatever the number of rules. Buckets are keyed by the FNV-1a hash
// of a suffix read from its last byte to its first, so that one running hash
// visits every suffix.
type hostIndex struct {
	slots []*hostBucket // open addressing, length a power of two
}

// hostBucket holds the rules (ascending indices) that end in one suffix.
type hostBucket struct {
	hash   uint32
	suffix string
	exact  []int32 // pattern is the suffix itself
	one    []int32 // "*." + suffix
	deep   []int32 // "**." + suffix
}

const (
	fnvOffset uint32 = 2166136261
	fnvPrime  uint32 = 16777619
)

// newHostIndex indexes host patterns; the position in patterns is the rule's
// index. It reports false for a pattern outside the grammar.
func newHostIndex(patterns []string) (*hostIndex, bool) {
	size := 8
	for size < 2*len(patterns) {
		size *= 2
	}
	x := &hostIndex{make([]*hostBucket, size)}
	for i, p := range patterns {
		suffix, stars := p, 0
		switch {
		case len(p) > 3 && p[:3] == "**.":
			suffix, stars = p[3:], 2
		case len(p) > 2 && p[:2] == "*.":
			suffix, stars = p[2:], 1
		}
		if !suffixOK(suffix, stars) {
			return nil, false
		}
		b := x.bucket(suffix)
		switch stars {
		case 0:
			b.exact = append(b.exact, int32(i))
		case 1:
			b.one = append(b.one, int32(i))
		case 2:
			b.deep = append(b.deep, int32(i))
		}
	}
	return x, true
}

// suffixOK checks the literal part of a host pattern. A wildcard needs a
// suffix of two labels at least: "*.com" lists a whole registry (EG-101).
func suffixOK(s string, stars int) bool {
	if s == "" || len(s) > 253 || s[0] == '.' || s[len(s)-1] == '.' {
		return false
	}
	dots := 0
	for i := 0; i < len(s); i++ {
		switch x := s[i]; {
		case 'a' <= x && x <= 'z', '0' <= x && x <= '9', x == '-', x == '_':
		case x == '.':
			if s[i-1] == '.' {
				return false
			}
			dots++
		case x == ':' && stars == 0: // an IPv6 literal, listed in full
		default:
			return false
		}
	}
	return stars == 0 || dots > 0
}

func (x *hostIndex) bucket(suffix string) *hostBucket {
	h := fnvOffset
	for i := len(suffix) - 1; i >= 0; i-- {
		h = (h ^ uint32(suffix[i])) * fnvPrime
	}
	mask := uint32(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		b := x.slots[i]
		if b == nil {
			b = &hostBucket{hash: h, suffix: suffix}
			x.slots[i] = b
			return b
		}
		if b.hash == h && b.suffix == suffix {
			return b
		}
	}
}

func (x *hostIndex) find(h uint32, suffix []byte) *hostBucket {
	mask := uint32(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		b := x.slots[i]
		if b == nil || (b.hash == h && b.suffix == string(suffix)) {
			return b
		}
	}
}

// maxMatches bounds the rule lists one name can meet: a name has at most 127
// labels, and each suffix gives at most two lists.
const maxMatches = 256

// matches is the rule lists that apply to one name.
type matches struct {
	n     int
	lists [maxMatches][]int32
}

// match fills m with the lists of rules whose pattern matches host. With
// literal set, host is an IP literal and only a rule that spells it matches.
func (x *hostIndex) match(host []byte, literal bool, m *matches) {
	m.n = 0
	if len(host) == 0 || len(host) > 253 {
		return
	}
	h := fnvOffset
	empty := true // no byte of the label at i yet
	for i := len(host) - 1; i >= 0; i-- {
		c := host[i]
		if c == '.' {
			if empty {
				m.n = 0 // EG-08: an empty label matches nothing, even if the door should let one through
				return
			}
			// host[:i] is what a wildcard before host[i+1:] would match.
			if !literal {
				x.wildcards(h, host, i, m)
			}
		}
		empty = c == '.'
		h = (h ^ uint32(c)) * fnvPrime
	}
	if empty {
		m.n = 0
		return
	}
	if b := x.find(h, host); b != nil {
		m.add(b.exact)
	}
}

// wildcards adds the rules for names below host[dot+1:], whose hash is h.
func (x *hostIndex) wildcards(h uint32, host []byte, dot int, m *matches) {
	b := x.find(h, host[dot+1:])
	if b == nil || len(b.deep)+len(b.one) == 0 || hasPunycode(host[:dot]) {
		return
	}
	m.add(b.deep)
	if !hasDot(host[:dot]) {
		m.add(b.one)
	}
}

func (m *matches) add(list []int32) {
	if len(list) > 0 && m.n < maxMatches {
		m.lists[m.n] = list
		m.n++
	}
}

func hasDot(s []byte) bool {
	for _, x := range s {
		if x == '.' {
			return true
		}
	}
	return false
}

// hasPunycode reports whether a label begins "xn--". EG-15: a wildcard never
// matches such a label.
func hasPunycode(s []byte) bool {
	for i := 0; i+4 <= len(s); i++ {
		if s[i] == 'x' && (i == 0 || s[i-1] == '.') && string(s[i:i+4]) == "xn--" {
			return true
		}
	}
	return false
}
