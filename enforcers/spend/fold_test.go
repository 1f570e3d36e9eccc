package spend_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"gatehouse/enforcers"
	"gatehouse/enforcers/spend"
	"gatehouse/internal/authority"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestJournalCut runs calls of two sessions through a real journal and cuts it
// behind every record: whatever a crash leaves, what the receipts say is never
// below what the provider may have charged.
func TestJournalCut(t *testing.T) {
	ctx := t.Context()
	keys, err := notary.NewKeys("gatehouse.example/cut")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "node-1", Keys: keys})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := n.Start(ctx, j); err != nil {
		t.Fatal(err)
	}
	to, err := authority.New(authority.HTTPS, "api.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	obs := receipts.Obs{Point: "door", Kind: "spend-meter", Level: 2, Mediation: "sole"}
	ids := []string{"01JB0000000000000000000000", "01JB0000000000000000000001"}
	truth := map[receipts.Hash]spend.Nano{} // decision -> what upstream charges
	for i, id := range ids {
		o := receipts.Open{State: "admitted", Event: "github:main:1", Bundle: "b", Mode: receipts.Hard, Policy: "credential_free", Provider: "local"}
		if i > 0 {
			o.Parent = ids[0]
		}
		chain, err := n.Open(ctx, id, o, obs)
		if err != nil {
			t.Fatal(err)
		}
		rec := chain.Recorder(obs)
		for k := range int64(24) {
			a := &enforcers.Action{
				ID: fmt.Sprint(id, "-", k), Session: id, Kind: enforcers.ModelCall, Connection: "m",
				Model: &enforcers.Model{To: to, Provider: "anthropic", Model: "claude-sonnet-4-5", MaxTokens: 10, Held: 1000 + k},
			}
			d := &enforcers.Decision{Verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "models[0]", Reason: "listed"}, Mode: receipts.Hard, Passed: true, Held: 1000 + k}
			leaf, err := rec.Decision(ctx, a, d, true)
			if err != nil {
				t.Fatal(err)
			}
			truth[leaf] = spend.Nano(1000+k) * spend.Nano(k%5) / 4
			switch k % 4 {
			case 0:
				truth[leaf] = 0
				rec.Outcome(leaf, enforcers.Outcome{Effect: enforcers.NotForwarded})
			case 1:
				rec.Outcome(leaf, enforcers.Outcome{Effect: enforcers.Forwarded, Spent: int64(truth[leaf]), Status: 200})
			case 2:
				rec.Outcome(leaf, enforcers.Outcome{Effect: enforcers.Unknown})
			} // 3: the crash comes first
		}
		if _, err := chain.Close(ctx, receipts.Close{Reason: "completed"}); err != nil {
			t.Fatal(err)
		}
	}
	var records []journal.Record
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group {
			if r.Kind == journal.KindReceipt {
				records = append(records, r)
			}
		}
	}
	// ME-16: kill -9 at each step of the journal.
	t.Run("ME-16_every_cut", func(t *testing.T) { everyCut(t, records, truth, ids[0]) })
}

// everyCut folds each beginning of the records.
func everyCut(t *testing.T, records []journal.Record, truth map[receipts.Hash]spend.Nano, root string) {
	full := false
	for cut := range len(records) + 1 {
		l := spend.New(spend.Options{})
		var charged spend.Nano
		for _, r := range records[:cut] {
			leaf := receipts.Leaf(r.Data)
			decoded, err := receipts.Decode(r.Data)
			if err != nil {
				t.Fatal(err)
			}
			l.Fold(leaf, decoded)
			charged += truth[leaf] // durable decision: the bytes may be out
		}
		open := l.Folded()
		var says spend.Nano
		for _, b := range l.Budgets() {
			if b.Kind == spend.KindNode {
				says += b.Spent + b.Held
			}
		}
		if says < charged {
			t.Fatalf("cut behind record %d of %d: %s by the receipts, %s charged", cut, len(records), says, charged)
		}
		full = full || says > 0 && open > 0
		if b, ok := l.Session(root); ok && b.Spent < says {
			t.Fatalf("cut %d: the root paid %s of %s", cut, b.Spent, says)
		}
	}
	if !full {
		t.Error("no cut fell between a decision and its outcome")
	}
}
