package git_test

import (
	"testing"

	"gatehouse/enforcers/git"
)

func TestMatchRef(t *testing.T) {
	for name, c := range map[string]struct {
		pattern, ref string
		want         bool
	}{
		"exact":            {"refs/heads/main", "refs/heads/main", true},
		"segment":          {"refs/heads/gatehouse/*", "refs/heads/gatehouse/one", true},
		"segment_is_one":   {"refs/heads/gatehouse/*", "refs/heads/gatehouse/one/two", false},
		"segment_is_there": {"refs/heads/gatehouse/*", "refs/heads/gatehouse", false},
		"rest":             {"refs/heads/gatehouse/**", "refs/heads/gatehouse/one/two", true},
		"rest_is_there":    {"refs/heads/gatehouse/**", "refs/heads/gatehouse", false},
		"other":            {"refs/heads/gatehouse/*", "refs/heads/main", false},
		"longer":           {"refs/heads/main", "refs/heads/main/x", false},
		"no_name":          {"refs/heads/**", "refs/heads/a..b", false},
		"account":          {"refs/heads/gatehouse/*", "refs/heads/evil:gatehouse/one", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := git.MatchRef(c.pattern, c.ref); got != c.want {
				t.Errorf("%t", got)
			}
		})
	}
}
