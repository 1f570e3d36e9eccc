package door

import "strings"

// splitTarget cuts an origin-form target into its canonical path and its raw
// query. The canonical path is the one that is judged and the one that is
// sent.
//
// Percent-encoded unreserved characters are decoded, every other escape is
// written in upper case, and runs of slashes become one. Refused are dot
// segments in any spelling, with or without a parameter, and overlong UTF-8
// (EG-56); a backslash, plain or encoded, and an escape of an escape (EG-57);
// controls, plain or encoded; a fragment; every byte outside ASCII. An encoded
// slash stays encoded; slashed reports that there is one.
func splitTarget(target string) (path, query string, slashed bool, err error) {
	if strings.Contains(target, "#") {
		return "", "", false, malformed("fragment in target")
	}
	raw, query, _ := strings.Cut(target, "?")
	path, slashed, err = canonicalPath(raw)
	return path, query, slashed, err
}

// CanonicalPath is for whoever asks for something in the sandbox's place: the path
// of a URL in the form in which the door judges and sends it, and false where the
// door would refuse it or it holds an encoded slash.
func CanonicalPath(raw string) (path string, ok bool) {
	path, slashed, err := canonicalPath(raw)
	return path, err == nil && !slashed
}

func canonicalPath(raw string) (path string, slashed bool, err error) {
	if !strings.HasPrefix(raw, "/") {
		return "", false, malformed("path does not begin with a slash")
	}
	if plain(raw) {
		return raw, false, nil
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '/':
			if b.Len() > 0 && lastByte(&b) == '/' {
				continue
			}
			b.WriteByte('/')
		case c == '\\':
			return "", false, malformed("backslash in path")
		case c == '%':
			if i+2 >= len(raw) {
				return "", false, malformed("escape in path")
			}
			hi, ok := unhex(raw[i+1])
			lo, ok2 := unhex(raw[i+2])
			if !ok || !ok2 {
				return "", false, malformed("escape in path")
			}
			d := hi<<4 | lo
			switch {
			case d < ' ' || d == 0x7f:
				return "", false, malformed("control character in path")
			case d == '\\':
				return "", false, malformed("backslash in path")
			case unreserved(d):
				b.WriteByte(d)
			default:
				writeEscape(&b, d)
				slashed = slashed || d == '/'
			}
			i += 2
		case pathBytes[c]:
			b.WriteByte(c)
		case c > ' ' && c < 0x7f:
			writeEscape(&b, c) // printable but not allowed raw in a path
		default:
			return "", false, malformed("byte in path")
		}
	}
	path = b.String()
	switch {
	case doubleEscape(path):
		return "", false, malformed("escape of an escape in path")
	case dotSegment(path):
		return "", false, malformed("dot segment in path")
	case overlong(path):
		return "", false, malformed("overlong encoding in path")
	}
	return path, slashed, nil
}

// plain reports whether a path is canonical by its bytes alone: no escape, no
// slash or dot behind a slash, and nothing that would be escaped. Most paths are.
func plain(path string) bool {
	before := byte(0)
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case (c == '/' || c == '.') && before == '/', c != '/' && !pathBytes[c]:
			return false
		}
		before = c
	}
	return true
}

// pathBytes are those that stand for themselves in a path, but for the slash.
var pathBytes = func() (is [256]bool) {
	for c := range is {
		is[c] = unreserved(byte(c)) || strings.IndexByte("!$&'()*+,;=:@", byte(c)) >= 0
	}
	return is
}()

func lastByte(b *strings.Builder) byte {
	s := b.String()
	return s[len(s)-1]
}

func writeEscape(b *strings.Builder, c byte) {
	const hex = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(hex[c>>4])
	b.WriteByte(hex[c&15])
}

// doubleEscape reports whether decoding a canonical path once would leave an
// escape.
func doubleEscape(path string) bool {
	for {
		_, after, ok := strings.Cut(path, "%25")
		if !ok {
			return false
		}
		if len(after) >= 2 {
			_, hi := unhex(after[0])
			_, lo := unhex(after[1])
			if hi && lo {
				return true
			}
		}
		path = after
	}
}

// overlong reports whether a canonical path holds a character in more bytes than
// UTF-8 gives it: some servers decode %C0%AE to a dot and %C0%AF to a slash
// (EG-56). A lone byte of another encoding is none.
func overlong(path string) bool {
	for {
		_, after, ok := strings.Cut(path, "%")
		if !ok || len(after) < 5 {
			return false
		}
		if after[2] == '%' {
			first, second := after[:2], after[3:5]
			continuation := second >= "80" && second <= "BF"
			switch {
			case first == "C0", first == "C1":
				if continuation {
					return true
				}
			case first == "E0" && continuation && second < "A0", first == "F0" && continuation && second < "90":
				return true
			}
		}
		path = after
	}
}

func unreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return c == '-' || c == '.' || c == '_' || c == '~'
	}
}

// dotSegment reports whether a server that decodes slashes or drops
// parameters could find "." or ".." in a canonical path.
func dotSegment(path string) bool {
	path = strings.ReplaceAll(path, "%2F", "/")
	for segment := range strings.SplitSeq(path, "/") {
		name, _, _ := strings.Cut(segment, ";")
		name, _, _ = strings.Cut(name, "%3B")
		if name == "." || name == ".." {
			return true
		}
	}
	return false
}
