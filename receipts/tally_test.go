package receipts_test

import (
	"bytes"
	"slices"
	"testing"

	"gatehouse/receipts"
)

// A tally that goes on from another's waiting decisions knows what that one knew.
func TestTallyWaits(t *testing.T) {
	var before receipts.Tally
	leaves := []receipts.Hash{digest("a"), digest("b"), digest("c")}
	for _, leaf := range leaves {
		before.Add(&receipts.Receipt{Type: receipts.TypeDecision, Dec: &receipts.Dec{Verdict: receipts.Allow, Passed: true}}, leaf)
	}
	refused := digest("refused")
	before.Add(&receipts.Receipt{Type: receipts.TypeDecision, Dec: &receipts.Dec{Verdict: receipts.Deny}}, refused)
	var after receipts.Tally
	after.Wait(before.Waiting())
	for _, tally := range []*receipts.Tally{&before, &after} {
		if got := tally.Waiting(); !slices.IsSortedFunc(got, func(a, b receipts.Hash) int { return bytes.Compare(a[:], b[:]) }) || len(got) != 3 {
			t.Errorf("waiting %v", got)
		}
		answer := &receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: leaves[1], Effect: "forwarded"}}
		tally.Add(answer, digest("outcome"))
		if !tally.Waits(leaves[0]) || tally.Waits(leaves[1]) || tally.Waits(refused) || tally.Pending() != 2 || tally.Strange() != 0 {
			t.Errorf("%d wait, %d strange", tally.Pending(), tally.Strange())
		}
		if tally.Add(answer, digest("again")); tally.Strange() != 1 || tally.Pending() != 2 {
			t.Errorf("a second outcome: %d wait, %d strange", tally.Pending(), tally.Strange())
		}
	}
}
