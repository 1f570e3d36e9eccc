package hostile

// Value types.
const (
	I32 byte = 0x7f
	I64 byte = 0x7e
	F32 byte = 0x7d
	F64 byte = 0x7c
)

// Opcodes used by name.
const (
	Unreachable  byte = 0x00
	Nop          byte = 0x01
	Else         byte = 0x05
	End          byte = 0x0b
	Return       byte = 0x0f
	Drop         byte = 0x1a
	I32Eqz       byte = 0x45
	I32Add       byte = 0x6a
	I32Sub       byte = 0x6b
	I32Mul       byte = 0x6c
	I64Add       byte = 0x7c
	I64Mul       byte = 0x7e
	I64Or        byte = 0x84
	I64Shl       byte = 0x86
	I64ExtendI32 byte = 0xad
)

// Builder assembles one module. Indices of functions are known when they are
// added; imports come first.
type Builder struct {
	types, imports, funcs, exports, globals, elems, data, bodies [][]byte
	memory, table, start                                         []byte
	imported                                                     int
	raw                                                          []byte // appended after the last section
}

// U32 encodes an unsigned LEB128.
func U32(v uint32) []byte {
	var b []byte
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// S64 encodes a signed LEB128.
func S64(v int64) []byte {
	var b []byte
	for {
		x := byte(v & 0x7f)
		v >>= 7
		if v == 0 && x&0x40 == 0 || v == -1 && x&0x40 != 0 {
			return append(b, x)
		}
		b = append(b, x|0x80)
	}
}

// Join concatenates fragments of code: single opcodes and encoded
// instructions.
func Join(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			b = append(b, p)
		case []byte:
			b = append(b, p...)
		default:
			panic("hostile: code is bytes")
		}
	}
	return b
}

func vec(items [][]byte) []byte {
	b := U32(uint32(len(items)))
	for _, it := range items {
		b = append(b, it...)
	}
	return b
}

func name(s string) []byte { return append(U32(uint32(len(s))), s...) }

// Type adds a function type and returns its index.
func (m *Builder) Type(params, results []byte) uint32 {
	b := append([]byte{0x60}, U32(uint32(len(params)))...)
	b = append(b, params...)
	b = append(b, U32(uint32(len(results)))...)
	b = append(b, results...)
	m.types = append(m.types, b)
	return uint32(len(m.types) - 1)
}

// Import adds an imported function and returns its index.
func (m *Builder) Import(module, fn string, params, results []byte) uint32 {
	t := m.Type(params, results)
	m.imports = append(m.imports, Join(name(module), name(fn), byte(0), U32(t)))
	m.imported++
	return uint32(m.imported - 1)
}

// Func adds a function with extra locals of one type each and returns its
// index. The code does not include the final end.
func (m *Builder) Func(params, results, locals []byte, code ...any) uint32 {
	return m.FuncOf(m.Type(params, results), locals, code...)
}

// FuncOf is Func with a type that exists.
func (m *Builder) FuncOf(t uint32, locals []byte, code ...any) uint32 {
	b := U32(uint32(len(locals)))
	for _, l := range locals {
		b = append(b, 1, l)
	}
	return m.Raw(t, append(append(b, Join(code...)...), End))
}

// Raw adds a function whose body, locals included, is given as bytes.
func (m *Builder) Raw(t uint32, body []byte) uint32 {
	m.funcs = append(m.funcs, U32(t))
	m.bodies = append(m.bodies, append(U32(uint32(len(body))), body...))
	return uint32(m.imported + len(m.funcs) - 1)
}

// Export exports a function.
func (m *Builder) Export(fn string, f uint32) {
	m.exports = append(m.exports, Join(name(fn), byte(0), U32(f)))
}

// ExportGlobal exports a global.
func (m *Builder) ExportGlobal(as string, g uint32) {
	m.exports = append(m.exports, Join(name(as), byte(3), U32(g)))
}

// Memory declares the memory, of the given pages, and exports it as "memory".
func (m *Builder) Memory(pages uint32) {
	m.memory = Join(byte(1), byte(0), U32(pages))
	m.exports = append(m.exports, Join(name("memory"), byte(2), byte(0)))
}

// Table declares a table of functions with the given minimum.
func (m *Builder) Table(min uint32) { m.table = Join(byte(1), byte(0x70), byte(0), U32(min)) }

