package ingest

import (
	"slices"
	"strings"

	"gatehouse/internal/event"
)

// Line is one row of a flattened table.
type Line struct {
	Path string // full pointer, "*" for any index
	Rule Rule
	As   string // the name under which it becomes text, "" if it does not
}

// Lines lists a table by path.
func (t *Table) Lines() []Line {
	var out []Line
	var walk func(b *branch)
	walk = func(b *branch) {
		if b == nil {
			return
		}
		if b.row != nil {
			out = append(out, Line{Path: b.path, Rule: b.row.Rule, As: b.row.As})
		}
		for _, c := range b.keys {
			walk(c)
		}
		walk(b.any)
	}
	walk(t.root)
	slices.SortFunc(out, func(a, b Line) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// Words lists what a table says about text: text are the pointers of all values
// that somebody may have written, passages those that it lifts into an event's
// text. Both are sorted. Lint judges the names in a bundle by them.
func (t *Table) Words() (text, passages []string) {
	for _, l := range t.Lines() {
		if l.Rule == Rule(event.Platform) || l.Rule == Rule(event.Credential) {
			continue
		}
		text = append(text, l.Path)
		if l.As != "" {
			passages = append(passages, l.Path)
		}
	}
	return text, passages
}
