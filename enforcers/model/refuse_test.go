package model_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/model"
	"gatehouse/enforcers/spend"
	"gatehouse/receipts"
)

func openaiSetup() setup {
	s := anthropicSetup()
	s.conn = model.Connection{Name: "main", Provider: "openai", Aliases: map[string]string{"fast": "gpt-5-mini"}}
	s.host, s.allow = "api.openai.com", []string{"gpt-5", "gpt-5-mini", "gpt-4o"}
	s.key = "sk-proj-canary-0123456789abcdef"
	return s
}

func googleSetup() setup {
	s := anthropicSetup()
	s.conn = model.Connection{Name: "main", Provider: "google", Aliases: map[string]string{"fast": "gemini-2.5-flash"}}
	s.host, s.allow, s.key = "generativelanguage.googleapis.com", []string{"gemini-*"}, "AIza-canary-0123456789abcdef"
	return s
}

func vertexSetup(provider string) setup {
	s := googleSetup()
	s.conn = model.Connection{Name: "main", Provider: provider, Project: "acme-prod", Location: "europe-west1", Aliases: map[string]string{"fast": "claude-opus-4-6"}}
	s.host, s.allow, s.key = "europe-west1-aiplatform.googleapis.com", []string{"gemini-*", "claude-opus-*"}, "ya29.canary-0123456789abcdef"
	return s
}

const (
	chatPath   = "/v1/chat/completions"
	respPath   = "/v1/responses"
	geminiPath = "/v1beta/models/gemini-2.5-flash:generateContent"
	vertexRoot = "/v1/projects/acme-prod/locations/europe-west1/publishers/"
)

