package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

// Head is the newest that a node's log subject carried.
type Head struct {
	Node       string     `json:"node"`
	Sealed     uint64     `json:"sealed" doc:"leaves up to the last group seal"`
	Checkpoint string     `json:"checkpoint,omitempty" doc:"the last checkpoint, a signed note; keep it where the node cannot change it"`
	Seal       Seal       `json:"seal" enum:"valid,invalid,unchecked" doc:"whether the checkpoint is signed by this node's key"`
	Size       uint64     `json:"size,omitempty" doc:"leaves that a valid checkpoint covers"`
	Time       *time.Time `json:"time,omitempty" doc:"asserted by a valid checkpoint"`
}

// after returns the head after one more message on the log subject.
func (h Head) after(node string, m bus.Msg) Head {
	h.Node = node
	if s, err := receipts.ParseSeal(m.Data); err == nil {
		h.Sealed = s.First + uint64(s.Count)
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
		h := v.logs[node]
		h.Seal = SealUnchecked
		if v.o.Keyset != nil && h.Checkpoint != "" {
			c, err := receipts.ParseCheckpoint([]byte(h.Checkpoint), v.o.Keyset)
			switch {
			case err == nil:
				h.Seal, h.Size, h.Time = SealValid, c.Size, &c.Time
			case strings.HasPrefix(h.Checkpoint, v.o.Keyset.Origin+"\n"):
				h.Seal = SealInvalid
			}
		}
		out = append(out, h)
	}
	return out
}
