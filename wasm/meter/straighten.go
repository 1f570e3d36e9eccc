package meter

import "slices"

// Straighten returns a module that computes the same with straighter jumps. Go's
// compiler writes a function as places that follow one another inside a loop, each
// behind the end of a block:
//
//	loop  block...  local.get NUMBER  br_table  end PLACE  end PLACE ... end
//
// Every jump sets the number of a place and goes back to the loop, which looks it
// up in the table: an indirect branch for each if. Here a jump goes to its place at
// once, out of the block that ends there, or to the head of a loop around all
// places from the one it goes back to. The number is set as before, and is looked
// up where a function or such a loop is entered elsewhere than at its first place,
// so that nothing is assumed about who calls or resumes a function, and where.
//
// A function that is not of this form, or that uses the number for anything else,
// is left as it is. functions says how many are not.
func Straighten(module []byte) (out []byte, functions int, err error) {
	m, err := parse(module)
	if err != nil {
		return nil, 0, err
	}
	code := appendU32(nil, uint32(len(m.bodies)))
	for n, body := range m.bodies {
		c, err := m.open(n)
		if err != nil {
			return nil, 0, err
		}
		if f := c.takeApart(); f != nil {
			body = f.write()
			functions++
		}
		code = append(appendU32(code, uint32(len(body))), body...)
	}
	out = slices.Clone(module[:8])
	for r := (&reader{b: module, i: 8}); r.more(); {
		id, payload := r.byte(), r.bytes(r.u32())
		if id == secCode {
			payload = code
		}
		out = section(out, id, payload)
	}
	return out, functions, nil
}

// flow is one function taken apart.
type flow struct {
	body   []byte
	start  int    // of the loop
	rest   int    // behind its end
	number uint32 // the local
	table  []int  // place by number; the last is that of every higher number
	places []place

	out    []byte
	around []span // blocks and loops open in out, the innermost last
}

// place is the code between the ends of two blocks.
type place struct {
	from, to int
	jumps    []jump
	loop     int // the last of the places from which a jump goes back here, -1 = none does
}

// jump is a branch out of its place.
type jump struct {
	from, to int // the instruction
	op       byte
	depth    int // blocks of the place itself around it
	place    int // where to, -1 = out of the loop altogether
	beyond   int // the label then, seen from outside the loop
}

// span is a row of places: of a loop, or of what a block ends before.
type span struct {
	loop        bool
	first, last int
}

// takeApart returns nil for a function that stays as it is.
func (c *code) takeApart() *flow {
	f := &flow{body: c.r.b}
	c.frames = append(c.frames, frame{op: opNop})
	outer := f.readTable(c)
	if outer < 0 {
		return nil
	}
	for n := range f.places {
		if !f.readPlace(c, n, outer+len(f.places)-n) {
			return nil
		}
	}
	f.rest = c.r.i
	for len(c.frames) > 0 && c.r.err == nil {
		switch i := c.next(); i.op {
		case opBlock, opLoop, opIf, opLocalGet:
			return nil
		case opEnd:
			c.frames = c.frames[:len(c.frames)-1]
		}
	}
	if c.r.err != nil || !slices.Contains(f.table, 0) {
		return nil
	}
	f.findLoops()
	return f
}

// readTable reads a function up to its first place. It returns how many frames
// are open around the loop, -1 if there is no such loop.
func (f *flow) readTable(c *code) (outer int) {
	var last instruction
	blocks := -1 // since a loop, if nothing else followed it
	for c.r.err == nil {
		start := c.r.i
		i := c.next()
		void := c.r.b[c.r.i-1] == opVoid
		switch {
		case i.op == opEnd:
			return -1
		case i.op == opLoop && void:
			f.start, blocks = start, 0
		case i.op == opBlock && void && blocks >= 0 && last.op != opLocalGet:
			blocks++
		case i.op == opLocalGet && blocks > 0 && last.op == opBlock:
			f.number = i.index
		case i.op == opBrTable && blocks > 0 && last.op == opLocalGet:
			labels := &reader{b: c.r.b, i: start + 1}
			for range labels.u32() + 1 {
				f.table = append(f.table, int(labels.u32()))
			}
			// From a loop around this one a way leads back in that looks the number up.
			around := slices.ContainsFunc(c.frames[:len(c.frames)-blocks-1], func(f frame) bool { return f.op == opLoop })
			if around || slices.Max(f.table) >= blocks || c.next().op != opEnd {
				return -1
			}
			c.frames = c.frames[:len(c.frames)-1]
			f.places = make([]place, blocks)
			return len(c.frames) - blocks
		default:
			blocks = -1
		}
		if i.op == opLoop || i.op == opBlock || i.op == opIf {
			c.frames = append(c.frames, frame{op: i.op})
		}
		last = i
	}
	return -1
}

