package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/enforcers/spend"
	"gatehouse/internal/authority"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestBenchSpend is the ledger alone: a hold and its settlement at the bottom of
// a tree of five, and holds whose receipts are on the disk.
func TestBenchSpend(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	l := spend.New(spend.Options{PerDay: 1 << 50})
	parent := ""
	for level := range 5 {
		id := fmt.Sprint("s", level)
		if err := l.Open(spend.Session{ID: id, Parent: parent, Bundle: "b", Limit: 1 << 50, PerDay: 1 << 50}); err != nil {
			t.Fatal(err)
		}
		parent = id
	}
	// The floor: what a gateway does that adds to a counter after the answer.
	var mu sync.Mutex
	counter := map[string]int64{}
	ours := nanoseconds(func() {
		if h, no := l.Hold(parent, spend.Exactly(100)); no == nil {
			h.Settle(1)
		}
	})
	base := nanoseconds(func() {
		mu.Lock()
		counter[parent]++
		mu.Unlock()
	})
	report(t, "spend.hold_and_settle_5_levels/counter", "ns", ours, base)
}

// TestBenchDurableHolds counts holds whose decision receipts are on the disk, at
// 64 callers, against one writer that writes and syncs the same bytes.
func TestBenchDurableHolds(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	keys, err := notary.NewKeys("gatehouse.example/bench")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "bench", Keys: keys, Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40}})
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	obs := receipts.Obs{Point: "door", Kind: "spend-meter", Level: 2, Mediation: "sole"}
	chain, err := n.Open(t.Context(), "bench", receipts.Open{State: "admitted", Bundle: "bench", Mode: receipts.Hard, Policy: "credential_free"}, obs)
	if err != nil {
		t.Fatal(err)
	}
	rec := chain.Recorder(obs)
	l := spend.New(spend.Options{})
	if err := l.Open(spend.Session{ID: "bench", Bundle: "b", Limit: 1<<53 - 1}); err != nil {
		t.Fatal(err)
	}
	to, err := authority.ParseHostPort(authority.HTTPS, modelHost+":443")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	ours := rateOf(t, 64, func(int) error {
		h, no := l.Hold("bench", spend.Exactly(100))
		if no != nil {
			return errors.New(no.Code)
		}
		a := &enforcers.Action{ID: "bench-1", Session: "bench", Kind: enforcers.ModelCall, Connection: "main",
			Model: &enforcers.Model{To: to, Provider: "anthropic", Model: "claude-sonnet-4-5", MaxTokens: 100, Held: 100}}
		d := &enforcers.Decision{Verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "models[0]", Reason: "listed"}, Mode: receipts.Hard, Passed: true, Held: 100}
		leaf, err := rec.Decision(t.Context(), a, d, true)
		if err == nil {
			rec.Outcome(leaf, enforcers.Outcome{Effect: enforcers.Forwarded, Spent: int64(h.Settle(50))})
		}
		return err
	})
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group {
			size = max(size, min(len(r.Data), 4096))
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "floor"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := bytes.Repeat([]byte("x"), size)
	base := rateOf(t, 1, func(int) error {
		if _, err := f.Write(b); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	})
	report(t, "spend.durable_holds_64_callers/fdatasync", "holds/s", ours, base)
}

func nanoseconds(f func()) float64 {
	best := 0.0
	for range rounds {
		const n = 200_000
		began := time.Now()
		for range n {
			f()
		}
		if took := float64(time.Since(began)) / n; best == 0 || took < best {
			best = took
		}
	}
	return best
}
