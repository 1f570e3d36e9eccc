package telemetry

import (
	"strings"
	"testing"

	"gatehouse/internal/secret"
)

// FuzzRewrite: no message makes a rewriter panic, and none that passes still
// says that it is another session.
func FuzzRewrite(f *testing.F) {
	s, err := sinkOf(Connection{Name: "c", Provider: "sentry", Credential: secret.FromString("https://0123456789abcdef@x.test/42")})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"", "{}", `{"resourceSpans":[{"resource":{"attributes":[{"key":"session.id","value":{"stringValue":"s-forged"}}]}}]}`,
		`{"batch":[{"type":"trace-create","body":{"sessionId":"s-forged"}}]}`,
		"{}\n{\"type\":\"event\"}\n{\"tags\":[[\"session.id\",\"s-forged\"]]}\n", "{}\n{\"type\":\"attachment\",\"length\":2}\nab",
		"\x0a\x16\x0a\x14\x0a\x12\x0a\x0asession.id\x12\x04\x0a\x02ab",
	} {
		f.Add([]byte(seed))
	}
	id := identity{"s-1", "b"}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, signal := range signals {
			if out, code := id.protobuf(signal, b); code == "" {
				if _, code := id.protobuf(signal, out); code != "" {
					t.Errorf("what was rewritten is refused: %s", code)
				}
			}
			if out, code := id.json(signal, b); code == "" && strings.Contains(string(out), `"key":"session.id","value":{"stringValue":"s-forged"}`) {
				t.Errorf("passed: %s", out)
			}
		}
		if out, code := id.ingestion(b); code == "" && strings.Contains(string(out), `"sessionId":"s-forged"`) {
			t.Errorf("passed: %s", out)
		}
		if out, _, code := id.envelope(b, s); code == "" && out != nil {
			again, dropped, code := id.envelope(out, s)
			if code != "" || dropped != 0 || string(again) != string(out) {
				t.Errorf("rewriting twice differs: %q %q %d %s", out, again, dropped, code)
			}
		}
	})
}
