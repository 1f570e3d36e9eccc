package meter

// rewriter writes the bodies of one module.
type rewriter struct {
	m      *parsed
	limits Limits

	fuel, depth, refused uint32 // indices of the added globals
	fill, copy, grow     uint32 // indices of the added functions

	blockTypes map[uint32]int64 // function type -> index of a type [] -> its results
	types      []FuncType       // appended to the module's own
	tangle     int64            // blocks times locals so far, see maxTangle
	plan       plan             // of the body being written, reused
}

// plan says what a body pays and where. A body is cut into segments at every
// place where control can split or join; a region is the function or one loop,
// without the loops inside it. A segment runs at most once for each time the
// head of its region does, so paying for it at the head is never too little.
type plan struct {
	segments []segment
	regions  []int64 // cost of each region; 0 is the function
	blocks   int64   // places where control can join
	calls    bool    // the body calls something
}

type segment struct {
	cost   int64
	region int32
}

// reset empties the plan for the next body.
func (p *plan) reset() {
	*p = plan{segments: p.segments[:0], regions: append(p.regions[:0], 0)}
}

// head returns what the head of a region pays, given its first segment.
func (p *plan) head(region int32, first int64) int64 {
	if total := p.regions[region]; total <= wholeBelow {
		return total
	}
	return first
}

// body appends the rewritten body of defined function n to out.
func (w *rewriter) body(out []byte, n int) ([]byte, error) {
	c, err := w.m.open(n)
	if err != nil {
		return nil, err
	}
	typ, r := w.m.functions[n], c.r
	t := w.m.types[typ]
	begin := r.i
	w.plan.reset()
	c.scan(&w.plan)
	tangle := w.plan.blocks * (int64(c.locals) + w.plan.blocks/blocksPerLocal)
	if w.tangle += tangle; tangle > maxTangle || w.tangle > maxTotalTangle {
		r.fail("code too entangled to compile: too many blocks in one function, or too many for so many locals")
	}
	if r.err != nil {
		return nil, r.err
	}

	groups := &reader{b: r.b}
	out = appendU32(out, groups.u32()+1)
	out = append(out, r.b[groups.i:begin]...)
	out = append(out, 1, byte(I64)) // scratch: the fuel left after a payment
	r.i = begin
	e := &emitter{code: c, w: w, plan: &w.plan, out: out}
	return e.function(t, typ), r.err
}

// code reads the instructions of one body.
type code struct {
	m      *parsed
	r      *reader
	locals uint32 // of the original function
	frames []frame
}

// open returns the code of defined function n, read up to its first instruction.
func (m *parsed) open(n int) (*code, error) {
	r := &reader{b: m.bodies[n]}
	locals := uint64(len(m.types[m.functions[n]].Params))
	for range r.count(maxLocals, "too many locals") {
		locals += uint64(r.u32())
		r.valType()
		if locals > maxLocals { // WA-29
			r.fail("more than 5,000 locals in one function")
		}
	}
	return &code{m: m, r: r, locals: uint32(locals)}, r.err
}

// frame is one open block.
type frame struct {
	op     byte  // opBlock, opLoop, opIf, or opElse once that was seen; opNop for the function
	region int32 // that the code after the block's end belongs to
}

// scan checks the body and fills the plan.
func (c *code) scan(p *plan) {
	region, cost := int32(0), int64(0)
	cut := func(next int32) {
		p.segments = append(p.segments, segment{cost, region})
		p.regions[region] += cost
		region, cost = next, 0
	}
	c.frames = append(c.frames[:0], frame{op: opNop})
	for len(c.frames) > 0 && c.r.err == nil {
		i := c.next()
		cost += c.price(i)
		switch i.op {
		case opBlock, opIf, opLoop:
			c.frames = append(c.frames, frame{i.op, region})
			p.blocks++
			if len(c.frames) > maxNesting {
				c.r.fail("blocks nested deeper than 20,000")
			}
			switch i.op {
			case opIf:
				cut(region)
			case opLoop:
				p.regions = append(p.regions, 0)
				cut(int32(len(p.regions) - 1))
				cost = priceLoop
			}
		case opElse:
			if f := &c.frames[len(c.frames)-1]; f.op == opIf {
				f.op = opElse
			} else {
				c.r.fail("else outside an if")
			}
			cut(region)
		case opEnd:
			f := c.frames[len(c.frames)-1]
			c.frames = c.frames[:len(c.frames)-1]
			cut(f.region)
		case opBrIf:
			cut(region)
		case opCall, opCallIndirect:
			p.calls = true
		}
	}
	if c.r.err == nil && c.r.i != len(c.r.b) {
		c.r.fail("a body has bytes left over")
	}
}

