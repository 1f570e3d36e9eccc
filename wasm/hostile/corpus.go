package hostile

import (
	"bytes"
	"strings"
)

// Stage is where a case must end.
type Stage string

// Stages.
const (
	AtLoad   Stage = "load"   // refused before anything runs
	AtSetUp  Stage = "set_up" // while starting or configuring
	AtDecide Stage = "decide"
)

// Case is one attack.
type Case struct {
	Name   string // "WA-nn_what"
	Module []byte
	Stage  Stage
	Fault  string // fault code it must end in; "" means it must answer Deny
}

// loop is an endless loop; dead is what follows it to satisfy the validator.
var loop = Join(Loop(), Br(0), End)

// Cases returns the corpus. Modules are built on each call.
func Cases() []Case {
	guest := func(f func(g *Guest)) []byte {
		g := &Guest{}
		f(g)
		return g.Module()
	}
	decide := func(code ...any) []byte { return guest(func(g *Guest) { g.Decide = Join(code...) }) }
	zero := I64Const(0)
	plain := (&Guest{}).Module()
	wasi := func(name string, params, results []byte, call ...any) []byte {
		return guest(func(g *Guest) {
			f := g.Import("wasi_snapshot_preview1", name, params, results)
			g.Decide = Join(append(call, Call(f), zero)...)
		})
	}
	// remember answers Deny once and another verdict from then on, if what it
	// noted is still there.
	const other = `{"reason":"seen","rule":"r","verdict":"abstain"}`
	remember := func(recall, note []byte) []byte {
		return guest(func(g *Guest) {
			g.Global(I32, I32Const(0))
			g.Data(512, []byte(other))
			g.Decide = Join(recall, If(I64), Packed(512, int64(len(other))), Else, note, Packed(AnswerAt, int64(len(Deny))), End)
		})
	}
	return []Case{
		{"WA-04_remembers_in_memory", remember(Join(I32Const(8), Load(0x28, 0)), Join(I32Const(8), I32Const(1), Store(0x36, 0))), AtDecide, ""},
		{"WA-04_remembers_in_a_global", remember(GlobalGet(0), Join(I32Const(1), GlobalSet(0))), AtDecide, ""},
		{"WA-09_endless_loop", decide(loop, zero), AtDecide, "fuel_exhausted"},
		{"WA-10_call_chain", guest(func(g *Guest) {
			g.Functions = func(m *Builder) {
				f := m.Func(nil, nil, nil)
				for range 45 {
					f = m.Func(nil, nil, nil, Call(f), Call(f))
				}
			}
			g.Decide = Join(Call(45), zero)
		}), AtDecide, "fuel_exhausted"},
		{"WA-11_recursion", guest(func(g *Guest) {
			g.Functions = func(m *Builder) { m.Func(nil, nil, nil, Call(0)) }
			g.Decide = Join(Call(0), zero)
		}), AtDecide, "trap"},
		{"WA-11_recursion_of_large_frames", guest(func(g *Guest) {
			g.Functions = func(m *Builder) { m.Func(nil, nil, []byte(strings.Repeat(string([]byte{I64}), 4_000)), Call(0)) }
			g.Decide = Join(Call(0), zero)
		}), AtDecide, "fuel_exhausted"},
		{"WA-11_mutual_recursion_through_the_table", guest(func(g *Guest) {
			g.Functions = func(m *Builder) {
				m.Table(1)
				t := m.Type(nil, nil)
				m.Elem(m.FuncOf(t, nil, I32Const(0), CallIndirect(t)))
			}
			g.Decide = Join(Call(0), zero)
		}), AtDecide, "trap"},
		{"WA-12_memory_fill", guest(func(g *Guest) {
			g.Pages = 240
			for range 2000 {
				g.Decide = Join(g.Decide, I32Const(0), I32Const(1), I32Const(15<<20), MemoryFill())
			}
			g.Decide = Join(g.Decide, zero)
		}), AtDecide, "fuel_exhausted"},
		{"WA-13_table_grow", decide([]byte{0xd0, 0x70}, I32Const(200_000_000), []byte{0xfc, 15, 0}, Drop, zero), AtLoad, "load_rejected"},
		{"WA-14_table_min", guest(func(g *Guest) { g.Table(100_000_000) }), AtLoad, "load_rejected"},
		{"WA-15_memory_min", guest(func(g *Guest) { g.Pages = 257 }), AtLoad, "load_rejected"},
		{"WA-16_memory_grow", decide(I32Const(60_000), MemoryGrow(), I32Const(-1), byte(0x46), If(0x40), Unreachable, End, zero), AtDecide, "mem_exceeded"},
		{"WA-16_memory_grow_survived", decide(I32Const(60_000), MemoryGrow(), Drop, Packed(AnswerAt, int64(len(Deny)))), AtDecide, ""},
		{"WA-16_memory_grow_page_by_page", decide(Loop(), I32Const(1), MemoryGrow(), Drop, Br(0), End, zero), AtDecide, "fuel_exhausted"},
		{"WA-17_loop_in_start", guest(func(g *Guest) { g.Starting = loop }), AtSetUp, "fuel_exhausted"},
		{"WA-18_result_out_of_range", decide(Packed(1<<30, 100)), AtDecide, "bad_output"},
		{"WA-18_result_over_the_edge", decide(Packed(2<<16-10, 11)), AtDecide, "bad_output"},
		{"WA-18_result_wraps", decide(I64Const(-16)), AtDecide, "bad_output"},
		{"WA-18_alloc_out_of_range", guest(func(g *Guest) { g.Alloc = I32Const(-8) }), AtSetUp, "bad_output"},
		{"WA-19_unknown_import", guest(func(g *Guest) { g.Import("env", "system", nil, nil) }), AtLoad, "load_rejected"},
		{"WA-19_wasi_beyond_the_profile", guest(func(g *Guest) {
			g.Import("wasi_snapshot_preview1", "path_open", []byte{I32, I32, I32, I32, I32, I64, I64, I32, I32}, []byte{I32})
		}), AtLoad, "load_rejected"},
		{"WA-20_wrong_import_type", guest(func(g *Guest) { g.Import("wasi_snapshot_preview1", "fd_close", nil, nil) }), AtLoad, "load_rejected"},
		{"WA-20_wrong_export_type", wrongSignature(), AtLoad, "load_rejected"},
		{"WA-21_unreachable", decide(Unreachable), AtDecide, "trap"},
		{"WA-21_divide_by_zero", decide(I32Const(1), I32Const(0), byte(0x6d), Drop, zero), AtDecide, "trap"},
		{"WA-21_load_out_of_bounds", decide(I32Const(-1), Load(0x28, 0xffff), Drop, zero), AtDecide, "trap"},
		{"WA-22_growth_during_alloc", guest(func(g *Guest) { g.Alloc = Join(I32Const(1), MemoryGrow(), Drop, I32Const(InputAt)) }), AtDecide, ""},
		{"WA-23_alloc_zero", guest(func(g *Guest) { g.Alloc = I32Const(0) }), AtSetUp, "guest_error"},
		{"WA-23_alloc_odd", guest(func(g *Guest) { g.Alloc = I32Const(70_001) }), AtDecide, ""},
		{"WA-23_alloc_over_the_answer", guest(func(g *Guest) { g.Alloc = I32Const(AnswerAt) }), AtDecide, "bad_output"},
		{"WA-24_output_aliases_input", decide(LocalGet(0), I64ExtendI32, I64Const(32), I64Shl, LocalGet(1), I64ExtendI32, I64Or), AtDecide, "bad_output"},
		{"WA-25_output_too_large", decide(Packed(AnswerAt, 8<<10+1)), AtDecide, "bad_output"},
		{"WA-26_deep_json", guest(func(g *Guest) { g.Answer = strings.Repeat("[", 8000) }), AtDecide, "bad_output"},
		{"WA-26_deep_object", guest(func(g *Guest) {
			g.Answer = `{"obligations":` + strings.Repeat("[", 4000) + strings.Repeat("]", 4000) + `}`
		}), AtDecide, "bad_output"},
		{"WA-27_truncated", plain[:len(plain)-20], AtLoad, "load_rejected"},
		{"WA-28_leb_overlong", append([]byte("\x00asm\x01\x00\x00\x00"), 1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x00, 0), AtLoad, "load_rejected"},
		{"WA-29_locals", guest(func(g *Guest) {
			g.Functions = func(m *Builder) { m.Raw(m.Type(nil, nil), Join(byte(1), U32(50_000), I32, End)) }
		}), AtLoad, "load_rejected"},
		{"WA-30_a_million_functions", guest(func(g *Guest) {
			g.Functions = func(m *Builder) {
				t := m.Type(nil, nil)
				for range 1_000_000 {
					m.Raw(t, []byte{0, End})
				}
			}
		}), AtLoad, "load_rejected"},
		{"WA-31_data_past_memory", guest(func(g *Guest) { g.Data(2<<16-2, []byte("xyz")) }), AtLoad, "load_rejected"},
		{"WA-31_elements_past_the_table", guest(func(g *Guest) {
			g.Functions = func(m *Builder) { f := m.Func(nil, nil, nil); m.Table(1); m.Elem(f, f) }
		}), AtLoad, "load_rejected"},
		{"WA-32_no_abi", noABI(), AtLoad, "load_rejected"},
		{"WA-32_feature_bits", guest(func(g *Guest) { g.ABI = I32Const(1) }), AtSetUp, "load_rejected"},
		{"WA-33_initialize_traps", guest(func(g *Guest) { g.Init = []byte{Unreachable} }), AtSetUp, "trap"},
		{"WA-33_initialize_loops", guest(func(g *Guest) { g.Init = loop }), AtSetUp, "fuel_exhausted"},
		{"WA-33_configure_traps", guest(func(g *Guest) { g.Configure = []byte{Unreachable} }), AtSetUp, "trap"},
		{"WA-33_configure_refuses", guest(func(g *Guest) { g.Configure = I32Const(7) }), AtSetUp, "configure_failed"},
		{"WA-33_configure_loops", guest(func(g *Guest) { g.Configure = Join(loop, I32Const(0)) }), AtSetUp, "fuel_exhausted"},
		{"WA-34_proc_exit", wasi("proc_exit", []byte{I32}, nil, I32Const(0)), AtDecide, "trap"},
		{"compile_bomb_in_one_function", guest(func(g *Guest) { g.Functions = func(m *Builder) { entangle(m, 200, 5_000) } }), AtLoad, "load_rejected"},
		{"compile_bomb_in_many_functions", guest(func(g *Guest) {
			g.Functions = func(m *Builder) {
				for range 50 {
					entangle(m, 120, 1_000)
				}
			}
		}), AtLoad, "load_rejected"},
		{"compile_bomb_without_locals", guest(func(g *Guest) {
			g.Functions = func(m *Builder) { m.Func(nil, nil, nil, rowOfLoops(3_000)) }
		}), AtLoad, "load_rejected"},
		{"compile_bomb_without_locals_in_many_functions", guest(func(g *Guest) {
			g.Functions = func(m *Builder) {
				for range 25 {
					m.Func(nil, nil, nil, rowOfLoops(2_700))
				}
			}
		}), AtLoad, "load_rejected"},
		{"imports_in_a_loop", guest(func(g *Guest) {
			f := g.Import("wasi_snapshot_preview1", "random_get", []byte{I32, I32}, []byte{I32})
			g.Decide = Join(Loop(), I32Const(0), I32Const(256), Call(f), Drop, Br(0), End, zero)
		}), AtDecide, "fuel_exhausted"},
		{"answer_with_extra_key", guest(func(g *Guest) { g.Answer = `{"extra":1,"reason":"no","rule":"r","verdict":"deny"}` }), AtDecide, "bad_output"},
		{"answer_zero", decide(zero), AtDecide, "guest_error"},
	}
}

