package meter

import (
	"maps"
	"slices"
	"strconv"
)

// Version names the rewriter; it stands beside the module's digest wherever a
// verdict must be replayable, because prices may change with it.
const Version = "1"

// reserved begins every export the rewriter adds.
const reserved = "gatehouse_meter_"

// Exports the rewriter adds, besides one for each mutable global.
const (
	FuelExport    = reserved + "fuel"    // mutable i64: what is left; negative once exhausted
	RefusedExport = reserved + "refused" // mutable i32: 1 once memory.grow was refused
	StartExport   = reserved + "start"   // the start function, if the module has one
)

// Limits are what a rewritten module is held to.
type Limits struct {
	Pages uint32 // of memory, 64 KiB each; the module's own maximum is lowered to it
	Fuel  int64  // value of the counter at instantiation
	Depth uint32 // frames; the call that would exceed it traps
}

// Module is a rewritten module and what a host must know to run it.
type Module struct {
	Wasm    []byte
	Globals []string            // exports of the module's own mutable globals
	Imports []Import            // in order
	Funcs   map[string]FuncType // exported functions
	Memory  string              // name of the exported memory, "" if none
	Start   bool                // StartExport must be called before anything else
}

// Rewrite returns the metered form of a module, or a *Refusal. It never
// returns more than ten times the bytes it was given and a kilobyte.
func Rewrite(module []byte, l Limits) (*Module, error) {
	m, err := parse(module)
	if err != nil {
		return nil, err
	}
	if m.memory.min > l.Pages { // WA-15
		return nil, refuse("the module's memory begins larger than its limit")
	}
	m.memory.max = min(m.memory.max, l.Pages)
	w := &rewriter{
		m: m, limits: l, blockTypes: make(map[uint32]int64),
		fuel: uint32(len(m.globals)), depth: uint32(len(m.globals)) + 1, refused: uint32(len(m.globals)) + 2,
	}
	first := uint32(m.imported + len(m.functions))
	w.fill, w.copy, w.grow = first, first+1, first+2
	ranges := w.addType(FuncType{Params: []ValType{I32, I32, I32}})
	growth := w.addType(FuncType{Params: []ValType{I32}, Results: []ValType{I32}})
	code, err := w.code()
	if err != nil {
		return nil, err
	}
	out := &Module{Imports: m.imports, Funcs: make(map[string]FuncType)}
	for name, e := range m.exports {
		switch e.kind {
		case 0:
			out.Funcs[name] = m.typeOf(e.index)
		case 2:
			if out.Memory != "" {
				return nil, refuse("the memory is exported twice")
			}
			out.Memory = name
		}
	}

	b := make([]byte, 0, len(module)*2+1024)
	b = append(b, "\x00asm\x01\x00\x00\x00"...)
	b = section(b, secType, w.typeSection())
	b = section(b, secImport, m.raw[secImport])
	b = section(b, secFunction, w.functionSection(uint32(ranges), uint32(ranges), uint32(growth)))
	b = section(b, secTable, m.raw[secTable])
	b = section(b, secMemory, appendU32(appendU32([]byte{1, 1}, m.memory.min), m.memory.max))
	b = section(b, secGlobal, w.globalSection())
	exports := w.exportSection(out)
	b = section(b, secExport, exports)
	b = section(b, secElement, m.raw[secElement])
	b = section(b, secDataCount, m.raw[secDataCount])
	b = section(b, secCode, code)
	b = section(b, secData, m.raw[secData])
	out.Wasm = b
	return out, nil
}

func section(b []byte, id byte, payload []byte) []byte {
	if payload == nil {
		return b
	}
	b = append(b, id)
	b = appendU32(b, uint32(len(payload)))
	return append(b, payload...)
}

func (w *rewriter) addType(t FuncType) int64 {
	w.types = append(w.types, t)
	return int64(len(w.m.types) + len(w.types) - 1)
}

func (w *rewriter) typeSection() []byte {
	b := appendU32(nil, uint32(len(w.m.types)+len(w.types)))
	for _, t := range slices.Concat(w.m.types, w.types) {
		b = append(b, 0x60)
		for _, list := range [][]ValType{t.Params, t.Results} {
			b = appendU32(b, uint32(len(list)))
			for _, v := range list {
				b = append(b, byte(v))
			}
		}
	}
	return b
}

func (w *rewriter) functionSection(added ...uint32) []byte {
	b := appendU32(nil, uint32(len(w.m.functions)+len(added)))
	for _, t := range w.m.functions {
		b = appendU32(b, t)
	}
	for _, t := range added {
		b = appendU32(b, t)
	}
	return b
}

