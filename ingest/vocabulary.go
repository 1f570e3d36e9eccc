package ingest

import (
	"slices"

	"gatehouse/internal/event"
)

// Words lists what a table says about text: text are the pointers of all values
// that somebody may have written, passages those that it lifts into an event's
// text. Both are sorted. Lint judges the names in a bundle by them.
func (t *Table) Words() (text, passages []string) {
	var walk func(b *branch)
	walk = func(b *branch) {
		if b == nil {
			return
		}
		if b.row != nil && b.row.Rule != Rule(event.Platform) && b.row.Rule != Rule(event.Credential) {
			text = append(text, b.path)
			if b.row.As != "" {
				passages = append(passages, b.path)
			}
		}
		for _, c := range b.keys {
			walk(c)
		}
		walk(b.any)
	}
	walk(t.root)
	slices.Sort(text)
	slices.Sort(passages)
	return text, passages
}
