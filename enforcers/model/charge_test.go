package model_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
	"gatehouse/receipts"
)

// whole answers with a body.
func whole(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// stream answers with events, one a line; an empty text is a break-off.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			if e == "" {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
}

const allOfIt = -1 // the hold

// charged are answers and what they cost, in nanodollars.
var charged = map[string]struct {
	provider, path, body string
	serve                http.HandlerFunc
	want                 int64
}{
	"anthropic/unary":              {"anthropic", "/v1/messages", hello, anthropicUnary(10, 5), 10*3000 + 5*15000},
	"anthropic/cache_classes":      {"anthropic", "/v1/messages", hello, whole(200, `{"model":"claude-sonnet-4-5","usage":{"input_tokens":1,"cache_read_input_tokens":10,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":10},"output_tokens":1}}`), 3000 + 10*300 + 10*3750 + 20*6000 + 15000},
	"anthropic/cumulative":         {"anthropic", "/v1/messages", hello, stream(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":3}}}`, `{"type":"message_delta","delta":{},"usage":{"output_tokens":4}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10,"output_tokens":7}}`), 10*3000 + 7*15000},
	"anthropic/iterations":         {"anthropic", "/v1/messages", hello, whole(200, `{"usage":{"input_tokens":1,"output_tokens":1,"iterations":[{"input_tokens":5,"output_tokens":2},{"input_tokens":6,"output_tokens":3}]}}`), 11*3000 + 5*15000},
	"anthropic/dearer_model":       {"anthropic", "/v1/messages", hello, whole(200, `{"model":"claude-opus-4-1-20250805","usage":{"input_tokens":10,"output_tokens":1}}`), 10*15000 + 75000},
	"anthropic/cheaper_model":      {"anthropic", "/v1/messages", hello, whole(200, `{"model":"claude-haiku-4-5","usage":{"input_tokens":10,"output_tokens":1}}`), 10*3000 + 15000},
	"EG-90_no_usage":               {"anthropic", "/v1/messages", hello, whole(200, `{"model":"claude-sonnet-4-5"}`), allOfIt},
	"EG-90_no_json":                {"anthropic", "/v1/messages", hello, whole(200, `<html>`), allOfIt},
	"EG-90_cut_before_the_end":     {"anthropic", "/v1/messages", hello, stream(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`, ``), allOfIt},
	"EG-90_usage_is_text":          {"anthropic", "/v1/messages", hello, whole(200, `{"usage":{"input_tokens":"1","output_tokens":1}}`), allOfIt},
	"EG-90_negative":               {"anthropic", "/v1/messages", hello, whole(200, `{"usage":{"input_tokens":-5,"output_tokens":1}}`), allOfIt},
	"EG-90_error_in_stream":        {"anthropic", "/v1/messages", hello, stream(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`, `{"type":"error","error":{"type":"overloaded_error"}}`), allOfIt},
	"hosted_tool_was_used":         {"anthropic", "/v1/messages", hello, whole(200, `{"usage":{"input_tokens":1,"output_tokens":1,"server_tool_use":{"web_search_requests":1}}}`), allOfIt},
	"ME-19_unknown_tier":           {"anthropic", "/v1/messages", hello, whole(200, `{"usage":{"input_tokens":1,"output_tokens":1,"service_tier":"priority"}}`), allOfIt},
	"status_400":                   {"anthropic", "/v1/messages", hello, whole(400, `{"type":"error"}`), 0},
	"status_429":                   {"anthropic", "/v1/messages", hello, whole(429, `{"type":"error"}`), 0},
	"status_500":                   {"anthropic", "/v1/messages", hello, whole(500, `{"type":"error"}`), allOfIt},
	"openai/chat":                  {"openai", chatPath, `{"model":"gpt-5","max_tokens":300,"messages":[]}`, whole(200, `{"model":"gpt-5-2025-08-07","usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":3}}}`), 4*1250 + 6*125 + 4*10000},
	"openai/chat_stream":           {"openai", chatPath, `{"model":"gpt-5","max_tokens":300,"messages":[],"stream":true}`, stream(`{"choices":[{"delta":{"content":"x"}}],"usage":null}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4}}`, `[DONE]`), 10*1250 + 4*10000},
	"openai/cached_more_than_all":  {"openai", chatPath, `{"model":"gpt-5","max_tokens":300,"messages":[]}`, whole(200, `{"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":60}}}`), 10*1250 + 10000},
	"EG-90_openai_stream_no_usage": {"openai", chatPath, `{"model":"gpt-5","max_tokens":300,"messages":[],"stream":true}`, stream(`{"choices":[{"delta":{"content":"x"}}]}`, `[DONE]`), allOfIt},
	"openai/responses":             {"openai", respPath, `{"model":"gpt-5","max_output_tokens":300,"input":"x"}`, whole(200, `{"object":"response","model":"gpt-5","usage":{"input_tokens":10,"output_tokens":4,"input_tokens_details":{"cached_tokens":2}}}`), 8*1250 + 2*125 + 4*10000},
	"openai/responses_stream":      {"openai", respPath, `{"model":"gpt-5","max_output_tokens":300,"input":"x","stream":true}`, stream(`{"type":"response.created","response":{"model":"gpt-5"}}`, `{"type":"response.completed","response":{"model":"gpt-5","usage":{"input_tokens":10,"output_tokens":4}}}`), 10*1250 + 4*10000},
	"ME-19_priority_served":        {"openai", chatPath, `{"model":"gpt-5","max_tokens":300,"service_tier":"priority","messages":[]}`, whole(200, `{"service_tier":"priority","usage":{"prompt_tokens":2,"completion_tokens":2}}`), (2*1250 + 2*10000) * 5 / 2},
	"gemini/unary":                 {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, whole(200, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":15}}`), 6*300 + 4*30 + 5*2500},
	"gemini/stream_last_wins":      {"google", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, stream(`{"candidates":[{}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1,"totalTokenCount":11}}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":7,"totalTokenCount":17}}`), 10*300 + 7*2500},
	"EG-90_gemini_cut":             {"google", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, stream(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}`, ``), allOfIt},
	"gemini/text_and_images":       {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, whole(200, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"promptTokensDetails":[{"modality":"TEXT","tokenCount":4},{"modality":"IMAGE","tokenCount":5},{"modality":"DOCUMENT","tokenCount":1}],"candidatesTokenCount":3,"candidatesTokensDetails":[{"modality":"TEXT","tokenCount":3}],"totalTokenCount":13}}`), 10*300 + 3*2500},
	"EG-90_gemini_audio_served":    {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, whole(200, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":10}],"candidatesTokenCount":3,"totalTokenCount":13}}`), allOfIt},
	"EG-90_gemini_unknown_served":  {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, whole(200, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"promptTokensDetails":[{"tokenCount":10}],"candidatesTokenCount":3,"totalTokenCount":13}}`), allOfIt},
	"EG-90_gemini_image_written":   {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":300}}`, whole(200, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":3}],"totalTokenCount":13}}`), allOfIt},
	"vertex/regional":              {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":300,"messages":[]}`, whole(200, `{"model":"claude-opus-4-6","usage":{"input_tokens":10,"output_tokens":1}}`), (10*5000 + 25000) * 11 / 10},
	"EG-90_gzip": {"anthropic", "/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n")
		_ = z.Close()
	}, 10*3000 + 2*15000},
	"EG-90_unknown_encoding": {"anthropic", "/v1/messages", hello, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		fmt.Fprint(w, "xx")
	}, allOfIt},
}

// TestCharged: what the provider reports is what is spent, in its own way of
// counting; what it does not report costs the hold, never nothing.
func TestCharged(t *testing.T) {
	for name, c := range charged {
		t.Run(name, func(t *testing.T) {
			s := setupOf(c.provider)
			s.serve, s.limit = c.serve, 100e9
			w := start(t, s)
			resp := w.open(t.Context(), c.path, c.body)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			d, o := w.rec.last(t, enforcers.ModelCall)
			want := c.want
			if want == allOfIt {
				want = d.Decision.Held
			}
			if o.Spent != want || d.Decision.Held == 0 {
				t.Errorf("held %d, spent %d, want %d: %+v", d.Decision.Held, o.Spent, want, o)
			}
			b, _ := w.ledger.Session("s-1")
			if int64(b.Spent) != want || b.Held != 0 || b.Frozen != "" {
				t.Errorf("ledger %+v", b)
			}
			// A node that starts again reads the same from the receipts.
			again := spend.New(spend.Options{})
			again.Fold(receipts.Hash{1}, &receipts.Receipt{Type: receipts.TypeSessionOpen, Session: "s-1", T: time.Now(), Open: &receipts.Open{Bundle: "b"}})
			again.Fold(d.Decision.Receipt, &receipts.Receipt{Type: receipts.TypeDecision, Session: "s-1", T: time.Now(), Dec: &receipts.Dec{Passed: true, Held: d.Decision.Held}})
			again.Fold(receipts.Hash{2}, &receipts.Receipt{Type: receipts.TypeOutcome, Session: "s-1", T: time.Now(),
				Out: &receipts.Out{Ref: d.Decision.Receipt, Effect: o.Effect, Spent: o.Spent}})
			if f, _ := again.Session("s-1"); f.Spent != b.Spent || f.Held != 0 {
				t.Errorf("folded %+v", f)
			}
		})
	}
}

// TestFrozen: a call that costs more than its bound is recorded as it is, and
// nothing more is spent until somebody looked.
func TestFrozen(t *testing.T) {
	s := anthropicSetup()
	s.serve = anthropicUnary(10, 100_000)
	w := start(t, s)
	w.post("/v1/messages", hello)
	d, o := w.rec.last(t, enforcers.ModelCall)
	if o.Spent <= d.Decision.Held || o.Spent != 10*3000+100_000*15000 {
		t.Errorf("held %d, spent %d", d.Decision.Held, o.Spent)
	}
	before := w.fake.Requests()
	if resp, body := w.post("/v1/messages", hello); resp.StatusCode != 403 || code(body) != spend.CodeFrozen || w.fake.Requests() != before {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestMediaServed: a file whose bytes are audio, whatever its type says, costs
// a rate that the table does not have. It is charged at the dearest that it
// has, and what is above the hold freezes the session.
func TestMediaServed(t *testing.T) {
	const asked = `{"contents":[{"parts":[{"inlineData":{"data":"AAAA","mimeType":"image/png"}}]}],"generationConfig":{"maxOutputTokens":300}}`
	const audio = `"usageMetadata":{"promptTokenCount":1000000,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":1000000}],"candidatesTokenCount":3,"totalTokenCount":1000003}`
	for name, c := range map[string]struct {
		path  string
		serve http.HandlerFunc
	}{
		"EG-90_whole":  {geminiPath, whole(200, `{"candidates":[{"finishReason":"STOP"}],`+audio+`}`)},
		"EG-90_stream": {"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", stream(`{"candidates":[{}],`+audio+`}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000000,"candidatesTokenCount":3,"totalTokenCount":1000003}}`)},
		"EG-90_cut":    {"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", stream(`{"candidates":[{}],`+audio+`}`, ``)},
	} {
		t.Run(name, func(t *testing.T) {
			s := googleSetup()
			s.serve, s.limit = c.serve, 100e9
			w := start(t, s)
			resp := w.open(t.Context(), c.path, asked)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			d, o := w.rec.last(t, enforcers.ModelCall)
			if want := int64(1_000_003 * 2500); o.Spent != want || d.Decision.Held >= want {
				t.Errorf("held %d, spent %d, want %d", d.Decision.Held, o.Spent, want)
			}
			w.client.CloseIdleConnections() // the door ends that of an answer that was cut
			before := w.fake.Requests()
			if resp, body := w.post(c.path, asked); resp.StatusCode != 403 || code(body) != spend.CodeFrozen || w.fake.Requests() != before {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

// TestErrorBodies pass unchanged: clients match on their wording.
func TestErrorBodies(t *testing.T) {
	s := anthropicSetup()
	const body = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed"}}`
	s.serve = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Anthropic-Organization-Id", "org")
		whole(429, body)(w, r)
	}
	w := start(t, s)
	resp, got := w.post("/v1/messages", hello)
	if resp.StatusCode != 429 || got != body || resp.Header.Get("Retry-After") != "7" || resp.Header.Get("Anthropic-Organization-Id") != "" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, got)
	}
}

// TestUsageChunk: what the mediator asked for and the client did not is taken
// out of the stream; everything else of it stays as it is.
func TestUsageChunk(t *testing.T) {
	const usage = `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	for name, c := range map[string]struct {
		options string
		want    string
	}{
		"not_asked": {"", "data: {\"choices\":[{\"delta\":{}}]}\n\ndata: [DONE]\n\n"},
		"asked":     {`"stream_options":{"include_usage":true},`, "data: {\"choices\":[{\"delta\":{}}]}\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openaiSetup()
			s.serve = stream(`{"choices":[{"delta":{}}]}`, usage, `[DONE]`)
			w := start(t, s)
			if _, got := w.post(chatPath, `{"model":"gpt-5","max_tokens":300,"stream":true,`+c.options+`"messages":[]}`); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestHostileAnswers are what a provider, or somebody in its place, could try.
func TestHostileAnswers(t *testing.T) {
	t.Run("ME-12_redirect", func(t *testing.T) {
		s := anthropicSetup()
		s.serve = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://cdn.good.test/v1/messages?x=1", http.StatusTemporaryRedirect)
		}
		w := start(t, s)
		resp, _ := w.post("/v1/messages", hello)
		if resp.StatusCode != 502 && resp.StatusCode != 307 || resp.Header.Get("Location") != "" || w.cdn.Accepts() != 0 {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	})
	for name, serve := range map[string]http.HandlerFunc{
		"body":   func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "you sent ", r.Header.Get("X-Api-Key")) },
		"header": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Request-Id", r.Header.Get("X-Api-Key")) },
		"stream": func(w http.ResponseWriter, r *http.Request) { stream(`{"k":"`+r.Header.Get("X-Api-Key")+`"}`)(w, r) },
		"gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, r.Header.Get("X-Api-Key"))
			_ = z.Close()
		},
	} {
		t.Run("ME-13_reflected/"+name, func(t *testing.T) {
			s := anthropicSetup()
			s.serve = serve
			w := start(t, s)
			resp := w.open(t.Context(), "/v1/messages", hello)
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if strings.Contains(string(b)+fmt.Sprint(resp.Header), key) {
				t.Fatal("the key came in")
			}
			if err := w.gate.Context().Err(); err == nil {
				t.Error("the session goes on")
			}
			w.rec.last(t, enforcers.ModelCall)
		})
	}
	t.Run("ME-13_model_text_is_no_credential", func(t *testing.T) {
		// A tool's arguments may well have a field that is called token.
		s := anthropicSetup()
		const body = `{"content":[{"type":"tool_use","input":{"token":"0123456789","password":"0123456789"}}],"usage":{"input_tokens":1,"output_tokens":1}}`
		s.serve = whole(200, body)
		w := start(t, s)
		if resp, got := w.post("/v1/messages", hello); resp.StatusCode != 200 || got != body {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	})
}

// TestUsesItsBudget: a client that always asks for more than the budget pays
// for uses nearly all of it, and never more.
func TestUsesItsBudget(t *testing.T) {
	s := anthropicSetup()
	s.max = 128_000
	// It answers with as many tokens as it may, up to what models usually write.
	s.serve = func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Max int `json:"max_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&ask)
		anthropicUnary(400, min(ask.Max, 6000))(w, r)
	}
	w := start(t, s)
	calls := 0
	for {
		resp, body := w.post("/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":128000,"messages":[{"role":"user","content":"`+strings.Repeat("work ", 200)+`"}]}`)
		if resp.StatusCode == 403 {
			if code(body) != spend.CodeExceeded {
				t.Fatalf("%s", body)
			}
			break
		}
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		if calls++; calls > 10_000 {
			t.Fatal("it never ends")
		}
	}
	w.rec.last(t, enforcers.ModelCall)
	b, _ := w.ledger.Session("s-1")
	if b.Spent > b.Limit || b.Spent < b.Limit*95/100 || b.Held != 0 {
		t.Errorf("spent %s of %s in %d calls", b.Spent, b.Limit, calls)
	}
}

// TestUnsupported: a provider that is not mediated is refused by name.
func TestUnsupported(t *testing.T) {
	for _, provider := range []string{"bedrock", "openrouter", "azure", ""} {
		if _, err := model.Host(model.Connection{Name: "m", Provider: provider}); err == nil || !strings.Contains(err.Error(), model.CodeUnsupported) {
			t.Errorf("%q: %v", provider, err)
		}
	}
	for location, want := range map[string]string{
		"global": "aiplatform.googleapis.com", "eu": "aiplatform.eu.rep.googleapis.com", "europe-west1": "europe-west1-aiplatform.googleapis.com",
	} {
		if to, err := model.Host(model.Connection{Name: "m", Provider: "vertex-gemini", Project: "p", Location: location}); err != nil || to.Host() != want {
			t.Errorf("%s leads to %s (%v)", location, to, err)
		}
	}
}

// TestLongRequests: a conversation may be long, and what is longer is refused
// before anything is dialed.
func TestLongRequests(t *testing.T) {
	s := anthropicSetup()
	s.limit = 100e9
	w := start(t, s)
	body := func(n int) string {
		return `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":"` + strings.Repeat("x", n) + `"}]}`
	}
	if resp, got := w.post("/v1/messages", body(3<<20)); resp.StatusCode != 200 {
		t.Errorf("3 MiB: %d %s", resp.StatusCode, got)
	}
	// The worst case of a long request is the context window, not its bytes.
	if d, _ := w.rec.last(t, enforcers.ModelCall); d.Decision.Held > 2e9 {
		t.Errorf("held %d", d.Decision.Held)
	}
	// A larger window that a beta feature asks for is a larger worst case.
	if resp, got := w.post("/v1/messages", body(3<<20), "Anthropic-Beta", "context-1m-2025-08-07"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if d, _ := w.rec.last(t, enforcers.ModelCall); d.Decision.Held < 1_000_000*6000 {
		t.Errorf("held %d for a window of a million tokens", d.Decision.Held)
	}
	before := w.fake.Requests()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/messages", strings.NewReader(body(33<<20)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	// The refusal comes before the body is read; the client may see only the
	// closed connection.
	if resp, err := w.client.Do(r); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != 403 && resp.StatusCode != 413 {
			t.Errorf("33 MiB: %d", resp.StatusCode)
		}
	}
	if w.fake.Requests() != before {
		t.Error("33 MiB went out")
	}
}
