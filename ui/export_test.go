package ui

import "testing"

func TestCell(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "=HYPERLINK(\"x\")": "'=HYPERLINK(\"x\")", "+1": "'+1", "-1": "'-1", "@SUM": "'@SUM", "a\nb": `a\nb`, "\u202ex": `\u{202e}x`,
	} {
		if got := cell(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
