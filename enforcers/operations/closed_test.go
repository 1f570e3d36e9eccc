package operations

import (
	"context"
	"encoding/json"
	"testing"
)

// TestOpenArguments: an operation's arguments are a closed object. A schema that
// only looks so is refused at the start.
func TestOpenArguments(t *testing.T) {
	do := func(context.Context, *Call) (any, error) { return nil, nil }
	for name, s := range map[string]string{
		"true":   `{"type":"object","additionalProperties":true,"properties":{"a":{"type":"string"}}}`,
		"schema": `{"type":"object","additionalProperties":{},"properties":{"a":{"type":"string"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(Operation{Name: "http.call.x", Schema: json.RawMessage(s), Do: do}); err == nil {
				t.Error("taken")
			}
		})
	}
	if err := Check(Operation{Name: "http.call.x", Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`), Do: do}); err != nil {
		t.Error(err)
	}
}
