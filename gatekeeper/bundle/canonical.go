package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// Canonical returns the bytes that the digest is over: one line of JSON with
// sorted keys and every default written out. Modes are left out, since the
// control chain decides them. The bytes are a bundle file themselves.
func (b *Bundle) Canonical() []byte { return marshal(treeOf(*b)) }

// Digest returns the SHA-256 of the canonical bytes.
func (b *Bundle) Digest() [32]byte { return sha256.Sum256(b.Canonical()) }

// treeOf turns a value into maps, lists, strings, integers and booleans by its
// yaml tags. It reflects instead of naming fields so that a field added later
// cannot be forgotten in the digest.
func treeOf(v any) any { return treeOfValue(reflect.ValueOf(v)) }

func treeOfValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case interface{ tree() any }:
		return x.tree()
	case fmt.Stringer: // durations, sizes, money, rates, days, prefixes
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return treeOfValue(v.Elem())
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			tag := f.Tag.Get("digest")
			if !f.IsExported() || tag == "-" || v.Field(i).IsZero() || tag != "empty" && empty(v.Field(i)) {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			m[name] = treeOfValue(v.Field(i))
		}
		return m
	case reflect.Map:
		m := map[string]any{}
		for it := v.MapRange(); it.Next(); {
			m[it.Key().String()] = treeOfValue(it.Value())
		}
		return m
	case reflect.Slice:
		l := make([]any, v.Len())
		for i := range l {
			l[i] = treeOfValue(v.Index(i))
		}
		return l
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Uint16:
		return v.Uint()
	}
	panic("bundle: no canonical form for " + v.Type().String())
}

// empty reports whether a list or map has nothing in it. Writing it so means
// the same as not writing it, except for session.deliver.
func empty(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// marshal writes a tree as JSON: encoding/json sorts map keys, and the trees
// hold no floats and no nulls.
func marshal(tree any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		panic("bundle: " + err.Error()) // only for types that treeOf never returns
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// WithModes returns a copy that has the given modes in place of the file's.
// modes is by enforcer; one that it lacks keeps the file's.
func (b *Bundle) WithModes(mode Mode, modes map[string]Mode) *Bundle {
	c := *b
	c.Mode = mode
	c.Enforcers = maps.Clone(b.Enforcers)
	for name, m := range modes {
		if e, ok := c.Enforcers[name]; ok {
			e.Mode = m
			c.Enforcers[name] = e
		}
	}
	return &c
}
