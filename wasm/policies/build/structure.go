package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Go's compiler for WebAssembly sends every jump inside a function through one
// table at its head: set the block's number, go to the top, look it up. That is
// how a goroutine is resumed in the middle of a function, and most of what
// judging costs. structured writes the bodies of package policies again with
// blocks and loops in their place, and direct branches; only an entry at a
// number other than 0, a resumption, still looks it up.

// structured rewrites the functions whose name begins with prefix and drops the
// section of names. It returns how many functions it rewrote, and the names of
// those it left alone.
func structured(module []byte, prefix string) (out []byte, done int, left []string, err error) {
	names, imported, err := functionNames(module)
	if err != nil {
		return nil, 0, nil, err
	}
	r := &reader{b: module, i: 8}
	out = bytes.Clone(module[:8])
	for r.i < len(r.b) && r.err == nil {
		id := r.byte()
		s := r.bytes(r.u32())
		switch {
		case id == 0 && strings.HasPrefix(string(s), "\x04name"):
			continue
		case id == 10:
			c := &reader{b: s}
			n := c.u32()
			code := appendU32(nil, n)
			for f := range n {
				body := c.bytes(c.u32())
				if name := names[imported+f]; strings.HasPrefix(name, prefix) && c.err == nil {
					b, err := structure(body, names)
					switch {
					case err == nil:
						body, done = b, done+1
					case errors.Is(err, errShape):
						left = append(left, fmt.Sprintf("%s (%v)", name, err))
					default:
						return nil, 0, nil, err
					}
				}
				code = append(appendU32(code, uint32(len(body))), body...)
			}
			s, r.err = code, cmp.Or(r.err, c.err)
		}
		out = append(appendU32(append(out, id), uint32(len(s))), s...)
	}
	return out, done, left, r.err
}

// functionNames reads the section of names, and how many functions are imported.
func functionNames(module []byte) (names map[uint32]string, imported uint32, err error) {
	r := &reader{b: module, i: 8}
	names = make(map[uint32]string)
	for r.i < len(r.b) && r.err == nil {
		id := r.byte()
		s := &reader{b: r.bytes(r.u32())}
		switch {
		case id == 2:
			imported = s.u32() // Go imports functions only
		case id == 0 && string(s.bytes(s.u32())) == "name":
			for s.i < len(s.b) && s.err == nil {
				kind := s.byte()
				sub := &reader{b: s.bytes(s.u32())}
				if kind != 1 {
					continue
				}
				for range sub.u32() {
					f := sub.u32()
					names[f] = string(sub.bytes(sub.u32()))
				}
				s.err = cmp.Or(s.err, sub.err)
			}
		}
		r.err = cmp.Or(r.err, s.err)
	}
	return names, imported, r.err
}

// errShape says that a function does not have the shape that can be rewritten.
var errShape = errors.New("left as it is")

func shape(why string) error { return fmt.Errorf("%w: %s", errShape, why) }

// Opcodes that matter here.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opI64Store     = 0x37
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI32Eqz       = 0x45
	void           = 0x40
)

// node is one stretch of code between two entries of the table, or a dispatch.
type node struct {
	parts []part
	table []int // of a dispatch: where to go on at each number, or trap
	next  []int // nodes it may go on to
}

// part is a piece of a node: code as it stood, and then a branch out of the node.
type part struct {
	code   []byte
	branch byte // opBr, opBrIf or 0
	to     int  // node, or unwind
	depth  int  // of blocks inside the node that are open at the branch
}

const (
	unwind = -1 // the target of a branch that leaves the function for a while
	trap   = -2 // no place to go on at
)

// graph is one function taken apart.
type graph struct {
	head    []byte // locals and what comes before the table
	unwinds bool
	table   []int // number of a block -> node
	nodes   []node
	resumed []int // nodes that the function may go on at after an unwinding
}

func structure(body []byte, names map[uint32]string) ([]byte, error) {
	g, err := take(body, names)
	if err != nil {
		return nil, err
	}
	return g.write()
}

