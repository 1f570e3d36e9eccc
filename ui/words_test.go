package ui

import (
	"testing"

	"gatehouse/internal/view"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 307433: "307,433", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := count(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 sessions", 1: "1 session", 2: "2 sessions", 1000: "1,000 sessions"} {
		if got := plural(n, "session"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// What was never let through must not read as if hard mode would change it, and an
// address is told from its port.
func TestGroupInWords(t *testing.T) {
	for want, g := range map[string]view.Group{
		"A connection to [::1]:22 was refused because the enforcer egress denied it: rule r, reason x.":                           {Kind: "net.connect", Host: "::1", Port: 22, Refused: 1, Enforcer: "egress", Rule: "r", Reason: "x"},
		"A connection to example.com:8443 would be refused in hard mode because no enforcer allowed it: rule r, reason x.":        {Kind: "net.connect", Host: "example.com", Port: 8443, WouldBlock: 1, Rule: "r", Reason: "x"},
		"A GET request to example.com/a would be refused in hard mode because the enforcer egress denied it: rule r, reason x.":   {Kind: "http.request", Method: "GET", Host: "example.com", Path: "/a", Port: 443, WouldBlock: 1, Refused: 2, Enforcer: "egress", Rule: "r", Reason: "x"},
		"A child session of the bundle deploy was refused because the enforcer spend denied it: rule r, reason spawn_not_listed.": {Kind: "session.spawn", Name: "deploy", Refused: 1, Enforcer: "spend", Rule: "r", Reason: "spawn_not_listed"},
	} {
		if got := becauseOf(g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
