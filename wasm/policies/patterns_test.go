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

// TestPathIsSegments: a path pattern is read twice, by segments here.
func TestPathIsSegments(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "*", "", "%2F"})
	path := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "segments"), "/")
	})
	rapid.Check(t, func(t *rapid.T) {
		pattern, s := path.Draw(t, "pattern"), strings.ReplaceAll(path.Draw(t, "path"), "*", "c")
		if rapid.Bool().Draw(t, "tree") {
			pattern = strings.TrimSuffix(pattern, "/") + "/**"
		}
		p, ok := parsePath(pattern)
		if !ok {
			t.Fatalf("%q is refused", pattern)
		}
		ps, ss := strings.Split(pattern, "/"), strings.Split(s, "/")
		want := len(ps) == len(ss)
		for i, x := range ps {
			if x == "**" {
				want = len(ss) > i
				break
			}
			if i >= len(ss) || x != ss[i] && (x != "*" || ss[i] == "") {
				want = false
				break
			}
		}
		if got := p.match([]byte(s)); got != want {
			t.Errorf("%q over %q: %v", pattern, s, got)
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
	path := map[string]struct {
		pattern, path string
		want          bool
	}{
		"exact":              {"/v1/x", "/v1/x", true},
		"exact_below":        {"/v1/x", "/v1/x/y", false},
		"root":               {"/", "/", true},
		"tree":               {"/v1/**", "/v1/x/y", true},
		"tree_of_all":        {"/**", "/", true},
		"EG-58_tree_itself":  {"/v1/**", "/v1", false},
		"star":               {"/repos/acme/shop/issues/*/comments", "/repos/acme/shop/issues/7/comments", true},
		"star_one_segment":   {"/issues/*/comments", "/issues/7/8/comments", false},
		"star_not_empty":     {"/issues/*/comments", "/issues//comments", false},
		"star_not_none":      {"/issues/*/comments", "/issues/comments", false},
		"star_in_front":      {"/*/comments", "/7/comments", true},
		"star_other_end":     {"/issues/*/comments", "/issues/7/commentsx", false},
		"star_goes_on":       {"/issues/*/comments", "/issues/7/comments/1", false},
		"star_shorter":       {"/issues/*/comments", "/issues/7", false},
		"star_last":          {"/issues/*", "/issues/7", true},
		"star_last_empty":    {"/issues/*", "/issues/", false},
		"star_last_below":    {"/issues/*", "/issues/7/x", false},
		"star_slash":         {"/issues/*/", "/issues/7/", true},
		"two_stars":          {"/a/*/b/*", "/a/1/b/2", true},
		"stars_beside":       {"/a/*/*", "/a/1", false},
		"star_and_tree":      {"/a/*/**", "/a/1/b/c", true},
		"star_and_tree_bare": {"/a/*/**", "/a/1", false},
		"star_no_backtrack":  {"/*/x", "/x/x", true},
		"prefix":             {"/issues/*", "/issue", false},
		"empty":              {"/*", "", false},
	}
	for name, c := range path {
		t.Run("path_"+name, func(t *testing.T) {
			p, ok := parsePath(c.pattern)
			if !ok {
				t.Fatal("the pattern is refused")
			}
			if got := p.match([]byte(c.path)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	for _, bad := range []string{"", "*", "**", "a/*", "/a*", "/*a", "/a*/b", "/a**", "/***", "/**/a", "/**/", "/{x}", "/a\nb", `/a\b`, "/" + strings.Repeat("a", maxPattern)} {
		if _, ok := parsePath(bad); ok {
			t.Errorf("path %q was accepted", bad)
		}
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
