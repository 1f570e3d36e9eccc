package sentry

import (
	"slices"

	"gatehouse/internal/event"
)

// Vocabulary returns the names that are facts of a kind, the pointers of its
// text, and which of these can be delivered; false for a kind outside the list.
func Vocabulary(name string) (facts, text, passages []string, ok bool) {
	k, ok := kinds()[name]
	if !ok || !event.Startable(name) {
		return nil, nil, nil, false
	}
	for _, f := range k.facts {
		facts = append(facts, f.Name)
	}
	facts = append(facts, "actor.level", "stop.scope", "stop.ids")
	slices.Sort(facts)
	text, passages = k.table.Words()
	return facts, text, passages, true
}
