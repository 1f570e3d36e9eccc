package operations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"gatehouse/enforcers"
	"gatehouse/enforcers/operations"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
	"gatehouse/wasm/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps decisions and outcomes. It stands for the notary.
type recorder struct {
	mu        sync.Mutex
	decisions []enforcers.Decision
	durable   []bool
	outcomes  []enforcers.Outcome
}

func (r *recorder) Decision(_ context.Context, _ *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decisions, r.durable = append(r.decisions, *d), append(r.durable, durable)
	return receipts.Leaf(fmt.Append(nil, len(r.decisions))), nil
}

func (r *recorder) Outcome(_ receipts.Hash, o enforcers.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
}

func (r *recorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

const policy = `{"bundle":"b","digest":"00","egress":[],"models":[],"operations":["note.add"],"telemetry":[]}`

const schema = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string","maxLength":100},"n":{"type":"integer"}}}`

// desk returns the desk of a session that may call note.add.
func desk(t *testing.T, mode receipts.Mode, ops ...operations.Operation) (*operations.Desk, *recorder, *enforcers.Gate) {
	t.Helper()
	e, err := policies.Native("egress", []byte(`{"abi":1,"bundle":`+policy+`,"params":{"enforcer":"egress"}}`))
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{}
	g := enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Mode: mode, Recorder: rec,
		Policy: enforcers.Policy{Enforcers: []enforcers.Bound{{Enforcer: e, Mode: receipts.Hard, Builtin: true}}}})
	d, err := operations.New(g, ops)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, rec, g
}

func note(do func(context.Context, *operations.Call) (any, error)) operations.Operation {
	return operations.Operation{Name: "note.add", Summary: "Adds a note.", Schema: json.RawMessage(schema), Do: do}
}

