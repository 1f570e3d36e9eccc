package ui

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown is how many bytes of a stranger's text a page shows at once.
const maxShown = 32 << 10

// run is a piece of a stranger's text: letters as they are, or one character
// that would be invisible or would move others, written out.
type run struct {
	text   string
	escape bool
}

// runs splits s for showing. What it returns holds no control, format or
// direction character but the line feed, and no byte that is not UTF-8.
func runs(s string) (out []run, more int) {
	if len(s) > maxShown {
		cut := maxShown
		for range utf8.UTFMax - 1 { // not through a letter; bytes that are none may be cut anywhere
			if !utf8.RuneStart(s[cut]) {
				cut--
			}
		}
		more, s = len(s)-cut, s[:cut]
	}
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			out = append(out, run{text: plain.String()})
			plain.Reset()
		}
	}
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			flush()
			out = append(out, run{fmt.Sprintf(`\x%02x`, s[i]), true})
		case r != '\n' && hidden(r):
			flush()
			out = append(out, run{fmt.Sprintf(`\u{%x}`, r), true})
		default:
			plain.WriteRune(r)
		}
	}
	flush()
	return out, more
}

// hidden reports whether a reader can't see r, or would see others moved by it.
func hidden(r rune) bool {
	return r >= 0xe0000 || // tags, private use
		unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) ||
		unicode.Is(unicode.Variation_Selector, r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// word is s in one line, for a place where markup can't be: a title, a name.
func word(s string) string {
	rs, more := runs(s)
	var b strings.Builder
	for _, r := range rs {
		b.WriteString(strings.ReplaceAll(r.text, "\n", `\n`))
	}
	if more > 0 {
		b.WriteString("…")
	}
	return b.String()
}
