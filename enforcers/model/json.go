package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// errJSON is the one error of parse: which rule a hostile body broke concerns
// nobody.
var errJSON = errors.New("not one JSON value with distinct keys")

// Bounds of a body.
const (
	maxDepth = 64
	maxNodes = 1 << 20
)

// kind is the JSON type of a value.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

// value is one JSON value with its place in the body, so that one part can be
// rewritten while every other byte stays.
type value struct {
	kind       kind
	start, end int
	str        string // text, decoded
	items      []value
	keys       []member
}

type member struct {
	name string
	value
}

// parse reads a body strictly: what two parsers could read in two ways (a key
// twice, bytes that are no UTF-8, anything behind the value) is refused.
func parse(b []byte) (*value, error) {
	if !utf8.Valid(b) {
		return nil, errJSON
	}
	p := parser{b: b}
	var v value
	if !p.value(&v, 0) {
		return nil, errJSON
	}
	p.space()
	if p.at != len(b) {
		return nil, errJSON
	}
	return &v, nil
}

type parser struct {
	b     []byte
	at    int
	nodes int
}

func (p *parser) space() {
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) eat(c byte) bool {
	p.space()
	if p.at < len(p.b) && p.b[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) value(v *value, depth int) bool {
	p.space()
	if p.nodes++; p.nodes > maxNodes || depth > maxDepth || p.at >= len(p.b) {
		return false
	}
	v.start = p.at
	ok := false
	switch c := p.b[p.at]; c {
	case '{':
		v.kind = object
		ok = p.object(v, depth)
	case '[':
		v.kind = array
		ok = p.array(v, depth)
	case '"':
		v.kind = text
		v.str, ok = p.text()
	case 't':
		v.kind = boolean
		ok = p.word("true")
	case 'f':
		v.kind = boolean
		ok = p.word("false")
	case 'n':
		ok = p.word("null")
	default:
		v.kind = number
		ok = p.number()
	}
	v.end = p.at
	return ok
}

func (p *parser) word(w string) bool {
	if !bytes.HasPrefix(p.b[p.at:], []byte(w)) {
		return false
	}
	p.at += len(w)
	return true
}

func (p *parser) object(v *value, depth int) bool {
	p.at++
	if p.eat('}') {
		return true
	}
	seen := map[string]bool{}
	for {
		p.space()
		if p.at >= len(p.b) || p.b[p.at] != '"' {
			return false
		}
		name, ok := p.text()
		if !ok || seen[name] || !p.eat(':') { // ME-08, ME-20: a key that stands twice
			return false
		}
		seen[name] = true
		m := member{name: name}
		if !p.value(&m.value, depth+1) {
			return false
		}
		v.keys = append(v.keys, m)
		if p.eat('}') {
			return true
		}
		if !p.eat(',') {
			return false
		}
	}
}

func (p *parser) array(v *value, depth int) bool {
	p.at++
	if p.eat(']') {
		return true
	}
	for {
		var item value
		if !p.value(&item, depth+1) {
			return false
		}
		v.items = append(v.items, item)
		if p.eat(']') {
			return true
		}
		if !p.eat(',') {
			return false
		}
	}
}

// text reads a string.
func (p *parser) text() (string, bool) {
	start := p.at
	for i := start + 1; i < len(p.b); i++ {
		switch c := p.b[i]; {
		case c == '\\':
			i++
		case c < ' ':
			return "", false
		case c == '"':
			p.at = i + 1
			raw := p.b[start:p.at]
			if bytes.IndexByte(raw, '\\') < 0 {
				return string(raw[1 : len(raw)-1]), true
			}
			var s string
			// A lone surrogate becomes U+FFFD: two such keys would be equal, and
			// are refused like any key that stands twice.
			return s, json.Unmarshal(raw, &s) == nil
		}
	}
	return "", false
}

func (p *parser) number() bool {
	start := p.at
	for p.at < len(p.b) && (p.b[p.at] == '-' || p.b[p.at] == '+' || p.b[p.at] == '.' || p.b[p.at]|0x20 == 'e' || p.b[p.at] >= '0' && p.b[p.at] <= '9') {
		p.at++
	}
	return p.at > start && json.Valid(p.b[start:p.at])
}

// get returns a member, nil if it is absent or null.
func (v *value) get(name string) *value {
	for i := range v.keys {
		if v.keys[i].name == name && v.keys[i].kind != null {
			return &v.keys[i].value
		}
	}
	return nil
}

// whole returns a number written as a plain integer.
func (v *value) whole(b []byte) (int64, bool) {
	if v.kind != number {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b[v.start:v.end]), 10, 64)
	return n, err == nil
}

func (v *value) is(b []byte, word string) bool { return string(b[v.start:v.end]) == word }

// edit replaces one stretch of a body.
type edit struct {
	start, end int
	with       string
}

// rewrite applies edits that do not overlap.
func rewrite(b []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return b
	}
	slices.SortStableFunc(edits, func(x, y edit) int { return x.start - y.start })
	out := make([]byte, 0, len(b)+64)
	at := 0
	for _, e := range edits {
		out = append(out, b[at:e.start]...)
		out = append(out, e.with...)
		at = e.end
	}
	return append(out, b[at:]...)
}

// setIn writes a member that is absent or null.
func (v *value) setIn(name, raw string) edit {
	for i := range v.keys {
		if m := &v.keys[i]; m.kind == null && (m.name == name || toCamel(m.name) == name) {
			return edit{m.start, m.end, raw}
		}
	}
	return insert(v, name, raw)
}

func (r *request) set(name, raw string) edit { return r.root.setIn(name, raw) }

// insert adds a member to an object, at its front.
func insert(o *value, name, raw string) edit {
	sep := ","
	if len(o.keys) == 0 {
		sep = ""
	}
	return edit{o.start + 1, o.start + 1, strconv.Quote(name) + ":" + raw + sep}
}