// post calls over HTTP.
func post(d http.Handler, name, key, args string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, operations.Prefix+"/"+name, strings.NewReader(args))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func TestCall(t *testing.T) {
	for name, c := range map[string]struct {
		op, key, args string
		do            func(context.Context, *operations.Call) (any, error)
		status        int
		code          string
		ran           int
		outcome       *enforcers.Outcome
	}{
		"done":              {args: `{"text":"a"}`, status: 200, ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.Forwarded}},
		"not_listed":        {op: "note.remove", args: `{}`, status: 403, code: "operation_not_listed"},
		"no_such_operation": {op: "note.fly", args: `{}`, status: 404, code: operations.CodeUnlisted},
		"no_key":            {key: "none", args: `{"text":"a"}`, status: 400, code: operations.CodeKey},
		"bad_key":           {key: "a b", args: `{"text":"a"}`, status: 400, code: operations.CodeKey},
		"unknown_argument":  {args: `{"text":"a","url":"https://evil.test"}`, status: 400, code: operations.CodeArguments},
		"key_twice":         {args: `{"text":"a","text":"b"}`, status: 400, code: operations.CodeArguments},
		"key_twice_escaped": {args: `{"text":"a","te\u0078t":"b"}`, status: 400, code: operations.CodeArguments},
		"two_values":        {args: `{"text":"a"}{}`, status: 400, code: operations.CodeArguments},
		"too_long":          {args: `{"text":"` + strings.Repeat("a", 101) + `"}`, status: 400, code: operations.CodeArguments},
		"not_json":          {args: `text=a`, status: 400, code: operations.CodeArguments},
		"missing":           {args: `{}`, status: 400, code: operations.CodeArguments},
		"other_side_refuses": {args: `{"text":"a"}`, status: 502, code: operations.CodeFailed, ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.Forwarded, Code: operations.CodeFailed, Status: 422},
			do: func(_ context.Context, c *operations.Call) (any, error) {
				c.Status(422)
				return nil, problem.New(operations.CodeFailed, "the tracker refused", "")
			}},
		"no_answer": {args: `{"text":"a"}`, status: 502, code: operations.CodeFailed, ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.Unknown, Code: operations.CodeFailed},
			do: func(context.Context, *operations.Call) (any, error) {
				return nil, operations.Unknown(problem.New(operations.CodeFailed, "the tracker did not answer", ""))
			}},
		"fault_is_not_told": {args: `{"text":"a"}`, status: 502, code: "internal", ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.NotForwarded, Code: "internal"},
			do: func(context.Context, *operations.Call) (any, error) { return nil, errors.New("canary-from-outside") }},
		"broken_off": {args: `{"text":"a"}`, status: 502, code: "internal", ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.Unknown, Code: "internal"},
			do: func(context.Context, *operations.Call) (any, error) { panic("canary-of-a-fault") }},
		"ME-13_credential_in_the_result": {args: `{"text":"a"}`, status: 403, code: enforcers.CodeReflected, ran: 1,
			outcome: &enforcers.Outcome{Effect: enforcers.Forwarded, Code: enforcers.CodeReflected},
			do: func(_ context.Context, c *operations.Call) (any, error) {
				c.Watch(secret.FromString("canary-credential"))
				return map[string]string{"echo": "it is canary-credential"}, nil
			}},
		"result_too_large": {args: `{"text":"a"}`, status: 502, code: operations.CodeResult, ran: 1, outcome: &enforcers.Outcome{Effect: enforcers.Forwarded, Code: operations.CodeResult},
			do: func(context.Context, *operations.Call) (any, error) { return strings.Repeat("a", 300<<10), nil }},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			do := func(ctx context.Context, call *operations.Call) (any, error) {
				ran++
				if c.do != nil {
					return c.do(ctx, call)
				}
				return map[string]int{"id": 7}, nil
			}
			remove := note(do)
			remove.Name = "note.remove"
			remove.Schema = json.RawMessage(`{"type":"object","additionalProperties":false}`)
			d, rec, _ := desk(t, receipts.Hard, note(do), remove)
			if c.op == "" {
				c.op = "note.add"
			}
			switch c.key {
			case "":
				c.key = "k1"
			case "none":
				c.key = ""
			}
			w := post(d, c.op, c.key, c.args)
			var body struct{ Code, Receipt string }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if w.Code != c.status || body.Code != c.code || ran != c.ran {
				t.Errorf("status %d code %q ran %d, want %d %q %d", w.Code, body.Code, ran, c.status, c.code, c.ran)
			}
			if w.Code >= 400 && (body.Receipt == "" || len(rec.decisions) != 1) {
				t.Errorf("refused without a receipt of its own: %s", w.Body)
			}
			if bytes.Contains(w.Body.Bytes(), []byte("canary")) {
				t.Errorf("the answer holds what it must not: %s", w.Body)
			}
			var got *enforcers.Outcome
			if len(rec.outcomes) > 0 {
				got = &rec.outcomes[0]
			}
			if diff := cmp.Diff(c.outcome, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if c.ran > 0 && !rec.durable[0] {
				t.Error("it ran before its receipt was durable")
			}
		})
	}
}