// take takes a function apart. The compiler writes
//
//	[block] loop block... local.get 0 br_table end CODE end CODE ... end unreachable [end i32.const 1] end
//
// with one block for each entry of the table, and a jump to block K as
// i32.const K, local.set 0, a branch to the loop.
//
// The compiler lets a call of a function that only panics run into whatever is
// next; here nothing follows it.
func take(body []byte, names map[uint32]string) (*graph, error) {
	all, err := decode(body)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(i instruction) bool { return i.op == opBrTable })
	if at < 2 || all[at-1].op != opLocalGet || all[at-1].index != 0 {
		return nil, shape("no table")
	}
	loop := at - 2
	for loop >= 0 && all[loop].op == opBlock {
		loop--
	}
	blocks := at - 2 - loop
	if loop < 0 || all[loop].op != opLoop || blocks == 0 {
		return nil, shape("no jumps")
	}
	g := &graph{nodes: make([]node, blocks)}
	start := loop
	if loop > 0 && all[loop-1].op == opBlock {
		g.unwinds, start = true, loop-1
	}
	g.head = body[:all[start].from]
	for _, i := range all[loop:at] {
		if i.op == opBrTable || i.op != opLocalGet && body[i.from+1] != void {
			return nil, shape("a block with a value")
		}
	}
	for _, label := range all[at].labels {
		if int(label) >= blocks {
			return nil, shape("a table out of its blocks")
		}
		g.table = append(g.table, int(label))
	}
	if at+1 >= len(all) || all[at+1].op != opEnd {
		return nil, shape("something behind the table")
	}
	rest := all[at+2:]
	for n := range g.nodes {
		if rest, err = g.takeNode(n, body, rest, names); err != nil {
			return nil, err
		}
	}
	want := []byte{opUnreachable, opEnd}
	if g.unwinds {
		want = []byte{opUnreachable, opEnd, opI32Const, 1, opEnd}
	}
	if len(rest) == 0 || !bytes.Equal(body[rest[0].from:], want) {
		return nil, shape("another end")
	}
	return g, nil
}

// takeNode takes node n, which ends where a block of the table or the loop does,
// and returns what is left.
func (g *graph) takeNode(n int, body []byte, all []instruction, names map[uint32]string) ([]instruction, error) {
	v := &g.nodes[n]
	var code []byte
	depth := 0
	add := func(branch byte, to, depth int) {
		v.parts = append(v.parts, part{code: code, branch: branch, to: to, depth: depth})
		if to != unwind && branch != 0 {
			v.next = append(v.next, to)
		}
		code = nil
	}
	outer := len(g.nodes) - 1 - n // blocks of the table around the node
	ended := false
	for k := 0; k < len(all); k++ {
		i := all[k]
		if ended && depth == 0 && i.op != opEnd {
			return nil, shape("code behind a jump")
		}
		switch i.op {
		case opBlock, opLoop, opIf:
			depth++
		case opEnd:
			if depth == 0 {
				switch {
				case ended:
				case n+1 == len(g.nodes):
					code = append(code, opUnreachable) // what stands behind the loop
				default:
					add(opBr, n+1, 0)
				}
				add(0, 0, 0)
				return all[k+1:], nil
			}
			depth--
		case opUnreachable, opReturn:
			ended = depth == 0
		case opBrTable:
			return nil, shape("a second table")
		case opI32Const:
			if k+2 >= len(all) || all[k+1].op != opLocalSet || all[k+1].index != 0 || i.value < 0 || all[k+2].op != opBr || int(all[k+2].index) != depth+outer {
				break
			}
			to := g.table[min(int(i.value), len(g.table)-1)]
			ended = depth == 0
			if k > 0 && k+3 < len(all) && all[k-1].op == opIf && body[all[k-1].from+1] == void && all[k+3].op == opEnd {
				code = code[:len(code)-2]
				depth--
				add(opBrIf, to, depth)
				k += 3
				ended = false
			} else {
				add(opBr, to, depth)
				k += 2
			}
			continue
		case opLocalGet, opLocalSet, opLocalTee:
			if i.index == 0 {
				// The number would not be there, or not be 0 when a loop's head looks: the
				// compiler borrows its place to call through a pointer.
				return nil, shape("the number of a block used otherwise")
			}
		case opBr, opBrIf:
			if int(i.index) < depth {
				break
			}
			if !g.unwinds || int(i.index) != depth+outer+1 {
				return nil, shape("a branch of another kind")
			}
			if i.op == opBrIf {
				call, entry := resumption(all[:k])
				if entry < 0 {
					return nil, shape("a call without a way back")
				}
				callee := ""
				if call.op == opCall {
					callee = names[call.index]
				}
				if callee == "runtime.deferreturn" {
					return nil, shape("it defers: the runtime goes on at places of its own") // after a recover
				}
				if strings.HasPrefix(callee, "runtime.goPanic") || callee == "runtime.panicdivide" || callee == "runtime.panicshift" {
					add(opBrIf, unwind, depth)
					code = append(code, opUnreachable)
					ended = depth == 0
					continue
				}
				g.resumed = append(g.resumed, g.table[min(entry, len(g.table)-1)])
			}
			ended = depth == 0 && i.op == opBr
			add(i.op, unwind, depth)
			continue
		}
		code = append(code, body[i.from:i.to]...)
	}
	return nil, shape("no end")
}

// resumption returns the call that all ends with, and the number of the block at
// which the function goes on after it, the low half of the address stored before
// it; -1 if there is none.
func resumption(all []instruction) (call instruction, block int) {
	at := len(all) - 1
	for at >= 0 && all[at].op != opCall && all[at].op != opCallIndirect {
		if at--; len(all)-at > 4 {
			return call, -1
		}
	}
	for k := at; k > 0 && at-k < 12; k-- {
		if all[k].op == opI64Store && all[k-1].op == opI64Const {
			return all[at], int(all[k-1].value & 0xffff)
		}
	}
	return call, -1
}