func (w *rewriter) globalSection() []byte {
	b := appendU32(nil, uint32(len(w.m.globals))+3)
	for _, g := range w.m.globals {
		b = append(b, byte(g.typ), bit(g.mutable))
		b = append(b, g.init...)
	}
	b = append(b, byte(I64), 1, opI64Const)
	b = append(appendS64(b, w.limits.Fuel), opEnd)
	b = append(b, byte(I32), 1, opI32Const)
	b = append(appendS64(b, int64(w.limits.Depth)+1), opEnd)
	return append(b, byte(I32), 1, opI32Const, 0, opEnd) // refused
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// exportSection writes the module's exports, then the meter's, and notes the
// latter in out.
func (w *rewriter) exportSection(out *Module) []byte {
	var body []byte
	n := uint32(0)
	add := func(name string, kind byte, index uint32) {
		body = appendU32(body, uint32(len(name)))
		body = append(body, name...)
		body = append(body, kind)
		body = appendU32(body, index)
		n++
	}
	for _, name := range slices.Sorted(maps.Keys(w.m.exports)) {
		add(name, w.m.exports[name].kind, w.m.exports[name].index)
	}
	// A start section runs inside instantiation, whose failure hides the counter;
	// as an export the host calls it first and can tell why it stopped.
	if w.m.start >= 0 {
		add(StartExport, 0, uint32(w.m.start))
		out.Start = true
	}
	add(FuelExport, 3, w.fuel)
	add(RefusedExport, 3, w.refused)
	for i, g := range w.m.globals {
		if g.mutable {
			name := reserved + "g" + strconv.Itoa(i)
			add(name, 3, uint32(i))
			out.Globals = append(out.Globals, name)
		}
	}
	return append(appendU32(nil, n), body...)
}

// code writes the code section: the rewritten bodies, then memory.fill,
// memory.copy and memory.grow as functions that pay first.
func (w *rewriter) code() ([]byte, error) {
	b := appendU32(nil, uint32(len(w.m.bodies))+3)
	var body []byte
	for n := range w.m.bodies {
		var err error
		if body, err = w.body(body[:0], n); err != nil {
			return nil, err
		}
		b = appendU32(b, uint32(len(body)))
		b = append(b, body...)
	}
	for _, body := range [][]byte{w.rangeBody(0xfc, 11, 0), w.rangeBody(0xfc, 10, 0, 0), w.growBody()} {
		b = appendU32(b, uint32(len(body)))
		b = append(b, body...)
	}
	return b, nil
}

// rangeBody is func(to, value or from, n): pay priceBulk + n, then the
// instruction.
func (w *rewriter) rangeBody(instruction ...byte) []byte {
	b := []byte{0, opLocalGet, 2, opI64ExtendU}
	b = w.payStack(b, priceBulk)
	b = append(b, opLocalGet, 0, opLocalGet, 1, opLocalGet, 2)
	b = append(b, instruction...)
	return append(b, opEnd)
}

// growBody is func(pages): pay for the pages, or only the base price when
// there are more than the memory can ever have, then grow and note a refusal.
func (w *rewriter) growBody() []byte {
	b := []byte{0, opI32Const, 0, opLocalGet, 0, opLocalGet, 0, opI32Const}
	b = appendS64(b, int64(w.m.memory.max))
	b = append(b, opI32GtU, opSelect, opI64ExtendU, opI64Const)
	b = appendS64(b, priceGrowPage)
	b = append(b, opI64Mul)
	b = w.payStack(b, priceGrow)
	b = append(b, opLocalGet, 0, opMemoryGrow, 0, opLocalTee, 0, opI32Const, 0x7f, opI32Eq, opIf, opVoid, opI32Const, 1, opGlobalSet)
	b = appendU32(b, w.refused)
	return append(b, opEnd, opLocalGet, 0, opEnd)
}

// payStack takes an i64 from the stack and pays it plus base.
func (w *rewriter) payStack(b []byte, base int64) []byte {
	b = append(b, opI64Const)
	b = appendS64(b, base)
	b = append(b, opI64Add, opI64Const)
	b = appendS64(b, -1)
	b = append(b, opI64Mul, opGlobalGet)
	b = appendU32(b, w.fuel)
	b = append(b, opI64Add, opGlobalSet)
	b = appendU32(b, w.fuel)
	b = append(b, opGlobalGet)
	b = appendU32(b, w.fuel)
	return append(b, opI64Const, 0, opI64LtS, opIf, opVoid, opUnreachable, opEnd)
}
