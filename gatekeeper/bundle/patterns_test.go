package bundle

import "testing"

// TestPaths: which path patterns there are, and when one covers or meets
// another.
func TestPaths(t *testing.T) {
	for _, good := range []string{"/", "/**", "/v1/x", "/v1/**", "/*", "/*/x", "/a/*/*", "/a/*/**", "/a/*/"} {
		if !urlPath(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "v1", "*", "**", "/a*", "/*a", "/a**", "/***", "/**/a", "/a/../b", "/./a", "//a", "/a%2f", "/a;b", "/a?b", `/a\b`, "/a b", "/a/{x}", "/a}"} {
		if urlPath(bad) {
			t.Errorf("%q is a path", bad)
		}
	}
	if denyPath(".github/*/x") || denyPath("*") || !denyPath(".github/workflows/**") || !denyPath("**") {
		t.Error("what a push must not change is an exact path or a prefix")
	}
	for name, c := range map[string]struct {
		a, b         string
		covers, meet bool
	}{
		"same":                  {"/v1/x", "/v1/x", true, true},
		"other":                 {"/v1/x", "/v1/y", false, false},
		"tree":                  {"/v1/**", "/v1/x", true, true},
		"EG-58_not_itself":      {"/v1/**", "/v1", false, false},
		"tree_over_tree":        {"/v1/**", "/v1/x/**", true, true},
		"exact_no_tree":         {"/v1/", "/v1/**", false, true},
		"star":                  {"/a/*/c", "/a/b/c", true, true},
		"star_is_one":           {"/a/*/c", "/a/b/b/c", false, false},
		"star_is_not_empty":     {"/a/*", "/a/", false, false},
		"star_over_star":        {"/a/*/c", "/a/*/c", true, true},
		"star_over_tree":        {"/a/*", "/a/**", false, true},
		"tree_over_star":        {"/a/**", "/a/*/c", true, true},
		"tree_after_star":       {"/a/*/**", "/a/b/c/d", true, true},
		"tree_after_star_bare":  {"/a/*/**", "/a/b", false, false},
		"literal_no_star":       {"/a/b", "/a/*", false, true},
		"stars_that_cross":      {"/a/*/c", "/a/b/*", false, true},
		"stars_that_never_meet": {"/a/*/c", "/b/*/c", false, false},
		"empty_and_star":        {"/a/", "/a/*", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PathCovers(c.a, c.b); got != c.covers {
				t.Errorf("covers: %v", got)
			}
			if pathsMeet(c.a, c.b) != c.meet || pathsMeet(c.b, c.a) != c.meet {
				t.Errorf("meet: %v and %v", pathsMeet(c.a, c.b), pathsMeet(c.b, c.a))
			}
		})
	}
}
