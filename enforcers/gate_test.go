package enforcers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/internal/authority"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// fake is an enforcer that says what it is told to.
type fake struct {
	name    string
	kinds   []Kind
	verdict Verdict
	err     error
	calls   int
}

func (f *fake) Name() string     { return f.name }
func (f *fake) Digest() [32]byte { return receipts.Leaf([]byte(f.name)) }
func (f *fake) Kinds() []Kind {
	if f.kinds == nil {
		return []Kind{HTTPRequest, NetConnect, DNSQuery}
	}
	return f.kinds
}

func (f *fake) Decide(context.Context, []byte) (Verdict, error) {
	f.calls++
	return f.verdict, f.err
}

// log is a recorder in memory.
type log struct {
	mu        sync.Mutex
	err       error
	decisions []Decision
	durable   []bool
	outcomes  []Outcome
	progress  []Outcome
}

func (l *log) Decision(_ context.Context, _ *Action, d *Decision, durable bool) (receipts.Hash, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return receipts.Hash{}, l.err
	}
	l.decisions = append(l.decisions, *d)
	l.durable = append(l.durable, durable)
	return receipts.Leaf(fmt.Append(nil, len(l.decisions))), nil
}

func (l *log) Outcome(_ receipts.Hash, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, o)
}

func (l *log) Progress(_ context.Context, _ receipts.Hash, o Outcome, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = append(l.progress, o)
	return l.err
}

