package meter

// rewriter writes the bodies of one module.
type rewriter struct {
	m      *parsed
	limits Limits

	fuel, depth, refused  uint32 // indices of the added globals
	charge, growing, grew uint32 // indices of the added functions

	blockTypes map[uint32]int64 // function type -> index of a type [] -> its results
	types      []FuncType       // appended to the module's own
}

// Opcodes the rewriter looks at or writes.
const (
	opUnreachable  = 0x00
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
	opI32Eq        = 0x46
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
)

// frame is one open block of the body being read.
type frame struct {
	loop  bool
	isIf  bool
	price int // offset of the placeholder this frame pays into
	cost  int64
}

// body appends the rewritten body of defined function n to out.
func (w *rewriter) body(out []byte, n int) ([]byte, error) {
	typ := w.m.functions[n]
	t := w.m.types[typ]
	r := &reader{b: w.m.bodies[n]}
	locals := uint64(len(t.Params))
	groups := r.count(maxLocals, "too many locals")
	start := r.i
	for range groups {
		locals += uint64(r.u32())
		r.valType()
		if locals > maxLocals { // WA-29
			r.fail("more than 5,000 locals in one function")
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	out = appendU32(out, groups+1)
	out = append(out, r.b[start:r.i]...)
	out = append(out, 1, byte(I64)) // scratch: the fuel left after a payment

	c := &bodyWriter{w: w, r: r, out: out, locals: uint32(locals), wrapped: true}
	code := r.i
	c.function(t, typ)
	if r.err == nil && !c.called {
		// A function that calls nothing has no frame above it to count.
		r.i = code
		c.out, c.wrapped = out, false
		c.function(t, typ)
	}
	return c.out, r.err
}

// bodyWriter writes one body.
type bodyWriter struct {
	w       *rewriter
	r       *reader
	out     []byte
	locals  uint32 // of the original function; the next index is the scratch local
	frames  []frame
	wrapped bool // the body stands in a block, after which the depth goes down
	called  bool // the body calls something
}

func (c *bodyWriter) function(t FuncType, typ uint32) {
	entry := c.charge()
	if c.wrapped {
		c.enter()
		c.out = append(c.out, opBlock)
		c.out = c.w.blockType(c.out, typ, t)
	}
	c.frames = append(c.frames[:0], frame{price: entry, cost: priceEntry + int64(c.locals)})
	for len(c.frames) > 0 && c.r.err == nil {
		c.instruction()
	}
	if c.r.err == nil && c.r.i != len(c.r.b) {
		c.r.fail("a body has bytes left over")
	}
	if c.wrapped {
		c.leave()
		c.out = append(c.out, opEnd)
	}
}

// charge appends the payment of a price that is not known yet and returns the
// offset of its placeholder.
func (c *bodyWriter) charge() int {
	b := append(c.out, opGlobalGet)
	b = appendU32(b, c.w.fuel)
	b = append(b, opI64Const)
	at := len(b)
	b = append(b, make([]byte, priceBytes)...)
	b = append(b, opI64Sub, opLocalTee)
	b = appendU32(b, c.locals)
	b = append(b, opGlobalSet)
	b = appendU32(b, c.w.fuel)
	b = append(b, opLocalGet)
	b = appendU32(b, c.locals)
	c.out = append(b, opI64Const, 0, opI64LtS, opIf, opVoid, opUnreachable, opEnd)
	return at
}

// enter appends the count of one more frame and its check.
func (c *bodyWriter) enter() {
	b := append(c.out, opGlobalGet)
	b = appendU32(b, c.w.depth)
	b = append(b, opI32Const, 1, opI32Add, opGlobalSet)
	b = appendU32(b, c.w.depth)
	b = append(b, opGlobalGet)
	b = appendU32(b, c.w.depth)
	b = append(b, opI32Const)
	b = appendS64(b, int64(c.w.limits.Depth))
	c.out = append(b, opI32GtU, opIf, opVoid, opUnreachable, opEnd)
}

// leave appends the count of one frame less.
func (c *bodyWriter) leave() {
	b := append(c.out, opGlobalGet)
	b = appendU32(b, c.w.depth)
	b = append(b, opI32Const, 1, opI32Sub, opGlobalSet)
	c.out = appendU32(b, c.w.depth)
}

// pay adds to the price of the innermost loop, or of the function.
func (c *bodyWriter) pay(cost int64) {
	c.frames[len(c.frames)-1].cost += cost
}

func (c *bodyWriter) push(f frame) {
	if len(c.frames) > maxNesting {
		c.r.fail("blocks nested deeper than 20,000")
		return
	}
	c.frames = append(c.frames, f)
}

// pop closes the innermost frame; a block's cost goes to the frame around it,
// a loop's and the function's to their own placeholder.
func (c *bodyWriter) pop() {
	f := c.frames[len(c.frames)-1]
	c.frames = c.frames[:len(c.frames)-1]
	if f.loop || len(c.frames) == 0 {
		putPrice(c.out[f.price:], f.cost)
		return
	}
	c.pay(f.cost)
}

// label reads a branch target: at most the function itself. One deeper would
// reach past the block that counts the depth.
func (c *bodyWriter) label() {
	if int64(c.r.u32()) >= int64(len(c.frames)) {
		c.r.fail("a branch leaves its function")
	}
}

// instruction copies one instruction, with what the meter adds around it.
func (c *bodyWriter) instruction() {
	r := c.r
	start := r.i
	op := r.byte()
	c.pay(priceOf(op))
	switch op {
	case opBlock, opLoop, opIf:
		c.blockTypeOperand()
		c.copy(start)
		f := frame{loop: op == opLoop, isIf: op == opIf}
		if f.loop {
			f.price = c.charge()
			f.cost = priceInstruction
		}
		c.push(f)
		return
	case opElse:
		f := &c.frames[len(c.frames)-1]
		if !f.isIf {
			r.fail("else outside an if")
		}
		f.isIf = false
	case opEnd:
		c.pop()
	case opBr, opBrIf:
		c.label()
	case opBrTable:
		for n := r.count(1<<20, "a branch table of more than a million labels"); ; n-- {
			c.label()
			if n == 0 || r.err != nil {
				break
			}
		}
	case opReturn:
		// Out through the block that counts the depth, if there is one.
		c.out = append(c.out, opBr)
		c.out = appendU32(c.out, uint32(len(c.frames)-1))
		return
	case opCall:
		c.called = true
		f := r.u32()
		switch {
		case int64(f) >= int64(c.w.m.imported+len(c.w.m.functions)):
			r.fail("a call of an unknown function")
		case int(f) < c.w.m.imported:
			c.pay(priceImport)
		default:
			c.pay(priceCall)
		}
	case opCallIndirect:
		c.called = true
		if int64(r.u32()) >= int64(len(c.w.m.types)) {
			r.fail("an indirect call of an unknown type")
		}
		if r.u32() != 0 {
			r.fail("a second table")
		}
		c.pay(priceCall)
	case opSelectTyped:
		if r.u32() != 1 {
			r.fail("a select of several values")
		}
		r.valType()
	case opLocalGet, opLocalSet, opLocalTee:
		if r.u32() >= c.locals {
			r.fail("an unknown local")
		}
	case opGlobalGet, opGlobalSet:
		// An index past the module's own would be the meter's.
		if int64(r.u32()) >= int64(len(c.w.m.globals)) {
			r.fail("an unknown global")
		}
	case opMemorySize:
		if r.byte() != 0 {
			r.fail("a second memory")
		}
	case opMemoryGrow:
		if r.byte() != 0 {
			r.fail("a second memory")
		}
		c.added(c.w.growing)
		c.copy(start)
		c.added(c.w.grew)
		return
	case opI32Const:
		r.signed(32)
	case opI64Const:
		r.signed(64)
	case opF32Const:
		r.bytes(4)
	case opF64Const:
		r.bytes(8)
	case opBulk:
		c.bulk(start)
		return
	default:
		switch {
		case op >= 0x28 && op <= 0x3e:
			c.memarg()
		case op <= 0x01 || op == 0x1a || op == 0x1b || op >= 0x45 && op <= 0xc4:
		default:
			r.fail("an instruction outside the profile") // WA-13 among them
		}
	}
	c.copy(start)
}

func (c *bodyWriter) copy(start int) { c.out = append(c.out, c.r.b[start:c.r.i]...) }

// added appends a call of one of the meter's own functions.
func (c *bodyWriter) added(f uint32) {
	c.out = append(c.out, opCall)
	c.out = appendU32(c.out, f)
}

// memarg reads alignment and offset; the bit that names another memory makes
// the alignment too large.
func (c *bodyWriter) memarg() {
	if c.r.u32() > 3 {
		c.r.fail("an alignment of more than eight bytes")
	}
	c.r.u32()
}

// bulk copies an instruction with the 0xfc prefix. memory.copy and memory.fill
// have their length on top of the stack, where the charge function reads it and
// leaves it.
func (c *bodyWriter) bulk(start int) {
	switch op := c.r.u32(); {
	case op <= 7: // saturating truncation
		c.copy(start)
	case op == 10 || op == 11: // WA-12
		for range 12 - op { // one memory index for fill, two for copy
			if c.r.byte() != 0 {
				c.r.fail("a second memory")
			}
		}
		c.added(c.w.charge)
		c.copy(start)
	default:
		// memory.init, data.drop, elem.drop and table operations change what no
		// snapshot of memory and globals holds; table.grow cannot be priced.
		c.r.fail("an instruction outside the profile")
	}
}

// blockTypeOperand reads the type of a block.
func (c *bodyWriter) blockTypeOperand() {
	t := c.r.signed(33)
	switch t {
	case -1, -2, -3, -4, -64: // i32, i64, f32, f64, nothing
		return
	}
	if t < 0 || t >= int64(len(c.w.m.types)) {
		c.r.fail("a block of unknown type")
	}
}

// blockType appends the type of a block that yields a function's results.
func (w *rewriter) blockType(out []byte, typ uint32, t FuncType) []byte {
	switch {
	case len(t.Results) == 0:
		return append(out, opVoid)
	case len(t.Results) == 1:
		return append(out, byte(t.Results[0]))
	case len(t.Params) == 0:
		return appendS64(out, int64(typ))
	}
	index, ok := w.blockTypes[typ]
	if !ok {
		index = w.addType(FuncType{Results: t.Results})
		w.blockTypes[typ] = index
	}
	return appendS64(out, index)
}
