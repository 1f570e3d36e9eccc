package door_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/receipts"
)

// inspecting is an added enforcer that denies bodies with "secret" in them.
type inspecting struct {
	mode string
	most int
	seen *[]enforcers.Body
}

func (inspecting) Name() string               { return "dlp" }
func (inspecting) Digest() [32]byte           { return [32]byte{8} }
func (inspecting) Kinds() []enforcers.Kind    { return []enforcers.Kind{enforcers.HTTPRequest} }
func (r inspecting) Body() (string, int)      { return r.mode, r.most }
func (r inspecting) bound() enforcers.Bound   { return enforcers.Bound{Enforcer: r, Mode: receipts.Hard} }
func (r inspecting) into(p *enforcers.Policy) { p.Enforcers = append(p.Enforcers, r.bound()) }

func (r inspecting) Decide(_ context.Context, action []byte) (enforcers.Verdict, error) {
	var a struct {
		HTTP struct {
			Body struct{ Mode, Bytes string }
		} `json:"http_request"`
	}
	if err := json.Unmarshal(action, &a); err != nil {
		return enforcers.Verdict{}, err
	}
	b, err := base64.StdEncoding.DecodeString(a.HTTP.Body.Bytes)
	if err != nil {
		return enforcers.Verdict{}, err
	}
	*r.seen = append(*r.seen, enforcers.Body{Mode: a.HTTP.Body.Mode, Bytes: b})
	if bytes.Contains(b, []byte("secret")) {
		return enforcers.Verdict{Effect: enforcers.Deny, Rule: "dlp", Reason: "found"}, nil
	}
	return enforcers.Verdict{Effect: enforcers.Abstain}, nil
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// TestInspect puts bodies before an enforcer that asks for them: whole and
// decoded, or denied without a dial.
func TestInspect(t *testing.T) {
	const host, path = "api.good.test", "/v1/x"
	long := strings.Repeat("x", 65)
	cases := map[string]struct {
		mode    string
		do      func(in *inside) reply
		code    string // "" = forwarded
		seen    string // mode and text that the enforcer got; "" = not asked
		arrives string
	}{
		"none": {"whole", func(in *inside) reply {
			return in.https(host+":443", host, "GET /v1/x HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		}, "", "none ", ""},
		"whole":               {"whole", post(host, path, "hello"), "", "whole hello", "hello"},
		"exactly_the_cap":     {"whole", post(host, path, long[:64]), "", "whole " + long[:64], long[:64]},
		"longer_than_the_cap": {"whole", post(host, path, long), enforcers.CodeBodyNotInspected, "", ""},
		"chunked":             {"whole", chunkedPost(host, path, "he", "llo"), "", "whole hello", "hello"},
		"chunked_too_long":    {"whole", chunkedPost(host, path, long[:40], long[:40]), enforcers.CodeBodyNotInspected, "", ""},
		"found":               {"whole", post(host, path, "a secret"), "found", "whole a secret", ""},
		"found_gzipped":       {"whole", post(host, path, gzipped("a secret"), "Content-Encoding: gzip"), "found", "whole a secret", ""},
		"gzip_goes_on_as_is":  {"whole", post(host, path, gzipped("hello"), "Content-Encoding: gzip"), "", "whole hello", gzipped("hello")},
		"gzip_bomb":           {"whole", post(host, path, gzipped(strings.Repeat("x", 70)), "Content-Encoding: gzip"), enforcers.CodeBodyNotInspected, "", ""},
		"unknown_encoding":    {"whole", post(host, path, "hello", "Content-Encoding: br"), enforcers.CodeBodyNotInspected, "", ""},
		"two_encodings":       {"whole", post(host, path, gzipped("hello"), "Content-Encoding: gzip", "Content-Encoding: gzip"), enforcers.CodeBodyNotInspected, "", ""},
		"prefix":              {"prefix", post(host, path, long), "", "prefix " + long[:64], long},
		"prefix_of_short":     {"prefix", post(host, path, "hello"), "", "whole hello", "hello"},
		"prefix_encoded":      {"prefix", post(host, path, "hello", "Content-Encoding: br"), enforcers.CodeBodyNotInspected, "", ""},
	}
	o := newOutside(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var seen []enforcers.Body
			in := open(t, o, setup{mode: receipts.Hard, change: inspecting{c.mode, 64, &seen}.into})
			before := o.tally()
			re := c.do(in)
			in.end()
			d, _ := in.rec.last()
			switch {
			case c.code == "":
				if re.status != 200 || d.Decision.Effect != enforcers.Allow {
					t.Fatalf("%d %s, %+v", re.status, re.body, d.Decision)
				}
				if got := o.bodiesSince(before); len(got) != 1 || got[0] != c.arrives {
					t.Errorf("outside got %q, want %q", got, c.arrives)
				}
			default:
				if re.status != 403 || d.Decision.Reason != c.code || d.Decision.By != "dlp" {
					t.Errorf("%d, %+v, want %s by dlp", re.status, d.Decision, c.code)
				}
				if after := o.tally(); after.accepts != before.accepts || after.queries != before.queries {
					t.Errorf("something was dialed or asked: %+v, %+v", before, after)
				}
			}
			got := ""
			if len(seen) > 0 {
				got = seen[len(seen)-1].Mode + " " + string(seen[len(seen)-1].Bytes)
			}
			if got != c.seen {
				t.Errorf("the enforcer saw %q, want %q", got, c.seen)
			}
		})
	}
}

// TestInspectShadow is a would-block: a body that could not be read whole still
// goes on, byte for byte, where nothing but a record was promised.
func TestInspectShadow(t *testing.T) {
	o := newOutside(t)
	var seen []enforcers.Body
	in := open(t, o, setup{mode: receipts.Shadow, change: inspecting{"whole", 4, &seen}.into})
	before := o.tally()
	re := post("api.good.test", "/v1/x", "hello")(in)
	in.end()
	d, _ := in.rec.last()
	if got := o.bodiesSince(before); re.status != 200 || len(got) != 1 || got[0] != "hello" || d.Decision.Reason != enforcers.CodeBodyNotInspected || !d.Decision.Passed {
		t.Errorf("%d, outside got %q, %+v", re.status, got, d.Decision)
	}
}
