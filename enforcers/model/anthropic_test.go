package model_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
)

const hello = `{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`

// TestCall is one call from end to end: what goes out, what comes in, what it
// costs.
func TestCall(t *testing.T) {
	w := start(t, anthropicSetup())
	resp, body := w.post("/v1/messages?beta=true", hello, "X-Api-Key", w.model.Env()["ANTHROPIC_API_KEY"],
		"Anthropic-Version", "2023-06-01", "X-Claude-Code-Session-Id", "who", "Cookie", "a="+w.model.Env()["ANTHROPIC_API_KEY"])
	if resp.StatusCode != 403 {
		t.Errorf("a placeholder in a cookie: %d %s", resp.StatusCode, body)
	}
	resp, body = w.post("/v1/messages?beta=true", hello, "X-Api-Key", w.model.Env()["ANTHROPIC_API_KEY"],
		"Anthropic-Version", "2023-06-01", "X-Claude-Code-Session-Id", "who")
	if resp.StatusCode != 200 || !strings.Contains(body, "hello") {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	sent, h, path := w.fake.last()
	if sent != hello || path != "/v1/messages?beta=true" {
		t.Errorf("sent %s to %s", sent, path)
	}
	if h.Get("X-Api-Key") != key || h.Get("Authorization") != "" || h.Get("Anthropic-Version") != "2023-06-01" || h.Get("X-Claude-Code-Session-Id") != "" {
		t.Errorf("headers %v", h)
	}
	d, o := w.rec.last(t, enforcers.ModelCall)
	held, spent := spend.Nano(d.Decision.Held), spend.Nano(o.Spent)
	if spent != 10*3000+5*15000 || held < spent || held > 1e8 || !d.Durable || d.Action.Model.Prices.IsZero() || d.Decision.Rule != "models[0]" {
		t.Errorf("held %s, spent %s: %+v", held, spent, d.Decision)
	}
	if b, _ := w.ledger.Session("s-1"); b.Spent != spent || b.Held != 0 {
		t.Errorf("ledger %+v", b)
	}
}

// TestBothKeys: the SDK's bearer and its x-api-key both end here, and exactly
// one identity goes out.
func TestBothKeys(t *testing.T) {
	w := start(t, anthropicSetup())
	ph := w.model.Env()["ANTHROPIC_API_KEY"]
	for name, header := range map[string][]string{
		"bearer": {"Authorization", "Bearer " + ph}, "x_api_key": {"X-Api-Key", ph}, "both": {"Authorization", "Bearer " + ph, "X-Api-Key", ph}, "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if resp, body := w.post("/v1/messages", hello, header...); resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			if _, h, _ := w.fake.last(); h.Get("X-Api-Key") != key || h.Get("Authorization") != "" {
				t.Errorf("%v", h)
			}
		})
	}
}

func TestClamp(t *testing.T) {
	s := anthropicSetup()
	s.limit = 20_000_000 // 0.02 USD: about 800 tokens out
	w := start(t, s)
	resp, body := w.post("/v1/messages", `{"model":"claude-sonnet-4-5", "max_tokens" : 128000 ,"messages":[]}`)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	d, _ := w.rec.last(t, enforcers.ModelCall)
	n := d.Action.Model.MaxTokens
	if n < 256 || n > 1400 || d.Action.Model.Asked != 128000 || d.Decision.Held > 20_000_000 {
		t.Errorf("sent %d of %d for %d", n, d.Action.Model.Asked, d.Decision.Held)
	}
	sent, _, _ := w.fake.last()
	if want := strings.Replace(`{"model":"claude-sonnet-4-5", "max_tokens" : N ,"messages":[]}`, "N", resp.Header.Get(model.HeaderMaxTokens), 1); sent != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
	if resp.Header.Get(model.HeaderAsked) != "128000" {
		t.Errorf("header %v", resp.Header)
	}
}

