package notary_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"gatehouse/enforcers"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// budgeted is a node whose sessions have a budget, and what it was told.
func budgeted(t *testing.T, b notary.Budget) (*node, *faultfs.FS, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var told []string
	b.Flood = func(s string) { mu.Lock(); defer mu.Unlock(); told = append(told, s) }
	n := &node{t: t, disk: &faultfs.FS{}, dir: "journal", clock: newClock()}
	n.Notary = notary.New(notary.Options{Node: "node-1", Keys: testKeys(), Clock: n.clock.Now, Budget: b})
	var err error
	n.j, err = journal.Open(n.dir, journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: n.disk, SegmentBytes: 64 << 10, ReserveBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.j.Close() })
	if err := n.Start(context.Background(), n.j); err != nil {
		t.Fatal(err)
	}
	return n, n.disk.(*faultfs.FS), func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), told...) }
}

// refusal is a deny of a path, in a mode.
func refusal(t testing.TB, c *notary.Chain, seq uint64, path string, mode receipts.Mode, durable bool) error {
	t.Helper()
	a, d := get(t, c, seq, path)
	d.Effect, d.Rule, d.Reason, d.Passed, d.Mode = enforcers.Deny, "hard", "address_not_public", false, mode
	_, err := c.Recorder(doorObs).Decision(context.Background(), a, d, durable)
	return err
}

// TestWaitingRefusalKeepsItsForm: a refusal that waits to be counted says what it
// said, whatever is decided before its receipt is written.
func TestWaitingRefusalKeepsItsForm(t *testing.T) {
	n, _, _ := budgeted(t, notary.Budget{FoldAfter: 2})
	c := n.open("s1")
	for i := range uint64(3) { // the third waits
		if err := refusal(t, c, i, "/evil", receipts.Hard, false); err != nil {
			t.Fatal(err)
		}
	}
	forwarded(c, decide(t, c, 3))
	closeChain(t, c, "completed")
	for _, r := range n.chainOf("s1") {
		if r.Type == receipts.TypeDecision && r.Dec.Count == 1 {
			if r.Act.ID != "s1-2" || r.Dec.Verdict != receipts.Deny || r.Act.Args["path"] != c.Commit("path", []byte("/evil")) {
				t.Errorf("%+v %+v", r.Act, r.Dec)
			}
			return
		}
	}
	t.Error("the refusal that waited has no receipt")
}