// refused are requests that must not reach the provider. %s stands for more
// body.
var refused = map[string]struct {
	provider, path, body string
	header               []string
	code                 string
}{
	"ME-03_own_key":                 {"anthropic", "/v1/messages", hello, []string{"X-Api-Key", "sk-ant-api03-attackers-own"}, enforcers.CodeForeignCredential},
	"ME-03_own_bearer":              {"openai", chatPath, `{"model":"gpt-5","messages":[]}`, []string{"Authorization", "Bearer sk-own-0123456789"}, enforcers.CodeForeignCredential},
	"ME-03_own_key_in_query":        {"google", geminiPath + "?key=AIzaOwn0123456789", `{"contents":[]}`, nil, enforcers.CodeForeignCredential},
	"ME-05_sibling_placeholder":     {"anthropic", "/v1/messages", hello, []string{"X-Api-Key", "gatehouse_ph_AAAAAAAAAAAAAAAAAAAAAAAAAA"}, enforcers.CodePlaceholder},
	"ME-08_model_twice":             {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","model":"claude-opus-4-1","max_tokens":10,"messages":[]}`, nil, model.CodeBody},
	"ME-08_model_twice_escaped":     {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","\u006dodel":"claude-opus-4-1","max_tokens":10,"messages":[]}`, nil, model.CodeBody},
	"ME-08_case":                    {"anthropic", "/v1/messages", `{"model":"Claude-Sonnet-4-5","max_tokens":10,"messages":[]}`, nil, "model_not_listed"},
	"ME-08_not_listed":              {"anthropic", "/v1/messages", `{"model":"claude-opus-4-1","max_tokens":10,"messages":[]}`, nil, "model_not_listed"},
	"ME-08_key_in_other_case":       {"anthropic", "/v1/messages", `{"Model":"claude-sonnet-4-5","max_tokens":10,"messages":[]}`, nil, model.CodeField},
	"ME-08_body_against_path":       {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"model":"claude-opus-4-8","anthropic_version":"vertex-2023-10-16","max_tokens":10,"messages":[]}`, nil, model.CodeField},
	"ME-09_wrong_project":           {"vertex-gemini", "/v1/projects/other/locations/europe-west1/publishers/google/models/gemini-2.5-flash:generateContent", `{"contents":[]}`, nil, model.CodePlace},
	"ME-09_wrong_location":          {"vertex-gemini", "/v1/projects/acme-prod/locations/us-central1/publishers/google/models/gemini-2.5-flash:generateContent", `{"contents":[]}`, nil, model.CodePlace},
	"ME-09_wrong_publisher":         {"vertex-gemini", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"messages":[]}`, nil, model.CodePlace},
	"ME-09_encoded_slash":           {"vertex-gemini", "/v1/projects/acme-prod%2Flocations/europe-west1/publishers/google/models/gemini-2.5-flash:generateContent", `{"contents":[]}`, nil, enforcers.CodeBadPath},
	"ME-09_dot_segment":             {"vertex-gemini", "/v1/projects/other/../acme-prod/locations/europe-west1/publishers/google/models/gemini-2.5-flash:generateContent", `{"contents":[]}`, nil, enforcers.CodeBadPath},
	"ME-09_version":                 {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"bedrock-2023-05-31","max_tokens":10,"messages":[]}`, nil, model.CodeBody},
	"ME-10_EG-87_files":             {"anthropic", "/v1/files", `{}`, nil, model.CodeFeature},
	"ME-10_EG-87_batches":           {"anthropic", "/v1/messages/batches", `{}`, nil, model.CodeFeature},
	"ME-10_openai_files":            {"openai", "/v1/files", `{}`, nil, model.CodeFeature},
	"ME-10_EG-87_fine_tune":         {"openai", "/v1/fine_tuning/jobs", `{}`, nil, model.CodeFeature},
	"ME-10_EG-87_another_route":     {"anthropic", "/v1/organizations/me", `{}`, nil, model.CodeRoute},
	"ME-10_cached_contents":         {"google", "/v1beta/cachedContents", `{}`, nil, model.CodeFeature},
	"ME-10_cached_content_field":    {"google", geminiPath, `{"contents":[],"cachedContent":"cachedContents/x"}`, nil, model.CodeFeature},
	"ME-10_cached_content_snake":    {"google", geminiPath, `{"contents":[],"cached_content":"cachedContents/x"}`, nil, model.CodeFeature},
	"ME-10_background":              {"openai", respPath, `{"model":"gpt-5","input":"hi","background":true}`, nil, model.CodeFeature},
	"ME-10_stored":                  {"openai", respPath, `{"model":"gpt-5","input":"hi","store":true}`, nil, model.CodeFeature},
	"ME-10_previous_response":       {"openai", respPath, `{"model":"gpt-5","input":"hi","previous_response_id":"resp_1"}`, nil, model.CodeFeature},
	"ME-10_conversation":            {"openai", respPath, `{"model":"gpt-5","input":"hi","conversation":"conv_1"}`, nil, model.CodeFeature},
	"ME-10_prompt_id":               {"openai", respPath, `{"model":"gpt-5","prompt":{"id":"pmpt_1"}}`, nil, model.CodeFeature},
	"ME-10_search_in_a_namespace":   {"openai", respPath, `{"model":"gpt-5","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`, nil, model.CodeTool},
	"ME-10_namespace_in_itself":     {"openai", respPath, `{"model":"gpt-5","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m","tools":[]}]}]}`, nil, model.CodeTool},
	"ME-10_tool_search_by_server":   {"openai", respPath, `{"model":"gpt-5","input":"x","tools":[{"type":"tool_search","execution":"server"}]}`, nil, model.CodeTool},
	"ME-10_tool_search_by_default":  {"openai", respPath, `{"model":"gpt-5","input":"x","tools":[{"type":"tool_search"}]}`, nil, model.CodeTool},
	"ME-10_additional_tools":        {"openai", respPath, `{"model":"gpt-5","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"mcp","server_url":"https://evil.test"}]}]}`, nil, model.CodeTool},
	"ME-10_item_reference":          {"openai", respPath, `{"model":"gpt-5","input":[{"type":"item_reference","id":"rs_1"}]}`, nil, model.CodeField},
	"ME-10_web_search":              {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, nil, model.CodeTool},
	"ME-10_code_execution":          {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"tools":[{"type":"code_execution_20250825","name":"x"}]}`, nil, model.CodeTool},
	"ME-10_hosted_tool_openai":      {"openai", respPath, `{"model":"gpt-5","input":"hi","tools":[{"type":"web_search"}]}`, nil, model.CodeTool},
	"ME-10_file_search":             {"openai", respPath, `{"model":"gpt-5","input":"hi","tools":[{"type":"file_search","vector_store_ids":["v"]}]}`, nil, model.CodeTool},
	"ME-10_google_search":           {"google", geminiPath, `{"contents":[],"tools":[{"googleSearch":{}}]}`, nil, model.CodeTool},
	"ME-10_url_context_snake":       {"google", geminiPath, `{"contents":[],"tools":[{"url_context":{}}]}`, nil, model.CodeTool},
	"ME-10_remote_mcp":              {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"mcp_servers":[{"type":"url","url":"https://evil.test","name":"x"}]}`, nil, model.CodeTool},
	"ME-10_remote_mcp_openai":       {"openai", respPath, `{"model":"gpt-5","input":"hi","tools":[{"type":"mcp","server_url":"https://evil.test","server_label":"x"}]}`, nil, model.CodeTool},
	"ME-10_container":               {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"container":"c"}`, nil, model.CodeFeature},
	"ME-10_compaction":              {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"context_management":{"edits":[{"type":"compact_20260112"}]}}`, nil, model.CodeField},
	"ME-10_unknown_field":           {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"fetch_from":"https://evil.test"}`, nil, model.CodeField},
	"ME-10_unknown_block":           {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"remote","url":"https://evil.test"}]}]}`, nil, model.CodeField},
	"ME-10_unknown_field_in_block":  {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"text","text":"x","src":"https://evil.test"}]}]}`, nil, model.CodeField},
	"ME-10_file_id_image":           {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}]}`, nil, model.CodeField},
	"ME-10_file_id_openai":          {"openai", respPath, `{"model":"gpt-5","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`, nil, model.CodeField},
	"ME-10_beta":                    {"anthropic", "/v1/messages", hello, []string{"Anthropic-Beta", "interleaved-thinking-2025-05-14,files-api-2025-04-14"}, model.CodeBeta},
	"ME-10_query":                   {"anthropic", "/v1/messages?container=x", hello, nil, model.CodeRoute},
	"image_by_unlisted_url":         {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://evil.test/x.png"}}]}]}`, nil, "host_not_listed"},
	"document_by_unlisted_url":      {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://evil.test/x.pdf"}}]}]}`, nil, "host_not_listed"},
	"image_url_openai":              {"openai", chatPath, `{"model":"gpt-5","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.test/x.png"}}]}]}`, nil, "host_not_listed"},
	"file_url_openai":               {"openai", respPath, `{"model":"gpt-5","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://evil.test/x"}]}]}`, nil, model.CodeSource},
	"file_uri_google":               {"google", geminiPath, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.test/x","mimeType":"image/png"}}]}]}`, nil, model.CodeSource},
	"gs_uri":                        {"google", geminiPath, `{"contents":[{"parts":[{"file_data":{"file_uri":"gs://bucket/x"}}]}]}`, nil, model.CodeSource},
	"file_uri_in_function_response": {"google", geminiPath, `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"https://evil.test/x"}}]}}]}]}`, nil, model.CodeField},
	"url_by_http":                   {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://cdn.good.test/x.png"}}]}]}`, nil, model.CodeSource},
	"url_with_user":                 {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://cdn.good.test@evil.test/x.png"}}]}]}`, nil, model.CodeSource},
	"url_of_metadata":               {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://metadata.google.internal/x"}}]}]}`, nil, enforcers.CodeMetadata},
	"audio":                         {"google", geminiPath, `{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}]}]}`, nil, model.CodeMedia},
	"ME-27_listed_file_uri_google":  {"google", geminiPath, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://cdn.good.test/a/x.pdf","mimeType":"application/pdf"}}]}]}`, nil, model.CodeSource},
	"ME-27_listed_file_url_openai":  {"openai", respPath, `{"model":"gpt-5","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://cdn.good.test/x.pdf"}]}]}`, nil, model.CodeSource},
	"audio_by_url":                  {"google", geminiPath, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://cdn.good.test/a.mp3","mimeType":"audio/mp3"}}]}]}`, nil, model.CodeMedia},
	"video_by_url_snake":            {"vertex-gemini", vertexRoot + "google/models/gemini-2.5-flash:generateContent", `{"contents":[{"parts":[{"file_data":{"file_uri":"https://cdn.good.test/a.mp4","mime_type":"Video/mp4"}}]}]}`, nil, model.CodeMedia},
	"media_by_url_of_no_type":       {"google", geminiPath, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://cdn.good.test/a"}}]}]}`, nil, model.CodeMedia},
	"media_by_url_of_null_type":     {"google", geminiPath, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://cdn.good.test/a","mimeType":null}}]}]}`, nil, model.CodeMedia},
	"audio_by_url_in_system":        {"google", geminiPath, `{"contents":[],"systemInstruction":{"parts":[{"fileData":{"fileUri":"https://cdn.good.test/a.mp3","mimeType":"audio/mp3"}}]}}`, nil, model.CodeMedia},
	"image_output":                  {"google", geminiPath, `{"contents":[],"generationConfig":{"responseModalities":["IMAGE"]}}`, nil, model.CodeMedia},
	"audio_output":                  {"openai", chatPath, `{"model":"gpt-5","messages":[],"modalities":["text","audio"]}`, nil, model.CodeMedia},
	"ME-19_tier":                    {"openai", chatPath, `{"model":"gpt-5","messages":[],"service_tier":"scale"}`, nil, model.CodeTier},
	"ME-19_tier_in_a_location":      {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":10,"service_tier":"priority","messages":[]}`, nil, model.CodeTier},
	"ME-19_location_as_a_tier":      {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":10,"service_tier":"regional","messages":[]}`, nil, model.CodeTier},
	"EG-90_unpriced":                {"google", "/v1beta/models/gemini-99-ultra:generateContent", `{"contents":[]}`, nil, model.CodeUnpriced},
	"ME-20_as_text":                 {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":"100","messages":[]}`, nil, model.CodeBody},
	"ME-20_exponent":                {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":1e9,"messages":[]}`, nil, model.CodeBody},
	"ME-20_negative":                {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":-1,"messages":[]}`, nil, model.CodeBody},
	"ME-20_twice":                   {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"max_tokens":100000,"messages":[]}`, nil, model.CodeBody},
	"ME-20_two_names":               {"openai", chatPath, `{"model":"gpt-5","messages":[],"max_tokens":10,"max_completion_tokens":100000}`, nil, model.CodeBody},
	"ME-20_two_spellings":           {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":10,"max_output_tokens":100000}}`, nil, model.CodeBody},
	"ME-20_two_configs":             {"google", geminiPath, `{"contents":[],"generationConfig":{"maxOutputTokens":10},"generation_config":{}}`, nil, model.CodeBody},
	"ME-20_thinking_over_bound":     {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":10,"messages":[],"thinking":{"type":"enabled","budget_tokens":100000}}`, nil, model.CodeBody},
	"not_json":                      {"anthropic", "/v1/messages", `{"model"`, nil, model.CodeBody},
	"not_utf8":                      {"anthropic", "/v1/messages", "{\"model\":\"claude-sonnet-4-5\",\"messages\":[],\"system\":\"\xff\"}", nil, model.CodeBody},
	"encoded":                       {"anthropic", "/v1/messages", hello, []string{"Content-Encoding", "gzip"}, enforcers.CodeBodyNotInspected},
	"another_type":                  {"anthropic", "/v1/messages", hello, []string{"Content-Type", "text/plain"}, enforcers.CodeBodyNotInspected},
	"EG-91_n_100000":                {"openai", chatPath, `{"model":"gpt-5","n":100000,"messages":[]}`, nil, model.CodeBody},
	"upgrade":                       {"openai", "/v1/realtime", ``, []string{"Connection", "Upgrade", "Upgrade", "websocket"}, model.CodeRoute},
}

func setupOf(provider string) setup {
	switch provider {
	case "anthropic":
		return anthropicSetup()
	case "openai":
		return openaiSetup()
	case "google":
		return googleSetup()
	default:
		return vertexSetup(provider)
	}
}

// TestRefused: nothing of these reaches anybody outside, in hard and in shadow.
func TestRefused(t *testing.T) {
	for _, mode := range []receipts.Mode{receipts.Hard, receipts.Shadow} {
		worlds := map[string]*world{}
		for _, provider := range []string{"anthropic", "openai", "google", "vertex-gemini", "vertex-anthropic"} {
			s := setupOf(provider)
			s.mode = mode
			worlds[provider] = start(t, s)
		}
		for name, c := range refused {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				w := worlds[c.provider]
				resp, body := w.post(c.path, c.body, c.header...)
				want := c.code
				if mode == receipts.Shadow {
					// A denied action that uses authority has its own reason there, and a
					// URL that would have passed as the agent's own stays closed.
					switch want {
					case "model_not_listed":
						want = enforcers.CodeNeedsAuthority
					case "host_not_listed":
						want = model.CodeSource
					}
				}
				if resp.StatusCode < 400 || resp.StatusCode >= 500 || code(body) != want {
					t.Errorf("%d %s, want %s", resp.StatusCode, strings.TrimSpace(body), want)
				}
				if w.fake.Accepts() != 0 || w.fake.Bytes() != 0 || w.cdn.Accepts() != 0 {
					t.Errorf("%d connections and %d bytes reached the outside", w.fake.Accepts(), w.fake.Bytes())
				}
				if b, _ := w.ledger.Session("s-1"); b.Held != 0 || b.Spent != 0 {
					t.Errorf("money moved: %+v", b)
				}
			})
		}
	}
}

// sent are requests that pass, and what goes out of them.
var sent = map[string]struct {
	provider, path, body string
	want                 string // "" = the body as it came
	wantPath             string // "" = the path as it came
}{
	"anthropic_everything": {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":4000,"stream":false,"temperature":1,"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}],"thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"tools":[{"name":"t","input_schema":{"type":"object","properties":{"url":{"type":"string"}}}},{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"auto"},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"i","name":"t","input":{"url":"https://anything.test"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"r"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]}`, "", ""},
	"anthropic_no_bound":   {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","messages":[]}`, `{"max_tokens":16384,"model":"claude-sonnet-4-5","messages":[]}`, ""},
	"anthropic_null_bound": {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":null,"messages":[]}`, `{"model":"claude-sonnet-4-5","max_tokens":16384,"messages":[]}`, ""},
	"ME-20_thinking":       {"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":32000,"thinking":{"budget_tokens":31999,"type":"enabled"},"messages":[]}`, `{"model":"claude-sonnet-4-5","max_tokens":16384,"thinking":{"budget_tokens":16128,"type":"enabled"},"messages":[]}`, ""},
	"anthropic_alias":      {"anthropic", "/v1/messages", `{"model":"fast","max_tokens":10,"messages":[]}`, `{"model":"claude-haiku-4-5","max_tokens":10,"messages":[]}`, ""},
	"anthropic_count":      {"anthropic", "/v1/messages/count_tokens", `{"model":"claude-sonnet-4-5","messages":[]}`, "", ""},
	"chat":                 {"openai", chatPath, `{"model":"gpt-5","max_completion_tokens":10,"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},{"role":"assistant","tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`, "", ""},
	"ME-20_chat_no_bound":  {"openai", chatPath, `{"model":"gpt-5","messages":[]}`, `{"max_completion_tokens":16384,"model":"gpt-5","messages":[]}`, ""},
	"ME-19_chat_n":         {"openai", chatPath, `{"model":"gpt-4o","n":4,"max_tokens":100000,"messages":[]}`, `{"model":"gpt-4o","n":4,"max_tokens":1024,"messages":[]}`, ""},
	"chat_stream":          {"openai", chatPath, `{"model":"gpt-5","max_tokens":10,"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"model":"gpt-5","max_tokens":10,"stream":true,"messages":[]}`, ""},
	"chat_stream_options":  {"openai", chatPath, `{"model":"gpt-5","max_tokens":10,"stream":true,"stream_options":{"include_usage":false},"messages":[]}`, `{"model":"gpt-5","max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, ""},
	"responses":            {"openai", respPath, `{"model":"gpt-5","input":[{"role":"user","content":"x"},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}],"store":false,"max_output_tokens":10,"include":["reasoning.encrypted_content"]}`, "", ""},
	"codex":                {"openai", respPath, `{"model":"gpt-5","input":[{"type":"additional_tools","id":"a","role":"developer","tools":[{"type":"namespace","name":"n","description":"","tools":[{"type":"custom","name":"exec","format":{}}]}]},{"role":"user","content":"x"}],"tools":[{"type":"tool_search","execution":"client","description":"d","parameters":{}},{"type":"function","name":"f","parameters":{},"strict":false}],"reasoning":{"effort":"low","context":"all_turns"},"client_metadata":{"turn_id":"t"},"store":false,"max_output_tokens":10}`, "", ""},
	"ME-20_responses":      {"openai", respPath, `{"model":"fast","input":"x"}`, `{"store":false,"max_output_tokens":16384,"model":"gpt-5-mini","input":"x"}`, ""},
	"gemini":               {"google", geminiPath, `{"contents":[{"role":"user","parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}],"generationConfig":{"maxOutputTokens":10},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`, "", ""},
	"ME-20_gemini":         {"google", geminiPath, `{"contents":[],"generation_config":{"temperature":1}}`, `{"contents":[],"generation_config":{"maxOutputTokens":16384,"temperature":1}}`, ""},
	"ME-19_gemini_count":   {"google", geminiPath, `{"contents":[],"generationConfig":{"candidateCount":4,"maxOutputTokens":100000}}`, `{"contents":[],"generationConfig":{"candidateCount":4,"maxOutputTokens":1024}}`, ""},
	"gemini_alias":         {"google", "/v1beta/models/fast:streamGenerateContent?alt=sse", `{"contents":[],"generationConfig":{"maxOutputTokens":10}}`, "", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
	"gemini_free_count":    {"google", "/v1beta/models/gemini-2.5-flash:countTokens", `{"contents":[]}`, "", ""},
	"vertex_gemini":        {"vertex-gemini", vertexRoot + "google/models/gemini-2.5-flash:generateContent", `{"contents":[],"generationConfig":{"maxOutputTokens":10}}`, "", ""},
	"vertex_anthropic":     {"vertex-anthropic", vertexRoot + "anthropic/models/claude-opus-4-6:streamRawPredict", `{"anthropic_version":"vertex-2023-10-16","max_tokens":10,"stream":true,"messages":[]}`, "", ""},
	"vertex_version_2026":  {"vertex-anthropic", vertexRoot + "anthropic/models/fast:rawPredict", `{"anthropic_version":"2026-10-21","max_tokens":10,"messages":[]}`, "", vertexRoot + "anthropic/models/claude-opus-4-6:rawPredict"},
	"vertex_count":         {"vertex-anthropic", vertexRoot + "anthropic/models/count-tokens:rawPredict", `{"model":"claude-opus-4-6","messages":[]}`, "", ""},
}

// TestSent holds what goes out against what came, byte by byte, and the one
// identity that it goes out under.
func TestSent(t *testing.T) {
	for name, c := range sent {
		t.Run(name, func(t *testing.T) {
			s := setupOf(c.provider)
			s.limit, s.max = 100e9, 16384
			if strings.Contains(name, "ME-19") {
				s.limit = 1000e9
				s.max = 4096
			}
			w := start(t, s)
			resp, body := w.post(c.path, c.body)
			if resp.StatusCode != 200 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			want, wantPath := c.want, c.wantPath
			if want == "" {
				want = c.body
			}
			if wantPath == "" {
				wantPath = c.path
			}
			got, h, path := w.fake.last()
			if got != want || path != wantPath {
				t.Errorf("sent %s\n%s\nwant %s\n%s", path, got, wantPath, want)
			}
			identity := h.Get("X-Api-Key") + h.Get("X-Goog-Api-Key") + strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
			if identity != s.key {
				t.Errorf("identity %q", identity)
			}
			if d, _ := w.rec.last(t, enforcers.ModelCall); strings.Contains(name, "count") && !strings.Contains(name, "ME-19") != (d.Decision.Held == 0) {
				t.Errorf("counting tokens held %d", d.Decision.Held)
			}
		})
	}
}

// TestRealHost reaches the provider by its own name, through the door's TLS.
func TestRealHost(t *testing.T) {
	w := start(t, anthropicSetup())
	client := &http.Client{Transport: &http.Transport{
		DialContext:     func(_ context.Context, _, addr string) (net.Conn, error) { return w.tunnel(addr) },
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, ForceAttemptHTTP2: true,
	}}
	t.Cleanup(client.CloseIdleConnections)
	do := func(method, path, body string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://api.anthropic.com"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
	if resp, body := do("POST", "/v1/messages", hello); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	before := w.fake.Requests()
	for path, want := range map[string]string{"/v1/files": model.CodeFeature, "/api/event_logging/v2/batch": model.CodeRoute, "/": model.CodeRoute} {
		if resp, body := do("GET", path, ""); resp.StatusCode != 403 || code(body) == "" {
			t.Errorf("%s: %d %s, want %s", path, resp.StatusCode, body, want)
		}
	}
	if w.fake.Requests() != before {
		t.Error("something else of the host was reached")
	}
}

// TestBudget is what a session meets at its end.
func TestBudget(t *testing.T) {
	t.Run("EG-88_terminal", func(t *testing.T) {
		s := anthropicSetup()
		s.limit = 1_000_000 // 0.001 USD: no call fits
		w := start(t, s)
		resp, body := w.post("/v1/messages", hello)
		if resp.StatusCode != 403 || code(body) != spend.CodeExceeded || !strings.Contains(body, `"budget":"session s-1"`) || !strings.Contains(body, `"remaining":"0.001 USD"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		if d, _ := w.rec.last(t, enforcers.ModelCall); d.Decision.Reason != spend.CodeExceeded || d.Decision.Passed {
			t.Errorf("%+v", d.Decision)
		}
		if w.fake.Accepts() != 0 {
			t.Error("dialed")
		}
	})
	t.Run("ME-14_one_headroom", func(t *testing.T) {
		s := anthropicSetup()
		release := make(chan struct{})
		arrived := make(chan struct{}, 64)
		s.serve = func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-release
			anthropicUnary(10, 5)(w, r)
		}
		s.limit = 9_000_000
		w := start(t, s)
		results := make(chan string, 64)
		for range 64 {
			go func() {
				r, err := http.NewRequestWithContext(t.Context(), "POST", baseURL+"/v1/messages", strings.NewReader(strings.Replace(hello, "100", "60", 1)))
				if err != nil {
					results <- err.Error()
					return
				}
				r.Header.Set("Content-Type", "application/json")
				resp, err := w.client.Do(r)
				if err != nil {
					results <- err.Error()
					return
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				results <- fmt.Sprint(resp.StatusCode, " ", code(string(b)))
			}()
		}
		<-arrived
		for range 63 {
			if got := <-results; got != "429 "+spend.CodeHeld {
				t.Errorf("%s", got)
			}
		}
		close(release)
		if got := <-results; got != "200 " {
			t.Errorf("the admitted one: %s", got)
		}
		if w.fake.Requests() != 1 {
			t.Errorf("%d calls went out", w.fake.Requests())
		}
	})
	t.Run("ME-17_no_receipt_no_call", func(t *testing.T) {
		w := start(t, anthropicSetup())
		w.rec.mu.Lock()
		w.rec.down = true
		w.rec.mu.Unlock()
		resp, body := w.post("/v1/messages", hello)
		if resp.StatusCode != 503 || w.fake.Accepts() != 0 {
			t.Errorf("%d %s, %d connections", resp.StatusCode, body, w.fake.Accepts())
		}
		if b, _ := w.ledger.Session("s-1"); b.Held != 0 || b.Spent != 0 {
			t.Errorf("%+v", b)
		}
	})
}
