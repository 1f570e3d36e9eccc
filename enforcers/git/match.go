package git

import "strings"

// MatchRef reports whether a pattern of a bundle's git.push.refs covers a
// reference: * is one whole segment, ** the rest. It is for what a session may
// name, such as the branch of a pull request; whether it may push one is the
// policy's to say.
func MatchRef(pattern, ref string) bool {
	if !refName(ref) {
		return false
	}
	for {
		p, patterns, morePatterns := strings.Cut(pattern, "/")
		if p == "**" {
			return ref != ""
		}
		segment, rest, more := strings.Cut(ref, "/")
		if p != "*" && p != segment || segment == "" || morePatterns != more {
			return false
		}
		if !more {
			return true
		}
		pattern, ref = patterns, rest
	}
}
