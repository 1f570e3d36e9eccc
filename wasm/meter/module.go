package meter

// Section ids.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

// order is the rank of each section id; data count stands before code.
var order = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6, secExport: 7,
	secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

// Static limits: docs/enforcer-abi.md.
const (
	maxTypes     = 10_000
	maxParams    = 1_000
	maxImports   = 64
	maxFunctions = 50_000
	maxLocals    = 5_000
	maxGlobals   = 1_000
	maxExports   = 10_000
	maxTable     = 65_536
	maxSegments  = 100_000
	maxNesting   = 20_000

	// A compiler carries every local through every place where control joins:
	// time and memory go with the product of blocks and locals. Without locals
	// time still goes with the square of the blocks, as that of as many locals
	// as a blocksPerLocal-th of them. Go's largest function has 9,000, all of a
	// module half a million.
	blocksPerLocal = 32
	maxTangle      = 250_000   // of one function: about 150 MB while it is compiled, or 2 s without locals
	maxTotalTangle = 5_000_000 // of a module: about 40 s
)

// ValType is a value type: one of the four numeric ones.
type ValType byte

// The value types a module may use.
const (
	I32 ValType = 0x7f
	I64 ValType = 0x7e
	F32 ValType = 0x7d
	F64 ValType = 0x7c
)

// FuncType is a function's type.
type FuncType struct{ Params, Results []ValType }

// Import is one function the module asks for.
type Import struct {
	Module, Name string
	Type         FuncType
}

// parsed is a module in the form that the rewriter needs.
type parsed struct {
	types     []FuncType
	imports   []Import
	imported  int      // functions imported
	functions []uint32 // type of each defined function
	globals   []global
	exports   map[string]export
	memory    struct{ min, max uint32 }
	hasMemory bool
	hasTable  bool
	table     uint32 // entries
	start     int64  // function index, -1 none

	raw    [13][]byte // payload of each section, nil when absent
	bodies [][]byte   // code of each defined function, locals included
}

type global struct {
	typ     ValType
	mutable bool
	init    []byte
}

type export struct {
	kind  byte // 0 function, 1 table, 2 memory, 3 global
	index uint32
}

