package meter

// Opcodes the rewriter looks at or writes.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32LtS       = 0x48
	opI32Eq        = 0x46
	opI32Ne        = 0x47
	opI64LtS       = 0x53
	opI32GtU       = 0x4b
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64ExtendU   = 0xad
	opBulk         = 0xfc
	opVoid         = 0x40

	bulkCopy = 10 // second byte after opBulk
	bulkFill = 11
)

// instruction is one instruction as far as the rewriter cares.
type instruction struct {
	op    byte
	index uint32 // function called, local, label, i32, or operation behind opBulk
}

// next reads one instruction and checks its operands: nothing may refer to
// what the rewriter adds behind the module's own functions, globals, locals,
// types and labels.
func (c *code) next() instruction {
	r := c.r
	i := instruction{op: r.byte()}
	switch i.op {
	case opBlock, opLoop, opIf:
		c.blockType()
	case opBr, opBrIf:
		i.index = c.label()
	case opBrTable:
		for n := r.count(1<<20, "a branch table of more than a million labels"); ; n-- {
			c.label()
			if n == 0 || r.err != nil {
				break
			}
		}
	case opCall:
		i.index = r.u32()
		if int64(i.index) >= int64(c.m.imported+len(c.m.functions)) {
			r.fail("a call of an unknown function")
		}
	case opCallIndirect:
		if int64(r.u32()) >= int64(len(c.m.types)) {
			r.fail("an indirect call of an unknown type")
		}
		if r.u32() != 0 {
			r.fail("a second table")
		}
	case opSelectTyped:
		if r.u32() != 1 {
			r.fail("a select of several values")
		}
		r.valType()
	case opLocalGet, opLocalSet, opLocalTee:
		if i.index = r.u32(); i.index >= c.locals {
			r.fail("an unknown local")
		}
	case opGlobalGet, opGlobalSet:
		if int64(r.u32()) >= int64(len(c.m.globals)) {
			r.fail("an unknown global")
		}
	case opMemorySize, opMemoryGrow:
		c.memoryIndex()
	case opI32Const:
		i.index = uint32(r.signed(32))
	case opI64Const:
		r.signed(64)
	case opF32Const:
		r.bytes(4)
	case opF64Const:
		r.bytes(8)
	case opBulk:
		i.index = r.u32()
		c.bulk(i.index)
	case opUnreachable, opNop, opElse, opEnd, opReturn, opDrop, opSelect:
	default:
		switch {
		case i.op >= 0x28 && i.op <= 0x3e:
			c.memarg()
		case i.op >= 0x45 && i.op <= 0xc4: // comparison, arithmetic, conversion
		default:
			r.fail("an instruction outside the profile") // WA-13 among them
		}
	}
	return i
}

// label reads a branch target: at most the function itself. One deeper would
// reach past the block that counts the depth.
func (c *code) label() uint32 {
	l := c.r.u32()
	if int64(l) >= int64(len(c.frames)) {
		c.r.fail("a branch leaves its function")
	}
	return l
}

// memarg reads alignment and offset; the bit that names another memory makes
// the alignment too large.
func (c *code) memarg() {
	if c.r.u32() > 3 {
		c.r.fail("an alignment of more than eight bytes")
	}
	c.r.u32()
}

// bulk reads what follows the 0xfc prefix and its operation.
func (c *code) bulk(op uint32) {
	switch {
	case op <= 7: // saturating truncation
	case op == bulkCopy:
		c.memoryIndex()
		c.memoryIndex()
	case op == bulkFill:
		c.memoryIndex()
	default:
		// memory.init, data.drop, elem.drop and table operations change what no
		// image of memory and globals holds; table.grow cannot be priced.
		c.r.fail("an instruction outside the profile")
	}
}

func (c *code) memoryIndex() {
	if c.r.byte() != 0 {
		c.r.fail("a second memory")
	}
}

// blockType reads the type of a block.
func (c *code) blockType() {
	switch t := c.r.signed(33); {
	case t >= -4 && t <= -1, t == -64: // i32, i64, f32, f64, nothing
	case t < 0 || t >= int64(len(c.m.types)):
		c.r.fail("a block of unknown type")
	}
}
