package enforcers

import (
	"fmt"
	"testing"

	"gatehouse/internal/authority"
	"gatehouse/receipts"
)

// TestBypassMatrixNameBudget: EG-109. A wildcard admits so many names a session, known
// names always, and a policy swap does not start the count anew.
func TestBypassMatrixNameBudget(t *testing.T) {
	pattern := func(s string) authority.Pattern {
		p, err := authority.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wild := func(rule string, names int) Policy {
		return Policy{
			Enforcers: []Bound{{Enforcer: &fake{name: "egress", verdict: Verdict{Effect: Allow, Rule: rule}}, Mode: receipts.Hard, Builtin: true}},
			Grants:    []Grant{{Rule: rule, Hosts: pattern("*.pkg.test"), Names: names}, {Rule: "exact", Hosts: pattern("a.pkg.test")}},
		}
	}
	g := NewGate(GateOptions{Session: "s", Mode: receipts.Hard, Recorder: &log{}, Policy: wild("w", 2)})
	ask := func(name string) string {
		_, d := g.Decide(t.Context(), get(g, to(t, "https", name+".pkg.test:443")))
		return string(d.Effect) + " " + d.Reason
	}
	for _, step := range []struct{ name, want string }{
		{"a", "allow "}, {"b", "allow "}, {"c", "deny " + CodeNameBudget}, {"a", "allow "}, {"c", "deny " + CodeNameBudget},
	} {
		if got := ask(step.name); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	g.Swap(wild("w", 2))
	if got := ask("d"); got != "deny "+CodeNameBudget {
		t.Errorf("after a swap: %s", got)
	}
	g.Swap(wild("exact", 0))
	for i := range 100 {
		if got := ask(fmt.Sprint("n", i)); got != "allow " {
			t.Errorf("an exact rule has no budget: %s", got)
		}
	}
	g.Swap(wild("other", 0))
	allowed := 0
	for i := range 100 {
		if ask(fmt.Sprint("m", i)) == "allow " {
			allowed++
		}
	}
	if allowed != DefaultNames {
		t.Errorf("%d names by default", allowed)
	}
	a := g.Action(DNSQuery)
	a.DNS = &DNS{Name: "fresh.pkg.test", Type: "A"}
	if _, d := g.Decide(t.Context(), a); d.Reason != CodeNameBudget {
		t.Errorf("by DNS: %+v", d)
	}
}
