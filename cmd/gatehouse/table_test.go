package main

import "testing"

// TestPlain: SB-41, IN-32. Nothing in a cell moves the cursor, ends a line, or
// hides or reorders what stands beside it.
func TestPlain(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"escape":             {"a\x1b[2Jb", `a\u{1b}[2Jb`},
		"c1":                 {"a\u009bb", `a\u{9b}b`},
		"override":           {"a\u202eb", `a\u{202e}b`},
		"arabic_letter_mark": {"a\u061cb", `a\u{61c}b`},
		"word_joiner":        {"a\u2060b", `a\u{2060}b`},
		"line_separator":     {"a\u2028b", `a\u{2028}b`},
		"paragraph":          {"a\u2029b", `a\u{2029}b`},
		"byte_order_mark":    {"a\ufeffb", `a\u{feff}b`},
		"soft_hyphen":        {"a\u00adb", `a\u{ad}b`},
		"tag":                {"a\U000e0041b", `a\u{e0041}b`},
		"words":              {"é 漢 😀", "é 漢 😀"},
		"nothing":            {"", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plain(c.in); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
