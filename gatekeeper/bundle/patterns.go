package bundle

import (
	"strings"

	"gatehouse/internal/authority"
)

// Patterns come in four kinds, each so small that whether one covers another
// can be decided exactly and rule by rule.

// urlPath admits an exact path or a prefix ending in "/**", both already in
// the canonical form that the door judges and sends. A whole segment "*" stands
// for one segment that is not empty: /repos/acme/shop/issues/*/comments.
func urlPath(s string) bool {
	prefix, tail := strings.CutSuffix(s, "**")
	if tail && !strings.HasSuffix(prefix, "/") {
		return false
	}
	s = prefix
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?#\\%;{}") || strings.Contains(s, "//") || !printable(s) {
		return false
	}
	for seg := range strings.SplitSeq(s, "/") {
		if seg == "." || seg == ".." || seg != "*" && strings.Contains(seg, "*") {
			return false
		}
	}
	return true
}

// PathCovers reports whether path pattern a matches whatever b matches. "/v1/**"
// is everything that begins with "/v1/" and not "/v1" itself (EG-58).
func PathCovers(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i, p := range as {
		switch {
		case i >= len(bs):
			return false
		case p == "**":
			return true
		case bs[i] == "**", p == "*" && bs[i] == "", p != "*" && p != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}

// pathsMeet reports whether one path can match both patterns.
func pathsMeet(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i, p := range as {
		switch {
		case i >= len(bs):
			return false
		case p == "**", bs[i] == "**":
			return true
		case p == bs[i], p == "*" && bs[i] != "", bs[i] == "*" && p != "":
		default:
			return false
		}
	}
	return len(as) == len(bs)
}

// hostCovers reports whether pattern a matches every host that b matches.
func hostCovers(a, b string) bool {
	pa, errA := authority.ParsePattern(a)
	_, errB := authority.ParsePattern(b)
	if errA != nil || errB != nil {
		return false
	}
	if a == b {
		return true
	}
	rest, wild := strings.CutPrefix(b, "**.")
	switch {
	case wild:
		// Any depth lies only inside any depth. A probe label stands for what b's star matches.
		return strings.HasPrefix(a, "**.") && pa.MatchHost("probe."+rest)
	case strings.HasPrefix(b, "*."):
		rest = b[2:]
		if strings.HasPrefix(a, "*.") {
			return false // one label over another base
		}
		return strings.HasPrefix(a, "**.") && pa.MatchHost("probe."+rest)
	}
	return pa.MatchHost(b)
}

const entityMark = "{entity}"

// refPattern admits a full ref of whole segments: literal, *, ** (last) or {entity}.
func refPattern(s string) bool {
	segs := strings.Split(s, "/")
	if len(segs) < 3 || segs[0] != "refs" || (segs[1] != "heads" && segs[1] != "tags") {
		return false
	}
	for i, seg := range segs[2:] {
		switch {
		case seg == "*" || seg == entityMark:
		case seg == "**":
			if i != len(segs)-3 {
				return false
			}
		case !refSegment(seg):
			return false
		}
	}
	return true
}

// refSegment follows git check-ref-format for one literal segment.
func refSegment(s string) bool {
	return s != "" && printable(s) && !strings.ContainsAny(s, " ~^:?*[\\{}") && !strings.Contains(s, "..") &&
		!strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, ".lock") && s != "@"
}

// refCovers reports whether a matches whatever b matches.
func refCovers(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i, p := range as {
		switch {
		case i >= len(bs):
			return false
		case p == "**":
			return true
		case bs[i] == "**":
			return false
		case p == "*" || p == bs[i]:
		default:
			return false
		}
	}
	return len(as) == len(bs)
}

// denyPath admits a repository path, exact or a prefix ending in "/**".
func denyPath(s string) bool {
	return s == "**" || !strings.HasPrefix(s, "/") && urlPath("/"+s) && !strings.Contains(strings.TrimSuffix(s, "**"), "*")
}

// denyCovers reports whether a denies whatever b denies.
func denyCovers(a, b string) bool { return PathCovers("/"+a, "/"+b) }

// modelMatch reports whether a model's name is allowed; a trailing star stands
// for any ending without a slash.
func modelMatch(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && !strings.Contains(rest, "/")
	}
	return pattern == name
}

// modelCovers reports whether a matches whatever b matches.
func modelCovers(a, b string) bool {
	if strings.HasSuffix(b, "*") && !strings.HasSuffix(a, "*") {
		return false
	}
	return modelMatch(a, strings.TrimSuffix(b, "*"))
}

// globMatch matches a fact: * is any run of characters, ? is one.
func globMatch(pattern, s string) bool {
	// Backtracks to the last star only, so that the time is bounded by len(pattern)*len(s).
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
