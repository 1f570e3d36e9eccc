package event

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Text is untrusted text. It has no String method and no conversion helper, so
// that it cannot stand where a fact is wanted; Untrusted returns the bytes to
// the one place that renders them inside a box.
type Text struct{ v string }

// NewText tags s as untrusted.
func NewText(s string) Text { return Text{v: s} }

// Untrusted returns the text. Callers render it boxed, escaped or datamarked.
func (t Text) Untrusted() string { return t.v }

// Marks of a text value: what a reader would not see in it. They are shown
// beside the text and never removed from it.
const (
	MarkBidi        = "bidi"         // direction controls
	MarkControl     = "control"      // C0 and C1 controls other than tab and line ends
	MarkHTMLComment = "html_comment" // hidden when rendered as Markdown
	MarkLossy       = "lossy"        // bytes were not UTF-8; U+FFFD stands for them
	MarkTag         = "tag"          // Unicode tag characters and the like: invisible ASCII twins
	MarkZeroWidth   = "zero_width"   // invisible characters
)

// MaxText is the longest text value kept in an event, in bytes. The rest stays
// in the payload and the passage says Cut.
const MaxText = 16 << 10

// NewPassage tags one text value: it replaces what is not UTF-8, marks what a
// reader would not see (IN-32), and cuts at MaxText on a rune boundary.
func NewPassage(pointer, as, value string, o Origin, author string) Passage {
	p := Passage{Pointer: pointer, As: as, Origin: o, Author: author, Len: len(value)}
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, string(utf8.RuneError))
		p.Marks = append(p.Marks, MarkLossy)
	}
	p.Marks = append(p.Marks, hidden(value)...)
	slices.Sort(p.Marks)
	if len(value) > MaxText {
		end := MaxText
		for !utf8.RuneStart(value[end]) {
			end--
		}
		value, p.Cut = value[:end], true
	}
	p.Value = Text{v: value}
	return p
}

// hidden names what s holds that does not show when it is displayed.
func hidden(s string) []string {
	var bidi, control, tag, zero bool
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			control = control || c == 0x7f || c < 0x20 && c != '\t' && c != '\n' && c != '\r'
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r <= 0x9f:
			control = true
		case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			bidi = true
		case r == 0x00ad, r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x180e,
			r >= 0x200b && r <= 0x200d, r >= 0x2060 && r <= 0x2065, r == 0x3164, r == 0xfeff, r == 0xffa0:
			zero = true
		case r >= 0xe0000 && r <= 0xe01ef:
			tag = true
		}
	}
	var m []string
	for _, x := range []struct {
		on   bool
		mark string
	}{{bidi, MarkBidi}, {control, MarkControl}, {strings.Contains(s, "<!--"), MarkHTMLComment}, {tag, MarkTag}, {zero, MarkZeroWidth}} {
		if x.on {
			m = append(m, x.mark)
		}
	}
	return m
}
