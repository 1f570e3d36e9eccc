package model

import (
	"encoding/json"
	"strings"
)

// OpenAI: POST /v1/chat/completions and /v1/responses. Tools that the provider
// runs, stored conversations, files and background work are closed.

var chatParts = map[string]fields{
	"text":      {"type": aText, "text": aText},
	"refusal":   {"type": aText, "refusal": aText},
	"image_url": {"type": aText, "image_url": obj(fields{"url": inlineOrFetched, "detail": aText})},
	"file":      {"type": aText, "file": obj(fields{"file_data": aDocument, "filename": aText})},
}

var toolCall = block(map[string]fields{
	"function": {"id": aText, "type": aText, "function": anything},
	"custom":   {"id": aText, "type": aText, "custom": anything},
})

// ownTools are those that run in the sandbox.
func ownTools(types map[string]fields) rule {
	return list(func(r *request, v *value) {
		if t := v.get("type"); v.kind == object && t != nil && t.kind == text {
			if _, own := types[t.str]; !own {
				r.refuse(CodeTool, "type")
				return
			}
			if t.str == "tool_search" && v.get("execution") == nil {
				r.refuse(CodeTool, "execution") // ME-10: the provider's own by default
				return
			}
		}
		block(types)(r, v)
	})
}

func theAnswers(r *request, v *value) { r.whole(v, &r.answers) }

var chatBody = fields{
	"model": theModel, "max_tokens": askedTokens, "max_completion_tokens": askedTokens, "n": theAnswers,
	"stream": theStream, "stream_options": obj(fields{"include_usage": aBoolean, "include_obfuscation": aBoolean}),
	"service_tier": theTier, "store": off,
	"messages": list(obj(fields{
		"role": aText, "content": either(blocks(chatParts)), "name": aText, "tool_calls": list(toolCall), "tool_call_id": aText, "refusal": aText,
	})),
	"temperature": aNumber, "top_p": aNumber, "stop": either(list(aText)), "presence_penalty": aNumber, "frequency_penalty": aNumber,
	"logit_bias": anything, "logprobs": aBoolean, "top_logprobs": aNumber, "user": aText, "safety_identifier": aText,
	"prompt_cache_key": aText, "prompt_cache_retention": aText, "seed": aNumber, "reasoning_effort": aText, "verbosity": aText,
	"response_format": anything, "metadata": anything, "parallel_tool_calls": aBoolean, "tool_choice": either(anything),
	"tools":      ownTools(map[string]fields{"function": {"type": aText, "function": anything}, "custom": {"type": aText, "custom": anything}}),
	"modalities": list(only(CodeMedia, "text")), "audio": never(CodeMedia), "prediction": never(CodeFeature), "web_search_options": never(CodeTool),
}

var inputParts = map[string]fields{
	"input_text":   {"type": aText, "text": aText},
	"output_text":  {"type": aText, "text": aText, "annotations": anything, "logprobs": anything},
	"refusal":      {"type": aText, "refusal": aText},
	"input_image":  {"type": aText, "image_url": inlineOrFetched, "detail": aText},
	"input_file":   {"type": aText, "file_data": aDocument, "file_url": closedURL, "filename": aText},
	"summary_text": {"type": aText, "text": aText},
}

var inputItems = map[string]fields{
	"message":                 {"type": aText, "role": aText, "content": either(blocks(inputParts)), "id": aText, "status": aText, "phase": aText},
	"function_call":           {"type": aText, "id": aText, "call_id": aText, "name": aText, "arguments": aText, "status": aText, "namespace": aText},
	"function_call_output":    {"type": aText, "id": aText, "call_id": aText, "output": either(blocks(inputParts)), "status": aText},
	"custom_tool_call":        {"type": aText, "id": aText, "call_id": aText, "name": aText, "input": aText, "status": aText},
	"custom_tool_call_output": {"type": aText, "id": aText, "call_id": aText, "output": either(blocks(inputParts)), "status": aText},
	"reasoning":               {"type": aText, "id": aText, "summary": anything, "content": anything, "encrypted_content": aText, "status": aText},
	"additional_tools":        {"type": aText, "id": aText, "role": aText, "tools": responsesTools},
	"tool_search_call":        {"type": aText, "id": aText, "call_id": aText, "execution": byClient, "arguments": anything, "status": aText},
	"tool_search_output":      {"type": aText, "id": aText, "call_id": aText, "execution": byClient, "tools": responsesTools, "status": aText},
}

// callableTools are what the model may name in a call; namedTools group them,
// and a search that the client carries out brings more of them.
var callableTools = map[string]fields{
	"function": {"type": aText, "name": aText, "description": aText, "parameters": anything, "strict": aBoolean, "defer_loading": aBoolean},
	"custom":   {"type": aText, "name": aText, "description": aText, "format": anything, "defer_loading": aBoolean},
}

var responsesTools = ownTools(map[string]fields{
	"function": callableTools["function"], "custom": callableTools["custom"],
	"namespace":   {"type": aText, "name": aText, "description": aText, "tools": ownTools(callableTools)},
	"tool_search": {"type": aText, "execution": byClient, "description": aText, "parameters": anything},
})