// Elem puts functions into the table from entry 0 on.
func (m *Builder) Elem(fs ...uint32) {
	b := Join(byte(0), I32Const(0), End, U32(uint32(len(fs))))
	for _, f := range fs {
		b = append(b, U32(f)...)
	}
	m.elems = append(m.elems, b)
}

// Global adds a mutable global and returns its index.
func (m *Builder) Global(typ byte, init []byte) uint32 {
	m.globals = append(m.globals, Join(typ, byte(1), init, End))
	return uint32(len(m.globals) - 1)
}

// Data puts bytes into memory at instantiation.
func (m *Builder) Data(at int32, b []byte) {
	m.data = append(m.data, Join(byte(0), I32Const(at), End, U32(uint32(len(b))), b))
}

// Start names the start function.
func (m *Builder) Start(f uint32) { m.start = U32(f) }

// Append adds bytes after the last section.
func (m *Builder) Append(b []byte) { m.raw = append(m.raw, b...) }

// Bytes returns the module.
func (m *Builder) Bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, payload []byte) {
		b = append(append(append(b, id), U32(uint32(len(payload)))...), payload...)
	}
	list := func(id byte, items [][]byte) {
		if len(items) > 0 {
			section(id, vec(items))
		}
	}
	list(1, m.types)
	list(2, m.imports)
	list(3, m.funcs)
	if m.table != nil {
		section(4, m.table)
	}
	if m.memory != nil {
		section(5, m.memory)
	}
	list(6, m.globals)
	list(7, m.exports)
	if m.start != nil {
		section(8, m.start)
	}
	list(9, m.elems)
	list(10, m.bodies)
	list(11, m.data)
	return append(b, m.raw...)
}

// I32Const pushes an i32.
func I32Const(v int32) []byte { return append([]byte{0x41}, S64(int64(v))...) }

// I64Const pushes an i64.
func I64Const(v int64) []byte { return append([]byte{0x42}, S64(v)...) }

// LocalGet pushes a local.
func LocalGet(i uint32) []byte { return append([]byte{0x20}, U32(i)...) }

// LocalSet pops into a local.
func LocalSet(i uint32) []byte { return append([]byte{0x21}, U32(i)...) }

// LocalTee stores into a local and leaves the value.
func LocalTee(i uint32) []byte { return append([]byte{0x22}, U32(i)...) }

// GlobalGet pushes a global.
func GlobalGet(i uint32) []byte { return append([]byte{0x23}, U32(i)...) }

// GlobalSet pops into a global.
func GlobalSet(i uint32) []byte { return append([]byte{0x24}, U32(i)...) }

// Call calls a function.
func Call(f uint32) []byte { return append([]byte{0x10}, U32(f)...) }

// CallIndirect calls the function at the table index on the stack.
func CallIndirect(t uint32) []byte { return Join(byte(0x11), U32(t), byte(0)) }

// Block opens a block without a result.
func Block() []byte { return []byte{0x02, 0x40} }

// Loop opens a loop without a result.
func Loop() []byte { return []byte{0x03, 0x40} }

// If opens an if with the given block type (0x40 none).
func If(t byte) []byte { return []byte{0x04, t} }

// Br branches to an enclosing block.
func Br(l uint32) []byte { return append([]byte{0x0c}, U32(l)...) }

// BrIf branches when the value on the stack is not zero.
func BrIf(l uint32) []byte { return append([]byte{0x0d}, U32(l)...) }

// BrTable branches by the index on the stack.
func BrTable(ls ...uint32) []byte {
	b := append([]byte{0x0e}, U32(uint32(len(ls)-1))...)
	for _, l := range ls {
		b = append(b, U32(l)...)
	}
	return b
}

// Load reads memory with the given load opcode at an offset.
func Load(op byte, offset uint32) []byte { return Join(op, byte(0), U32(offset)) }

// Store writes memory with the given store opcode at an offset.
func Store(op byte, offset uint32) []byte { return Join(op, byte(0), U32(offset)) }

// MemoryGrow grows memory by the pages on the stack.
func MemoryGrow() []byte { return []byte{0x40, 0} }

// MemoryFill is memory.fill.
func MemoryFill() []byte { return []byte{0xfc, 11, 0} }

// MemoryCopy is memory.copy.
func MemoryCopy() []byte { return []byte{0xfc, 10, 0, 0} }
