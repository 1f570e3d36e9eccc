package wasm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/wasm/policies"
)

// benchPolicy has fifty rules, exact and wildcard hosts, of which number 42
// matches benchAction.
func benchPolicy() string {
	var b strings.Builder
	b.WriteString(`{"egress":[`)
	for i := range 50 {
		host := fmt.Sprintf("host-%d.example.test", i)
		switch {
		case i == 42:
			host = "api.good.test"
		case i%2 == 1:
			host = fmt.Sprintf("*.zone-%d.example.test", i)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"host":"%s","id":"egress[%d]","methods":["GET","POST"],"paths":["/v1/**"],"ports":[443],"schemes":["https"]}`, host, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// benchAction is 566 bytes of an http.request, like the reference's.
func benchAction(t testing.TB) []byte {
	t.Helper()
	b := canonical(t, enforcers.Action{Kind: enforcers.HTTPRequest, HTTP: &enforcers.HTTP{
		Method: "GET", Path: "/v1/projects/12/packages", Query: "page=2&per_page=100", Body: enforcers.Body{Mode: "none"},
		Headers: map[string][]string{
			"accept":          {"application/json, text/plain;q=0.9, */*;q=0.1"},
			"accept-encoding": {"gzip, br"}, "user-agent": {"npm/11.2.0 node/v22.23.0 linux x64 workspaces/false"},
			"x-request-id": {"01J9Z3K4M5N6P7Q8R9S0T1V2W3"},
		},
	}})
	b = []byte(strings.Replace(string(b), `"host":"","ip":false,"port":0,"scheme":""`, `"host":"api.good.test","ip":false,"port":443,"scheme":"https"`, 1))
	if pad := 566 - len(b); pad > 0 {
		b = []byte(strings.Replace(string(b), `"page=2`, `"`+strings.Repeat("q", pad)+`page=2`, 1))
	}
	return b
}

func BenchmarkDecide(b *testing.B) {
	action := benchAction(b)
	configure := Configure([]byte(benchPolicy()), BuiltinParams("egress"))
	native, err := policies.Native("egress", configure)
	if err != nil {
		b.Fatal(err)
	}
	for name, e := range map[string]enforcers.Enforcer{"native": native, "wasm": builtinEnforcer(b, "egress", benchPolicy())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			var v enforcers.Verdict
			for b.Loop() {
				var err error
				if v, err = e.Decide(ctx, action); err != nil || v.Rule != "egress[42]" {
					b.Fatalf("%+v, %v", v, err)
				}
			}
			b.ReportMetric(float64(v.Fuel), "fuel/op")
			b.ReportMetric(float64(len(action)), "bytes/action")
		})
	}
}

// BenchmarkLoad measures what a node pays before its first decision: compiling
// the built-in module, finding it compiled on disk, and making one more
// enforcer.
func BenchmarkLoad(b *testing.B) {
	load := func(b *testing.B, dir string) *Module {
		h, err := NewHost(b.Context(), Options{CacheDir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { h.Close(context.Background()) })
		m, err := h.Builtin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			load(b, "")
		}
	})
	dir := filepath.Join(b.TempDir(), "cache")
	m := load(b, dir)
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			load(b, dir)
		}
	})
	b.Run("enforcer", func(b *testing.B) {
		configure := Configure([]byte(benchPolicy()), BuiltinParams("egress"))
		for b.Loop() {
			e, err := m.Enforcer(b.Context(), configure)
			if err != nil {
				b.Fatal(err)
			}
			e.Close()
		}
	})
}
