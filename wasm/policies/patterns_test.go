package policies

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPrefixIndexAgreesWithMatch holds the index to the patterns one by one.
func TestPrefixIndexAgreesWithMatch(t *testing.T) {
	path := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", ".github", "", "ab"}), 1, 5).Draw(t, "segments"), "/")
	})
	rapid.Check(t, func(t *rapid.T) {
		var patterns []prefixPattern
		for range rapid.IntRange(0, 8).Draw(t, "patterns") {
			s := path.Draw(t, "pattern")
			if rapid.Bool().Draw(t, "tree") {
				s = strings.TrimSuffix(s, "/") + "/**"
			}
			if p, ok := parsePrefix(s); ok {
				patterns = append(patterns, p)
			}
		}
		x := newPrefixIndex(patterns)
		s := []byte(path.Draw(t, "path"))
		want := false
		for i := range patterns {
			want = want || patterns[i].match(s)
		}
		got := x.find(s)
		if (got >= 0) != want || got >= 0 && !patterns[got].match(s) {
			t.Errorf("%q under %+v: pattern %d, want any %v", s, patterns, got, want)
		}
	})
}

func TestPatterns(t *testing.T) {
	ref := map[string]struct {
		pattern, ref string
		want         bool
	}{
		"exact":               {"refs/heads/main", "refs/heads/main", true},
		"exact_longer":        {"refs/heads/main", "refs/heads/main2", false},
		"star":                {"refs/heads/*", "refs/heads/x", true},
		"star_is_one_segment": {"refs/heads/*", "refs/heads/x/y", false},
		"star_is_not_empty":   {"refs/heads/*", "refs/heads/", false},
		"tree":                {"refs/heads/**", "refs/heads/x/y", true},
		"tree_needs_one":      {"refs/heads/**", "refs/heads/", false},
		"tree_not_itself":     {"refs/heads/**", "refs/heads", false},
		"empty_segment":       {"refs/heads/*/x", "refs/heads//x", false},
		"star_in_the_middle":  {"refs/heads/*/x", "refs/heads/a/x", true},
		"shorter":             {"refs/heads/*/x", "refs/heads/a", false},
		"empty":               {"refs/heads/*", "", false},
	}
	for name, c := range ref {
		t.Run("ref_"+name, func(t *testing.T) {
			if !refOK(c.pattern) {
				t.Fatal("the pattern is refused")
			}
			if got := refMatch(c.pattern, []byte(c.ref)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	for _, bad := range []string{"", "refs/", "heads/x", "refs/heads/a*", "refs/**/x", "refs//x", "refs/heads/{entity}", "refs/heads/***"} {
		if refOK(bad) {
			t.Errorf("ref pattern %q was accepted", bad)
		}
	}
	for _, bad := range []string{"", "a**", "/a*", "/a*/b", "/***", "/{x}", "/a\nb", `/a\b`} {
		if _, ok := parsePrefix(bad); ok {
			t.Errorf("path pattern %q was accepted", bad)
		}
	}
	for _, bad := range []string{"", "a*b", "**", "a{b}"} {
		if _, ok := parseModel(bad); ok {
			t.Errorf("model pattern %q was accepted", bad)
		}
	}
}
