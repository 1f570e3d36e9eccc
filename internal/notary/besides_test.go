package notary

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gatehouse/enforcers"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
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
			if diff := cmp.Diff(c.want, besides(&enforcers.Action{}, d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSignedBy: EG-108, the receipt of a request that is sent with a signed URL
// says whose answer gave it and that it uses authority, and holds nothing of it.
func TestSignedBy(t *testing.T) {
	a := &enforcers.Action{Kind: enforcers.HTTPRequest, HTTP: &enforcers.HTTP{Method: "GET"}, Signed: &enforcers.Signed{Query: secret.FromString("sig=0123456789"), By: "assets"}}
	if diff := cmp.Diff(map[string]string{"signed.by": "assets"}, besides(a, &enforcers.Decision{})); diff != "" {
		t.Error(diff)
	}
	if act := actOf(a); !act.Authority || act.Connection != "" || len(act.Args) != 0 {
		t.Errorf("%+v", act)
	}
	a.Signed.By = "two words"
	if got := besides(a, &enforcers.Decision{})["signed.by"]; got != unlisted {
		t.Errorf("%q", got)
	}
}

// TestPricesPinned: a decision that holds money names the price table, and how
// much more was asked for than may be sent.
func TestPricesPinned(t *testing.T) {
	a := &enforcers.Action{Kind: enforcers.ModelCall, Model: &enforcers.Model{MaxTokens: 10, Asked: 20, Prices: receipts.Hash{1}}}
	if got := besides(a, &enforcers.Decision{})["spend.prices"]; len(got) != 64 || got[:2] != "01" {
		t.Errorf("%q", got)
	}
	if u := actOf(a).Units; u["max_tokens"] != 10 || u["asked_tokens"] != 20 {
		t.Error(u)
	}
}

func actOf(a *enforcers.Action) *receipts.Act {
	act := new(receipts.Act)
	(&recorder{}).act(act, a)
	return act
}

// TestFormsAreFilledAnew: nothing of one action stands in the receipt of the next
// that is written on its form.
func TestFormsAreFilledAnew(t *testing.T) {
	r := &recorder{c: &Chain{}}
	act := new(receipts.Act)
	r.act(act, &enforcers.Action{ID: "a", Kind: enforcers.HTTPRequest, Connection: "c", HTTP: &enforcers.HTTP{Method: "POST", Path: "/p", Query: "q", Body: enforcers.Body{Length: 4}}})
	if len(act.Args) != 2 || len(act.Units) != 1 {
		t.Fatalf("%+v", act)
	}
	r.act(act, &enforcers.Action{ID: "b", Kind: enforcers.DNSQuery, DNS: &enforcers.DNS{Name: "n", Type: "A"}})
	if diff := cmp.Diff(&receipts.Act{ID: "b", Kind: "dns.query", Host: "n", Name: "A"}, act, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
