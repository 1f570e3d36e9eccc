package wasm_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"gatehouse/wasm"
	"gatehouse/wasm/hostile"
	"gatehouse/wasm/policies"
)

func TestInspect(t *testing.T) {
	std := wasm.Inspect(policies.Std)
	if std.Refused != "" || std.Profile != "wasip1-inert" || !slices.Contains(std.Exports, "gatehouse_decide") || !slices.Contains(std.Imports, "wasi_snapshot_preview1.proc_exit") || std.Metered <= std.Bytes/2 {
		t.Errorf("%+v", std)
	}
	core := wasm.Inspect(answering("one"))
	if core.Refused != "" || core.Profile != "core" || len(core.Imports) != 0 {
		t.Errorf("%+v", core)
	}
	g := &hostile.Guest{}
	g.Import("env", "system", nil, nil)
	if i := wasm.Inspect(g.Module()); !strings.Contains(i.Refused, `"system"`) || len(i.Imports) != 1 {
		t.Errorf("%+v", i)
	}
	if i := wasm.Inspect([]byte("x")); i.Refused == "" || i.Bytes != 1 {
		t.Errorf("%+v", i)
	}
}

// TestLastWords writes to standard error: to a host that asks for it, a bounded
// number of bytes, and to no other.
func TestLastWords(t *testing.T) {
	g := &hostile.Guest{}
	write := g.Import("wasi_snapshot_preview1", "fd_write", []byte{hostile.I32, hostile.I32, hostile.I32, hostile.I32}, []byte{hostile.I32})
	g.Data(0, []byte{hostile.AnswerAt, 0, 0, 0, 100, 8, 0, 0}) // 2,148 bytes from the answer on
	g.Decide = hostile.Join(hostile.I32Const(2), hostile.I32Const(0), hostile.I32Const(1), hostile.I32Const(8), hostile.Call(write), hostile.Drop,
		hostile.Packed(hostile.AnswerAt, int64(len(hostile.Deny))))
	module := g.Module()
	for name, want := range map[string]int{"asked_for": 4096, "on_a_node": 0} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			o := wasm.Options{Debug: &out}
			if want == 0 {
				o.Debug = nil
			}
			h, err := wasm.NewHost(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close(context.Background())
			m, err := h.Load(t.Context(), "talker", module)
			if err != nil {
				t.Fatal(err)
			}
			e, err := m.Enforcer(t.Context(), empty)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for range 3 {
				if v, err := e.Decide(t.Context(), []byte(`{}`)); err != nil || v.Rule != "r" {
					t.Fatalf("%+v, %v", v, err)
				}
			}
			if out.Len() != want || want > 0 && !bytes.HasPrefix(out.Bytes(), []byte(hostile.Deny)) {
				t.Errorf("%d bytes written, want %d", out.Len(), want)
			}
		})
	}
}

func TestStats(t *testing.T) {
	h := newHost(t)
	m, err := h.Load(t.Context(), "g", (&hostile.Guest{Decide: []byte{hostile.Unreachable}}).Module())
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.Enforcer(t.Context(), empty)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := e.Decide(t.Context(), []byte(`{}`)); faultCode(err) != wasm.Trap {
			t.Fatal(err)
		}
	}
	if s := h.Stats(); s.Modules != 1 || s.Instances != 0 || s.Created != 2 || s.Faulted != 2 {
		t.Errorf("%+v", s)
	}
	e.Close()
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.Stats(); s.Modules != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDescriptions(t *testing.T) {
	h := newHost(t)
	for name, c := range map[string]struct{ description, fault string }{
		"plain":           {`{"actions":["dns.query"],"name":"x","version":"1.0"}`, ""},
		"bodies":          {`{"actions":["http.request"],"body":"whole","body_bytes":10,"name":"x","version":"1"}`, ""},
		"unknown_kind":    {`{"actions":["shell.run"],"name":"x","version":"1"}`, wasm.BadOutput},
		"unknown_key":     {`{"actions":[],"author":"me","name":"x","version":"1"}`, wasm.BadOutput},
		"control_text":    {`{"actions":[],"name":"x\u001b[31m","version":"1"}`, wasm.BadOutput},
		"rule_with_space": {`{"actions":[],"name":"x","rules":["a b"],"version":"1"}`, wasm.BadOutput},
		"body_unbounded":  {`{"actions":[],"body":"whole","name":"x","version":"1"}`, wasm.BadOutput},
		"body_unknown":    {`{"actions":[],"body":"all","body_bytes":1,"name":"x","version":"1"}`, wasm.BadOutput},
		"trailing":        {`{"actions":[],"name":"x","version":"1"}{}`, wasm.BadOutput},
		"not_json":        {`x`, wasm.BadOutput},
	} {
		t.Run(name, func(t *testing.T) {
			g := &hostile.Guest{}
			g.Data(1024, []byte(c.description))
			g.Functions = func(m *hostile.Builder) {
				m.Export("gatehouse_describe", m.Func(nil, []byte{hostile.I64}, nil, hostile.Packed(1024, int64(len(c.description)))))
			}
			m, err := h.Load(t.Context(), "g", g.Module())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(t.Context())
			e, err := m.Enforcer(t.Context(), empty)
			if faultCode(err) != c.fault || (err == nil) != (c.fault == "") {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				e.Close()
			}
		})
	}
}
