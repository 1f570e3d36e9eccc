package door_test

import (
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// row is one case of the bypass matrix: what a hostile client does, and what
// must come of it in each mode.
type row struct {
	do     func(in *inside) reply
	hard   want
	shadow want
	setup  func(t *testing.T, o *outside, s *setup) // before the session opens
}

// want is the whole outcome: what the client saw, the decision receipt, and
// what reached the outside.
type want struct {
	status  int // 0: the connection ended without an answer
	effect  enforcers.Effect
	passed  bool
	code    string // the decision's reason
	outcome string // the outcome's code, of a decision that passed
	rule    string // "" is not compared
	dials   int64
	queries int // -1 is not compared
}

// denied: judged, receipted, and nothing left.
func denied(status int, code string) want {
	return want{status: status, effect: enforcers.Deny, code: code}
}

// blocked: let through in shadow only; the receipt says what hard would do.
func blocked(status int, code string) want {
	return want{status: status, effect: enforcers.Deny, passed: true, code: code, dials: 1, queries: 2}
}

// allowed by a rule.
func allowed(status int, rule string) want {
	return want{status: status, effect: enforcers.Allow, passed: true, code: "listed", rule: rule, dials: 1, queries: 2}
}

// stopped: allowed by the policy, then refused outside by a check of the
// address, the certificate or the transfer.
func stopped(status int, code string) want {
	return want{status: status, effect: enforcers.Allow, passed: true, code: "listed", outcome: code, queries: -1}
}

func (w want) at(rule string) want { w.rule = rule; return w }
func (w want) dialed(n int64) want { w.dials = n; return w }
func (w want) asked(n int) want    { w.queries = n; return w }
func both(do func(*inside) reply, w want) row {
	return row{do: do, hard: w, shadow: w}
}

// soft is a row that hard refuses and shadow lets through.
func soft(do func(*inside) reply, status int, code string) row {
	return row{do: do, hard: denied(status, code), shadow: blocked(200, code)}
}

// TestBypassMatrix runs every row in both modes against a fresh session. Each
// asserts the answer, the receipt, the connections that a counting fake
// accepted and the questions that a counting DNS was asked.
func TestBypassMatrix(t *testing.T) {
	o := newOutside(t)
	for _, rows := range []map[string]row{nameRows(), addressRows(), tlsRows(t), httpRows(t), pathRows(t), sessionRows(t)} {
		for name, r := range rows {
			for mode, w := range map[receipts.Mode]want{receipts.Hard: r.hard, receipts.Shadow: r.shadow} {
				t.Run(name+"/"+string(mode), func(t *testing.T) { check(t, o, r, mode, w) })
			}
		}
	}
	for name, run := range recordRows {
		for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
			t.Run(name+"/"+string(mode), func(t *testing.T) { run(t, o, mode) })
		}
	}
}

func check(t *testing.T, o *outside, r row, mode receipts.Mode, w want) {
	s := setup{mode: mode}
	if r.setup != nil {
		r.setup(t, o, &s)
	}
	in := open(t, o, s)
	before := o.tally()
	got := r.do(in)
	in.end()
	after := o.tally()

	if got.status != w.status {
		t.Errorf("client saw %d (%v) %s, want %d", got.status, got.err, got.body, w.status)
	}
	d, out := in.rec.last()
	if d.Decision.Effect != w.effect || d.Decision.Reason != w.code || d.Decision.Passed != w.passed {
		t.Errorf("receipt says %s %q passed=%t, want %s %q passed=%t",
			d.Decision.Effect, d.Decision.Reason, d.Decision.Passed, w.effect, w.code, w.passed)
	}
	if w.rule != "" && d.Decision.Rule != w.rule {
		t.Errorf("receipt names rule %q, want %q", d.Decision.Rule, w.rule)
	}
	if w.passed && out.Code != w.outcome {
		t.Errorf("outcome is %s %q, want code %q", out.Effect, out.Code, w.outcome)
	}
	if mode == receipts.Hard && d.Decision.Passed != (d.Decision.Effect == enforcers.Allow) {
		t.Error("in hard mode only an allow passes")
	}
	if n := after.accepts - before.accepts; n != w.dials {
		t.Errorf("the fakes accepted %d connections, want %d", n, w.dials)
	}
	if w.dials == 0 && after.bytes != before.bytes {
		t.Errorf("%d bytes reached the outside", after.bytes-before.bytes)
	}
	if n := after.queries - before.queries; w.queries >= 0 && n != w.queries {
		t.Errorf("the DNS was asked %d questions, want %d: %v", n, w.queries, o.asked(before))
	}
	for _, d := range in.rec.all() {
		if d.Decision.Passed && in.rec.outcomes[d.Receipt].Effect == "" {
			t.Errorf("%s has no outcome receipt", d.Action.ID)
		}
		if d.Decision.Passed && mode == receipts.Hard && !d.Durable {
			t.Errorf("%s passed in hard before its receipt was durable", d.Action.ID)
		}
	}
}
