package main

import "slices"

// flow is a graph seen from its entry, the last node.
type flow struct {
	order []int // node -> its place: before what it goes on to, but for a loop; -1 out of reach
	nodes []int // in that order
	over  []int // node -> the last node on every way to it
}

func (g *graph) flow() *flow {
	f := &flow{order: make([]int, len(g.nodes)), over: make([]int, len(g.nodes))}
	for n := range g.nodes {
		f.order[n], f.over[n] = -1, -1
	}
	var visit func(n int)
	visit = func(n int) {
		f.order[n] = 0
		for _, to := range slices.Backward(g.nodes[n].next) {
			if f.order[to] < 0 {
				visit(to)
			}
		}
		f.nodes = append(f.nodes, n)
	}
	entry := len(g.nodes) - 1
	visit(entry)
	slices.Reverse(f.nodes)
	for i, n := range f.nodes {
		f.order[n] = i
	}
	f.over[entry] = entry
	for changed := true; changed; {
		changed = false
		for _, n := range f.nodes {
			for _, to := range g.nodes[n].next {
				a, b := n, f.over[to]
				for b >= 0 && a != b {
					if f.order[a] > f.order[b] {
						a = f.over[a]
					} else {
						b = f.over[b]
					}
				}
				if f.over[to] != a {
					f.over[to], changed = a, true
				}
			}
		}
	}
	return f
}

// loops returns the nodes of each loop by its head.
func (g *graph) loops(f *flow) (map[int][]int, error) {
	loops := make(map[int][]int)
	before := make([][]int, len(g.nodes))
	for _, n := range f.nodes {
		for _, to := range g.nodes[n].next {
			before[to] = append(before[to], n)
		}
	}
	for _, n := range f.nodes {
		for _, head := range g.nodes[n].next {
			if f.order[head] > f.order[n] {
				continue
			}
			for d := n; d != head; d = f.over[d] {
				if d == f.over[d] {
					return nil, shape("a loop with two ways in")
				}
			}
			body := append(loops[head], head)
			for todo := []int{n}; len(todo) > 0; {
				m := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				if !slices.Contains(body, m) {
					body = append(body, m)
					todo = append(todo, before[m]...)
				}
			}
			loops[head] = body
		}
	}
	return loops, nil
}

// enter adds the function's entry as a last node: straight on at number 0, by a
// table where it is resumed. A place inside a loop is reached by another such
// table at the loop's head, which WebAssembly wants passed; so that it is passed
// straight from then on, what is resumed sets the number to 0.
func (g *graph) enter() error {
	first := g.table[0]
	g.nodes = append(g.nodes, node{next: []int{first}})
	f := g.flow()
	loops, err := g.loops(f)
	if err != nil {
		return err
	}
	heads := make([]int, 0, len(loops)) // the outer before the inner
	for _, n := range f.nodes {
		if loops[n] != nil {
			heads = append(heads, n)
		}
	}
	g.nodes = g.nodes[:len(g.nodes)-1]
	slices.Sort(g.resumed)
	var again []int // places to resume at that can be reached
	for _, n := range slices.Compact(g.resumed) {
		if f.order[n] >= 0 && n != first {
			again = append(again, n)
		}
	}
	entry := node{table: slices.Repeat([]int{trap}, len(g.table)), next: []int{first}}
	doors := make(map[int]*node) // by the loop's head
	for _, n := range again {
		way := []*node{&entry}
		stops := []int{}
		for _, h := range heads {
			if h != n && slices.Contains(loops[h], n) {
				if doors[h] == nil {
					doors[h] = &node{table: slices.Repeat([]int{trap}, len(g.table)), next: []int{h}}
				}
				way, stops = append(way, doors[h]), append(stops, h)
			}
		}
		stops = append(stops, n)
		for i, d := range way {
			for number, to := range g.table {
				if to == n {
					d.table[number] = stops[i]
				}
			}
			d.next = append(d.next, stops[i])
		}
		g.nodes[n].parts = slices.Insert(g.nodes[n].parts, 0, part{code: []byte{opI32Const, 0, opLocalSet, 0}})
	}
	// A door stands where its loop's head stood.
	instead := make(map[int]int)
	for _, h := range heads {
		if d := doors[h]; d != nil {
			instead[h] = len(g.nodes)
			g.nodes = append(g.nodes, *d)
		}
	}
	g.nodes = append(g.nodes, entry)
	for n := range g.nodes {
		v := &g.nodes[n]
		move := func(to *int) {
			if d, ok := instead[*to]; ok && d != n {
				*to = d
			}
		}
		for i := range v.parts {
			move(&v.parts[i].to)
		}
		for i := range v.next {
			move(&v.next[i])
		}
		for i := range v.table {
			move(&v.table[i])
		}
	}
	return nil
}