func to(t testing.TB, scheme, hostport string) authority.Authority {
	t.Helper()
	a, err := authority.ParseHostPort(scheme, hostport)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func get(g *Gate, where authority.Authority) *Action {
	a := g.Action(HTTPRequest)
	a.HTTP = &HTTP{To: where, Method: "GET", Path: "/", Body: Body{Mode: "none"}}
	return a
}

var (
	allowR   = Verdict{Effect: Allow, Rule: "egress[0]", Reason: "listed"}
	denyR    = Verdict{Effect: Deny, Rule: "egress.default_deny", Reason: "host_not_listed"}
	abstainR = Verdict{Effect: Abstain, Reason: "not_mine"}
)

// TestChain is the chain rule: what several answers come to.
func TestChain(t *testing.T) {
	builtin := func(v Verdict) Bound {
		return Bound{Enforcer: &fake{name: "egress", verdict: v}, Mode: receipts.Hard, Builtin: true}
	}
	other := func(mode receipts.Mode, v Verdict, err error) Bound {
		return Bound{Enforcer: &fake{name: "dlp", verdict: v, err: err}, Mode: mode}
	}
	dlp := Verdict{Effect: Deny, Rule: "dlp.1", Reason: "secret"}
	trap := &Fault{Code: "trap", Err: errors.New("unreachable")}
	type out struct {
		Effect Effect
		Reason string
		Fault  string
		By     string
	}
	for name, c := range map[string]struct {
		bound  []Bound
		hard   out
		shadow out // zero: the same as hard
	}{
		"allow":               {[]Bound{builtin(allowR)}, out{Allow, "listed", "", "egress"}, out{}},
		"deny":                {[]Bound{builtin(denyR)}, out{Deny, "host_not_listed", "", "egress"}, out{}},
		"nobody":              {nil, out{Deny, CodeNotListed, "", ""}, out{}},
		"all_abstain":         {[]Bound{builtin(abstainR), other(receipts.Hard, abstainR, nil)}, out{Deny, CodeNotListed, "", ""}, out{}},
		"abstain_then_allow":  {[]Bound{other(receipts.Hard, abstainR, nil), builtin(allowR)}, out{Allow, "listed", "", "egress"}, out{}},
		"deny_beats_allow":    {[]Bound{builtin(allowR), other(receipts.Hard, dlp, nil)}, out{Deny, "secret", "", "dlp"}, out{}},
		"deny_before_allow":   {[]Bound{other(receipts.Hard, dlp, nil), builtin(allowR)}, out{Deny, "secret", "", "dlp"}, out{}},
		"first_deny_is_named": {[]Bound{builtin(denyR), other(receipts.Hard, dlp, nil)}, out{Deny, "host_not_listed", "", "egress"}, out{}},
		"fault_beats_allow":   {[]Bound{builtin(allowR), other(receipts.Hard, Verdict{}, trap)}, out{Deny, "trap", "trap", "dlp"}, out{}},
		"deny_tells_more_than_fault": {
			[]Bound{other(receipts.Hard, Verdict{}, trap), builtin(denyR)}, out{Deny, "host_not_listed", "", "egress"}, out{},
		},
		"fault_without_code": {[]Bound{builtin(allowR), other(receipts.Hard, Verdict{}, errors.New("x"))}, out{Deny, FaultHost, FaultHost, "dlp"}, out{}},
		"fault_wrapped": {
			[]Bound{builtin(allowR), other(receipts.Hard, Verdict{}, fmt.Errorf("pool: %w", trap))}, out{Deny, "trap", "trap", "dlp"}, out{},
		},
		"only_a_builtin_allows":      {[]Bound{other(receipts.Hard, Verdict{Effect: Allow, Rule: "dlp.2"}, nil)}, out{Deny, FaultBadOutput, FaultBadOutput, "dlp"}, out{}},
		"foreign_allow_spoils_allow": {[]Bound{builtin(allowR), other(receipts.Hard, Verdict{Effect: Allow, Rule: "dlp.2"}, nil)}, out{Deny, FaultBadOutput, FaultBadOutput, "dlp"}, out{}},
		"unknown_effect":             {[]Bound{builtin(Verdict{Effect: "maybe", Rule: "x"})}, out{Deny, FaultBadOutput, FaultBadOutput, "egress"}, out{}},
		"empty_effect":               {[]Bound{builtin(Verdict{})}, out{Deny, FaultBadOutput, FaultBadOutput, "egress"}, out{}},
		"allow_without_rule":         {[]Bound{builtin(Verdict{Effect: Allow})}, out{Deny, FaultBadOutput, FaultBadOutput, "egress"}, out{}},
		"long_reason":                {[]Bound{builtin(Verdict{Effect: Allow, Rule: "x", Reason: strings.Repeat("x", 257)})}, out{Deny, FaultBadOutput, FaultBadOutput, "egress"}, out{}},
		"shadow_enforcer_denies":     {[]Bound{builtin(allowR), other(receipts.Shadow, dlp, nil)}, out{Allow, "listed", "", "egress"}, out{Deny, "secret", "", "dlp"}},
		"shadow_enforcer_faults":     {[]Bound{builtin(allowR), other(receipts.Shadow, Verdict{}, trap)}, out{Allow, "listed", "", "egress"}, out{Deny, "trap", "trap", "dlp"}},
		"shadow_builtin_allows":      {[]Bound{{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Shadow, Builtin: true}}, out{Deny, CodeNotListed, "", ""}, out{Allow, "listed", "", "egress"}},
		"other_kind_is_not_asked":    {[]Bound{builtin(allowR), {Enforcer: &fake{name: "git", kinds: []Kind{GitPush}, verdict: dlp}, Mode: receipts.Hard}}, out{Allow, "listed", "", "egress"}, out{}},
	} {
		for mode, want := range map[receipts.Mode]out{receipts.Hard: c.hard, receipts.Shadow: c.shadow} {
			if want == (out{}) {
				want = c.hard
			}
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				for _, b := range c.bound {
					b.Enforcer.(*fake).calls = 0
				}
				g := NewGate(GateOptions{Session: "s", Mode: mode, Recorder: &log{}, Policy: Policy{Enforcers: c.bound}})
				p, d := g.Decide(t.Context(), get(g, to(t, "https", "api.good.test:443")))
				if diff := cmp.Diff(want, out{d.Effect, d.Reason, d.Fault, d.By}); diff != "" {
					t.Error(diff)
				}
				if (p != nil) != d.Passed || d.Passed != (mode == receipts.Shadow || d.Effect == Allow) {
					t.Errorf("passed %t, permit %t", d.Passed, p != nil)
				}
				if p != nil && p.WouldBlock() != (d.Effect != Allow) {
					t.Error("the permit does not know whether it is a would-block")
				}
				asked := 0
				for _, b := range c.bound {
					asked += b.Enforcer.(*fake).calls
				}
				if len(d.Trace) != asked {
					t.Errorf("%d steps in the trace, %d calls", len(d.Trace), asked)
				}
			})
		}
	}
}