// rowOfLoops is a function's code: small to write, and more than linear for a
// compiler.
func rowOfLoops(n int) []byte { return bytes.Repeat(Join(Loop(), End), n) }

// entangle adds a function whose locals pass through nested loops: small to
// write, and quadratic for a compiler.
func entangle(m *Builder, loops, locals int) {
	var b []byte
	for range loops {
		b = append(b, Loop()...)
	}
	for i := range uint32(locals) {
		b = append(b, Join(LocalGet(i), I64Const(1), I64Add, LocalSet(i))...)
	}
	for range loops {
		b = append(b, Join(I32Const(0), BrIf(0), End)...)
	}
	m.Func(nil, nil, []byte(strings.Repeat(string([]byte{I64}), locals)), b)
}

// wrongSignature exports gatehouse_decide with a type of its own.
func wrongSignature() []byte {
	m := &Builder{}
	m.Memory(1)
	one, two := []byte{I32}, []byte{I32, I32}
	m.Export("gatehouse_abi_v1", m.Func(nil, one, nil, I32Const(0)))
	m.Export("gatehouse_alloc", m.Func(one, one, nil, I32Const(8)))
	m.Export("gatehouse_configure", m.Func(two, one, nil, I32Const(0)))
	m.Export("gatehouse_decide", m.Func(one, one, nil, I32Const(0)))
	return m.Bytes()
}

// noABI is valid WebAssembly and nothing else.
func noABI() []byte {
	m := &Builder{}
	m.Memory(1)
	m.Export("f", m.Func(nil, nil, nil))
	return m.Bytes()
}
