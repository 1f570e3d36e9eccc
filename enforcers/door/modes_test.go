package door_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"gatehouse/enforcers"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// mode is one row of docs/modes.md: what is done, and how each mode answers.
type modeRow struct {
	do     func(in *inside) reply
	policy func(*enforcers.Policy) // changes the matrix policy
	before func(in *inside)
	shadow cell
	hard   cell
}

type cell struct {
	status  int
	effect  enforcers.Effect // of the last decision; "" = no decision may have been receipted
	passed  bool
	code    string
	fault   string
	durable bool
	reached bool // a fake got a request
}

// other is an enforcer that is not built in.
type other struct {
	verdict enforcers.Verdict
	err     error
}

func (other) Name() string     { return "other" }
func (other) Digest() [32]byte { return [32]byte{9} }
func (other) Kinds() []enforcers.Kind {
	return []enforcers.Kind{enforcers.HTTPRequest}
}
func (o other) Decide(context.Context, []byte) (enforcers.Verdict, error) { return o.verdict, o.err }

func add(mode receipts.Mode, o other) func(*enforcers.Policy) {
	return func(p *enforcers.Policy) { p.Enforcers = append(p.Enforcers, enforcers.Bound{Enforcer: o, Mode: mode}) }
}

// injector adds a credential for the connection of the matrix.
type injector struct{}

func (injector) Inject(_ context.Context, _ *enforcers.Permit, r *http.Request) ([]secret.Value, error) {
	r.Header.Set("Authorization", "Bearer canary")
	return []secret.Value{secret.FromString("Bearer canary")}, nil
}

func lookup(name string) func(*inside) reply {
	return func(in *inside) reply {
		m := in.resolver().ask(in.t, name, dns.TypeA)
		if len(m.Answer) == 0 {
			return reply{status: m.Rcode}
		}
		return reply{status: -1}
	}
}

func modeRows() map[string]modeRow {
	const answered = -1 // by lookup
	yes := cell{200, enforcers.Allow, true, "listed", "", false, true}
	waited := yes
	waited.durable = true
	would := func(code, fault string) cell { return cell{200, enforcers.Deny, true, code, fault, false, true} }
	no := func(status int, code string) cell { return cell{status, enforcers.Deny, false, code, "", false, false} }
	failed := func(code string) cell { return cell{403, enforcers.Deny, false, code, code, false, false} }
	led := "" // a door URL
	lead := func(location string) func(*inside) {
		return func(in *inside) { led = in.doorURL(in.t, location+signedQuery) }
	}
	follow := func(in *inside) reply { return atDoor("GET " + led)(in) }
	deny := enforcers.Verdict{Effect: enforcers.Deny, Rule: "other.1", Reason: "secret"}
	trap := &enforcers.Fault{Code: "trap", Err: errors.New("unreachable")}
	stopped := func(passedDurable bool) cell {
		return cell{403, enforcers.Allow, true, "listed", "", passedDurable, false}
	}
	return map[string]modeRow{
		"allowed":         {do: connect(good), shadow: yes, hard: waited},
		"denied":          {do: connect("evil.test"), shadow: would("host_not_listed", ""), hard: no(403, "host_not_listed")},
		"not_listed":      {do: connect(good), policy: func(p *enforcers.Policy) { p.Enforcers = nil }, shadow: would(enforcers.CodeNotListed, ""), hard: no(403, enforcers.CodeNotListed)},
		"fault":           {do: connect(good), policy: add(receipts.Hard, other{err: trap}), shadow: would("trap", "trap"), hard: failed("trap")},
		"foreign_allow":   {do: connect(good), policy: add(receipts.Hard, other{verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "x"}}), shadow: would("bad_output", "bad_output"), hard: failed("bad_output")},
		"shadow_enforcer": {do: connect(good), policy: add(receipts.Shadow, other{verdict: deny}), shadow: would("secret", ""), hard: waited},
		"name_listed": {
			do:     lookup(good),
			shadow: cell{answered, enforcers.Allow, true, "listed", "", false, false}, hard: cell{answered, enforcers.Allow, true, "listed", "", true, false},
		},
		"name_unlisted": {
			do:     lookup("evil.test"),
			shadow: cell{answered, enforcers.Deny, true, "name_not_listed", "", false, false}, hard: no(dns.RcodeNameError, "name_not_listed"),
		},
		"name_budget": {
			do: connect("b.pkg.test"), before: func(in *inside) { _ = in.fetch("a.pkg.test", "/") },
			policy: func(p *enforcers.Policy) { p.Grants[1].Names = 1 },
			shadow: would(enforcers.CodeNameBudget, ""), hard: no(403, enforcers.CodeNameBudget),
		},
		"authority_allowed": {do: boundRequest("GET /v1/x"), shadow: waited, hard: waited},
		"authority_denied":  {do: boundRequest("PUT /v1/x"), shadow: no(403, enforcers.CodeNeedsAuthority), hard: no(403, "method_not_listed")},
		"door_url_allowed":  {do: follow, before: lead("https://files.pkg.test/x?"), shadow: waited, hard: waited},
		"door_url_denied":   {do: follow, before: lead("https://evil.test/x?"), shadow: no(403, enforcers.CodeNeedsAuthority), hard: no(403, "host_not_listed")},
		"ip_literal":        {do: rawConnect("93.184.216.66:443"), shadow: no(403, enforcers.CodeIPLiteral), hard: no(403, enforcers.CodeIPLiteral)},
		"ip_listed":         {do: func(in *inside) reply { return in.https("93.184.216.34:443", "", get("93.184.216.34", "/")) }, shadow: yes, hard: waited},
		"port":              {do: rawConnect("evil.test:22"), shadow: no(403, enforcers.CodePort), hard: no(403, "host_not_listed")},
		"relay_host":        {do: rawConnect("x.ngrok.io:443"), shadow: no(403, enforcers.CodeRelay), hard: no(403, "host_not_listed")},
		"address_not_public": {
			do: connect(good), before: func(in *inside) {
				in.out.at(in.t, good, func(q dns.Question) *dns.Msg { return answer(q, "10.0.0.5") })
			},
			shadow: stopped(false), hard: stopped(true),
		},
		"metadata":    {do: rawConnect("metadata.google.internal:443"), shadow: no(403, enforcers.CodeMetadata), hard: no(403, enforcers.CodeMetadata)},
		"misdirected": {do: inside443(get("evil.test", "/v1/x")), shadow: no(421, enforcers.CodeMisdirected), hard: no(421, enforcers.CodeMisdirected)},
		"malformed":   {do: inside443(request("GET /v1/x", "Host: "+good)), shadow: no(400, enforcers.CodeMalformed), hard: no(400, enforcers.CodeMalformed)},
		"upload_unlisted": {
			do: func(in *inside) reply {
				return in.https("evil.test:443", "evil.test", "POST / HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 1048577\r\n\r\n")
			},
			shadow: cell{413, enforcers.Deny, true, "host_not_listed", "", false, false}, hard: no(403, "host_not_listed"),
		},
		"receipt_down": {
			do:     rawConnect(good + ":443"),
			before: func(in *inside) { in.rec.mu.Lock(); in.rec.down = true; in.rec.mu.Unlock() },
			shadow: cell{status: 503}, hard: cell{status: 503},
		},
		"session_ended": {
			do: func(in *inside) reply { return reply{status: in.lateRequest()} }, before: func(*inside) {},
			shadow: cell{status: 0}, hard: cell{status: 0},
		},
	}
}

