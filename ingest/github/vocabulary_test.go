package github

import (
	"testing"

	"gatehouse/ingest/sourcetest"
	"gatehouse/internal/event"
)

func TestVocabulary(t *testing.T) {
	s := source(t)
	sourcetest.Vocabulary(t, Vocabulary, payloads(t), func(p sourcetest.Payload) *event.Event { return build(t, s, p) })
}
