package enforcers

import (
	"testing"
	"time"

	"gatehouse/receipts"
)

// TestEpilogue: the node's own last actions are judged after the session was
// revoked, numbered on, and end with their own revocation.
func TestEpilogue(t *testing.T) {
	rec := &log{}
	g := NewGate(GateOptions{Session: "s-1", Mode: receipts.Hard, Recorder: rec, Clock: func() time.Time { return time.Unix(0, 0) }})
	last := g.Action(OperationCall)
	g.Revoke("completed")
	e := g.Epilogue()
	a := e.Action(OperationCall)
	if a.Session != "s-1" || a.Seq != last.Seq+1 || a.Generation != g.Generation() {
		t.Errorf("action %+v after %+v", a, last)
	}
	a.Operation = &Operation{Name: "scm.comment"}
	if _, d := e.Decide(t.Context(), a); d.Reason != CodeNotListed || d.Receipt.IsZero() {
		t.Errorf("decided %+v: nothing lists it, and it has a receipt", d)
	}
	b := g.Action(OperationCall)
	b.Operation = a.Operation
	if _, d := g.Decide(t.Context(), b); d.Reason != "completed" {
		t.Errorf("the ended gate says %q", d.Reason)
	}
	e.Revoke("completed")
	if _, d := e.Decide(t.Context(), a); d.Reason != "completed" {
		t.Errorf("the ended epilogue says %q", d.Reason)
	}
}
