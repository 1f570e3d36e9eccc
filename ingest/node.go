package ingest

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
)

// Node is one value of a Doc. The zero Node is the absent value: every method
// works on it and finds nothing, so that a path may be followed blindly.
type Node struct {
	d *Doc
	i uint32
}

// Root returns the object itself.
func (d *Doc) Root() Node { return Node{d, 1} }

// At follows a JSON Pointer.
func (d *Doc) At(pointer string) Node { return d.Root().At(pointer) }

func (n Node) v() *value { return &n.d.values[n.i] }

// Exists reports whether the value is in the document, null included.
func (n Node) Exists() bool { return n.i != 0 }

// Object reports whether the value is an object.
func (n Node) Object() bool { return n.Exists() && n.v().kind == kindObject }

// Array reports whether the value is an array.
func (n Node) Array() bool { return n.Exists() && n.v().kind == kindArray }

// Null reports whether the value is absent or null.
func (n Node) Null() bool { return !n.Exists() || n.v().kind == kindNull }

// first returns the index of the first child, 0 for none.
func (n Node) first() uint32 {
	if !n.Exists() {
		return 0
	}
	v := n.v()
	if v.kind != kindObject && v.kind != kindArray || int(n.i)+1 >= len(n.d.values) {
		return 0
	}
	if n.d.values[n.i+1].start >= v.end {
		return 0
	}
	return n.i + 1
}

// Get returns the member with this key.
func (n Node) Get(key string) Node {
	if !n.Object() {
		return Node{}
	}
	for i := n.first(); i != 0; i = n.d.values[i].next {
		v := &n.d.values[i]
		k := n.d.raw[v.key:v.keyEnd]
		if v.keyEscaped {
			k = unquote(k)
		}
		if string(k) == key {
			return Node{n.d, i}
		}
	}
	return Node{}
}

// At follows a JSON Pointer from n.
func (n Node) At(pointer string) Node {
	for pointer != "" && n.Exists() {
		seg, rest := pointer[1:], ""
		if i := strings.IndexByte(seg, '/'); i >= 0 {
			seg, rest = seg[:i], seg[i:]
		}
		pointer = rest
		if n.Array() {
			n = n.index(seg)
		} else {
			n = n.Get(unescape(seg))
		}
	}
	return n
}

// unescape reads a JSON Pointer segment. One pass, so that "~01" is "~1".
func unescape(seg string) string {
	if !strings.Contains(seg, "~") {
		return seg
	}
	return unescaper.Replace(seg)
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

func (n Node) index(seg string) Node {
	want, err := strconv.Atoi(seg)
	if err != nil || want < 0 {
		return Node{}
	}
	for at, item := range n.Items() {
		if at == want {
			return item
		}
	}
	return Node{}
}

// Items yields the items of an array.
func (n Node) Items() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		if !n.Array() {
			return
		}
		at := 0
		for i := n.first(); i != 0; i = n.d.values[i].next {
			if !yield(at, Node{n.d, i}) {
				return
			}
			at++
		}
	}
}

// Len returns the number of items or members.
func (n Node) Len() (count int) {
	for i := n.first(); i != 0; i = n.d.values[i].next {
		count++
	}
	return count
}

// Bytes returns the bytes of the value as they came.
func (n Node) Bytes() []byte {
	if !n.Exists() {
		return nil
	}
	v := n.v()
	return n.d.raw[v.start:v.end]
}

// Text returns the text of a string value. It is untrusted: it goes into an
// event only through event.NewPassage or a Form.
func (n Node) Text() (string, bool) {
	if !n.Exists() || n.v().kind != kindString {
		return "", false
	}
	v := n.v()
	b := n.d.raw[v.start+1 : v.end-1]
	if v.escaped {
		b = unquote(b)
	}
	return string(b), true
}

// Is reports whether the value is this string.
func (n Node) Is(text string) bool {
	if !n.Exists() || n.v().kind != kindString {
		return false
	}
	v := n.v()
	if !v.escaped {
		return string(n.d.raw[v.start+1:v.end-1]) == text
	}
	s, _ := n.Text()
	return s == text
}

// True reports whether the value is true.
func (n Node) True() bool { return n.Exists() && n.v().kind == kindTrue }

// ID returns an id as a string: the digits of a non-negative integer as they
// came, whatever their size, or a closed-form string. "" means none.
func (n Node) ID() string {
	if n.Null() {
		return ""
	}
	switch v := n.v(); v.kind {
	case kindNumber:
		b := n.d.raw[v.start:v.end]
		if len(b) > 20 || bytes.ContainsAny(b, "-.eE") {
			return ""
		}
		return string(b)
	case kindString:
		s, _ := n.Text()
		if len(s) <= 128 && isID(s) {
			return s
		}
	}
	return ""
}

// isID admits what ids are made of: letters, digits, and _ - . : =
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("_-.:=", rune(c)) {
			return false
		}
	}
	return s != ""
}

// compact appends the value without white space. String bytes stay as they
// are, but for what is not UTF-8. A value for which hide answers true is
// replaced by a placeholder.
func (n Node) compact(b []byte, hide func(Node) bool) []byte {
	if hide != nil && hide(n) {
		return append(b, `"[redacted]"`...)
	}
	v := n.v()
	switch v.kind {
	case kindObject, kindArray:
		open, end := byte('{'), byte('}')
		if v.kind == kindArray {
			open, end = '[', ']'
		}
		b = append(b, open)
		for i := n.first(); i != 0; {
			c := &n.d.values[i]
			if v.kind == kindObject {
				b = append(b, '"')
				b = appendUTF8(b, n.d.raw[c.key:c.keyEnd], c.keyEscaped)
				b = append(b, '"', ':')
			}
			b = Node{n.d, i}.compact(b, hide)
			if i = c.next; i != 0 {
				b = append(b, ',')
			}
		}
		return append(b, end)
	case kindString:
		return appendUTF8(b, n.d.raw[v.start:v.end], v.escaped)
	}
	return append(b, n.d.raw[v.start:v.end]...)
}

func appendUTF8(b, s []byte, odd bool) []byte {
	if odd {
		s = bytes.ToValidUTF8(s, []byte("\ufffd"))
	}
	return append(b, s...)
}