// TestHardSet: what no policy opens in any mode, and what shadow does not.
func TestHardSet(t *testing.T) {
	every := Bound{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Hard, Builtin: true}
	none := Bound{Enforcer: &fake{name: "egress", verdict: denyR}, Mode: receipts.Hard, Builtin: true}
	for name, c := range map[string]struct {
		bound  Bound
		action func(*Gate) *Action
		code   string
	}{
		"EG-30_metadata_name_even_if_listed": {every, func(g *Gate) *Action { return get(g, to(t, "http", "metadata.google.internal:80")) }, CodeMetadata},
		"EG-30_localhost_even_if_listed":     {every, func(g *Gate) *Action { return get(g, to(t, "http", "x.localhost:80")) }, CodeSpecialName},
		"EG-30_metadata_by_dns": {every, func(g *Gate) *Action {
			a := g.Action(DNSQuery)
			a.DNS = &DNS{Name: "metadata.google.internal", Type: "A"}
			return a
		}, CodeMetadata},
		"found_by_the_door": {every, func(g *Gate) *Action {
			a := get(g, to(t, "https", "api.good.test:443"))
			a.HardSet = CodeMisdirected
			return a
		}, CodeMisdirected},
		"another_session": {every, func(g *Gate) *Action {
			a := get(g, to(t, "https", "api.good.test:443"))
			a.Session = "other"
			return a
		}, CodeSessionMismatch},
		"no_body":      {every, func(g *Gate) *Action { return g.Action(HTTPRequest) }, CodeMalformedAction},
		"wrong_body":   {every, func(g *Gate) *Action { a := g.Action(HTTPRequest); a.DNS = &DNS{}; return a }, CodeMalformedAction},
		"two_bodies":   {every, func(g *Gate) *Action { a := get(g, to(t, "https", "a.test:443")); a.DNS = &DNS{}; return a }, CodeMalformedAction},
		"unknown_kind": {every, func(g *Gate) *Action { return g.Action("x") }, CodeMalformedAction},
		"EG-20_literal": {none, func(g *Gate) *Action {
			return get(g, to(t, "https", "93.184.216.34:443"))
		}, CodeIPLiteral},
		"EG-18_port": {none, func(g *Gate) *Action { return get(g, to(t, "https", "api.good.test:8443")) }, CodePort},
		"relay":      {none, func(g *Gate) *Action { return get(g, to(t, "https", "x.ngrok.io:443")) }, CodeRelay},
		"relay_by_dns": {none, func(g *Gate) *Action {
			a := g.Action(DNSQuery)
			a.DNS = &DNS{Name: "c2VjcmV0.oast.fun", Type: "TXT"}
			return a
		}, CodeRelay},
		"EG-104_authority": {none, func(g *Gate) *Action {
			a := get(g, to(t, "https", "api.good.test:443"))
			a.Connection = "github-main"
			return a
		}, CodeNeedsAuthority},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			g := NewGate(GateOptions{Session: "s", Mode: receipts.Shadow, Recorder: l, Policy: Policy{Enforcers: []Bound{c.bound}}})
			p, d := g.Decide(t.Context(), c.action(g))
			if p != nil || d.Passed || d.Effect != Deny || d.Reason != c.code {
				t.Errorf("%+v", d)
			}
			if len(l.decisions) != 1 || l.durable[0] {
				t.Errorf("a refusal waits for nothing: %v", l.durable)
			}
		})
	}
	t.Run("kinds_that_use_authority", func(t *testing.T) {
		l := &log{}
		g := NewGate(GateOptions{Session: "s", Mode: receipts.Shadow, Recorder: l, Policy: Policy{}})
		for kind, fill := range map[Kind]func(*Action){
			GitPush:       func(a *Action) { a.Push = &Push{} },
			ModelCall:     func(a *Action) { a.Model = &Model{} },
			OperationCall: func(a *Action) { a.Operation = &Operation{Name: "scm.comment"} },
			TelemetryEmit: func(a *Action) { a.Telemetry = &Telemetry{} },
			SessionSpawn:  func(a *Action) { a.Spawn = &Spawn{} },
		} {
			a := g.Action(kind)
			fill(a)
			if p, d := g.Decide(t.Context(), a); p != nil || d.Reason != CodeNeedsAuthority {
				t.Errorf("%s: %+v", kind, d)
			}
		}
	})
}

