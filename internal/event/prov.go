package event

import "strings"

// OriginAt returns the origin of the payload value at pointer (RFC 6901). The
// longest row of Prov that is the pointer or a prefix of it wins; "*" in a row
// stands for any array index, and a literal beats it at the same length. A
// path without a row is Outsider.
func (e *Event) OriginAt(pointer string) Origin {
	if pointer != "" && pointer[0] != '/' {
		return Outsider
	}
	best, depth, stars := Outsider, -1, 0
	for row, o := range e.Prov {
		d, s, ok := covers(row, pointer)
		if ok && (d > depth || d == depth && s < stars) {
			best, depth, stars = o, d, s
		}
	}
	return best
}

// covers reports whether row is a prefix of pointer by whole segments, how
// many segments it has, and how many of them are "*".
func covers(row, pointer string) (depth, stars int, ok bool) {
	for row != "" {
		var want, have string
		want, row = segment(row)
		if pointer == "" {
			return 0, 0, false
		}
		have, pointer = segment(pointer)
		switch {
		case want == have:
		case want == "*" && isIndex(have):
			stars++
		default:
			return 0, 0, false
		}
		depth++
	}
	return depth, stars, true
}

// segment cuts the first "/segment" off a non-empty pointer.
func segment(p string) (seg, rest string) {
	p = p[1:]
	if i := strings.IndexByte(p, '/'); i >= 0 {
		return p[:i], p[i:]
	}
	return p, ""
}

func isIndex(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Escape writes one key as a JSON Pointer segment.
func Escape(key string) string {
	if !strings.ContainsAny(key, "~/") {
		return key
	}
	return escaper.Replace(key)
}
