package main

import (
	"errors"
	"fmt"
)

// instruction is one instruction, where it stands, and its operand.
type instruction struct {
	op       byte
	from, to int
	index    uint32   // label, local or function
	value    int64    // of a constant
	labels   []uint32 // of a table of branches
}

// decode reads a function: its locals are passed over.
func decode(body []byte) ([]instruction, error) {
	r := &reader{b: body}
	for range r.u32() {
		r.u32()
		r.byte()
	}
	var all []instruction
	for r.i < len(r.b) && r.err == nil {
		i := instruction{from: r.i}
		i.op = r.byte()
		switch op := i.op; {
		case op >= opBlock && op <= opIf, op == opI32Const, op == opI64Const:
			i.value = r.signed()
		case op == opBrTable:
			for n := r.u32() + 1; n > 0 && r.err == nil; n-- {
				i.labels = append(i.labels, r.u32())
			}
		case op == opCallIndirect, op >= 0x28 && op <= 0x3e: // loads and stores
			i.index = r.u32()
			r.u32()
		case op == opBr, op == opBrIf, op == opCall, op >= opLocalGet && op <= 0x24, op == 0x3f, op == 0x40:
			i.index = r.u32()
		case op == 0x43:
			r.bytes(4)
		case op == 0x44:
			r.bytes(8)
		case op == 0xfc:
			switch more := r.u32(); {
			case more < 8: // saturating conversions
			case more == 10:
				r.bytes(2)
			case more == 11:
				r.bytes(1)
			default:
				return nil, fmt.Errorf("instruction 0xfc %d in the guest", more)
			}
		case op < 0x06, op == opEnd, op == opReturn, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4:
		default:
			return nil, fmt.Errorf("instruction %#x in the guest", op)
		}
		i.to = r.i
		all = append(all, i)
	}
	return all, r.err
}

// reader reads the module that the Go tool wrote.
type reader struct {
	b   []byte
	i   int
	err error
}

func (r *reader) byte() byte {
	b := r.bytes(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || int64(n) > int64(len(r.b)-r.i) {
		r.err = errors.New("the guest ends too early")
		return nil
	}
	r.i += int(n)
	return r.b[r.i-int(n) : r.i]
}

func (r *reader) u32() uint32 { return uint32(r.leb(false)) }

func (r *reader) signed() int64 { return r.leb(true) }

func (r *reader) leb(signed bool) (v int64) {
	for shift := 0; shift < 64; shift += 7 {
		x := r.byte()
		v |= int64(x&0x7f) << shift
		if x&0x80 == 0 {
			if signed && x&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.err = errors.New("a number in the guest is too long")
	return v
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
