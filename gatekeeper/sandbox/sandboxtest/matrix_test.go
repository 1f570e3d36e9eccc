//go:build linux

package sandboxtest_test

import (
	"testing"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/gatekeeper/sandbox/sandboxtest"
)

func TestMatrix(t *testing.T) {
	cases := map[string]struct {
		outcomes []string
		want     string
	}{
		"nobody_judged_it":      {nil, sandbox.Failed},
		"passed":                {[]string{sandbox.Passed}, sandbox.Passed},
		"absent":                {[]string{sandbox.Absent, sandbox.Absent}, sandbox.Absent},
		"one_absent_one_passed": {[]string{sandbox.Absent, sandbox.Passed}, sandbox.Passed},
		"one_failed_first":      {[]string{sandbox.Failed, sandbox.Passed, sandbox.Absent}, sandbox.Failed},
		"one_failed_last":       {[]string{sandbox.Passed, sandbox.Failed}, sandbox.Failed},
		"an_unknown_outcome":    {[]string{""}, sandbox.Failed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := []sandbox.Case{{ID: "contract", Outcome: sandbox.Passed}}
			for _, o := range c.outcomes {
				in = append(in, sandbox.Case{ID: "SB-07", Name: "n", Outcome: o})
			}
			got := sandboxtest.Matrix(in)
			if len(got) != 51 || got[0].ID != "SB-01" || got[49].ID != "SB-50" || got[50].ID != "contract" {
				t.Fatalf("%d cases", len(got))
			}
			if got[6].ID != "SB-07" || got[6].Outcome != c.want {
				t.Errorf("%+v, want %s", got[6], c.want)
			}
		})
	}
}
