package review

import (
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	yaml "go.yaml.in/yaml/v3"

	"gatehouse/gatekeeper/bundle"
)

// tree is a bundle as maps and lists, the form in which a change is made.
type tree map[string]any

// treeOf reads a bundle's canonical bytes, which are YAML too.
func treeOf(b *bundle.Bundle) (tree, error) {
	t := tree{}
	if err := yaml.Unmarshal(b.Canonical(), &t); err != nil {
		return nil, fmt.Errorf("couldn't read bundle %s back: %w", b.Name, err)
	}
	return t, nil
}

// source writes a bundle for people, every default written out.
func (t tree) source() ([]byte, error) {
	b, err := yaml.Marshal(map[string]any(t))
	if err != nil {
		return nil, fmt.Errorf("couldn't write the candidate: %w", err)
	}
	return b, nil
}

// Source returns a bundle as YAML, every default written out: what diffs show.
func Source(b *bundle.Bundle) ([]byte, error) {
	t, err := treeOf(b)
	if err != nil {
		return nil, err
	}
	return t.source()
}

// Diff compares two bundles as unified text, "" when they are the same.
func Diff(a, b *bundle.Bundle) (string, error) {
	before, err := Source(a)
	if err != nil {
		return "", err
	}
	after, err := Source(b)
	if err != nil {
		return "", err
	}
	return string(diff.Diff(name(a), before, name(b), after)), nil
}

func name(b *bundle.Bundle) string { return fmt.Sprintf("%s@%x", b.Name, b.Digest())[:len(b.Name)+13] }

// candidate is a bundle with one more entry, as it would be proposed: it holds
// the sets that it names.
func (r *Review) candidate(b *bundle.Bundle, edit func(tree) error) (*bundle.Bundle, []byte, error) {
	t, err := treeOf(b)
	if err != nil {
		return nil, nil, err
	}
	if err := edit(t); err != nil {
		return nil, nil, err
	}
	src, err := t.source()
	if err != nil {
		return nil, nil, err
	}
	next, err := bundle.Parse(src)
	if err != nil {
		return nil, nil, err
	}
	if next, err = next.Pin(r.o.Sets); err != nil {
		return nil, nil, err
	}
	src, err = Source(next)
	return next, src, err
}

// readAgain takes a set's content out, so that the node's file is read again.
func readAgain(name string) func(tree) error {
	return func(t tree) error {
		sets, _ := t["sets"].(map[string]any)
		delete(sets, name)
		if len(sets) == 0 {
			delete(t, "sets")
		}
		return nil
	}
}

// addTo appends an entry to a list of the bundle.
func addTo(key string, entry any) func(tree) error {
	return func(t tree) error {
		list, _ := t[key].([]any)
		t[key] = append(slices.Clone(list), entry)
		return nil
	}
}

// allowModel adds a model to the entry of a connection.
func allowModel(connection, model string) func(tree) error {
	return func(t tree) error {
		list, _ := t["models"].([]any)
		for _, m := range list {
			if m, ok := m.(map[string]any); ok && m["connection"] == connection {
				allow, _ := m["allow"].([]any)
				m["allow"] = append(slices.Clone(allow), any(model))
				return nil
			}
		}
		return fmt.Errorf("the bundle has no models of connection %s", connection)
	}
}
