package review_test

import (
	"fmt"
	"strings"
	"testing"

	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// TestAsked: a request for access leads to the group of what it asks about, once,
// and a request that names nothing is shown as such.
func TestAsked(t *testing.T) {
	w := newWorld(t, nil, fix)
	a := w.session(w.event("issue_comment"), "fix", "member")
	a.tries("GET", "packages.example.com", "/acme/x.tgz")
	refused := a.tries("GET", "wanted.example.org", "/")
	asks := func(session, refusal string) {
		t.Helper()
		if _, err := w.notary.Control().Append(t.Context(), receipts.Receipt{
			Type: receipts.TypePolicyChange, Change: &receipts.Change{Bundle: "fix", By: "agent", Via: "api", Result: "applied"},
			X: map[string]string{view.XStep: "access", view.XSubject: session, view.XRefusal: refusal},
		}); err != nil {
			t.Fatal(err)
		}
	}
	asks(a.chain.Session(), refused.String())
	asks(a.chain.Session(), receipts.Hash{9}.String())
	asks("01jcnone", refused.String())
	rev := w.review()
	for range 2 { // the second time from memory
		all, err := rev.Asked(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range all {
			got = append(got, fmt.Sprintf("%s known=%v %s %s %s %s", x.Bundle, x.Known, x.Method, x.Target, x.Verdict, x.Status))
		}
		want := " known=false    | known=false    |fix known=true GET wanted.example.org:443 would_block new"
		if strings.Join(got, "|") != want {
			t.Fatalf("%q, want %q", strings.Join(got, "|"), want)
		}
		g, err := rev.Group(t.Context(), all[2].Group)
		if err != nil || g.Host != "wanted.example.org" || all[2].Refusal != refused.String() || all[2].Seq == 0 {
			t.Errorf("%+v leads to %+v, %v", all[2], g.Group, err)
		}
	}
}
