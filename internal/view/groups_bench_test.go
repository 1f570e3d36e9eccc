package view_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// flood folds n would-blocks in groups of different targets, in sessions of 100
// receipts, and returns the view and how long folding took.
func flood(b *testing.B, n, targets int) (*view.View, time.Duration) {
	b.Helper()
	v := view.New(nil, view.Options{})
	var folding time.Duration
	obs := doorObs
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for done, session := 0, 0; done < n; session++ {
		id := fmt.Sprintf("01J%07d", session)
		prev := receipts.Genesis(origin, id, receipts.Hash{1})
		msgs := make([]bus.Msg, 0, 201)
		for seq := range uint64(101) {
			r := receipts.Receipt{V: 1, Log: origin, Session: id, Seq: seq, Prev: prev, Epoch: 1, T: at.Add(time.Duration(done) * time.Second), Obs: &obs}
			if seq == 0 {
				r.Type = receipts.TypeSessionOpen
				r.Open = &receipts.Open{State: "admitted", Event: fmt.Sprint("e", session), Bundle: "fix", Digest: digestA, Mode: receipts.Shadow,
					Policy: "credential_free", Provider: "local", Floor: "member", Points: []string{"door"}, Keyset: digestB}
			} else {
				target := (session*100 + int(seq)) * 7919 % targets
				r.Type = receipts.TypeDecision
				r.Act = &receipts.Act{ID: fmt.Sprint(id, "-", seq), Kind: "http.request", Scheme: "https", Host: fmt.Sprintf("host-%c%c%c.example.net", 'a'+target%26, 'a'+target/26%26, 'a'+target/676%26), Port: 443, Method: "GET"}
				r.Dec = &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Rule: "gate.default_deny", Reason: "not_listed"}
				done++
			}
			data, err := r.Encode()
			if err != nil {
				b.Fatal(err)
			}
			prev = receipts.Leaf(data)
			msgs = append(msgs, bus.Msg{Stream: bus.Sessions, Seq: uint64(session)*101 + seq + 1, Subject: "gatehouse.v1.sessions." + id, Data: data})
			if r.Act != nil {
				msgs = append(msgs, bus.Msg{Stream: bus.Actions, Subject: "gatehouse.v1.actions." + prev.String(),
					Data: []byte(`{"http_request":{"headers":{},"host":"x","method":"GET","path":"/files/4711/a.tgz"},"kind":"http.request"}`)})
			}
		}
		start := time.Now()
		for _, m := range msgs {
			v.Fold(m)
		}
		folding += time.Since(start)
	}
	return v, folding
}

// BenchmarkGroups states the rate of the fold and the server time of one page of
// would-blocks at 1 million receipts in 10,000 groups (100,000 and 1,000 with
// -short).
func BenchmarkGroups(b *testing.B) {
	n, targets := 1_000_000, 10_000
	if testing.Short() {
		n, targets = 100_000, 1_000
	}
	v, folding := flood(b, n, targets)
	var took []time.Duration
	b.ResetTimer()
	for i := range b.N {
		sort := []string{"last", "count", "sessions", "first"}[i%4]
		terms, err := view.ParseTerms("status:new -host:*.corp.example verdict:would_block", view.GroupKeys)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		p, err := v.Groups(view.GroupQuery{Terms: terms, Sort: sort, Accepts: func(string) event.Origin { return event.Member }}, "", 50)
		took = append(took, time.Since(start))
		if err != nil || p.Total != targets || len(p.Items) != 50 {
			b.Fatalf("%d of %d groups, %v", p.Total, targets, err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(float64(n)/folding.Seconds(), "receipts/s")
	b.ReportMetric(0, "ns/op")
}
