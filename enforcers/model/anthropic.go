package model

import (
	"strings"
)

// Anthropic Messages: POST /v1/messages and its free count_tokens.

var cacheControl = func(r *request, v *value) {
	r.caching = true
	obj(fields{"type": aText, "ttl": aText, "scope": aText})(r, v)
}

var anthropicImage = anthropicSource(block(map[string]fields{
	"base64": {"type": aText, "media_type": aText, "data": anImage},
	"url":    {"type": aText, "url": aText},
}), imageTypes...)

var anthropicDocument = anthropicSource(block(map[string]fields{
	"base64":  {"type": aText, "media_type": aText, "data": aDocument},
	"text":    {"type": aText, "media_type": aText, "data": aText},
	"content": {"type": aText, "content": either(blocks(map[string]fields{"text": anthropicText, "image": {"type": aText, "source": anthropicImage, "cache_control": cacheControl}}))},
	"url":     {"type": aText, "url": aText},
}), pdf)

var anthropicText = fields{"type": aText, "text": aText, "cache_control": cacheControl, "citations": anything}

// shownBlocks are what a person or a tool may show the model.
var shownBlocks = map[string]fields{
	"text":     anthropicText,
	"image":    {"type": aText, "source": anthropicImage, "cache_control": cacheControl},
	"document": {"type": aText, "source": anthropicDocument, "title": aText, "context": aText, "citations": anything, "cache_control": cacheControl},
	"search_result": {
		"type": aText, "source": aText, "title": aText, "content": blocks(map[string]fields{"text": anthropicText}), "citations": anything, "cache_control": cacheControl,
	},
	"tool_reference": {"type": aText, "tool_name": aText, "cache_control": cacheControl},
}

// messageBlocks add what only stands in a conversation. Blocks of tools that
// the provider runs are not in the list: those tools are refused.
var messageBlocks = func() map[string]fields {
	all := map[string]fields{
		"tool_use":          {"type": aText, "id": aText, "name": aText, "input": anything, "cache_control": cacheControl, "caller": anything},
		"tool_result":       {"type": aText, "tool_use_id": aText, "content": either(blocks(shownBlocks)), "is_error": aBoolean, "cache_control": cacheControl},
		"thinking":          {"type": aText, "thinking": aText, "signature": aText},
		"redacted_thinking": {"type": aText, "data": aText},
	}
	for name, f := range shownBlocks {
		all[name] = f
	}
	return all
}()

var anthropicTool = fields{
	"type": aText, "name": aText, "description": aText, "input_schema": anything, "cache_control": cacheControl, "strict": aBoolean,
	"eager_input_streaming": aBoolean, "defer_loading": aBoolean, "input_examples": anything, "max_characters": aNumber,
	"display_width_px": aNumber, "display_height_px": aNumber, "display_number": aNumber, "enable_zoom": aBoolean,
}

// clientTools are the provider's tools that run in the sandbox.
var clientTools = []string{"bash_", "text_editor_", "memory_", "computer_"}

func aTool(r *request, v *value) {
	if !r.want(v, object) {
		return
	}
	if t := v.get("type"); t != nil && t.str != "custom" {
		known := false
		for _, prefix := range clientTools {
			known = known || t.kind == text && strings.HasPrefix(t.str, prefix)
		}
		if !known {
			r.refuse(CodeTool, "type") // ME-10: web_search, web_fetch, code_execution, mcp_toolset
			return
		}
	}
	r.members(v, anthropicTool)
}

func thinking(r *request, v *value) {
	obj(fields{"type": aText, "budget_tokens": aNumber, "display": aText})(r, v)
	if r.thinkAt = v.get("budget_tokens"); r.thinkAt != nil {
		r.whole(r.thinkAt, &r.think)
		r.least = max(r.least, min(r.think+1, leastThinking+floor))
	}
}

// leastThinking is the smallest thinking budget that the provider takes.
const leastThinking = 1024

// contextEdit admits what only takes tokens away: compaction would have the
// model write more than max_tokens says.
func contextEdit(r *request, v *value) {
	if !r.want(v, object) {
		return
	}
	if t := v.get("type"); t == nil || t.kind != text || !strings.HasPrefix(t.str, "clear_") {
		r.refuse(CodeField, "type")
	}
}

var anthropicBody = fields{
	"model": theModel, "max_tokens": askedTokens, "stream": theStream, "service_tier": theTier,
	"messages":    list(obj(fields{"role": aText, "content": either(blocks(messageBlocks))})),
	"system":      either(blocks(map[string]fields{"text": anthropicText})),
	"temperature": aNumber, "top_p": aNumber, "top_k": aNumber, "stop_sequences": list(aText),
	"metadata": obj(fields{"user_id": aText}), "thinking": thinking,
	"tools": list(aTool), "tool_choice": obj(fields{"type": aText, "name": aText, "disable_parallel_tool_use": aBoolean}),
	"output_config": obj(fields{"effort": aText, "format": anything}), "output_format": anything,
	"context_management": obj(fields{"edits": list(contextEdit)}), "cache_control": cacheControl,
	"mcp_servers": never(CodeTool), "container": never(CodeFeature),
}

// defaultBetas are the beta features that change how a call is written and not
// what it may reach or keep: the fields and tools that one of them brings are
// still held against the closed lists. A connection can list more.
var defaultBetas = []string{
	"advanced-tool-use-2025-11-20", "claude-code-20250219", "context-1m-2025-08-07", "context-management-2025-06-27", "effort-2025-11-24",
	"extended-cache-ttl-2025-04-11", "fine-grained-tool-streaming-2025-05-14", "interleaved-thinking-2025-05-14",
	"max-tokens-3-5-sonnet-2024-07-15", "output-128k-2025-02-19", "pdfs-2024-09-25", "prompt-caching-2024-07-31",
	"prompt-caching-scope-2026-01-05", "structured-outputs-2025-11-13", "thinking-token-count-2026-05-13", "token-counting-2024-11-01",
	"token-efficient-tools-2025-02-19", "tool-examples-2025-10-29",
}

type anthropic struct{}

func (anthropic) provider() string { return "anthropic" }
func (anthropic) prices() string   { return "anthropic" }

func (anthropic) route(method, path string) (route, string) {
	switch {
	case method != "POST":
		return route{}, CodeRoute
	case path == "/v1/messages":
		return route{path: path}, ""
	case path == "/v1/messages/count_tokens":
		return route{path: path, free: true}, ""
	case strings.HasPrefix(path, "/v1/messages/batches"), strings.HasPrefix(path, "/v1/files"):
		return route{}, CodeFeature // ME-10
	default:
		return route{}, CodeRoute
	}
}

func (anthropic) query(pair string) bool { return pair == "beta=true" }

func (anthropic) inspect(r *request, _ route) {
	r.members(r.root, anthropicBody)
	r.bound = func(n int64) edit { return r.set("max_tokens", itoa(n)) }
}

func (anthropic) usage() meter { return &anthropicUsage{} }
