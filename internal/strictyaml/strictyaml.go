// Package strictyaml decodes YAML into documented structs and refuses every
// key that the struct does not have, naming the line, the path and the key
// that was probably meant. It reads bytes and fills a struct; it must never
// ignore a key, because an ignored key in a security file is a rule that its
// author believes in and nobody enforces.
package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"gatehouse/internal/problem"
)

// MaxBytes bounds a document. Real files have a few KiB.
const MaxBytes = 1 << 20

// Decode fills out, a pointer to a struct with yaml tags, from the single YAML
// document in src. name is the file's name as the error should show it.
//
// A type that implements yaml.Unmarshaler or encoding.TextUnmarshaler judges
// its own node. Errors are *problem.Error with code config_invalid.
func Decode(name string, src []byte, out any) error {
	if len(src) > MaxBytes {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: larger than %d bytes", name, MaxBytes), "split the file")
	}
	dec := yaml.NewDecoder(strings.NewReader(string(src)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return problem.New(problem.ConfigInvalid, name+": "+clean(err), "")
	}
	var more yaml.Node
	if dec.Decode(&more) == nil {
		return problem.New(problem.ConfigInvalid, fmt.Sprintf("%s: line %d: a second document", name, more.Line), "keep one document in a file")
	}
	w := walker{name: name}
	if len(doc.Content) > 0 {
		w.walk(doc.Content[0], reflect.TypeOf(out), "")
	}
	if w.err != nil {
		return w.err
	}
	if err := doc.Decode(out); err != nil {
		var p *problem.Error
		if errors.As(err, &p) {
			return problem.New(p.Code, name+": "+p.Msg, p.Hint)
		}
		return problem.New(problem.ConfigInvalid, name+": "+clean(err), "")
	}
	return nil
}

// Node fills out from n as Decode does, for a type that implements
// yaml.Unmarshaler and accepts more than one shape. path is where n stands, for
// the error; the caller's Decode adds the file's name.
func Node(n *yaml.Node, path string, out any) error {
	w := walker{}
	w.walk(n, reflect.TypeOf(out), path)
	if w.err != nil {
		return w.err
	}
	return n.Decode(out)
}

type walker struct {
	name string
	err  error
}

func (w *walker) fail(n *yaml.Node, msg, hint string) {
	if w.err == nil {
		prefix := w.name + ": "
		if w.name == "" {
			prefix = ""
		}
		w.err = problem.New(problem.ConfigInvalid, fmt.Sprintf("%sline %d: %s", prefix, n.Line, msg), hint)
	}
}

var (
	yamlUnmarshaler = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (w *walker) walk(n *yaml.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		w.fail(n, "anchors and aliases are not read", "write the value out")
		return
	}
	if reflect.PointerTo(t).Implements(yamlUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler) {
		return
	}
	switch {
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		fields := fieldsOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			ft, ok := fields[key.Value]
			if !ok {
				w.unknown(key, fields, path)
				return
			}
			w.walk(value, ft, join(path, key.Value))
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			w.walk(n.Content[i+1], t.Elem(), join(path, n.Content[i].Value))
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			w.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func (w *walker) unknown(key *yaml.Node, fields map[string]reflect.Type, path string) {
	where := "at the top level"
	if path != "" {
		where = "in " + path
	}
	known := make([]string, 0, len(fields))
	for f := range fields {
		known = append(known, f)
	}
	slices.Sort(known)
	hint := "known keys: " + strings.Join(known, ", ")
	if near := Nearest(key.Value, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	w.fail(key, fmt.Sprintf("unknown key %q %s", key.Value, where), hint)
}

// fieldsOf lists a struct's yaml keys, inlined structs included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || (!f.IsExported() && !f.Anonymous):
		case strings.Contains(opts, "inline"):
			ft := f.Type
			for ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			for k, v := range fieldsOf(ft) {
				out[k] = v
			}
		case name == "":
			out[strings.ToLower(f.Name)] = f.Type
		default:
			out[name] = f.Type
		}
	}
	return out
}

// Nearest returns the candidate that s was probably meant to be, or "": at
// most two edits away and less than half of s rewritten.
func Nearest(s string, candidates []string) string {
	best, at := 3, ""
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < best && d*2 < max(len(s), 2) {
			best, at = d, c
		}
	}
	return at
}

// distance is the optimal string alignment distance (edits and swaps of
// neighbours, the usual slips of fingers).
func distance(a, b string) int {
	prev2, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return prev[len(b)]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// clean strips the library's prefix and folds its list onto one line.
func clean(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n")
	return strings.Join(strings.Fields(s), " ")
}
