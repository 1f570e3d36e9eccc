package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// do is what the scripted model has an agent do: one of its tools with the
// arguments that this tool takes. input is for tools that take free text.
type do struct {
	tool  string
	args  map[string]any
	input string
}

// scripted is a model that has its agent do one thing after another, whatever
// the wire that it is asked over. What an agent's tools answered decides the
// next step, so that a step that the agent did not take is never counted.
type scripted struct {
	steps func(results []string) (next do, say string) // say ends the task

	mu    sync.Mutex
	tasks []string // the text of each conversation that has tools, as first asked
	asked []string // model, tools and number of results of every call
}

// conversation is what any provider's request says.
type conversation struct {
	model   string
	stream  bool
	tools   []string
	text    string
	results []string
}

// next answers one conversation. Those without tools are an agent's own, about
// titles and the like.
func (s *scripted) next(c conversation) (do, string) {
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %v %d", c.model, c.tools, len(c.results)))
	if len(c.tools) > 0 && len(c.results) == 0 {
		s.tasks = append(s.tasks, c.text)
	}
	s.mu.Unlock()
	if len(c.tools) == 0 {
		return do{}, "A title"
	}
	d, say := s.steps(c.results)
	if say == "" && !slices.Contains(c.tools, d.tool) {
		return do{}, fmt.Sprintf("no tool %s among %v", d.tool, c.tools)
	}
	return d, say
}

