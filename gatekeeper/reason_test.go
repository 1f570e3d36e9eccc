package gatekeeper_test

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper"
	"gatehouse/internal/problem"
)

// TestCheckReason: what no receipt can hold is the caller's mistake, said before
// anything is written.
func TestCheckReason(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ok     bool
	}{
		"words":        {"the monthly job needs it – ok, سلام", true},
		"none":         {" \t", false},
		"too_many":     {strings.Repeat("x", 501), false},
		"control":      {"red \x1b[31m", false},
		"two_lines":    {"a\nb", false},
		"not_utf8":     {"\xff", false},
		"not_composed": {"e\u0301", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := gatekeeper.CheckReason(tc.reason)
			if (err == nil) != tc.ok || err != nil && problem.CodeOf(err) != problem.Usage {
				t.Errorf("%v", err)
			}
		})
	}
}