// parse reads the whole module and checks everything but the bodies.
func parse(b []byte) (*parsed, error) {
	r := &reader{b: b}
	if string(r.bytes(8)) != "\x00asm\x01\x00\x00\x00" {
		return nil, refuse("not a WebAssembly module of version 1")
	}
	m := &parsed{start: -1, exports: make(map[string]export)}
	last := 0
	for r.more() {
		id := r.byte()
		payload := r.bytes(r.u32())
		if r.err != nil {
			return nil, r.err
		}
		if id == secCustom {
			continue // names and debug information have no bearing on what runs
		}
		if int(id) >= len(order) {
			return nil, refuse("unknown section") // exceptions and later proposals
		}
		if order[id] <= last {
			return nil, refuse("sections out of order")
		}
		last = order[id]
		m.raw[id] = payload
		s := &reader{b: payload}
		m.section(id, s)
		if s.err != nil {
			return nil, s.err
		}
		if s.i != len(s.b) {
			return nil, refuse("a section has bytes left over")
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, m.check()
}

// Custom returns the payload of the first custom section with a name, nil when
// there is none. The rest of the module is not looked at.
func Custom(module []byte, name string) []byte {
	r := &reader{b: module}
	r.bytes(8)
	for r.more() {
		id := r.byte()
		s := &reader{b: r.bytes(r.u32())}
		if r.err == nil && id == secCustom && s.name() == name && s.err == nil {
			return s.b[s.i:]
		}
	}
	return nil
}

func (m *parsed) section(id byte, s *reader) {
	switch id {
	case secType:
		for range s.count(maxTypes, "too many types") {
			m.types = append(m.types, s.funcType())
		}
	case secImport:
		m.readImports(s)
	case secFunction:
		for range s.count(maxFunctions, "more than 50,000 functions") { // WA-30
			t := s.u32()
			if int64(t) >= int64(len(m.types)) {
				s.fail("a function has an unknown type")
			}
			m.functions = append(m.functions, t)
		}
	case secTable:
		m.readTable(s)
	case secMemory:
		m.readMemory(s)
	case secGlobal:
		for range s.count(maxGlobals, "more than 1,000 globals") {
			g := global{typ: s.valType(), mutable: s.flag()}
			g.init = s.constExpr()
			m.globals = append(m.globals, g)
		}
	case secExport:
		for range s.count(maxExports, "too many exports") {
			name := s.name()
			if _, twice := m.exports[name]; twice {
				s.fail("two exports of one name")
			}
			m.exports[name] = export{s.byte(), s.u32()}
		}
	case secStart:
		m.start = int64(s.u32())
	case secElement:
		m.readElements(s)
	case secDataCount:
		s.u32()
	case secCode:
		for range s.count(maxFunctions, "more than 50,000 functions") {
			m.bodies = append(m.bodies, s.bytes(s.u32()))
		}
	case secData:
		m.readData(s)
	}
}

func (r *reader) valType() ValType {
	switch t := ValType(r.byte()); t {
	case I32, I64, F32, F64:
		return t
	}
	r.fail("a value type other than i32, i64, f32, f64")
	return I32
}

func (r *reader) flag() bool {
	switch r.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	r.fail("a flag is neither 0 nor 1")
	return false
}

func (r *reader) funcType() FuncType {
	if r.byte() != 0x60 {
		r.fail("a type is not a function type")
	}
	var t FuncType
	for range r.count(maxParams, "too many parameters") {
		t.Params = append(t.Params, r.valType())
	}
	for range r.count(maxParams, "too many results") {
		t.Results = append(t.Results, r.valType())
	}
	return t
}

func (m *parsed) readImports(s *reader) {
	for range s.count(maxImports, "too many imports") {
		i := Import{Module: s.name(), Name: s.name()}
		if s.byte() != 0 {
			s.fail("an import is not a function")
			return
		}
		t := s.u32()
		if int64(t) >= int64(len(m.types)) {
			s.fail("an import has an unknown type")
			return
		}
		i.Type = m.types[t]
		m.imports = append(m.imports, i)
	}
	m.imported = len(m.imports)
}

func (m *parsed) readTable(s *reader) {
	if s.count(1, "more than one table") == 0 {
		return
	}
	m.hasTable = true
	if s.byte() != 0x70 {
		s.fail("a table of something other than functions")
	}
	hasMax := s.flag()
	if m.table = s.count(maxTable, "a table of more than 65,536 entries"); s.err != nil { // WA-14
		return
	}
	if hasMax {
		s.u32() // nothing can grow it
	}
}

func (m *parsed) readMemory(s *reader) {
	if s.count(1, "more than one memory") == 0 {
		return
	}
	m.hasMemory = true
	m.memory.max = 65536
	hasMax := s.flag() // shared and 64-bit memories have other flags
	m.memory.min = s.u32()
	if hasMax {
		m.memory.max = s.u32()
	}
}

// offset reads the place of an active segment and holds it to a size that is
// known at load, so that no instantiation fails half-way (WA-31).
func (r *reader) offset() (at uint64) {
	start := r.i
	if expr := r.constExpr(); len(expr) == 0 || expr[0] != 0x41 {
		r.fail("a segment begins at something other than an i32")
		return 0
	}
	at32 := &reader{b: r.b[start+1 : r.i]}
	return uint64(uint32(at32.signed(32)))
}

// constExpr reads an initialiser: one constant and end.
func (r *reader) constExpr() []byte {
	start := r.i
	switch r.byte() {
	case 0x41:
		r.signed(32)
	case 0x42:
		r.signed(64)
	case 0x43:
		r.bytes(4)
	case 0x44:
		r.bytes(8)
	default:
		r.fail("an initialiser is not a constant")
	}
	if r.byte() != 0x0b {
		r.fail("an initialiser is not one constant")
	}
	if r.err != nil {
		return nil
	}
	return r.b[start:r.i]
}

// readElements checks that tables hold only functions the module defines: a
// call through the table to an import would not be priced.
func (m *parsed) readElements(s *reader) {
	for range s.count(maxSegments, "too many element segments") {
		kind := s.u32()
		if kind > 3 {
			s.fail("an element segment of expressions")
			return
		}
		if kind == 2 && s.u32() != 0 {
			s.fail("an element segment for a second table")
		}
		at, active := uint64(0), kind == 0 || kind == 2
		if active {
			at = s.offset()
		}
		if kind != 0 && s.byte() != 0 {
			s.fail("an element segment of something other than functions")
		}
		n := s.count(maxTable, "an element segment of more than 65,536 entries")
		if active && at+uint64(n) > uint64(m.table) {
			s.fail("an element segment past the table")
		}
		for range n {
			f := s.u32()
			if int64(f) < int64(m.imported) || int64(f) >= int64(m.imported+len(m.functions)) {
				s.fail("an element is not a function of the module")
			}
		}
	}
}

func (m *parsed) readData(s *reader) {
	for range s.count(maxSegments, "too many data segments") {
		at, active := uint64(0), false
		switch s.u32() {
		case 0:
			at, active = s.offset(), true
		case 1: // passive, out of reach without memory.init
		default:
			s.fail("a data segment for a second memory")
		}
		b := s.bytes(s.u32())
		if active && at+uint64(len(b)) > uint64(m.memory.min)<<16 {
			s.fail("a data segment past the memory")
		}
	}
}

// check holds the sections against each other.
func (m *parsed) check() error {
	total := int64(m.imported + len(m.functions))
	switch {
	case len(m.bodies) != len(m.functions):
		return refuse("functions and bodies differ in number")
	case m.start >= total || m.start >= 0 && m.start < int64(m.imported):
		return refuse("the start function is not one of the module")
	case !m.hasMemory:
		return refuse("the module has no memory")
	}
	if m.start >= 0 {
		if t := m.typeOf(uint32(m.start)); len(t.Params)+len(t.Results) > 0 {
			return refuse("the start function takes or returns something")
		}
	}
	for name, e := range m.exports {
		limit := int64(1)
		switch e.kind {
		case 0:
			limit = total
			if int64(e.index) < int64(m.imported) {
				return refuse("an import is exported")
			}
		case 1:
			if !m.hasTable {
				limit = 0
			}
		case 2:
		case 3:
			limit = int64(len(m.globals))
		default:
			return refuse("an export of unknown kind")
		}
		if int64(e.index) >= limit {
			return refuse("an export refers to nothing")
		}
		if len(name) >= len(reserved) && name[:len(reserved)] == reserved {
			return refuse("an export has a reserved name")
		}
	}
	return nil
}

// typeOf returns the type of function index f.
func (m *parsed) typeOf(f uint32) FuncType {
	if int(f) < m.imported {
		return m.imports[f].Type
	}
	return m.types[m.functions[int(f)-m.imported]]
}