// label is what a branch may go to: the code behind a block, or a loop's head.
type label struct {
	node int
	loop bool
}

// writer lays a graph out as blocks and loops: each node is followed by those it
// is the last way to, in an order in which only a loop's head is ever gone back to.
type writer struct {
	*graph
	children [][]int
	loops    map[int][]int
	open     []label // from the outermost
	out      []byte
}

// write puts a function together again.
func (g *graph) write() ([]byte, error) {
	if err := g.enter(); err != nil {
		return nil, err
	}
	f := g.flow()
	loops, err := g.loops(f)
	if err != nil {
		return nil, err
	}
	w := &writer{graph: g, children: make([][]int, len(g.nodes)), loops: loops, out: slices.Clone(g.head)}
	for _, n := range f.nodes[1:] {
		w.children[f.over[n]] = append(w.children[f.over[n]], n)
	}
	if g.unwinds {
		w.out = append(w.out, opBlock, void)
		w.open = append(w.open, label{node: unwind})
	}
	w.tree(len(g.nodes) - 1)
	w.out = append(w.out, opUnreachable)
	if g.unwinds {
		w.out = append(w.out, opEnd, opI32Const, 1)
	}
	w.out = append(w.out, opEnd)
	return w.out, nil
}

// tree writes a node and all that it is the last way to.
func (w *writer) tree(n int) {
	loop := w.loops[n] != nil
	if loop {
		w.begin(opLoop, label{n, true})
	}
	for _, c := range slices.Backward(w.children[n]) {
		w.begin(opBlock, label{c, false})
	}
	if v := &w.nodes[n]; v.table != nil {
		w.dispatch(v)
	} else {
		w.code(v)
	}
	for _, c := range w.children[n] {
		w.end()
		w.tree(c)
	}
	if loop {
		w.end()
	}
}

func (w *writer) begin(op byte, l label) {
	w.out = append(w.out, op, void)
	w.open = append(w.open, l)
}

func (w *writer) end() {
	w.out = append(w.out, opEnd)
	w.open = w.open[:len(w.open)-1]
}

func (w *writer) code(v *node) {
	for i, p := range v.parts {
		w.out = append(w.out, p.code...)
		if p.branch == 0 {
			continue
		}
		to := w.depth(p.to)
		if i == len(v.parts)-2 && p.branch == opBr && p.to != unwind && p.depth == 0 && to == 0 && !w.open[len(w.open)-1].loop {
			continue // it is what follows
		}
		w.out = appendU32(append(w.out, p.branch), uint32(p.depth+to))
	}
}

// dispatch writes a node that goes straight on at number 0, else by its table.
func (w *writer) dispatch(v *node) {
	if len(v.next) == 1 {
		w.out = appendU32(append(w.out, opBr), uint32(w.depth(v.next[0])))
		return
	}
	w.out = append(w.out, opLocalGet, 0, opI32Eqz, opBrIf)
	w.out = appendU32(w.out, uint32(w.depth(v.next[0])))
	w.out = append(w.out, opBlock, void, opLocalGet, 0, opBrTable)
	w.out = appendU32(w.out, uint32(len(v.table)-1))
	for _, n := range v.table {
		to := 0
		if n != trap {
			to = 1 + w.depth(n)
		}
		w.out = appendU32(w.out, uint32(to))
	}
	w.out = append(w.out, opEnd, opUnreachable)
}

// depth returns the number of open blocks inside the one whose label leads to n.
func (w *writer) depth(n int) int {
	for i, l := range slices.Backward(w.open) {
		if l.node == n {
			return len(w.open) - 1 - i
		}
	}
	panic("a node without a label")
}
