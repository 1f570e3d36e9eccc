package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"gatehouse/internal/canon"
)

// maxParam is the largest number of canonical JSON: 2^53-1.
const maxParam = 1<<53 - 1

// Param is one setting of an added module: a word, a whole number, true or
// false, or a list or map of these. Modules read it as canonical JSON, so what
// that cannot write (fractions, nothing, control characters) is no setting.
type Param struct{ value any } // string, int64, bool, []any or map[string]any

// UnmarshalYAML reads a setting as it is written.
func (p *Param) UnmarshalYAML(n *yaml.Node) (err error) {
	p.value, err = param(n)
	return err
}

func (p Param) tree() any { return p.value }

func param(n *yaml.Node) (any, error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return nil, shape(n, "anchors and aliases are not read", "write the value out")
	}
	switch n.Kind {
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := param(item)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := m[key.Value]; twice || key.Kind != yaml.ScalarNode || canon.CheckText(key.Value) != nil {
				return nil, shape(key, "a module's setting needs keys that are words, each once", "")
			}
			v, err := param(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key.Value] = v
		}
		return m, nil
	}
	switch n.ShortTag() {
	case "!!str":
		if err := canon.CheckText(n.Value); err != nil {
			return nil, shape(n, fmt.Sprintf("a module's setting cannot hold this text: %v", err), "")
		}
		return n.Value, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int":
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || v > maxParam || v < -maxParam {
			return nil, shape(n, n.Value+" is no whole number that every module can read", "write it in decimal, up to 2^53-1, or quote it")
		}
		return v, nil
	}
	return nil, shape(n, "a module's setting is a word, a whole number, true or false, or a list or map of these", "quote it to make it a word")
}

// Settings returns the params as the canonical JSON object that the module is
// configured with.
func (e Enforcer) Settings() ([]byte, error) {
	m := make(map[string]any, len(e.Params))
	for name, p := range e.Params {
		m[name] = p.value
	}
	var w canon.Writer
	writeParam(&w, m)
	b, err := w.Bytes()
	if err != nil {
		return nil, fmt.Errorf("params of %s: %w", e.Module, err)
	}
	return b, nil
}

func writeParam(w *canon.Writer, v any) {
	switch v := v.(type) {
	case string:
		w.String(v)
	case int64:
		w.Int(v)
	case bool:
		w.Bool(v)
	case []any:
		w.Array()
		for _, item := range v {
			writeParam(w, item)
		}
		w.EndArray()
	case map[string]any:
		w.Object()
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.Key(key)
			writeParam(w, v[key])
		}
		w.EndObject()
	}
}