// TestStream reads usage from a stream without holding it back.
func TestStream(t *testing.T) {
	s := anthropicSetup()
	hold := make(chan struct{})
	s.serve = anthropicStream(10, 50, 3, hold)
	w := start(t, s)
	resp := w.open(t.Context(), "/v1/messages", strings.Replace(hello, `"max_tokens"`, `"stream":true,"max_tokens"`, 1))
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for words := 0; words < 3; { // they arrive while the provider is still at it
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "word") {
			words++
		}
	}
	close(hold)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"message_stop"`) {
			break
		}
	}
	if d, o := w.rec.last(t, enforcers.ModelCall); o.Spent != 10*3000+50*15000 || !d.Action.Model.Stream {
		t.Errorf("spent %d", o.Spent)
	}
}

// TestAborted: a client that leaves is charged what the provider reports when
// it is read on for, and the whole hold when it does not report.
func TestAborted(t *testing.T) {
	stream := strings.Replace(hello, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	abort := func(t *testing.T, w *world, after func()) (decided, enforcers.Outcome) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp := w.open(ctx, "/v1/messages", stream)
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = resp.Body.Close()
		after()
		return w.rec.last(t, enforcers.ModelCall)
	}
	t.Run("drained", func(t *testing.T) {
		s := anthropicSetup()
		hold := make(chan struct{})
		s.serve, s.drain = anthropicStream(10, 50, 1, hold), patience
		w := start(t, s)
		if _, o := abort(t, w, func() { close(hold) }); o.Spent != 10*3000+50*15000 {
			t.Errorf("spent %d: %+v", o.Spent, o)
		}
	})
	t.Run("ME-18_EG-90_drain_refused", func(t *testing.T) {
		s := anthropicSetup()
		hold := make(chan struct{})
		defer close(hold)
		s.serve, s.drain = anthropicStream(10, 50, 1, hold), 10*time.Millisecond
		w := start(t, s)
		d, o := abort(t, w, func() {})
		if o.Spent != d.Decision.Held || o.Spent == 0 || o.Code != enforcers.CodeClientGone {
			t.Errorf("held %d, spent %d: %+v", d.Decision.Held, o.Spent, o)
		}
		if b, _ := w.ledger.Session("s-1"); int64(b.Spent) != o.Spent || b.Held != 0 {
			t.Errorf("ledger %+v", b)
		}
	})
}

// TestRevoked: the end of a session ends the stream on both sides.
func TestRevoked(t *testing.T) {
	s := anthropicSetup()
	ended := make(chan struct{})
	stream := anthropicStream(10, 50, 1, make(chan struct{}))
	s.serve = func(w http.ResponseWriter, r *http.Request) { defer close(ended); stream(w, r) }
	w := start(t, s)
	t.Run("ME-07_stream", func(t *testing.T) {
		resp := w.open(t.Context(), "/v1/messages", strings.Replace(hello, `"max_tokens"`, `"stream":true,"max_tokens"`, 1))
		defer resp.Body.Close()
		r := bufio.NewReader(resp.Body)
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.gate.Revoke("cancelled")
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("upstream goes on")
		}
		if took := time.Since(began); took > 10*time.Second { // the goal is 1 s
			t.Errorf("upstream was cut after %s", took)
		}
		d, o := w.rec.last(t, enforcers.ModelCall)
		if o.Spent != d.Decision.Held || o.Code != "cancelled" {
			t.Errorf("held %d: %+v", d.Decision.Held, o)
		}
	})
}

// TestPlaceholderAfterwards: a placeholder dies with its session, however that
// ends.
func TestPlaceholderAfterwards(t *testing.T) {
	for _, reason := range []string{"completed", "timeout", "cancelled"} {
		t.Run("ME-06_"+reason, func(t *testing.T) {
			w := start(t, anthropicSetup())
			if resp, body := w.post("/v1/messages", hello, "X-Api-Key", w.model.Env()["ANTHROPIC_API_KEY"]); resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			accepts, bytes := w.fake.Accepts(), w.fake.Bytes()
			w.gate.Revoke(reason)
			resp, body := w.post("/v1/messages", hello, "X-Api-Key", w.model.Env()["ANTHROPIC_API_KEY"])
			if resp.StatusCode < 400 || code(body) != reason {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if w.fake.Accepts() != accepts || w.fake.Bytes() != bytes {
				t.Error("something went out")
			}
		})
	}
}