// emitter writes one body.
type emitter struct {
	*code
	w       *rewriter
	plan    *plan
	out     []byte
	segment int // the one being written
}

// function writes the body proper in two blocks: behind the inner one the depth
// goes down again, if the function calls something, and behind the outer one is the
// trap of all its checks, out of the way of what runs.
func (e *emitter) function(t FuncType, typ uint32) []byte {
	first := e.plan.segments[0]
	e.out = append(e.out, opBlock, opVoid)
	e.charge(priceEntry+int64(e.locals)+e.plan.head(0, first.cost), 0)
	if e.plan.calls {
		e.enter()
	}
	e.out = append(e.out, opBlock)
	e.out = e.w.blockType(e.out, typ, t)
	e.frames = append(e.frames[:0], frame{op: opNop})
	for len(e.frames) > 0 && e.r.err == nil {
		e.step()
	}
	if e.plan.calls {
		e.leave()
	}
	return append(e.out, opReturn, opEnd, opUnreachable, opEnd)
}

// step writes one instruction with what the meter adds around it.
func (e *emitter) step() {
	start := e.r.i
	i := e.next()
	switch i.op {
	case opReturn:
		// Out through the block behind which the depth goes down.
		e.out = append(e.out, opBr)
		e.out = appendU32(e.out, uint32(len(e.frames)-1))
		return
	case opMemoryGrow:
		e.instead(e.w.grow)
		return
	case opBulk:
		switch i.index {
		case bulkFill:
			e.instead(e.w.fill)
			return
		case bulkCopy:
			e.instead(e.w.copy)
			return
		}
	}
	e.out = append(e.out, e.r.b[start:e.r.i]...)
	switch i.op {
	case opBlock, opLoop, opIf:
		e.frames = append(e.frames, frame{op: i.op})
	case opEnd:
		e.frames = e.frames[:len(e.frames)-1]
	}
	switch i.op {
	case opLoop:
		e.segment++
		s := e.plan.segments[e.segment]
		e.charge(e.plan.head(s.region, s.cost), len(e.frames))
	case opIf, opElse, opEnd, opBrIf:
		if e.segment++; e.segment < len(e.plan.segments) {
			e.payAlone(e.plan.segments[e.segment])
		}
	}
}

// instead appends a call of one of the meter's own functions, which pays for an
// instruction whose price only the stack knows and carries it out.
func (e *emitter) instead(f uint32) {
	e.out = append(e.out, opCall)
	e.out = appendU32(e.out, f)
}

// charge appends a payment and the check that it was covered. trap is the label of
// the outer block.
func (e *emitter) charge(price int64, trap int) {
	b := append(e.out, opGlobalGet)
	b = appendU32(b, e.w.fuel)
	b = append(b, opI64Const)
	b = appendS64(b, price)
	b = append(b, opI64Sub, opLocalTee)
	b = appendU32(b, e.locals)
	b = append(b, opGlobalSet)
	b = appendU32(b, e.w.fuel)
	b = append(b, opLocalGet)
	b = appendU32(b, e.locals)
	e.out = appendU32(append(b, opI64Const, 0, opI64LtS, opBrIf), uint32(trap))
}

// payAlone appends the payment of a segment that its region's head does not
// cover. There is no check: the next head, or the host after the call, finds
// the counter below zero, and what runs until then has no loop in it.
func (e *emitter) payAlone(s segment) {
	if s.cost == 0 || e.plan.regions[s.region] <= wholeBelow {
		return
	}
	b := append(e.out, opGlobalGet)
	b = appendU32(b, e.w.fuel)
	b = append(b, opI64Const)
	b = appendS64(b, s.cost)
	b = append(b, opI64Sub, opGlobalSet)
	e.out = appendU32(b, e.w.fuel)
}

// enter appends the count of one more frame and its check, at the label of the
// outer block. The counter holds how many more calls there may be, and one.
func (e *emitter) enter() {
	b := append(e.out, opGlobalGet)
	b = appendU32(b, e.w.depth)
	b = append(b, opI32Const, 1, opI32Sub, opGlobalSet)
	b = appendU32(b, e.w.depth)
	b = append(b, opGlobalGet)
	b = appendU32(b, e.w.depth)
	e.out = append(b, opI32Const, 1, opI32LtS, opBrIf, 0) // also below none, for a call after a trap
}

// leave appends the count of one frame less.
func (e *emitter) leave() {
	b := append(e.out, opGlobalGet)
	b = appendU32(b, e.w.depth)
	b = append(b, opI32Const, 1, opI32Add, opGlobalSet)
	e.out = appendU32(b, e.w.depth)
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
