package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// modelKey is a credential that must never enter a sandbox.
const modelKey = "sk-ant-api03-CANARY0123456789abcdefghijklmnop"

// modelFakes are counting providers.
type modelFakes struct {
	*outside.World
	sites map[string]*outside.Site
	mu    sync.Mutex
	keys  []string // how each request authenticated
}

// handle answers as each provider's documentation says, whole or as a stream.
func (f *modelFakes) handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.keys = append(f.keys, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization")+r.Header.Get("X-Goog-Api-Key"))
	f.mu.Unlock()
	var ask struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &ask)
	event := func(name, data string) {
		if name != "" {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages") || strings.HasSuffix(path, ":rawPredict") || strings.HasSuffix(path, ":streamRawPredict"):
		if !ask.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"hello from the model"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}`)
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello from "}}`)
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"the model"}}`)
		event("content_block_stop", `{"type":"content_block_stop","index":0}`)
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}`)
		event("message_stop", `{"type":"message_stop"}`)
	default:
		http.NotFound(w, r)
	}
}

// modelWorld starts the fakes and writes a configuration and a bundle.
func modelWorld(t *testing.T) (*modelFakes, string) {
	t.Helper()
	base, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.Close)
	f := &modelFakes{World: base, sites: map[string]*outside.Site{}}
	for i, host := range []string{"api.anthropic.com"} {
		if f.sites[host], err = base.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(60 + i)}), http.HandlerFunc(f.handle)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	upstreams, err := json.Marshal(base.Upstreams())
	if err != nil {
		t.Fatal(err)
	}
	tools := func(name string) string {
		path, err := filepath.Abs(filepath.Join("..", "..", ".tools", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing: run make setup", name)
		}
		return path
	}
	write(t, filepath.Join(dir, "ca.pem"), string(base.CA()))
	write(t, filepath.Join(dir, "model.key"), modelKey+"\n")
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf(`sandbox: {unlimited: accepted}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
connections:
  - {name: anthropic-main, kind: model, provider: anthropic, credential: "${file:model.key}"}
`, upstreams, base.DNS.Addr()))
	write(t, filepath.Join(dir, "bundle.yaml"), fmt.Sprintf(`apiVersion: gatehouse/v1
kind: Bundle
name: models
accepts: member
session:
  agent: {command: {argv: ["true"]}}
  task: go
  timeout: 2m
  mounts:
    - {source: %s, path: /opt/node}
    - {source: %s, path: /opt/models}
models:
  - {connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 16384}
spend: {limit: 5.00 USD, per_day: 100.00 USD}
`, tools("node-22"), tools("models")))
	return f, dir
}

// modelClients are the vendors' own, as agents use them. None has a key.
var modelClients = map[string]struct{ script, want string }{
	"anthropic_sdk/unary": {`
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic().messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`, "hello from the model"},
	"anthropic_sdk/stream": {`
import Anthropic from "@anthropic-ai/sdk";
const s = new Anthropic().messages.stream({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log((await s.finalMessage()).content[0].text);`, "hello from the model"},
	"anthropic_sdk/bearer": {`
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic({apiKey: null, authToken: process.env.ANTHROPIC_API_KEY}).messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`, "hello from the model"},
	"anthropic_sdk/real_host": {`
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic({baseURL: "https://api.anthropic.com"}).messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`, "hello from the model"},
}

// TestModelClients runs the vendors' clients in hard sessions: they get their
// answers, and no key is inside.
func TestModelClients(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each client starts a sandbox")
	}
	f, dir := modelWorld(t)
	for name, c := range modelClients {
		t.Run(name, func(t *testing.T) {
			f.mu.Lock()
			f.keys = nil
			f.mu.Unlock()
			script := fmt.Sprintf("cd /opt/models && env && /opt/node/bin/node --input-type=module <<'EOF'\n%s\nEOF\n", c.script)
			out, res := runInside(t, dir, "hard", script)
			if !strings.Contains(out, c.want) {
				t.Fatalf("no %q in:\n%s", c.want, out)
			}
			if strings.Contains(out, "CANARY") {
				t.Error("ME-01: the key is inside")
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.keys) == 0 {
				t.Error("the fake saw no request: the answer came from elsewhere")
			}
			for _, k := range f.keys {
				if !strings.Contains(k, "CANARY") || strings.Contains(k, "gatehouse_ph_") {
					t.Error("a request went out under another identity than the connection's")
				}
			}
			if res.Exit != receipts.ExitComplete {
				t.Errorf("receipts: %s", res.Verdict())
			}
		})
	}
}
