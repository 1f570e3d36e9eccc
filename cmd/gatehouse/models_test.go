package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// modelKey is a credential that must never enter a sandbox.
var modelKey = unique("model", "sk-ant-api03-CANARY")

// accessToken is what a model's credential is changed for.
var accessToken = unique("minted access token", "ya29.CANARY-")

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
	if r.URL.Path != "/token" {
		f.keys = append(f.keys, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization")+r.Header.Get("X-Goog-Api-Key"))
	}
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
	case path == "/token": // a service account's assertion for an access token
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, accessToken)
	case strings.HasSuffix(path, "/chat/completions"):
		if !ask.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"c","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello from the model"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range []string{"hello from ", "the model"} {
			event("", fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","model":"gpt-5","choices":[{"index":0,"delta":{"content":%q}}]}`, text))
		}
		event("", `{"id":"c","object":"chat.completion.chunk","model":"gpt-5","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
		event("", "[DONE]")
	case strings.HasSuffix(path, "/responses"):
		const whole = `{"id":"r","object":"response","model":"gpt-5","status":"completed","output":[{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hello from the model","annotations":[]}]}],"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}`
		if !ask.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event("response.output_text.delta", `{"type":"response.output_text.delta","delta":"hello from the model","item_id":"m","output_index":0,"content_index":0,"sequence_number":1}`)
		event("response.completed", `{"type":"response.completed","sequence_number":2,"response":`+whole+`}`)
	case strings.HasSuffix(path, ":generateContent"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"hello from the model"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15},"modelVersion":"gemini-2.5-flash"}`)
	case strings.HasSuffix(path, ":streamGenerateContent"):
		w.Header().Set("Content-Type", "text/event-stream")
		event("", `{"candidates":[{"content":{"role":"model","parts":[{"text":"hello from "}]}}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}}`)
		event("", `{"candidates":[{"content":{"role":"model","parts":[{"text":"the model"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}`)
	default:
		http.NotFound(w, r)
	}
}

// serviceAccount is a key file as Google gives it.
func serviceAccount(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "acme-prod", "private_key_id": unique("key id", "CANARY-key-id-"), "client_email": "gatehouse@acme-prod.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
	for i, host := range []string{
		"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "europe-west1-aiplatform.googleapis.com", "oauth2.googleapis.com",
	} {
		if f.sites[host], err = base.HTTPS(host, netip.AddrFrom4([4]byte{93, 184, 216, byte(60 + i)}), http.HandlerFunc(f.handle)); err != nil {
			t.Fatal(err)
		}
	}
	dir := tempDir(t)
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
	write(t, filepath.Join(dir, "account.json"), serviceAccount(t))
	write(t, filepath.Join(dir, "gatehouse.yaml"), fmt.Sprintf(`sandbox: {unlimited: accepted}
dev: {upstreams: %s, dns: %q, ca: ca.pem}
connections:
  - {name: anthropic-main, kind: model, provider: anthropic, credential: "${file:model.key}"}
  - {name: openai-main, kind: model, provider: openai, credential: "${file:model.key}"}
  - {name: google-main, kind: model, provider: google, credential: "${file:model.key}"}
  - {name: vertex-claude, kind: model, provider: vertex-anthropic, project: acme-prod, location: europe-west1, credential: "${file:account.json}"}
  - {name: vertex-gemini, kind: model, provider: vertex-gemini, project: acme-prod, location: europe-west1, credential: "${file:account.json}"}
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
    - {source: %s, path: /opt/goclient}
models:
  - {connection: anthropic-main, allow: ["claude-sonnet-*"], max_output_tokens: 16384}
  - {connection: openai-main, allow: ["gpt-5"], max_output_tokens: 16384}
  - {connection: google-main, allow: ["gemini-2.5-flash"], max_output_tokens: 16384}
  - {connection: vertex-claude, allow: ["claude-opus-4-6"], max_output_tokens: 16384}
  - {connection: vertex-gemini, allow: ["gemini-2.5-flash"], max_output_tokens: 16384}
spend: {limit: 5.00 USD, per_day: 100.00 USD}
`, tools("node-22"), tools("models"), goModelClient(t, dir)))
	return f, dir
}

// goModelClient builds the vendors' Go clients: a module of its own, so that
// Gatehouse depends on none of them.
func goModelClient(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(dir, "goclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join("testdata", "goclient"), "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go clients: %v\n%s", err, b)
	}
	return out
}

// modelClients are the vendors' own, as agents use them. None has a key.
var modelClients = map[string]string{
	"anthropic_sdk/unary": `
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic().messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`,
	"anthropic_sdk/stream": `
import Anthropic from "@anthropic-ai/sdk";
const s = new Anthropic().messages.stream({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log((await s.finalMessage()).content[0].text);`,
	"anthropic_sdk/bearer": `
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic({apiKey: null, authToken: process.env.ANTHROPIC_API_KEY}).messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`,
	"anthropic_sdk/bearer_stream": `
import Anthropic from "@anthropic-ai/sdk";
const s = new Anthropic({apiKey: null, authToken: process.env.ANTHROPIC_API_KEY}).messages.stream({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log((await s.finalMessage()).content[0].text);`,
	"anthropic_sdk/real_host": `
import Anthropic from "@anthropic-ai/sdk";
const r = await new Anthropic({baseURL: "https://api.anthropic.com"}).messages.create({model: "claude-sonnet-4-5", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`,
	"openai_sdk/unary": `
import OpenAI from "openai";
const r = await new OpenAI().chat.completions.create({model: "gpt-5", messages: [{role: "user", content: "hi"}]});
console.log(r.choices[0].message.content);`,
	"openai_sdk/stream": `
import OpenAI from "openai";
let text = "";
for await (const c of await new OpenAI().chat.completions.create({model: "gpt-5", stream: true, messages: [{role: "user", content: "hi"}]}))
  text += c.choices[0].delta.content; // fails on a chunk without choices
console.log(text);`,
	"openai_sdk/responses": `
import OpenAI from "openai";
console.log((await new OpenAI().responses.create({model: "gpt-5", input: "hi"})).output_text);`,
	"openai_sdk/responses_stream": `
import OpenAI from "openai";
let text = "";
for await (const e of await new OpenAI().responses.create({model: "gpt-5", input: "hi", stream: true}))
  if (e.type === "response.output_text.delta") text += e.delta;
console.log(text);`,
	"openai_sdk/real_host": `
import OpenAI from "openai";
const r = await new OpenAI({baseURL: "https://api.openai.com/v1"}).chat.completions.create({model: "gpt-5", messages: [{role: "user", content: "hi"}]});
console.log(r.choices[0].message.content);`,
	"google_genai/unary": `
import {GoogleGenAI} from "@google/genai";
console.log((await new GoogleGenAI({}).models.generateContent({model: "gemini-2.5-flash", contents: "hi"})).text);`,
	"google_genai/stream": `
import {GoogleGenAI} from "@google/genai";
let text = "";
for await (const c of await new GoogleGenAI({}).models.generateContentStream({model: "gemini-2.5-flash", contents: "hi"})) text += c.text;
console.log(text);`,
	"google_genai/vertex": `
import {GoogleGenAI} from "@google/genai";
const ai = new GoogleGenAI({vertexai: true, project: process.env.GOOGLE_CLOUD_PROJECT, location: process.env.GOOGLE_CLOUD_LOCATION});
console.log((await ai.models.generateContent({model: "gemini-2.5-flash", contents: "hi"})).text);`,
	"google_genai/vertex_stream": `
import {GoogleGenAI} from "@google/genai";
const ai = new GoogleGenAI({vertexai: true, project: process.env.GOOGLE_CLOUD_PROJECT, location: process.env.GOOGLE_CLOUD_LOCATION});
let text = "";
for await (const c of await ai.models.generateContentStream({model: "gemini-2.5-flash", contents: "hi"})) text += c.text;
console.log(text);`,
	"vertex_sdk/unary": `
import {AnthropicVertex} from "@anthropic-ai/vertex-sdk";
const r = await new AnthropicVertex().messages.create({model: "claude-opus-4-6", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log(r.content[0].text);`,
	"vertex_sdk/stream": `
import {AnthropicVertex} from "@anthropic-ai/vertex-sdk";
const s = new AnthropicVertex().messages.stream({model: "claude-opus-4-6", max_tokens: 64, messages: [{role: "user", content: "hi"}]});
console.log((await s.finalMessage()).content[0].text);`,
	"go/anthropic":               "",
	"go/anthropic_stream":        "",
	"go/anthropic_bearer":        "",
	"go/anthropic_vertex":        "",
	"go/anthropic_vertex_stream": "",
	"go/genai":                   "",
	"go/genai_stream":            "",
	"go/genai_vertex":            "",
	"go/genai_vertex_stream":     "",
}

// TestModelClients runs the vendors' clients in hard sessions, one session a
// vendor: they get their answers, and no key is inside.
func TestModelClients(t *testing.T) {
	if testing.Short() {
		t.Skip("short: each vendor starts a sandbox")
	}
	f, dir := modelWorld(t)
	vendors := map[string][]string{}
	for name := range modelClients {
		vendor, _, _ := strings.Cut(name, "/")
		vendors[vendor] = append(vendors[vendor], name)
	}
	for vendor, names := range vendors {
		t.Run(vendor, func(t *testing.T) {
			slices.Sort(names)
			f.mu.Lock()
			f.keys = nil
			f.mu.Unlock()
			script := "env; cat /proc/self/environ; cd /opt/models\n"
			for _, name := range names {
				script += "echo '== " + name + "'\n"
				if source := modelClients[name]; source == "" {
					script += "/opt/goclient " + strings.TrimPrefix(name, "go/") + "\n"
				} else {
					script += "/opt/node/bin/node --input-type=module <<'EOF'\n" + source + "\nEOF\n"
				}
			}
			out, res := runInside(t, dir, "hard", script)
			for _, name := range names {
				_, said, _ := strings.Cut(out, "== "+name+"\n")
				said, _, _ = strings.Cut(said, "\n==")
				if !strings.Contains(said, "hello from the model") {
					t.Errorf("%s got no answer:\n%s", name, said)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
			if strings.Contains(out, "CANARY") {
				t.Error("ME-01: a credential is inside")
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.keys) < len(names) {
				t.Errorf("the fakes saw %d requests of %d: the answers came from elsewhere", len(f.keys), len(names))
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
