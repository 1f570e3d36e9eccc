package model_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
)

// TestRate: what is over the bound of a minute waits, and nothing of it goes
// out or is held.
func TestRate(t *testing.T) {
	s := anthropicSetup()
	s.conn.Rate = 3
	w := start(t, s)
	for range 3 {
		if resp, body := w.post("/v1/messages", hello); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	before := w.fake.Requests()
	resp, body := w.post("/v1/messages", hello)
	wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != 429 || code(body) != model.CodeRate || wait < 1 || wait > 60 {
		t.Errorf("%d %q %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
	if d, _ := w.rec.last(t, enforcers.ModelCall); d.Decision.Reason != model.CodeRate || d.Decision.Held != 0 {
		t.Errorf("%+v", d.Decision)
	}
	if w.fake.Requests() != before {
		t.Error("a call went out")
	}
}

// TestRepeated: a request that cost its worst case three times and was never
// answered is not sent a fourth time. Another one is, and an answer clears it.
func TestRepeated(t *testing.T) {
	var down atomic.Bool
	s := anthropicSetup()
	s.limit = 100e9
	s.serve = func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			whole(529, `{"type":"error","error":{"type":"overloaded_error"}}`)(w, r)
			return
		}
		anthropicUnary(10, 5)(w, r)
	}
	w := start(t, s)
	ask := func(body string, status int, reason string) {
		t.Helper()
		before := w.fake.Requests()
		resp, got := w.post("/v1/messages", body)
		if resp.StatusCode != status || code(got) != reason {
			t.Errorf("%d %s, want %d %s", resp.StatusCode, got, status, reason)
		}
		if sent := w.fake.Requests() - before; (sent == 1) != (reason == "") {
			t.Errorf("%d requests went out", sent)
		}
		w.rec.last(t, enforcers.ModelCall)
	}
	down.Store(true)
	ask(hello, 529, "")
	ask(hello, 529, "")
	down.Store(false)
	ask(hello, 200, "") // it counts from the start again
	down.Store(true)
	for range 3 {
		ask(hello, 529, "")
	}
	down.Store(false)
	ask(hello, 403, model.CodeRepeated)
	ask(strings.Replace(hello, "hi", "hello", 1), 200, "")
	b, _ := w.ledger.Session("s-1")
	if b.Held != 0 || b.Calls != 7 {
		t.Errorf("%+v", b)
	}
}