// TestDurable: which receipts an action waits for.
func TestDurable(t *testing.T) {
	for name, c := range map[string]struct {
		mode       receipts.Mode
		verdict    Verdict
		connection string
		durable    bool
	}{
		"hard_allow":                 {receipts.Hard, allowR, "", true},
		"hard_deny":                  {receipts.Hard, denyR, "", false},
		"shadow_allow":               {receipts.Shadow, allowR, "", false},
		"shadow_would_block":         {receipts.Shadow, denyR, "", false},
		"shadow_allow_authority":     {receipts.Shadow, allowR, "github-main", true},
		"shadow_deny_authority":      {receipts.Shadow, denyR, "github-main", false},
		"unknown_mode_is_hard_allow": {"", allowR, "", true},
		"unknown_mode_is_hard_deny":  {"loose", denyR, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			bound := Bound{Enforcer: &fake{name: "egress", verdict: c.verdict}, Mode: receipts.Hard, Builtin: true}
			g := NewGate(GateOptions{Session: "s", Mode: c.mode, Recorder: l, Policy: Policy{Enforcers: []Bound{bound}}})
			a := get(g, to(t, "https", "api.good.test:443"))
			a.Connection = c.connection
			p, d := g.Decide(t.Context(), a)
			if l.durable[0] != c.durable {
				t.Errorf("durable %t", l.durable[0])
			}
			if strings.HasPrefix(name, "unknown") && d.Passed != (d.Effect == Allow) {
				t.Error("an unknown mode opened something")
			}
			// EG-99: the same with the log down.
			l.err = errors.New("disk full")
			b := get(g, to(t, "https", "api.good.test:443"))
			b.Connection = c.connection
			if p2, d2 := g.Decide(t.Context(), b); p2 != nil || d2.Passed || d2.Reason != CodeReceiptUnavailable {
				t.Errorf("with the log down: %+v", d2)
			}
			_ = p
		})
	}
}

