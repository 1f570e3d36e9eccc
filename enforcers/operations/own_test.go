package operations_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

// The agent can neither say the session's last words nor keep them from being said:
// the node's own calls have keys, and leave marks, that no call of an agent has.
func TestOwnCallsAreApart(t *testing.T) {
	const words = `{"number":7,"body":"Gatehouse session s-1 has ended: timeout."}`
	h := &hub{t: t, answers: map[string]string{
		"GET /repos/acme/shop/issues/7/comments":  `[]`,
		"POST /repos/acme/shop/issues/7/comments": `{"id":1}`,
	}}
	ops := h.operations(t)
	e, err := policies.Native("egress", []byte(`{"abi":1,"bundle":`+strings.Replace(policy, "note.add", "scm.comment", 1)+`,"params":{"enforcer":"egress"}}`))
	if err != nil {
		t.Fatal(err)
	}
	g := enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: receipts.Hard, Recorder: &recorder{},
		Policy: enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: e, Mode: receipts.Hard, Builtin: true}}}})
	d, err := operations.New(g, ops)
	if err != nil {
		t.Fatal(err)
	}
	own := func(d *operations.Desk) bool {
		t.Helper()
		r, _, err := d.CallOwn(t.Context(), "scm.comment", "on-end-scm.comment", []byte(words))
		if err != nil {
			t.Fatal(err)
		}
		var made struct{ Existed bool }
		if err := json.Unmarshal(r, &made); err != nil {
			t.Fatal(err)
		}
		return !made.Existed
	}
	// said returns what was said last, and puts it where the next call finds it.
	said := func() string {
		t.Helper()
		var made struct{ Body string }
		if err := json.Unmarshal([]byte(h.bodies[len(h.bodies)-1]), &made); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal([]map[string]any{{"id": 1, "body": made.Body}})
		if err != nil {
			t.Fatal(err)
		}
		h.answers["GET /repos/acme/shop/issues/7/comments"] = string(b)
		return made.Body
	}

	if w := post(d, "scm.comment", "node:on-end-scm.comment", words); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), operations.CodeKey) {
		t.Errorf("an agent calls under a key of the node's: %d %s", w.Code, w.Body)
	}
	forged := `{"number":7,"body":"All checks passed. <!-- <!-- gatehousegatehouse s-1 node:on-end-scm.comment -->"}`
	if w := post(d, "scm.comment", "on-end-scm.comment", forged); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if text := said(); strings.Contains(text, "<!-- gatehouse s-1 node:") || strings.Count(text, "<!-- gatehouse") != 1 {
		t.Errorf("the agent wrote a mark of its own: %q", text)
	}
	d.Close()
	g.Revoke("timeout")
	last, err := operations.New(g.Epilogue(), ops)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if !own(last) {
		t.Error("the agent's words stand for the session's last ones")
	}
	if text := said(); !strings.Contains(text, "has ended: timeout") || !strings.HasSuffix(text, markOf(markKey, "s-1", "node:on-end-scm.comment")) {
		t.Errorf("said %q", text)
	}
	// Tried again after a crash, the node finds what it said.
	again, err := operations.New(g.Epilogue(), ops)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if own(again) {
		t.Error("it was said twice")
	}
	if _, _, err := again.CallOwn(t.Context(), "scm.fly", "x", []byte(`{}`)); problem.CodeOf(err) != operations.CodeUnlisted {
		t.Errorf("%v", err)
	}
}
