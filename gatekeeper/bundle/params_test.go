package bundle_test

import (
	"strings"
	"testing"

	"gatehouse/gatekeeper/bundle"
)

const withParams = minimal + "enforcers: {dlp: {module: 'dlp@sha256:" + zeros64 + "', params: {%}}}\n"

// TestSettings holds params to what a module reads: canonical JSON.
func TestSettings(t *testing.T) {
	cases := map[string]struct{ yaml, want, err string }{
		"none":      {``, `{}`, ""},
		"kinds":     {`b: [x, 1, true, {d: -7, c: []}], a: "2"`, `{"a":"2","b":["x",1,true,{"c":[],"d":-7}]}`, ""},
		"zeros":     {`a: 0, b: false, c: "", d: []`, `{"a":0,"b":false,"c":"","d":[]}`, ""},
		"nested":    {`n: [~]`, "", "a module's setting is"},
		"unicode":   {`host: bücher.test`, `{"host":"bücher.test"}`, ""},
		"largest":   {`n: 9007199254740991`, `{"n":9007199254740991}`, ""},
		"too_large": {`n: 9007199254740992`, "", "no whole number"},
		"octal":     {`n: 0o17`, "", "no whole number"},
		"fraction":  {`n: 1.5`, "", "a module's setting is"},
		"nothing":   {`n: ~`, "", "params"},
		"control":   {`n: "a\tb"`, "", "cannot hold this text"},
		"twice":     {`n: {a: 1, a: 2}`, "", "each once"},
		"alias":     {`n: [&x 1, *x]`, "", "anchors and aliases"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := bundle.Parse([]byte(strings.Replace(withParams, "%", c.yaml, 1)))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Enforcers["dlp"].Settings()
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
			again, err := bundle.Parse(b.Canonical())
			if err != nil || again.Digest() != b.Digest() {
				t.Errorf("the canonical form is another bundle: %v", err)
			}
		})
	}
}
