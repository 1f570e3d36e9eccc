package ingest

import (
	"strconv"
	"strings"

	"gatehouse/internal/event"
)

// maxItems is how many items of one array become passages.
const maxItems = 100

// maxRows is for how many labels room is made before they are found.
const maxRows = 64

// maxPassages bounds the text bytes of one event, so that an event with its
// payload fits one NATS message.
const maxPassages = 128 << 10

// Rule says who chose the bytes of a value. A name of an event.Origin is that
// origin; any other is resolved by the source, which looks at the document.
type Rule string

// Row is one line of a provenance table. Tables are data: a path without a row
// is outsider, so a row can only be missing in the safe direction.
type Row struct {
	// Path is an RFC 6901 pointer below the place where the rows are used; "*"
	// stands for any array index.
	Path string
	// Rule gives the origin of the value and of everything below it that has no
	// row of its own.
	Rule Rule
	// As, when set, lifts the value into the event's text under this name.
	As string
	// Use, when set, puts these rows below Path instead of a Rule. Their rules
	// are resolved against the object at Path.
	Use []Row
}

// Table is the flattened form of rows, ready to be applied to documents.
type Table struct {
	root   *branch
	rows   int
	secret bool // some row is a credential
}

// branch is one node of the tree of paths.
type branch struct {
	path   string       // full pointer
	base   int          // how many levels above the value its rules look at
	row    *Row         // nil when only a way to deeper rows
	origin event.Origin // of the row's rule, "" when the source decides
	keys   map[string]*branch
	any    *branch
}

// NewTable flattens rows. Of two rows of one path the later wins.
func NewTable(rows []Row) *Table {
	t := &Table{root: &branch{}}
	t.add(t.root, rows)
	return t
}

func (t *Table) add(b *branch, rows []Row) {
	for i := range rows {
		r := &rows[i]
		at, depth := b, 0
		for _, seg := range segments(r.Path) {
			at, depth = at.child(seg), depth+1
		}
		if r.Use != nil {
			t.add(at, r.Use)
			continue
		}
		at.row, at.base, at.origin = r, depth, ""
		if o := event.Origin(r.Rule); o.Valid() {
			at.origin = o
		}
		t.rows++
		t.secret = t.secret || r.Rule == Rule(event.Credential)
	}
}

func (b *branch) child(seg string) *branch {
	if seg == "*" {
		if b.any == nil {
			b.any = &branch{path: b.path + "/*"}
		}
		return b.any
	}
	if b.keys == nil {
		b.keys = map[string]*branch{}
	}
	key := unescape(seg)
	c := b.keys[key]
	if c == nil {
		c = &branch{path: b.path + "/" + seg}
		b.keys[key] = c
	}
	return c
}

func segments(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path[1:], "/")
}

// Label is what a rule resolves to for one value.
type Label struct {
	Origin event.Origin
	Author string // id of who wrote it, "" if unknown
}

// Resolve decides a rule that is not an origin. base is the object under which
// the row stands, at is the value. It must be pure.
type Resolve func(rule Rule, base, at Node) Label

// Tagged is what a table says about one document.
type Tagged struct {
	Prov map[string]event.Origin
	Text []event.Passage
}

// Apply labels the values of a document that have rows. Rows of values that are
// absent leave no trace. A row under "*" gets the lowest label of its items.
func (t *Table) Apply(d *Doc, resolve Resolve) Tagged {
	a := applier{resolve: resolve, out: Tagged{Prov: make(map[string]event.Origin, min(t.rows, maxRows))}}
	if t.secret {
		// Found first, so that the text of an object holds none of its secrets.
		set := map[uint32]bool{}
		t.root.secrets(d.Root(), set)
		if len(set) > 0 {
			a.hide = func(n Node) bool { return set[n.i] }
		}
	}
	a.walk(t.root, d.Root(), make([]Node, 0, maxDepth))
	return a.out
}

type applier struct {
	resolve Resolve
	hide    func(Node) bool // credentials; nil when there are none
	out     Tagged
	at      []byte // pointer of what is walked when an array lies on the way, else empty
	bytes   int    // of text so far
	beyond  bool   // inside an item past maxItems: labelled, but no text
}

// secrets collects the values that have a credential row.
func (b *branch) secrets(n Node, set map[uint32]bool) {
	if b.row != nil && b.row.Rule == Rule(event.Credential) {
		set[n.i] = true
	}
	for seg, c := range b.keys {
		if at := n.Get(seg); at.Exists() {
			c.secrets(at, set)
		}
	}
	if b.any != nil {
		for _, item := range n.Items() {
			b.any.secrets(item, set)
		}
	}
}

// walk visits n, to which b leads. above holds the objects and arrays over n.
func (a *applier) walk(b *branch, n Node, above []Node) {
	if b.row != nil {
		a.label(b, n, above)
	}
	here := len(a.at)
	switch {
	case b.keys != nil && n.Object():
		above = append(above, n)
		for i := n.first(); i != 0; i = n.d.values[i].next {
			v := &n.d.values[i]
			key := n.d.raw[v.key:v.keyEnd]
			if v.keyEscaped {
				key = unquote(key)
			}
			c := b.keys[string(key)]
			if c == nil {
				continue
			}
			if here > 0 {
				a.at = append(a.at[:here], c.path[len(b.path):]...)
			}
			a.walk(c, Node{n.d, i}, above)
		}
	case b.any != nil && n.Array():
		if here == 0 {
			a.at = append(a.at, b.path...)
		}
		array := len(a.at)
		above = append(above, n)
		deep := a.beyond
		at := 0
		for i := n.first(); i != 0; i = n.d.values[i].next {
			a.beyond = deep || at >= maxItems
			a.at = strconv.AppendInt(append(a.at[:array], '/'), int64(at), 10)
			a.walk(b.any, Node{n.d, i}, above)
			at++
		}
		a.beyond = deep
	}
	a.at = a.at[:here]
}

func (a *applier) label(b *branch, n Node, above []Node) {
	if n.Null() {
		return
	}
	l := Label{Origin: b.origin}
	if l.Origin == "" {
		base := n
		if b.base > 0 {
			base = above[len(above)-b.base]
		}
		l = a.resolve(b.row.Rule, base, n)
	}
	low := l.Origin
	if known, ok := a.out.Prov[b.path]; ok {
		low = event.Join(known, low) // a row under "*" is as low as its lowest item
	}
	a.out.Prov[b.path] = low
	if b.row.As != "" && l.Origin != event.Credential {
		a.passage(b, n, l)
	}
}

// passage lifts a string, or the compact JSON of anything else, so that keys
// chosen by a sender stay inside text.
func (a *applier) passage(b *branch, n Node, l Label) {
	if a.beyond || a.bytes >= maxPassages {
		return
	}
	s, ok := n.Text()
	if !ok {
		s = string(n.compact(nil, a.hide))
	}
	if s == "" {
		return
	}
	at := b.path
	if len(a.at) > 0 {
		at = string(a.at)
	}
	p := event.NewPassage(at, b.row.As, s, l.Origin, l.Author)
	a.bytes += min(p.Len, event.MaxText)
	a.out.Text = append(a.out.Text, p)
}