// byClient admits a search for tools that runs in the sandbox: ME-10.
var byClient = only(CodeTool, "client")

// anItem is one input item; a message may leave its type out.
func anItem(r *request, v *value) {
	if v.kind == object && v.get("type") == nil && v.get("role") != nil {
		r.members(v, inputItems["message"])
		return
	}
	block(inputItems)(r, v)
}

var responsesBody = fields{
	"model": theModel, "input": either(list(anItem)), "instructions": aText, "max_output_tokens": askedTokens,
	"stream": theStream, "stream_options": obj(fields{"include_obfuscation": aBoolean}), "service_tier": theTier,
	"temperature": aNumber, "top_p": aNumber, "top_logprobs": aNumber, "text": anything, "truncation": aText, "user": aText,
	"safety_identifier": aText, "prompt_cache_key": aText, "prompt_cache_retention": aText, "metadata": anything,
	"reasoning":           obj(fields{"effort": aText, "summary": aText, "generate_summary": aText, "context": aText}),
	"parallel_tool_calls": aBoolean, "max_tool_calls": aNumber, "tool_choice": either(anything),
	"tools": responsesTools, "client_metadata": anything, // what a client says of itself, beside metadata
	"include": list(only(CodeFeature, "reasoning.encrypted_content", "message.output_text.logprobs")),
	"store":   off, "background": off,
	"previous_response_id": never(CodeFeature), "conversation": never(CodeFeature), "prompt": never(CodeFeature),
}

type openai struct{}

func (openai) provider() string { return "openai" }
func (openai) prices() string   { return "openai" }

func (openai) route(method, path string) (route, string) {
	switch {
	case method == "POST" && path == "/v1/chat/completions":
		return route{path: path, kind: "chat"}, ""
	case method == "POST" && path == "/v1/responses":
		return route{path: path, kind: "responses"}, ""
	case strings.HasPrefix(path, "/v1/files"), strings.HasPrefix(path, "/v1/batches"), strings.HasPrefix(path, "/v1/fine_tuning"),
		strings.HasPrefix(path, "/v1/vector_stores"), strings.HasPrefix(path, "/v1/responses/"):
		return route{}, CodeFeature // ME-10, EG-87
	default:
		return route{}, CodeRoute
	}
}

func (openai) query(string) bool { return false }

func (openai) inspect(r *request, rt route) {
	r.caching = true // it caches by itself, and some models price that
	if rt.kind == "responses" {
		r.members(r.root, responsesBody)
		r.bound = func(n int64) edit { return r.set("max_output_tokens", itoa(n)) }
		if r.root.get("store") == nil {
			r.edits = append(r.edits, r.set("store", "false")) // stored unless told otherwise
		}
		return
	}
	r.members(r.root, chatBody)
	r.bound = func(n int64) edit { return r.set("max_completion_tokens", itoa(n)) }
	if !r.stream {
		return
	}
	// A stream tells what was used only when asked to.
	options := r.root.get("stream_options")
	switch {
	case options == nil:
		r.edits = append(r.edits, r.set("stream_options", `{"include_usage":true}`))
	case options.get("include_usage") == nil:
		r.edits = append(r.edits, options.setIn("include_usage", "true"))
	case options.get("include_usage").is(r.b, "true"):
		return
	default:
		v := options.get("include_usage")
		r.edits = append(r.edits, edit{v.start, v.end, "true"})
	}
	r.hideLast = true
}

func (openai) usage() meter { return &openaiUsage{} }

// openaiTokens counts cached tokens inside those of the prompt, and reasoning
// inside those of the completion.
type openaiTokens struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	PromptIn   struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	InputIn struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

type openaiAnswer struct {
	Type     string        `json:"type"`
	Model    string        `json:"model"`
	Tier     string        `json:"service_tier"`
	Usage    *openaiTokens `json:"usage"`
	Response *openaiAnswer `json:"response"`
}

type openaiUsage struct{ r report }

func (o *openaiUsage) take(a *openaiAnswer) {
	if a.Model != "" {
		o.r.model = a.Model
	}
	if a.Tier != "" {
		o.r.tier = a.Tier
	}
	if a.Usage == nil {
		return
	}
	u := a.Usage
	in, cached := max(u.Prompt, u.Input), max(u.PromptIn.Cached, u.InputIn.Cached)
	if cached < 0 || cached > in {
		cached = 0 // nonsense: nothing is taken off
	}
	// What is not read from a cache may have been written to it.
	o.r.CacheWrite5m, o.r.CacheRead, o.r.Output = in-cached, cached, max(u.Completion, u.Output)
	o.r.final = true
}

func (o *openaiUsage) event(data []byte) {
	var a openaiAnswer
	if json.Unmarshal(data, &a) != nil {
		return
	}
	if a.Response != nil {
		switch a.Type {
		case "response.completed", "response.incomplete", "response.failed":
			o.take(a.Response)
		}
		return
	}
	o.take(&a)
}

func (o *openaiUsage) body(b []byte) {
	var a openaiAnswer
	if json.Unmarshal(b, &a) == nil {
		o.take(&a)
	}
}

func (o *openaiUsage) end()           {}
func (o *openaiUsage) report() report { return o.r }