// TestFlood is the fourth of what receipts must show: one session that does
// nothing but be refused, in either mode, 100,000 times in the soak and 1/20 of
// that here.
func TestFlood(t *testing.T) {
	scale := 1
	if os.Getenv("GATEHOUSE_SOAK") != "" {
		scale = 20
	}
	for _, mode := range []receipts.Mode{receipts.Shadow, receipts.Hard} {
		for name, path := range map[string]func(i int) string{
			"identical": func(int) string { return "/evil" },
			"different": func(i int) string { return fmt.Sprint("/evil/", i) },
		} {
			t.Run(string(mode)+"_"+name, func(t *testing.T) {
				count := 5000 * scale
				n, disk, told := budgeted(t, notary.Budget{Receipts: uint64(500 * scale), Refusals: uint64(count), Pace: time.Microsecond})
				c, other := n.open("s1"), n.open("s2")
				before := disk.Used()
				refused := 0
				var last error
				for i := range count + 10 {
					if last = refusal(t, c, uint64(i+1), path(i), mode, false); last != nil {
						break
					}
					refused++
					if i%500 == 0 { // the others are not harmed
						forwarded(other, decide(t, other, uint64(i+1)))
					}
				}
				if problem.CodeOf(last) != problem.ReceiptFlood {
					t.Fatalf("after %d refusals: %v, want receipt_flood", refused, last)
				}
				if got := told(); len(got) != 1 || got[0] != "s1" {
					t.Fatalf("told to end %q", got)
				}
				closeChain(t, c, "receipt_flood")
				forwarded(other, decide(t, other, uint64(count+100)))
				closeChain(t, other, "completed")
				if grown := disk.Used() - before; grown > int64(scale)*3<<20 {
					t.Errorf("%d refusals took %d bytes", refused, grown)
				}
				var single, counted uint64
				for _, r := range n.chainOf("s1") {
					switch r.Type {
					case receipts.TypeLoss:
						t.Error("a flood is no loss")
					case receipts.TypeDecision:
						single++
						counted += max(1, r.Dec.Count)
					}
				}
				if counted != uint64(refused) {
					t.Errorf("receipts count %d refusals, there were %d", counted, refused)
				}
				if name == "identical" && (refused != count || single > uint64(40+scale)) {
					t.Errorf("%d identical refusals in %d receipts", refused, single)
				}
				if name == "different" && refused > 1000*scale {
					t.Errorf("%d different refusals with a budget of %d receipts", refused, 500*scale)
				}
				for _, s := range []string{"s1", "s2"} {
					want(t, n.verify(n.export(notary.Filter{Sessions: []string{s}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
				}
				sessions := n.verify(n.export(notary.Filter{Sessions: []string{"s1"}}), receipts.Options{}).Sessions
				if sessions[0].Verdicts[receipts.CountDeny] != uint64(refused) || sessions[0].Reason != "receipt_flood" {
					t.Errorf("the export says %+v of %d refusals", sessions[0], refused)
				}
			})
		}
	}
}

// TestFolding: what is not the same is not folded, and what waits is written in
// time and before the end.
func TestFolding(t *testing.T) {
	n, _, _ := budgeted(t, notary.Budget{FoldAfter: 2})
	c := n.open("s1")
	rec := c.Recorder(doorObs)
	decisionsOf := func() (out []uint64) {
		n.event("behind everything")
		for _, r := range n.chainOf("s1") {
			if r.Type == receipts.TypeDecision {
				out = append(out, max(1, r.Dec.Count))
			}
		}
		return out
	}
	one := func(change func(*enforcers.Action, *enforcers.Decision)) (receipts.Hash, bool) {
		t.Helper()
		a, d := get(t, c, 1, "/evil")
		d.Effect, d.Reason, d.Passed = enforcers.Deny, "not_listed", false
		if change != nil {
			change(a, d)
		}
		leaf, err := rec.Decision(context.Background(), a, d, false)
		if err != nil {
			t.Fatal(err)
		}
		return leaf, d.Folded
	}
	for range 2 {
		if _, folded := one(nil); folded {
			t.Fatal("the first ones are folded")
		}
	}
	if leaf, folded := one(nil); !folded || leaf.IsZero() {
		t.Fatal("the third is not folded, or no receipt stands for it")
	}
	for name, change := range map[string]func(*enforcers.Action, *enforcers.Decision){
		"path":   func(a *enforcers.Action, _ *enforcers.Decision) { a.HTTP.Path = "/other" },
		"query":  func(a *enforcers.Action, _ *enforcers.Decision) { a.HTTP.Query = "a=1" },
		"method": func(a *enforcers.Action, _ *enforcers.Decision) { a.HTTP.Method = "POST" },
		"size":   func(a *enforcers.Action, _ *enforcers.Decision) { a.HTTP.Body.Length = 7 },
		"reason": func(_ *enforcers.Action, d *enforcers.Decision) { d.Reason = "other" },
		"rule":   func(_ *enforcers.Action, d *enforcers.Decision) { d.Rule = "other" },
		"mode":   func(_ *enforcers.Action, d *enforcers.Decision) { d.Mode = receipts.Shadow },
		"by":     func(_ *enforcers.Action, d *enforcers.Decision) { d.By = "other" },
		"fault":  func(_ *enforcers.Action, d *enforcers.Decision) { d.Fault = "trap" },
		"policy": func(_ *enforcers.Action, d *enforcers.Decision) { d.Policy = receipts.Hash{1} },
		"module": func(_ *enforcers.Action, d *enforcers.Decision) { d.Module = receipts.Hash{1} },
		"newgen": func(a *enforcers.Action, _ *enforcers.Decision) { a.Generation = 9 },
		// What a receipt says besides: EG-108, whose signed URL it was.
		"signed": func(a *enforcers.Action, _ *enforcers.Decision) {
			a.Signed = &enforcers.Signed{By: "assets"}
		},
		"signed_by": func(a *enforcers.Action, _ *enforcers.Decision) {
			a.Signed = &enforcers.Signed{By: "packages"}
		},
		"said": func(_ *enforcers.Action, d *enforcers.Decision) {
			d.Trace = []enforcers.Step{{Enforcer: "dlp", Verdict: enforcers.Verdict{Effect: enforcers.Deny, Rule: "r", Reason: "why"}}}
		},
		"passed":  func(_ *enforcers.Action, d *enforcers.Decision) { d.Mode, d.Passed = receipts.Shadow, true },
		"blocked": func(_ *enforcers.Action, d *enforcers.Decision) { d.Held = 5 },
	} {
		for range 2 {
			if _, folded := one(change); folded {
				t.Errorf("another %s is folded into the same receipt", name)
			}
		}
	}
	// A would-block passes and has an outcome of its own: it is never folded.
	for range 5 {
		if leaf, folded := one(func(_ *enforcers.Action, d *enforcers.Decision) { d.Mode, d.Passed = receipts.Shadow, true }); folded {
			t.Fatal("a would-block is folded")
		} else {
			forwarded(c, leaf)
		}
	}
	// What waits is written when a second has passed.
	was := len(decisionsOf())
	n.clock.Add(2 * time.Second)
	if err := notary.Unfold(n.Notary); err != nil {
		t.Fatal(err)
	}
	if got := decisionsOf(); len(got) != was+1 || got[was] != 1 {
		t.Fatalf("after a second: %v", got)
	}
	// And when the session ends.
	if _, folded := one(nil); !folded {
		t.Fatal("not folded any more")
	}
	closeChain(t, c, "completed")
	if got := decisionsOf(); len(got) != was+2 {
		t.Fatalf("at the end: %v", got)
	}
	r := n.verify(n.export(notary.Filter{Sessions: []string{"s1"}}), receipts.Options{})
	want(t, r, receipts.ExitAdmitted, receipts.ClassUnmatched) // the would-blocks of the table have no outcome
}

// TestFoldingOnAFullDisk: what was folded is written when the session ends, though
// nothing else can be.
func TestFoldingOnAFullDisk(t *testing.T) {
	n, disk, _ := budgeted(t, notary.Budget{FoldAfter: 1})
	c := n.open("s1")
	for i := range uint64(6) {
		if err := refusal(t, c, i+1, "/evil", receipts.Hard, false); err != nil {
			t.Fatal(err)
		}
	}
	n.event("durable")
	disk.SetCapacity(disk.Used())
	var err error
	for i := 0; err == nil && i < 1e6; i++ { // RC-43
		err = refusal(t, c, uint64(i+10), fmt.Sprint("/evil/", i), receipts.Hard, true)
	}
	if problem.CodeOf(err) != problem.JournalFull {
		t.Fatalf("refusals on a full disk: %v", err)
	}
	closeChain(t, c, "completed")
	disk.SetCapacity(0)
	n = n.again()
	r := n.verify(n.export(notary.Filter{Sessions: []string{"s1"}}), receipts.Options{})
	want(t, r, receipts.ExitComplete, receipts.ClassComplete)
}