// readPlace reads place n up to the end of the block or loop around it, which is
// the last of open frames.
func (f *flow) readPlace(c *code, n, open int) bool {
	p := &f.places[n]
	p.from, p.loop = c.r.i, -1
	loop := len(f.places) - 1 - n // label of the loop
	var before, last instruction
	for c.r.err == nil {
		start := c.r.i
		i := c.next()
		depth := len(c.frames) - open
		switch i.op {
		case opBlock, opLoop, opIf:
			c.frames = append(c.frames, frame{op: i.op})
		case opEnd:
			c.frames = c.frames[:len(c.frames)-1]
			if depth == 0 {
				p.to = start
				return true
			}
		case opLocalGet:
			if i.index == f.number {
				return false
			}
		case opBrTable:
			return false
		case opBr, opBrIf:
			label := int(i.index) - depth // seen from the place
			j := jump{from: start, to: c.r.i, op: i.op, depth: depth, place: -1, beyond: label - loop - 1}
			switch {
			case label < 0: // not out of the place
			case label > loop:
				p.jumps = append(p.jumps, j)
			case label == loop && i.op == opBr && last.op == opLocalSet && last.index == f.number && before.op == opI32Const:
				j.place = f.table[min(int(before.index), len(f.table)-1)]
				p.jumps = append(p.jumps, j)
			default:
				return false
			}
		}
		before, last = last, i
	}
	return false
}

// findLoops finds the places that are jumped back to, and has the loops around
// them lie in one another.
func (f *flow) findLoops() {
	for n, p := range f.places {
		for _, j := range p.jumps {
			if j.place >= 0 && j.place <= n {
				f.places[j.place].loop = n
			}
		}
	}
	for n := len(f.places) - 1; n >= 0; n-- {
		p := &f.places[n]
		for inner := n + 1; inner <= p.loop; inner++ {
			p.loop = max(p.loop, f.places[inner].loop)
		}
	}
}

func (f *flow) write() []byte {
	f.out = slices.Clone(f.body[:f.start])
	f.row(0, len(f.places)-1, false)
	return append(f.out, f.body[f.rest:]...)
}

// row writes the places from first to last. inLoop says that the loop that begins
// at the first is open.
func (f *flow) row(first, last int, inLoop bool) {
	var spans []span
	for n := first; n <= last; n = spans[len(spans)-1].last + 1 {
		s := span{first: n, last: n}
		if end := f.places[n].loop; end >= 0 && !(inLoop && n == first) {
			s.loop, s.last = true, end
		}
		spans = append(spans, s)
	}
	for _, s := range slices.Backward(spans[1:]) {
		f.out = append(f.out, opBlock, opVoid)
		s.loop = false
		f.around = append(f.around, s)
	}
	if first < last {
		f.enter(spans)
	}
	for n, s := range spans {
		if n > 0 {
			if s.first < s.last {
				f.setNumber(s.first) // for the way in from the place before
			}
			f.out = append(f.out, opEnd)
			f.around = f.around[:len(f.around)-1]
		}
		if !s.loop {
			f.writePlace(f.places[s.first])
			continue
		}
		f.out = append(f.out, opLoop, opVoid)
		f.around = append(f.around, s)
		f.row(s.first, s.last, true)
		f.around = f.around[:len(f.around)-1]
		f.out = append(f.out, opEnd)
	}
}

// enter looks up the number if it is not that of the first place.
func (f *flow) enter(spans []span) {
	b := appendU32(append(f.out, opLocalGet), f.number)
	b = appendS64(append(b, opI32Const), int64(slices.Index(f.table, spans[0].first)))
	b = append(b, opI32Ne, opIf, opVoid, opLocalGet)
	b = appendU32(b, f.number)
	b = appendU32(append(b, opBrTable), uint32(len(f.table)-1))
	for _, place := range f.table {
		// No number of a place outside the row is ever there.
		n := slices.IndexFunc(spans, func(s span) bool { return s.first <= place && place <= s.last })
		b = appendU32(b, uint32(max(n, 0)))
	}
	f.out = append(b, opEnd)
}

func (f *flow) setNumber(place int) {
	b := appendS64(append(f.out, opI32Const), int64(slices.Index(f.table, place)))
	f.out = appendU32(append(b, opLocalSet), f.number)
}

// writePlace copies a place, its jumps with other labels.
func (f *flow) writePlace(p place) {
	at := p.from
	for _, j := range p.jumps {
		label := len(f.around) + j.beyond
		if j.place >= 0 {
			label = f.label(j.place)
		}
		f.out = append(append(f.out, f.body[at:j.from]...), j.op)
		f.out = appendU32(f.out, uint32(j.depth+label))
		at = j.to
	}
	f.out = append(f.out, f.body[at:p.to]...)
}

// label returns the way to a place: the loop that begins with it, or the block
// that ends before it or before the loop it lies in.
func (f *flow) label(place int) int {
	for n := len(f.around) - 1; ; n-- {
		s := f.around[n]
		if place == s.first || !s.loop && s.first < place && place <= s.last {
			return len(f.around) - 1 - n
		}
	}
}
