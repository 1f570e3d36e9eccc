package receipts

import (
	"bytes"
	"maps"
	"slices"
)

// Keys of Close.Verdicts. Every decision counts under exactly one.
const (
	CountAllow      = "allow"
	CountDeny       = "deny"        // not passed
	CountWouldBlock = "would_block" // denied by the rules, passed in shadow
	CountFault      = "fault"       // an enforcer failed
)

// Tally follows one chain and knows its totals and the decisions that still
// wait for an outcome. The notary fills session.close from it and the verifier
// compares, so that both count alike. The zero Tally is ready for use.
type Tally struct {
	Count    uint64            // receipts
	Verdicts map[string]uint64 // by the Count* keys; folded refusals count in full
	Spent    int64             // nanodollars, from outcomes
	Unknown  uint64            // outcomes whose effect is unknown
	Losses   uint64            // loss receipts
	pending  map[Hash]struct{}
	strange  uint64
}

// Add accounts for the chain's next receipt, whose leaf hash is leaf.
func (t *Tally) Add(r *Receipt, leaf Hash) {
	t.Count++
	switch r.Type {
	case TypeDecision:
		if t.Verdicts == nil {
			t.Verdicts = map[string]uint64{}
		}
		t.Verdicts[bucket(r.Dec)] += max(1, r.Dec.Count)
		if r.Dec.Passed {
			if t.pending == nil {
				t.pending = map[Hash]struct{}{}
			}
			t.pending[leaf] = struct{}{}
		}
	case TypeOutcome:
		t.Spent += r.Out.Spent
		if r.Out.Effect == "unknown" {
			t.Unknown++
		}
		waiting := len(t.pending)
		if delete(t.pending, r.Out.Ref); len(t.pending) == waiting {
			t.strange++
		}
	case TypeLoss:
		t.Losses++
	}
}

// Pending is the number of passed decisions without an outcome so far.
func (t *Tally) Pending() uint64 { return uint64(len(t.pending)) }

// Waits reports whether a passed decision has no outcome so far.
func (t *Tally) Waits(leaf Hash) bool {
	_, ok := t.pending[leaf]
	return ok
}

// Waiting returns the leaves of the passed decisions without an outcome, sorted.
func (t *Tally) Waiting() []Hash {
	return slices.SortedFunc(maps.Keys(t.pending), func(a, b Hash) int { return bytes.Compare(a[:], b[:]) })
}

// Wait makes t one that follows a chain from where these decisions waited.
func (t *Tally) Wait(leaves []Hash) {
	if t.pending == nil {
		t.pending = make(map[Hash]struct{}, len(leaves))
	}
	for _, leaf := range leaves {
		t.pending[leaf] = struct{}{}
	}
}

// Strange is the number of outcomes that answer no waiting decision.
func (t *Tally) Strange() uint64 { return t.strange }

func bucket(d *Dec) string {
	switch {
	case d.Fault != "":
		return CountFault
	case d.Verdict == Allow:
		return CountAllow
	case d.Passed:
		return CountWouldBlock
	default:
		return CountDeny
	}
}
