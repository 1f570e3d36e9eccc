package github

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

// Every fact and passage that Normalize makes is in the vocabulary that bundles
// are linted with: a name that lint refuses must not work at run time.
func TestVocabulary(t *testing.T) {
	s := source(t)
	index := regexp.MustCompile(`/\d+(/|$)`)
	tried := 0
	for _, p := range payloads(t) {
		e := build(t, s, p)
		facts, text, passages, ok := Vocabulary(e.Kind)
		if !ok {
			continue
		}
		tried++
		for _, name := range slices.Concat(slices.Collect(maps.Keys(e.Facts)), slices.Collect(maps.Keys(e.Lists))) {
			if !slices.Contains(facts, name) {
				t.Errorf("%s: fact %s is not in the vocabulary of %s", p.Name, name, e.Kind)
			}
		}
		for _, p := range e.Text {
			at := index.ReplaceAllString(p.Pointer, "/*$1")
			if !slices.Contains(passages, at) || !slices.Contains(text, at) {
				t.Errorf("passage %s is not in the vocabulary of %s", at, e.Kind)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d payloads of known kinds", tried)
	}
	if _, _, _, ok := Vocabulary("ping"); ok {
		t.Error("a ping has a vocabulary: no session starts from one")
	}
}
