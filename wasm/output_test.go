package wasm

import (
	"encoding/json"
	"testing"

	"gatehouse/enforcers"
)

// FuzzParseAnswer holds the closed spelling to a JSON parser: what is accepted
// is an object of exactly the keys of the ABI, and says the same to both.
func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"reason":"listed","rule":"egress[2]","verdict":"allow"}`))
	f.Add([]byte(`{"obligations":[],"reason":"","rule":"","verdict":"abstain"}`))
	f.Add([]byte(`{"reason":"a","rule":"b","verdict":"deny"} `))
	f.Fuzz(func(t *testing.T, b []byte) {
		effect, rule, reason, ok := parseAnswer(b)
		if !ok {
			return
		}
		var v struct {
			Obligations []any  `json:"obligations"`
			Reason      string `json:"reason"`
			Rule        string `json:"rule"`
			Verdict     string `json:"verdict"`
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%q is no JSON: %v", b, err)
		}
		if v.Reason != string(reason) || v.Rule != string(rule) || enforcers.Effect(v.Verdict) != effect || len(v.Obligations) != 0 {
			t.Errorf("%q reads as %s %s %s", b, effect, rule, reason)
		}
	})
}
