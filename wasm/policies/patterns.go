package policies

// Patterns come in four kinds, as bundles write them (docs/bundles.md): few
// forms, so that whether one covers another can be decided exactly.

// prefixPattern is an exact text, or a prefix that ends in "/" and stands for
// everything below it: "/v1/**" is what begins with "/v1/", not "/v1" itself
// (EG-58).
type prefixPattern struct {
	text string
	tree bool
}

// parsePrefix reads a pattern of paths. "**" alone is everything.
func parsePrefix(s string) (p prefixPattern, ok bool) {
	if n := len(s) - 2; n >= 0 && s[n:] == "**" {
		s = s[:n]
		if n > 0 && s[n-1] != '/' {
			return p, false
		}
		p.tree = true
	}
	p.text = s
	return p, plain(s) && (p.tree || s != "")
}

func (p *prefixPattern) match(s []byte) bool {
	if p.tree {
		return len(s) >= len(p.text) && string(s[:len(p.text)]) == p.text
	}
	return string(s) == p.text
}

// pathPattern is a path of an egress rule: an exact one or a prefix, in which a
// whole segment "*" stands for one segment that is not empty, whatever is in it:
// "/repos/acme/shop/issues/*/comments".
type pathPattern struct {
	prefixPattern
	stars bool
}

func parsePath(s string) (p pathPattern, ok bool) {
	if s == "" || s[0] != '/' {
		return p, false
	}
	body := s
	if n := len(s) - 2; n > 0 && s[n:] == "**" && s[n-1] == '/' {
		body, p.tree = s[:n], true
	}
	p.text = body
	for rest, more := body[1:], true; more; {
		var seg string
		seg, rest, more = segment(rest)
		if seg == "*" {
			p.stars = true
		} else if !plain(seg) {
			return p, false
		}
	}
	return p, len(body) <= maxPattern
}

func (p *pathPattern) match(s []byte) bool {
	if !p.stars {
		return p.prefixPattern.match(s)
	}
	j := 0
	for i := 0; i < len(p.text); i++ {
		if p.text[i] != '*' {
			if j == len(s) || s[j] != p.text[i] {
				return false
			}
			j++
			continue
		}
		begin := j
		for j < len(s) && s[j] != '/' {
			j++
		}
		if j == begin {
			return false
		}
	}
	return p.tree || j == len(s)
}

// prefixIndex finds a pattern that covers a path in one pass over the path,
// whatever the number of patterns: a push may name thousands of files.
type prefixIndex struct {
	slots []prefixSlot // open addressing, length a power of two
	all   int32        // index of the pattern "**", -1 none
}

type prefixSlot struct {
	used    bool
	hash    uint32
	pattern prefixPattern
	index   int32
}

func newPrefixIndex(patterns []prefixPattern) prefixIndex {
	size := 8
	for size < 2*len(patterns) {
		size *= 2
	}
	x := prefixIndex{make([]prefixSlot, size), -1}
	mask := uint32(size - 1)
	for n, p := range patterns {
		if p.text == "" {
			x.all = int32(n)
			continue
		}
		h := fnvOffset
		for i := 0; i < len(p.text); i++ {
			h = (h ^ uint32(p.text[i])) * fnvPrime
		}
		i := h & mask
		for x.slots[i].used {
			i = (i + 1) & mask
		}
		x.slots[i] = prefixSlot{true, h, p, int32(n)}
	}
	return x
}

// find returns the index of a pattern that covers path, or -1.
func (x *prefixIndex) find(path []byte) int32 {
	if x.all >= 0 {
		return x.all
	}
	h := fnvOffset
	for i := 0; i < len(path); i++ {
		h = (h ^ uint32(path[i])) * fnvPrime
		if path[i] == '/' {
			if n := x.at(h, path[:i+1], true); n >= 0 {
				return n
			}
		}
	}
	return x.at(h, path, false)
}

// at returns the pattern with this text: one that stands for what is below it,
// or an exact one.
func (x *prefixIndex) at(h uint32, text []byte, tree bool) int32 {
	mask := uint32(len(x.slots) - 1)
	for i := h & mask; x.slots[i].used; i = (i + 1) & mask {
		s := &x.slots[i]
		if s.hash == h && s.pattern.tree == tree && s.pattern.text == string(text) {
			return s.index
		}
	}
	return -1
}

// refOK reports whether a pattern of refs is well formed: whole segments, each
// a literal, "*", or "**" at the end.
func refOK(pattern string) bool {
	if len(pattern) < 6 || pattern[:5] != "refs/" {
		return false
	}
	for rest, more := pattern, true; more; {
		var seg string
		seg, rest, more = segment(rest)
		if seg == "**" && more || seg != "*" && seg != "**" && !plain(seg) || seg == "" {
			return false
		}
	}
	return true
}

// refMatch matches a ref: "*" is one segment, a final "**" is one or more.
func refMatch(pattern string, ref []byte) bool {
	for i := 0; ; {
		seg, rest, more := segment(pattern)
		n := i
		for n < len(ref) && ref[n] != '/' {
			n++
		}
		switch {
		case n == i: // an empty segment matches nothing
			return false
		case seg == "**":
			return true
		case seg != "*" && string(ref[i:n]) != seg:
			return false
		case !more || n == len(ref):
			return !more && n == len(ref)
		}
		pattern, i = rest, n+1
	}
}

// segment cuts s at its first slash.
func segment(s string) (seg, rest string, more bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// modelPattern is a model's name, or a beginning of it: "claude-sonnet-*" is
// any ending without a slash.
type modelPattern struct {
	text string
	open bool
}

func parseModel(s string) (p modelPattern, ok bool) {
	if n := len(s) - 1; n >= 0 && s[n] == '*' {
		s, p.open = s[:n], true
	}
	p.text = s
	return p, plain(s) && (p.open || s != "")
}

func (p *modelPattern) match(s []byte) bool {
	if !p.open {
		return string(s) == p.text
	}
	if len(s) < len(p.text) || string(s[:len(p.text)]) != p.text {
		return false
	}
	for _, x := range s[len(p.text):] {
		if x == '/' {
			return false
		}
	}
	return true
}

// plain reports whether s is literal text: no star, control character,
// backslash or unresolved template.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		switch x := s[i]; {
		case x < 0x20, x == 0x7f, x == '*', x == '{', x == '}', x == '\\':
			return false
		}
	}
	return len(s) <= maxPattern
}

const maxPattern = 1024