func (s *scripted) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, "\n")
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var c conversation
	reply := func(do, string) {}
	if err == nil {
		c, reply, err = wireOf(w, r.URL.Path, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if !c.stream {
		w.Header().Set("Content-Type", "application/json")
	}
	reply(s.next(c))
}

// texts collects the strings below a value of JSON under "text", and strings
// that stand in its place.
func texts(v any) string {
	switch v := v.(type) {
	case string:
		return v + "\n"
	case []any:
		var out string
		for _, e := range v {
			out += texts(e)
		}
		return out
	case map[string]any:
		return texts(v["text"])
	}
	return ""
}

// said is all that stands below a value, for answers of tools.
func said(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func wireOf(w http.ResponseWriter, path string, body []byte) (c conversation, reply func(do, string), err error) {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		return c, nil, err
	}
	c.model, _ = doc["model"].(string)
	c.stream, _ = doc["stream"].(bool)
	names := func(v any) {
		list, _ := v.([]any)
		for _, t := range list {
			m, _ := t.(map[string]any)
			if name, ok := m["name"].(string); ok {
				c.tools = append(c.tools, name)
			}
		}
	}
	each := func(v any, f func(map[string]any)) {
		list, _ := v.([]any)
		for _, e := range list {
			if m, ok := e.(map[string]any); ok {
				f(m)
			}
		}
	}
	event := func(name string, data map[string]any) {
		b, _ := json.Marshal(data)
		if name != "" {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
		w.(http.Flusher).Flush()
	}
	typed := func(name string, data map[string]any) {
		data["type"] = name
		event(name, data)
	}
	whole := func(data map[string]any) { _ = json.NewEncoder(w).Encode(data) }
	switch {
	case strings.HasSuffix(path, "/messages"):
		names(doc["tools"])
		each(doc["messages"], func(m map[string]any) {
			if m["role"] == "user" {
				c.text += texts(m["content"])
			}
			each(m["content"], func(b map[string]any) {
				if b["type"] == "tool_result" {
					c.results = append(c.results, texts(b["content"]))
				}
			})
		})
		return c, func(d do, say string) { answerMessages(c, typed, whole, d, say) }, nil
	case strings.HasSuffix(path, "/responses"):
		names(doc["tools"])
		each(doc["input"], func(m map[string]any) {
			switch m["type"] {
			case "message", nil:
				if m["role"] == "user" {
					c.text += texts(m["content"])
				}
			case "function_call_output", "custom_tool_call_output":
				c.results = append(c.results, said(m["output"]))
			}
		})
		return c, func(d do, say string) { answerResponses(c, typed, whole, d, say) }, nil
	case strings.Contains(path, "enerateContent"):
		c.stream = strings.HasSuffix(path, ":streamGenerateContent")
		c.model, _, _ = strings.Cut(path[strings.LastIndex(path, "/")+1:], ":")
		each(doc["tools"], func(m map[string]any) { names(m["functionDeclarations"]) })
		each(doc["contents"], func(m map[string]any) {
			each(m["parts"], func(p map[string]any) {
				if m["role"] == "user" {
					c.text += texts(p)
				}
				if r, ok := p["functionResponse"].(map[string]any); ok {
					c.results = append(c.results, said(r["response"]))
				}
			})
		})
		return c, func(d do, say string) {
			part := map[string]any{"text": say}
			if say == "" {
				part = map[string]any{"functionCall": map[string]any{"name": d.tool, "args": d.args}}
			}
			answer := map[string]any{
				"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
				"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": c.model,
			}
			if c.stream {
				event("", answer)
				return
			}
			whole(answer)
		}, nil
	}
	return c, nil, fmt.Errorf("no such route: %s", path)
}

func answerMessages(c conversation, typed func(string, map[string]any), whole func(map[string]any), d do, say string) {
	block, stop := map[string]any{"type": "text", "text": say}, "end_turn"
	if say == "" {
		block, stop = map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", len(c.results)), "name": d.tool, "input": d.args}, "tool_use"
	}
	message := map[string]any{
		"id": fmt.Sprintf("msg_%d", len(c.results)), "type": "message", "role": "assistant", "model": c.model, "content": []any{block},
		"stop_reason": stop, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 10, "output_tokens": 5},
	}
	if !c.stream {
		whole(message)
		return
	}
	delta := map[string]any{"type": "text_delta", "text": say}
	if say == "" {
		args, _ := json.Marshal(d.args)
		delta = map[string]any{"type": "input_json_delta", "partial_json": string(args)}
		block["input"] = map[string]any{}
	} else {
		block["text"] = ""
	}
	message["content"], message["stop_reason"] = []any{}, nil
	typed("message_start", map[string]any{"message": message})
	typed("content_block_start", map[string]any{"index": 0, "content_block": block})
	typed("content_block_delta", map[string]any{"index": 0, "delta": delta})
	typed("content_block_stop", map[string]any{"index": 0})
	typed("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 5}})
	typed("message_stop", map[string]any{})
}

func answerResponses(c conversation, typed func(string, map[string]any), whole func(map[string]any), d do, say string) {
	id := fmt.Sprint(len(c.results))
	item := map[string]any{"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed", "content": []any{map[string]any{"type": "output_text", "text": say, "annotations": []any{}}}}
	switch {
	case say != "":
	case d.input != "":
		item = map[string]any{"type": "custom_tool_call", "id": "ctc_" + id, "call_id": "call_" + id, "name": d.tool, "input": d.input, "status": "completed"}
	default:
		args, _ := json.Marshal(d.args)
		item = map[string]any{"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id, "name": d.tool, "arguments": string(args), "status": "completed"}
	}
	response := map[string]any{
		"id": "resp_" + id, "object": "response", "model": c.model, "status": "completed", "output": []any{item},
		"usage": map[string]any{
			"input_tokens": 10, "input_tokens_details": map[string]any{"cached_tokens": 0},
			"output_tokens": 5, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 15,
		},
	}
	if !c.stream {
		whole(response)
		return
	}
	typed("response.created", map[string]any{"sequence_number": 0, "response": map[string]any{"id": "resp_" + id, "object": "response", "model": c.model, "status": "in_progress", "output": []any{}}})
	typed("response.output_item.added", map[string]any{"sequence_number": 1, "output_index": 0, "item": item})
	typed("response.output_item.done", map[string]any{"sequence_number": 2, "output_index": 0, "item": item})
	typed("response.completed", map[string]any{"sequence_number": 3, "response": response})
}
