package view

import (
	"maps"
	"slices"
	"strings"

	"gatehouse/internal/bus"
)

// Head is the newest that a node's log subject carried.
type Head struct {
	Node       string `json:"node"`
	Messages   uint64 `json:"messages" doc:"seals and checkpoints seen"`
	Seal       string `json:"seal,omitempty" doc:"the last group seal, as text"`
	Checkpoint string `json:"checkpoint,omitempty" doc:"the last checkpoint, a signed note"`
}

// after returns the head after one more message on the log subject.
func (h Head) after(node string, m bus.Msg) Head {
	h.Node = node
	h.Messages++
	if strings.HasPrefix(string(m.Data), "gatehouse-seal/") {
		h.Seal = string(m.Data)
	} else {
		h.Checkpoint = string(m.Data)
	}
	return h
}

// Heads returns the head of every node's log.
func (v *View) Heads() []Head {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := []Head{}
	for _, node := range slices.Sorted(maps.Keys(v.logs)) {
		out = append(out, v.logs[node])
	}
	return out
}
