package gatekeeper

import (
	"fmt"
	"testing"

	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// TestRequestAccess: what an agent asks for is noted once, in no words of its
// own, so often and no more, and counts as no person's word.
func TestRequestAccess(t *testing.T) {
	k := newKin(t)
	id := k.parent("1")
	before := len(k.log.receipts(receipts.ControlSession))
	proposals := len(k.Proposals())
	refusal := func(n int) receipts.Hash { return receipts.Leaf(fmt.Append(nil, n)) }
	for n := range maxAsked {
		for range 2 { // the same receipt counts once
			if err := k.RequestAccess(t.Context(), id, refusal(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.RequestAccess(t.Context(), id, refusal(maxAsked)); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("one too many: %v", err)
	}
	if err := k.RequestAccess(t.Context(), "another", refusal(0)); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("of another session: %v", err)
	}
	noted := k.log.receipts(receipts.ControlSession)[before:]
	if len(noted) != maxAsked {
		t.Fatalf("%d receipts, want %d", len(noted), maxAsked)
	}
	for n, r := range noted {
		if r.X[xStep] != StepAccess || r.X[xSubject] != id || r.X[xRefusal] != refusal(n).String() || len(r.X) != 3 || r.Change.By != agentName || !r.Change.Digest.IsZero() {
			t.Errorf("receipt %+v %+v", r.X, r.Change)
		}
	}
	if len(k.Proposals()) != proposals {
		t.Error("a request became a proposal")
	}
	if err := k.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	k.ended(id)
	if err := k.RequestAccess(t.Context(), id, refusal(99)); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("after its end: %v", err)
	}
}
