package main

import (
	"encoding/json"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// TestReplayOfWhatTheGateSays: EG-104, EG-108, EG-109. Where the gate records a
// reason of its own in place of the enforcer's, judging again is no difference;
// one that the gate could not have put there is.
func TestReplayOfWhatTheGateSays(t *testing.T) {
	const policy = `{"bundle":"x","digest":"00","egress":[{"host":"*.a.test","id":"egress[0]","methods":["GET"],"paths":["/**"],"ports":[443],"schemes":["https"]}],"models":[],"operations":[],"telemetry":[]}`
	h, err := wasm.NewHost(t.Context(), wasm.Options{CacheDir: wasmCache()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context())
	mod, err := h.Builtin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	judgedBy, err := json.Marshal(judgedBy{Policy: json.RawMessage(policy)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		host       string
		port       uint16
		signed     bool
		mode       receipts.Mode
		effect     receipts.Verdict
		rule, code string
		same       bool
	}{
		"EG-104_signed":         {"cdn.test", 443, true, receipts.Shadow, receipts.Deny, "egress.default_deny", enforcers.CodeNeedsAuthority, true},
		"EG-20_literal":         {"93.184.216.34", 443, false, receipts.Shadow, receipts.Deny, "egress.default_deny", enforcers.CodeIPLiteral, true},
		"EG-18_port":            {"b.test", 8443, false, receipts.Shadow, receipts.Deny, "egress.default_deny", enforcers.CodePort, true},
		"relay":                 {"pastebin.com", 443, false, receipts.Shadow, receipts.Deny, "egress.default_deny", enforcers.CodeRelay, true},
		"EG-109_names":          {"x.a.test", 443, false, receipts.Hard, receipts.Deny, "egress[0]", enforcers.CodeNameBudget, true},
		"plain":                 {"cdn.test", 443, false, receipts.Hard, receipts.Deny, "egress.default_deny", "host_not_listed", true},
		"authority_in_hard":     {"cdn.test", 443, true, receipts.Hard, receipts.Deny, "egress.default_deny", enforcers.CodeNeedsAuthority, false},
		"names_of_nothing":      {"cdn.test", 443, false, receipts.Hard, receipts.Deny, "egress.default_deny", enforcers.CodeNameBudget, false},
		"authority_of_an_allow": {"x.a.test", 443, true, receipts.Shadow, receipts.Deny, "egress[0]", enforcers.CodeNeedsAuthority, false},
		"another_reason":        {"cdn.test", 443, false, receipts.Shadow, receipts.Deny, "egress.default_deny", "path_not_listed", false},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := authority.New(authority.HTTPS, c.host, c.port)
			if err != nil {
				t.Fatal(err)
			}
			g := enforcers.NewGate(enforcers.GateOptions{Session: "s", Mode: c.mode})
			a := g.Action(enforcers.HTTPRequest)
			a.HTTP = &enforcers.HTTP{To: to, Method: "GET", Path: "/x", Body: enforcers.Body{Mode: "none"}}
			if c.signed {
				a.Signed = &enforcers.Signed{Query: secret.FromString("sig=0123456789"), By: "main"}
			}
			action, err := a.Stored().Canonical()
			if err != nil {
				t.Fatal(err)
			}
			m := &material{action: action, judged: judgedBy, builtin: true, receipt: &receipts.Receipt{
				Type: receipts.TypeDecision, Session: "s", Act: &receipts.Act{ID: a.ID},
				Dec: &receipts.Dec{By: "egress", Module: mod.Digest(), Mode: c.mode, Verdict: c.effect, Rule: c.rule, Reason: c.code, Fuel: 1},
			}}
			out, err := m.replay(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if out.Same != c.same {
				t.Errorf("same %t: recorded %+v, again %+v", out.Same, out.Recorded, out.Again)
			}
		})
	}
}
