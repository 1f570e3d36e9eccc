package policies

// glob matches s against a pattern of doc.go: "*" stays inside a segment, "**/"
// spans zero or more whole segments, a trailing "**" takes all the rest. The
// pattern must have passed globOK. One backtrack point of each kind suffices:
// whatever an earlier wildcard could still absorb, a later one can too.
func glob(pattern string, s []byte) bool {
	p, k := 0, 0
	starP, starK := -1, 0 // resume points of the last "*"
	deepP, deepK := -1, 0 // and of the last "**/"
	for {
		if p < len(pattern) {
			x := pattern[p]
			if x == '*' {
				if p+1 < len(pattern) && pattern[p+1] == '*' {
					if p+2 == len(pattern) {
						return true
					}
					p += 3
					deepP, deepK, starP = p, k, -1
					continue
				}
				p++
				starP, starK = p, k
				continue
			}
			if k < len(s) && s[k] == x {
				p++
				k++
				continue
			}
		} else if k == len(s) {
			return true
		}
		switch {
		case starP >= 0 && starK < len(s) && s[starK] != '/':
			starK++
			p, k = starP, starK
		case deepP >= 0:
			for deepK < len(s) && s[deepK] != '/' {
				deepK++
			}
			if deepK == len(s) {
				return false
			}
			deepK++
			p, k, starP = deepP, deepK, -1
		default:
			return false
		}
	}
}

// globOK reports whether a pattern is well formed: "**" only as a whole
// segment, no control character, no backslash, no unresolved template.
func globOK(pattern string) bool {
	if pattern == "" || len(pattern) > 1024 {
		return false
	}
	for i := 0; i < len(pattern); i++ {
		x := pattern[i]
		if x < 0x20 || x == 0x7f || x == '{' || x == '}' || x == '\\' {
			return false
		}
		if x != '*' || i+1 == len(pattern) || pattern[i+1] != '*' {
			continue
		}
		if i > 0 && pattern[i-1] != '/' {
			return false
		}
		if i+2 < len(pattern) && pattern[i+2] != '/' {
			return false
		}
		i++
	}
	return true
}

// tree returns the literal prefix of a pattern that is a literal followed by
// "**", the commonest form, which needs no matcher.
func tree(pattern string) (prefix string, ok bool) {
	n := len(pattern) - 2
	if n < 0 || pattern[n:] != "**" {
		return "", false
	}
	for i := 0; i < n; i++ {
		if pattern[i] == '*' {
			return "", false
		}
	}
	return pattern[:n], true
}
