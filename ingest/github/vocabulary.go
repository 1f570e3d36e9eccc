package github

import (
	"slices"

	"gatehouse/internal/event"
)

// derived are the facts that a kind's code sets beside its fact table.
// TestVocabulary holds them against what Normalize makes of the corpus.
var derived = map[string][]string{
	"*":              {"actor.level", "stop.scope", "stop.ids"},
	"workflow_run":   {"branch_hash", "pull_requests"},
	"check_run":      {"pull_requests"},
	"check_suite":    {"pull_requests"},
	"push":           {"branch_hash", "ref_is_default"},
	"create":         {"branch_hash"},
	"delete":         {"branch_hash"},
	"issue_comment":  {"is_pull_request", "command"},
	"commit_comment": {"command"},
}

// Vocabulary returns the names that are facts of a kind, the pointers of its
// text, and which of these can be delivered; false for a kind outside the
// published set.
func Vocabulary(name string) (facts, text, passages []string, ok bool) {
	known, _ := tables()
	k, ok := known[name]
	if !ok || !event.Startable(name) {
		return nil, nil, nil, false
	}
	for _, f := range k.facts {
		facts = append(facts, f.Name)
	}
	for _, l := range k.lists {
		facts = append(facts, l.name)
	}
	for _, l := range k.levels {
		facts = append(facts, l.fact)
	}
	if k.fork != nil {
		facts = append(facts, "fork")
	}
	facts = slices.Concat(facts, derived["*"], derived[name])
	if has(k, "/pull_request") && k.fork != nil {
		facts = append(facts, "base_is_default", "command")
	}
	slices.Sort(facts)
	text, passages = k.table.Words()
	return slices.Compact(facts), text, passages, true
}

func has(k *kind, path string) bool { return slices.Contains(k.has, path) }