// lateRequest sends a request on a connection from before the session's end.
func (in *inside) lateRequest() int {
	c, r, re := in.secure(good+":443", good)
	if c == nil {
		in.t.Fatal(re.err)
	}
	in.gate.Revoke(enforcers.CodeRevoked)
	in.rec.mu.Lock()
	in.rec.decisions = nil
	in.rec.mu.Unlock()
	_, _ = io.WriteString(c, get(good, "/v1/x"))
	re = read(r, "GET")
	if re.status == http.StatusForbidden && strings.Contains(re.body, enforcers.CodeRevoked) {
		return 0 // the answer was quicker than the cut
	}
	return re.status
}

// TestModes is docs/modes.md, cell by cell.
func TestModes(t *testing.T) {
	o := newOutside(t)
	rows := modeRows()
	for name, r := range rows {
		for mode, want := range map[receipts.Mode]cell{receipts.Shadow: r.shadow, receipts.Hard: r.hard} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				in := open(t, o, setup{mode: mode, inject: injector{}, change: r.policy})
				if r.before != nil {
					r.before(in)
				}
				before := o.tally()
				re := r.do(in)
				in.end()
				d, _ := in.rec.last()
				got := cell{re.status, d.Decision.Effect, d.Decision.Passed, d.Decision.Reason, d.Decision.Fault, d.Durable, o.tally().requests > before.requests}
				if got != want {
					t.Errorf("got  %+v\nwant %+v\n%v %s", got, want, re.err, re.body)
				}
				if name == "shadow_enforcer" && !slices.ContainsFunc(d.Decision.Trace, func(s enforcers.Step) bool {
					return s.Enforcer == "other" && s.Verdict.Effect == enforcers.Deny
				}) {
					t.Error("the trace does not name the deny")
				}
			})
		}
	}

	t.Run("document", func(t *testing.T) {
		text, err := os.ReadFile("../../docs/modes.md")
		if err != nil {
			t.Fatal(err)
		}
		var written, tested []string
		for _, m := range regexp.MustCompile(`(?m)^\| ([a-z_]+) \|`).FindAllStringSubmatch(string(text), -1) {
			if m[1] != "row" {
				written = append(written, m[1])
			}
		}
		for name := range rows {
			tested = append(tested, name)
		}
		slices.Sort(written)
		slices.Sort(tested)
		if !slices.Equal(written, tested) {
			t.Errorf("written %s\ntested  %s", strings.Join(written, " "), strings.Join(tested, " "))
		}
	})
}
