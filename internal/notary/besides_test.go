package notary

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
)

// TestBesides holds what a decision says of enforcers that did not decide.
func TestBesides(t *testing.T) {
	step := func(name string, e enforcers.Effect, fault string) enforcers.Step {
		return enforcers.Step{Enforcer: name, Fault: fault, Verdict: enforcers.Verdict{Effect: e, Rule: "r[0]", Reason: "why"}}
	}
	cases := map[string]struct {
		by    string
		trace []enforcers.Step
		want  map[string]string
	}{
		"one_decided":       {"egress", []enforcers.Step{step("egress", enforcers.Deny, "")}, nil},
		"others_abstained":  {"egress", []enforcers.Step{step("egress", enforcers.Allow, ""), step("git", enforcers.Abstain, "")}, nil},
		"fault_behind_deny": {"egress", []enforcers.Step{step("egress", enforcers.Deny, ""), step("liar", enforcers.Deny, "bad_output")}, map[string]string{"enforcer.liar": "fault bad_output"}},
		"shadow_denied":     {"egress", []enforcers.Step{step("egress", enforcers.Allow, ""), step("dlp", enforcers.Deny, "")}, map[string]string{"enforcer.dlp": "deny r[0] why"}},
		"words_are_codes":   {"egress", []enforcers.Step{{Enforcer: "dlp", Verdict: enforcers.Verdict{Effect: enforcers.Deny, Rule: "<b>", Reason: "a b"}}}, map[string]string{"enforcer.dlp": "deny unlisted unlisted"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &enforcers.Decision{By: c.by, Trace: c.trace}
			if diff := cmp.Diff(c.want, besides(d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
