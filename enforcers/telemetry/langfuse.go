package telemetry

import "slices"

// ingested are the types of ingestion events that pass.
var ingested = []string{
	"trace-create", "score-create", "event-create", "span-create", "span-update", "generation-create", "generation-update",
	"agent-create", "tool-create", "chain-create", "retriever-create", "evaluator-create", "embedding-create", "guardrail-create",
	"observation-create", "observation-update", "sdk-log",
}

// ingestion rewrites a batch of Langfuse's own protocol.
func (id identity) ingestion(b []byte) ([]byte, string) {
	root, ok := object(b)
	if !ok {
		return nil, CodeBody
	}
	batch, ok := root["batch"].([]any)
	if !ok {
		return nil, CodeBody
	}
	for _, one := range batch {
		e, ok := one.(map[string]any)
		if !ok {
			return nil, CodeBody
		}
		kind, _ := e["type"].(string)
		body, ok := e["body"].(map[string]any)
		if !ok || !slices.Contains(ingested, kind) {
			return nil, CodeBody
		}
		if _, there := body["sessionId"]; there || kind == "trace-create" {
			body["sessionId"] = id.session // ME-21: whose session it is, is not the agent's word
		}
		if kind == "trace-create" {
			delete(body, "public") // it would be shown to whoever has the link
			body["metadata"] = id.metadata(body["metadata"])
		}
	}
	// What a client says of itself beside the batch repeats its key.
	out, err := encode(map[string]any{"batch": batch})
	if err != nil {
		return nil, CodeBody
	}
	return out, ""
}

// metadata adds the session to what stood there.
func (id identity) metadata(v any) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		m = map[string]any{}
		if v != nil {
			m["value"] = v
		}
	}
	m[sessionName], m[bundleName] = id.session, id.bundle
	return m
}
