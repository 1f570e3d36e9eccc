package policies

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/internal/authority"
)

// TestHostsAgreeWithAuthority holds the index to the one definition of host
// patterns that the gate and the bundles use.
func TestHostsAgreeWithAuthority(t *testing.T) {
	label := rapid.SampledFrom([]string{"a", "b", "xn--bcher-kva", "pkg", "1", "x-1", "test"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(append(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), "test"), ".")
	})
	rapid.Check(t, func(t *rapid.T) {
		var patterns []string
		for range rapid.IntRange(1, 12).Draw(t, "rules") {
			patterns = append(patterns, rapid.SampledFrom([]string{"", "*.", "**."}).Draw(t, "stars")+name.Draw(t, "pattern"))
		}
		x, ok := newHostIndex(patterns)
		if !ok {
			t.Fatalf("refused %q", patterns)
		}
		host := name.Draw(t, "host")
		var m matches
		x.match([]byte(host), false, &m)
		var got, want []int32
		for _, l := range m.lists[:m.n] {
			got = append(got, l...)
		}
		slices.Sort(got)
		for i, p := range patterns {
			pattern, err := authority.ParsePattern(p)
			if err != nil {
				t.Fatalf("authority refuses %q: %v", p, err)
			}
			if pattern.MatchHost(host) {
				want = append(want, int32(i))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q under %q: rules %v, want %v", host, patterns, got, want)
		}
	})
}

func TestHostPatternsRefused(t *testing.T) {
	for _, p := range []string{"", "*", "**", "*.com", "**.test", "a*.test", "*.*.test", "a..test", ".test", "a.test.", "A.test", "a.test\n", "a b.test", "*.1.2.3.4:", "тест.test"} {
		if _, ok := newHostIndex([]string{p}); ok {
			t.Errorf("EG-101 %q was accepted", p)
		}
	}
}