func TestGateLife(t *testing.T) {
	bound := []Bound{{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Hard, Builtin: true}}
	now := time.Unix(1_800_000_000, 0)
	l := &log{}
	g := NewGate(GateOptions{
		Session: "s", Mode: receipts.Hard, Recorder: l, Dev: true, Generation: 7, Clock: func() time.Time { now = now.Add(time.Millisecond); return now },
		Policy: Policy{Enforcers: bound, Digest: receipts.Leaf([]byte("one"))},
	})
	where := to(t, "https", "api.good.test:443")
	a := get(g, where)
	p1, d1 := g.Decide(t.Context(), a)
	if a.ID != "s-1" || a.Seq != 1 || a.Generation != 7 || !d1.Dev || d1.Micros == 0 || d1.Policy != receipts.Leaf([]byte("one")) || g.Session() != "s" || g.Mode() != receipts.Hard {
		t.Errorf("%+v %+v", a, d1)
	}
	if e, ok := g.Explain(d1.Receipt); !ok || e.To != "https://api.good.test:443" || e.Method != "GET" || len(e.Decision.Trace) != 1 {
		t.Errorf("explain: %+v %t", e, ok)
	}
	g.Swap(Policy{Enforcers: bound, Digest: receipts.Leaf([]byte("two"))})
	if err := p1.Use(); problem.CodeOf(err) != CodeGeneration {
		t.Errorf("a permit of the old policy: %v", err)
	}
	p1.Done(Outcome{Effect: NotForwarded, Code: CodeGeneration})
	p2, d2 := g.Decide(t.Context(), get(g, where))
	if g.Generation() != 8 || d2.Policy != receipts.Leaf([]byte("two")) || p2.Generation() != 8 {
		t.Errorf("generation %d, %+v", g.Generation(), d2)
	}
	p3, _ := g.Decide(t.Context(), get(g, where))
	if err := p3.Use(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.Context().Done():
		t.Error("the session ended by itself")
	default:
	}
	g.Revoke("session_timeout")
	g.Revoke("too_late")
	g.Swap(Policy{})
	for _, p := range []*Permit{p2, p3} {
		if err := p.Live(); problem.CodeOf(err) != "session_timeout" {
			t.Errorf("after the end: %v", err)
		}
		<-p.Context().Done()
	}
	before := len(l.decisions)
	if p, d := g.Decide(t.Context(), get(g, where)); p != nil || d.Reason != "session_timeout" || len(l.decisions) != before {
		t.Errorf("after the end: %+v, %d receipts", d, len(l.decisions)-before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for permits that nobody will finish
	g.Settle(ctx)
	g.Settle(ctx)
	want := []Outcome{ // in the order of their decisions
		{Effect: NotForwarded, Code: CodeGeneration},
		{Effect: NotForwarded, Code: CodeNotUsed},
		{Effect: Unknown, Code: "session_timeout"},
	}
	if diff := cmp.Diff(want, l.outcomes); diff != "" {
		t.Error(diff)
	}
}

// TestSettleMisses: whichever Permits were ended before, each of the others gets
// one outcome, and nobody else a second.
func TestSettleMisses(t *testing.T) {
	bound := []Bound{{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Hard, Builtin: true}}
	const n = 5
	for ended := range 1 << n {
		l := &log{}
		g := NewGate(GateOptions{Session: "s", Mode: receipts.Hard, Recorder: l, Policy: Policy{Enforcers: bound}})
		var permits [n]*Permit
		for i := range permits {
			permits[i], _ = g.Decide(t.Context(), get(g, to(t, "https", "api.good.test:443")))
		}
		var want []Outcome
		for _, i := range []int{2, 4, 0, 1, 3} {
			if ended>>i&1 == 1 {
				o := Outcome{Effect: Forwarded, Up: uint64(i)}
				permits[i].Done(o)
				permits[i].Done(o)
				want = append(want, o)
			}
		}
		for i := range permits {
			if ended>>i&1 == 0 {
				want = append(want, Outcome{Effect: NotForwarded, Code: CodeNotUsed})
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.Revoke(CodeRevoked)
		g.Settle(ctx)
		g.Settle(ctx)
		if diff := cmp.Diff(want, l.outcomes); diff != "" {
			t.Errorf("ended %05b: %s", ended, diff)
		}
	}
}

func TestSettleWaits(t *testing.T) {
	bound := []Bound{{Enforcer: &fake{name: "egress", verdict: allowR}, Mode: receipts.Hard, Builtin: true}}
	l := &log{}
	g := NewGate(GateOptions{Session: "s", Mode: receipts.Hard, Recorder: l, Policy: Policy{Enforcers: bound}})
	p, _ := g.Decide(t.Context(), get(g, to(t, "https", "api.good.test:443")))
	if err := p.Use(); err != nil {
		t.Fatal(err)
	}
	g.Revoke(CodeRevoked)
	go func() {
		<-p.Context().Done()
		p.Done(Outcome{Effect: Forwarded, Up: 3})
	}()
	g.Settle(t.Context())
	if diff := cmp.Diff([]Outcome{{Effect: Forwarded, Up: 3}}, l.outcomes); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var g Gate
	receipt := func(i int) receipts.Hash { return receipts.Leaf(fmt.Append(nil, i)) }
	const last = 3*historySize + 7
	for i := range last + 1 {
		g.explain.add(&Action{}, Decision{Receipt: receipt(i), Verdict: Verdict{Effect: Deny, Rule: strconv.Itoa(i)}})
	}
	if n := len(g.explain.ring); n != historySize {
		t.Errorf("%d kept", n)
	}
	for i, want := range map[int]bool{0: false, last - historySize: false, last - historySize + 1: true, last: true} {
		if e, ok := g.Explain(receipt(i)); ok != want || ok && e.Decision.Rule != strconv.Itoa(i) {
			t.Errorf("decision %d: %v, %v", i, e, ok)
		}
	}
	refused := g.Refused(3)
	for i, e := range refused {
		if e.Receipt != receipt(last-i) {
			t.Errorf("refused %d is decision %s", i, e.Decision.Rule)
		}
	}
	if len(refused) != 3 || len(g.Refused(historySize+1)) != historySize {
		t.Errorf("%d refused", len(refused))
	}
}

// Equal refusals share a receipt: that the first of them is forgotten is no
// reason to forget the others.
func TestHistoryOfEqualRefusals(t *testing.T) {
	var g Gate
	same := receipts.Leaf([]byte("same"))
	for range historySize + 1 {
		g.explain.add(&Action{}, Decision{Receipt: same, Verdict: Verdict{Effect: Deny}})
	}
	if _, ok := g.Explain(same); !ok {
		t.Error("not known any more")
	}
	if n := len(g.Refused(10)); n != 1 {
		t.Errorf("told %d times", n)
	}
}
