package linear

import (
	"slices"

	"gatehouse/internal/event"
)

// Vocabulary returns the names that are facts of a kind, the pointers of its
// text, and which of these can be delivered; false for a kind outside the list.
func Vocabulary(name string) (facts, text, passages []string, ok bool) {
	for _, k := range kinds() {
		if k.name != name || !event.Startable(name) {
			continue
		}
		for _, f := range k.facts {
			facts = append(facts, f.Name)
		}
		for list := range k.lists {
			facts = append(facts, list)
		}
		facts = append(facts, "actor.level", "changed", "stop.scope", "stop.ids")
		slices.Sort(facts)
		text, passages = k.table.Words()
		return facts, text, passages, true
	}
	return nil, nil, nil, false
}
