package ui

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// IN-24: nothing that a reader can't see, and nothing that moves what they see,
// reaches a page as itself.
func TestRuns(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":         {"fix the build", "fix the build"},
		"line_feeds":    {"a\nb", "a\nb"},
		"bidi":          {"abc\u202edcba", `abc[\u{202e}]dcba`},
		"isolate":       {"\u2067x\u2069", `[\u{2067}]x[\u{2069}]`},
		"zero_width":    {"ad\u200bmin", `ad[\u{200b}]min`},
		"tags":          {"x\U000e0041\U000e0042", `x[\u{e0041}][\u{e0042}]`},
		"variation":     {"x\ufe0f", `x[\u{fe0f}]`},
		"filler":        {"x\u3164y", `x[\u{3164}]y`},
		"terminal":      {"\x1b[31mred", `[\u{1b}][31mred`},
		"not_utf8":      {"a\xff\xfeb", `a[\xff][\xfe]b`},
		"a_real_U+FFFD": {"a\ufffdb", "a\ufffdb"},
		"arabic_stays":  {"سلام", "سلام"},
	} {
		t.Run(name, func(t *testing.T) {
			rs, more := runs(c.in)
			var b strings.Builder
			for _, r := range rs {
				if r.escape {
					b.WriteString("[" + r.text + "]")
				} else {
					b.WriteString(r.text)
				}
			}
			if b.String() != c.want || more != 0 {
				t.Errorf("%q, %d more; want %q", b.String(), more, c.want)
			}
		})
	}
}

func TestRunsAreBounded(t *testing.T) {
	for _, letter := range []string{"a", "é", "漢", "\U0001f600", "\x80"} {
		long := strings.Repeat(letter, 3*maxShown/len(letter))
		rs, more := runs(long)
		n := 0
		for _, r := range rs {
			n += len(r.text)
		}
		if more == 0 || more+maxShown < len(long) || more > len(long)-maxShown+utf8.UTFMax {
			t.Errorf("%q: %d of %d bytes left", letter, more, len(long))
		}
		if got := len(allRuns(long)); letter != "\x80" && got > 8 {
			t.Errorf("%q: %d runs", letter, got)
		}
	}
}

func FuzzRuns(f *testing.F) {
	for _, s := range []string{"", "a\u202eb", "\xff", strings.Repeat("x", maxShown) + "é", "<script>alert(1)</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range allRuns(s) {
			if !utf8.ValidString(r.text) {
				t.Fatalf("%q is not UTF-8", r.text)
			}
			for _, c := range r.text {
				if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
					t.Fatalf("%q shows %U as itself", s, c)
				}
			}
		}
		_ = word(s)
	})
}
