package receipts_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestVerifiersAgree: sealed bytes that are nearly a receipt get the same verdict
// from both verifiers, whatever was done to them before they were sealed.
func TestVerifiersAgree(t *testing.T) {
	other := newTypeScript(t)
	if other == nil {
		t.Skip("NO NODE >= 20")
	}
	var seeds [][]byte
	all := oneOfEach()
	for _, typ := range slices.Sorted(maps.Keys(all)) {
		r := all[typ]
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	// What one reader might take and the other not: spellings of JSON, UTF-8 and
	// its normal forms, dates, digits.
	words := []string{
		`"`, `\`, `,`, `:`, `{`, `}`, `[`, `]`, `0`, `9`, `-`, `.`, ` `, "\n", "\r", "\t", "\x00", "\x7f", "\x80", "\xff",
		`null`, `true`, `\u0061`, `"x":{"!a.b":"c"}`, `"v":2`, `9007199254740991`, `9007199254740992`, `1e0`, `A`, `E`, `_`,
		"\u0085", "\u00e9", "e\u0301", "\u0301", "\ufeff", "\ufffd", "\ufffe", "\U0001f600", "\u0345\u0334", "\u212b", "\ud7ff",
		"a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u030d\u030e\u030f\u0310\u0311\u0312\u0313\u0314\u031b\u033d\u033e\u033f\u0340\u0341\u0342\u0343\u0344\u0346",
		"\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f",
		"2026-02-29T00:00:00.000000000Z", "1969-12-31T23:59:59.000000000Z", "9999-12-31T23:59:59.999999999Z", "2026-12-31T23:59:60.000000000Z",
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SampledFrom(seeds).Draw(rt, "receipt")
		out := append([]byte(nil), b...)
		for range rapid.IntRange(1, 3).Draw(rt, "edits") {
			at := rapid.IntRange(0, len(out)).Draw(rt, "at")
			till := min(len(out), at+rapid.SampledFrom([]int{0, 0, 1, 1, 2, 8, 30}).Draw(rt, "gone"))
			word := rapid.SampledFrom(words).Draw(rt, "word")
			out = append(out[:at:at], append([]byte(word), out[till:]...)...)
		}
		w, _ := story(t)
		file := w.sealedBytes(sessionC, sample(t), out)
		r := verify(file, w.options())
		other.agrees(rt, r, file, w.options())
	})
}