// TestOnce: a key has one effect, whoever asks and however often.
func TestOnce(t *testing.T) {
	var mu sync.Mutex
	ran := 0
	d, rec, _ := desk(t, receipts.Hard, note(func(context.Context, *operations.Call) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		ran++
		return map[string]int{"id": ran}, nil
	}))
	var all sync.WaitGroup
	answers := make([]string, 8)
	for i := range answers {
		all.Go(func() { answers[i] = post(d, "note.add", "k1", `{"n":1,"text":"a"}`).Body.String() })
	}
	all.Wait()
	answers = append(answers, post(d, "note.add", "k1", `{"text":"a", "n":1}`).Body.String())
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("%q and %q", a, answers[0])
		}
	}
	if ran != 1 || len(rec.decisions) != 1 {
		t.Errorf("ran %d times, %d decisions", ran, len(rec.decisions))
	}
	if w := post(d, "note.add", "k1", `{"text":"b"}`); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"receipt"`) {
		t.Errorf("the key was taken for another call: %d %s", w.Code, w.Body)
	}
	if w := post(d, "note.add", "k2", `{"text":"a"}`); w.Code != http.StatusOK || ran != 2 {
		t.Errorf("a new key: %d, ran %d", w.Code, ran)
	}
}

func TestLimitOfCalls(t *testing.T) {
	op := note(func(context.Context, *operations.Call) (any, error) { return "done", nil })
	op.Limits.Calls = 2
	d, _, _ := desk(t, receipts.Hard, op)
	var codes []int
	for i := range 3 {
		codes = append(codes, post(d, "note.add", fmt.Sprint(i), `{"text":"a"}`).Code)
	}
	if diff := cmp.Diff([]int{200, 200, 403}, codes); diff != "" {
		t.Error(diff)
	}
}

// TestRate: a minute has only so many calls; the key of one that was too many is
// free afterwards.
func TestRate(t *testing.T) {
	op := note(func(context.Context, *operations.Call) (any, error) { return "done", nil })
	op.Limits.Minute = 2
	d, rec, _ := desk(t, receipts.Hard, op)
	now := time.Unix(1_800_000_000, 0)
	operations.SetClock(d, func() time.Time { return now })
	var codes []int
	for i := range 3 {
		codes = append(codes, post(d, "note.add", fmt.Sprint(i), `{"text":"a"}`).Code)
	}
	now = now.Add(time.Minute)
	codes = append(codes, post(d, "note.add", "2", `{"text":"a"}`).Code)
	if diff := cmp.Diff([]int{200, 200, 403, 200}, codes); diff != "" {
		t.Error(diff)
	}
	if out := rec.outcomes[2]; out.Effect != enforcers.NotForwarded || out.Code != operations.CodeLimit {
		t.Errorf("%+v", out)
	}
}

// TestTriedAgain: a call that failed is made again under its key, but not one
// whose effect nobody knows and nobody could find.
func TestTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		once bool
		err  error
		ran  int
	}{
		"refused_outside":   {true, problem.New(operations.CodeFailed, "503", ""), 2},
		"unknown":           {false, operations.Unknown(problem.New(operations.CodeFailed, "no answer", "")), 2},
		"unknown_not_found": {true, operations.Unknown(problem.New(operations.CodeFailed, "no answer", "")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			op := note(func(context.Context, *operations.Call) (any, error) { ran++; return nil, c.err })
			op.Once = c.once
			d, _, _ := desk(t, receipts.Hard, op)
			for range 2 {
				if w := post(d, "note.add", "k", `{"text":"a"}`); w.Code != http.StatusBadGateway {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			if ran != c.ran {
				t.Errorf("ran %d times, want %d", ran, c.ran)
			}
		})
	}
}

// TestShadow: an operation uses authority, so a would-block does not pass.
func TestShadow(t *testing.T) {
	ran := false
	op := note(func(context.Context, *operations.Call) (any, error) { ran = true; return nil, nil })
	op.Name = "note.remove"
	d, _, _ := desk(t, receipts.Shadow, op)
	if w := post(d, "note.remove", "k", `{"text":"a"}`); w.Code != http.StatusForbidden || ran {
		t.Errorf("status %d, ran %t", w.Code, ran)
	}
}

// TestSessionEnds: the session's end cuts what is under way.
func TestSessionEnds(t *testing.T) {
	began := make(chan struct{})
	d, _, g := desk(t, receipts.Hard, note(func(ctx context.Context, _ *operations.Call) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, operations.Unknown(ctx.Err())
	}))
	done := make(chan int)
	go func() { done <- post(d, "note.add", "k", `{"text":"a"}`).Code }()
	<-began
	g.Revoke(enforcers.CodeRevoked)
	if code := <-done; code == http.StatusOK {
		t.Error("it went on")
	}
	d.Close()
	if w := post(d, "note.add", "k2", `{"text":"a"}`); w.Code != http.StatusForbidden {
		t.Errorf("a call after the end: %d", w.Code)
	}
}

func TestList(t *testing.T) {
	d, _, _ := desk(t, receipts.Hard, note(func(context.Context, *operations.Call) (any, error) { return nil, nil }))
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, operations.Prefix, nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"note.add"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"text":"a"}`, `{"text":"a","text":"b"}`, `{`, `[]`, `{"text":{"a":[1,2,{}]}}`, "\x00", `{"text":"a","n":1e400}`} {
		f.Add([]byte(s))
	}
	g := enforcers.NewGate(enforcers.GateOptions{Session: "s-1", Recorder: &recorder{}})
	f.Fuzz(func(t *testing.T, args []byte) {
		d, err := operations.New(g, []operations.Operation{note(func(context.Context, *operations.Call) (any, error) { return nil, nil })})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		_, _, err = d.Call(t.Context(), "note.add", "k", args)
		if err == nil {
			t.Fatal("nothing is listed, and it passed")
		}
	})
}
