package notary_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func TestSessionLife(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	if _, err := c.Append(t.Context(), receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{From: "admitted", To: "running", Level: 2}}); err != nil {
		t.Fatal(err)
	}
	a := decide(t, c, 1)
	forwarded(c, a)
	b := decide(t, c, 2)
	if err := c.Recorder(doorObs).Progress(t.Context(), b, enforcers.Outcome{Effect: enforcers.Unknown, Up: 10}, true); err != nil {
		t.Fatal(err)
	}
	info := c.Info()
	if info.State != "running" || info.Level != 2 || info.Pending != 1 || info.Open.Bundle != "fix-failing-ci" || info.Since.IsZero() {
		t.Fatalf("info %+v", info)
	}
	closeChain(t, c, "completed")

	rs := n.chainOf("S1")
	if d := cmp.Diff([]string{
		"session.open", "session.state", "decision", "outcome forwarded", "decision", "progress unknown", "outcome unknown", "session.close",
	}, types(rs)); d != "" {
		t.Fatal(d)
	}
	cl := rs[7].Close
	if cl.Count != 8 || cl.Unknown != 1 || cl.Verdicts[receipts.CountAllow] != 2 || cl.Reason != "completed" {
		t.Fatalf("close %+v", cl)
	}
	if _, err := n.Resume("S1"); problem.CodeOf(err) != problem.SessionUnknown {
		t.Fatalf("resume of a closed session: %v", err)
	}
	if got := n.Sessions(); len(got) != 0 {
		t.Fatalf("open sessions %+v", got)
	}

	t.Run("RC-12_after_close", func(t *testing.T) {
		a, d := get(t, c, 3, "/late")
		if _, err := c.Recorder(doorObs).Decision(t.Context(), a, d, true); problem.CodeOf(err) != problem.ChainClosed {
			t.Fatalf("decision after close: %v", err)
		}
		forwarded(c, b)
		if _, err := c.Close(t.Context(), receipts.Close{Reason: "failed"}); problem.CodeOf(err) != problem.ChainClosed {
			t.Fatalf("second close: %v", err)
		}
		if got := n.chainOf("S1"); len(got) != 8 {
			t.Fatalf("%d receipts after a second close", len(got))
		}
	})
	t.Run("export", func(t *testing.T) {
		r := n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{})
		// The session has an outcome nobody knows: complete, and it says so.
		want(t, r, receipts.ExitAdmitted, receipts.ClassUnmatched)
		if r.Integrity.Receipts != 8 || r.Completeness.State != receipts.EndClosed {
			t.Fatalf("%+v %+v", r.Integrity, r.Completeness)
		}
	})
}

func TestExports(t *testing.T) {
	n, _ := fresh(t)
	ev := n.event("one")
	c := n.open("S1")
	forwarded(c, decide(t, c, 1))
	closeChain(t, c, "completed")
	n.clock.Add(time.Minute)
	mid := n.clock.Now()
	if _, err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.clock.Add(time.Minute)
	o, err := n.Open(t.Context(), "S2", receipts.Open{State: "admitted", EventLeaf: ev, Digest: sum(bundle), Points: []string{"door"}}, keeperObs)
	if err != nil {
		t.Fatal(err)
	}
	forwarded(o, decide(t, o, 1))
	refused, err := n.Open(t.Context(), "S3", receipts.Open{State: "refused", Code: "no_match"}, keeperObs)
	if err != nil {
		t.Fatal(err)
	}
	closeChain(t, refused, "refused")

	t.Run("closed session", func(t *testing.T) {
		want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
		want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S3", "S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	})
	t.Run("RC-47_open session", func(t *testing.T) {
		b := n.export(notary.Filter{Sessions: []string{"S2"}})
		want(t, n.verify(b, receipts.Options{}), receipts.ExitUnproven, receipts.ClassEndAsOf)
		// A checkpoint from elsewhere that the export continues proves the end.
		r := n.verify(b, receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitComplete, receipts.ClassComplete)
		if r.Completeness.State != receipts.EndCurrent {
			t.Fatalf("%+v", r.Completeness)
		}
	})
	t.Run("held checkpoint", func(t *testing.T) {
		held := n.Head()
		decide(t, o, 2)
		for range 40 { // more than an export takes readers to hold anyway
			if _, err := n.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b := n.export(notary.Filter{Sessions: []string{"S2"}})
		want(t, n.verify(b, receipts.Options{Checkpoint: held}), receipts.ExitUnproven, receipts.ClassEndAsOf)
		b = n.export(notary.Filter{Sessions: []string{"S2"}, Held: [][]byte{held}})
		want(t, n.verify(b, receipts.Options{Checkpoint: held}), receipts.ExitComplete, receipts.ClassComplete)
	})
	t.Run("whole log", func(t *testing.T) {
		b := n.export(notary.Filter{Events: true})
		want(t, n.verify(b, receipts.Options{}), receipts.ExitUnproven, receipts.ClassEndAsOf)
		r := n.verify(b, receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitComplete, receipts.ClassComplete)
		if r.Completeness.InFile != 3 || *r.Completeness.Opened != 3 || r.Integrity.Events != 1 {
			t.Fatalf("%+v %+v", r.Completeness, r.Integrity)
		}
	})
	t.Run("whole log without event payloads", func(t *testing.T) {
		b := n.export(notary.Filter{})
		r := n.verify(b, receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitComplete, receipts.ClassComplete)
		if r.Integrity.Hidden != 1 || bytes.Contains(b, []byte(`{"id":"one"}`)) {
			t.Fatalf("%+v", r.Integrity)
		}
	})
	t.Run("period", func(t *testing.T) {
		for name, c := range map[string]struct {
			f    notary.Filter
			opts receipts.Options
			in   uint64
		}{
			"since": {notary.Filter{Since: mid.Add(time.Second)}, receipts.Options{Since: mid.Add(time.Second)}, 2},
			"until": {notary.Filter{Until: mid}, receipts.Options{Until: mid}, 1},
		} {
			r := n.verify(n.export(c.f), c.opts)
			if r.Period == nil || r.Period.Opened != c.in || r.Period.InFile != c.in {
				t.Errorf("%s: period %+v, want %d sessions; %+v", name, r.Period, c.in, r.Findings)
			}
		}
		err := n.Export(t.Context(), &bytes.Buffer{}, notary.Filter{Since: n.clock.Now().Add(time.Hour)})
		if problem.CodeOf(err) != problem.NotFound {
			t.Errorf("an empty period: %v", err)
		}
	})
	t.Run("RC-14_held_by_another_future", func(t *testing.T) {
		// The same log as of before, gone on otherwise: same size, then larger.
		twin := start(t, rewrite(t, n.groups()), "journal", n.clock)
		twin.event("twin")
		n.event("here")
		for _, f := range []struct {
			node  *node
			other *node
		}{{n, twin}, {twin, n}} {
			if _, err := f.other.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := f.node.Export(t.Context(), &bytes.Buffer{}, notary.Filter{Held: [][]byte{f.other.Head()}})
			if problem.CodeOf(err) != problem.LogInconsistent {
				t.Errorf("export against a checkpoint of another future: %v", err)
			}
		}
		for range 5 {
			twin.event("ahead")
		}
		if _, err := twin.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := n.Export(t.Context(), &bytes.Buffer{}, notary.Filter{Held: [][]byte{twin.Head()}})
		if problem.CodeOf(err) != problem.LogInconsistent {
			t.Errorf("RC-16: export against a checkpoint of a larger log: %v", err)
		}
		if err := n.Export(t.Context(), &bytes.Buffer{}, notary.Filter{Held: [][]byte{[]byte("no note")}}); problem.CodeOf(err) != problem.Usage {
			t.Errorf("export against garbage: %v", err)
		}
	})
	t.Run("bundles and events", func(t *testing.T) {
		f := notary.Filter{Sessions: []string{"S2"}, Events: true, Bundles: func(d receipts.Hash) ([]byte, bool) { return bundle, d == sum(bundle) }}
		b := n.export(f)
		want(t, n.verify(b, receipts.Options{Checkpoint: n.Head()}), receipts.ExitComplete, receipts.ClassComplete)
		if !bytes.Contains(b, bundle) || !bytes.Contains(b, []byte(`{"id":"one"}`)) {
			t.Fatal("the bundle or the event is not in the file")
		}
	})
	t.Run("unknown session", func(t *testing.T) {
		if err := n.Export(t.Context(), &bytes.Buffer{}, notary.Filter{Sessions: []string{"S9"}}); problem.CodeOf(err) != problem.NotFound {
			t.Fatalf("%v", err)
		}
	})
	t.Run("control chain", func(t *testing.T) {
		r := n.verify(n.export(notary.Filter{Sessions: []string{receipts.ControlSession}}), receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitComplete, receipts.ClassComplete)
	})
	t.Run("after a restart", func(t *testing.T) {
		n := n.again()
		r := n.verify(n.export(notary.Filter{Events: true}), receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitAdmitted, receipts.ClassUnmatched) // S2's second decision
		want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	})
}

// An outcome is written once, whoever calls how often.
func TestOutcomeExactlyOnce(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	const decisions, callers = 8, 16
	var leaves []receipts.Hash
	for i := range decisions {
		leaves = append(leaves, decide(t, c, uint64(i)))
	}
	var g sync.WaitGroup
	for range callers {
		for _, l := range leaves {
			g.Go(func() { forwarded(c, l) })
		}
	}
	g.Wait()
	c.Recorder(doorObs).Outcome(sum([]byte("no decision")), enforcers.Outcome{Effect: enforcers.Forwarded})
	// A denied action has no outcome: nothing was permitted.
	a, d := get(t, c, 99, "/denied")
	d.Effect, d.Passed, d.Reason = enforcers.Deny, false, "not_listed"
	denied, err := c.Recorder(doorObs).Decision(t.Context(), a, d, false)
	if err != nil {
		t.Fatal(err)
	}
	forwarded(c, denied)
	closeChain(t, c, "completed")
	count := map[receipts.Hash]int{}
	for _, r := range n.chainOf("S1") {
		if r.Type == receipts.TypeOutcome {
			count[r.Out.Ref]++
		}
	}
	if len(count) != decisions {
		t.Fatalf("outcomes of %d decisions, want %d", len(count), decisions)
	}
	for _, l := range leaves {
		if count[l] != 1 {
			t.Fatalf("%d outcomes of one decision", count[l])
		}
	}
	want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
}

// Chains are extended from many goroutines; each stays whole, and so do the
// checkpoints that are made meanwhile.
func TestManySessions(t *testing.T) {
	n, _ := fresh(t)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	const sessions, workers, each = 6, 3, 15
	var g sync.WaitGroup
	for s := range sessions {
		g.Go(func() {
			c := n.open(fmt.Sprintf("S%d", s))
			var w sync.WaitGroup
			for i := range workers {
				w.Go(func() {
					for k := range each {
						forwarded(c, decide(t, c, uint64(i*each+k)))
						n.event(fmt.Sprint(s, i, k))
					}
				})
			}
			w.Wait()
			if s%2 == 0 {
				closeChain(t, c, "completed")
			}
		})
	}
	g.Go(func() {
		for range 5 {
			if err := n.Snapshot(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	g.Wait()
	stop()
	run.Wait()
	if got := len(n.Sessions()); got != sessions/2 {
		t.Fatalf("%d open sessions", got)
	}
	check := func(n *node) {
		t.Helper()
		r := n.verify(n.export(notary.Filter{Events: true}), receipts.Options{Checkpoint: n.Head()})
		want(t, r, receipts.ExitComplete, receipts.ClassComplete)
		if want := uint64(sessions * (2 + 2*workers*each)); r.Integrity.Receipts < want-sessions/2 {
			t.Fatalf("%d receipts, want about %d", r.Integrity.Receipts, want)
		}
	}
	check(n)
	check(n.again())
}

// When the journal fails nothing is reported as written, and the gate denies.
func TestStickyFailure(t *testing.T) {
	n, disk := fresh(t)
	c := n.open("S1")
	a, d := get(t, c, 1, "/x")
	gate := enforcers.NewGate(enforcers.GateOptions{Session: "S1", Mode: receipts.Shadow, Recorder: c.Recorder(doorObs)})
	if _, dec := gate.Decide(t.Context(), a); dec.Receipt.IsZero() {
		t.Fatalf("before the failure: %+v", dec)
	}
	disk.Inject(faultfs.Fault{Op: faultfs.Sync, Err: syscall.EIO})
	if _, err := c.Recorder(doorObs).Decision(t.Context(), a, d, true); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("decision on a failed disk: %v", err)
	}
	disk.Heal()
	for _, durable := range []bool{true, false} {
		if _, err := c.Recorder(doorObs).Decision(t.Context(), a, d, durable); problem.CodeOf(err) != problem.JournalFailed {
			t.Fatalf("decision after the failure, durable %v: %v", durable, err)
		}
	}
	permit, dec := gate.Decide(t.Context(), a)
	if permit != nil || dec.Passed || dec.Reason != enforcers.CodeReceiptUnavailable {
		t.Fatalf("the gate let an action pass without a receipt: %+v", dec)
	}
	if _, err := n.Open(t.Context(), "S2", receipts.Open{State: "admitted"}, keeperObs); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("open after the failure: %v", err)
	}
	// What is durable can still be handed out, and says where its proof ends.
	if err := n.Export(t.Context(), &bytes.Buffer{}, notary.Filter{}); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("export without any checkpoint: %v", err)
	}
	if err := n.Run(t.Context()); problem.CodeOf(err) != problem.JournalFailed {
		t.Fatalf("Run goes on after the failure: %v", err)
	}
}

// A node whose disk failed still exports, with the newest checkpoint there is.
func TestExportAfterFailure(t *testing.T) {
	n, disk := fresh(t)
	c := n.open("S1")
	forwarded(c, decide(t, c, 1))
	if _, err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeChain(t, c, "completed")
	disk.Inject(faultfs.Fault{Op: faultfs.Write, Err: syscall.EIO})
	want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	want(t, n.verify(n.export(notary.Filter{}), receipts.Options{}), receipts.ExitUnproven, receipts.ClassEndAsOf)
}

// RC-43: a full disk denies new actions, and what was begun still ends in the
// record.
func TestDiskFull(t *testing.T) {
	t.Run("RC-43_disk_full", func(t *testing.T) {
		n, disk := fresh(t)
		c := n.open("S1")
		leaf := decide(t, c, 1)
		disk.SetCapacity(disk.Used())
		var err error
		for i := uint64(2); err == nil && i < 1e6; i++ {
			a, d := get(t, c, i, "/x")
			d.Effect, d.Passed = enforcers.Deny, false
			_, err = c.Recorder(doorObs).Decision(t.Context(), a, d, true)
		}
		if problem.CodeOf(err) != problem.JournalFull {
			t.Fatalf("decision on a full disk: %v", err)
		}
		forwarded(c, leaf)
		closeChain(t, c, "completed")
		disk.SetCapacity(0)
		n = n.again()
		want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	})
}

// A decision whose wait was given up is not acted on, and the chain says so.
func TestWaitGivenUp(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gaveUp := 0
	for i := range uint64(50) {
		a, d := get(t, c, i, "/x")
		leaf, err := c.Recorder(doorObs).Decision(ctx, a, d, true)
		if err == nil { // the disk was faster
			forwarded(c, leaf)
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		gaveUp++
	}
	closeChain(t, c, "completed")
	not := 0
	for _, r := range n.chainOf("S1") {
		if r.Type == receipts.TypeOutcome && r.Out.Effect == enforcers.NotForwarded {
			not++
		}
	}
	if not != gaveUp || gaveUp == 0 {
		t.Fatalf("%d outcomes not_forwarded for %d waits given up", not, gaveUp)
	}
	want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
}

// RC-44: the clock may jump; the chain's times do not.
func TestTamperClock(t *testing.T) {
	t.Run("RC-44_clock_jump", func(t *testing.T) {
		n, _ := fresh(t)
		c := n.open("S1")
		for i, d := range []time.Duration{time.Hour, -3 * time.Hour, 0, 30 * time.Minute} {
			n.clock.Add(d)
			forwarded(c, decide(t, c, uint64(i)))
		}
		n = n.again()
		c, err := n.Resume("S1")
		if err != nil {
			t.Fatal(err)
		}
		n.clock.Add(time.Minute)
		forwarded(c, decide(t, c, 9))
		closeChain(t, c, "completed")
		rs := n.chainOf("S1")
		if before, after := rs[len(rs)-4], rs[len(rs)-3]; after.Mono < before.Mono+uint64(time.Minute) {
			t.Fatalf("mono is %d a minute after %d and a restart", after.Mono, before.Mono)
		}
		n.clock.Add(4 * time.Hour)
		want(t, n.verify(n.export(notary.Filter{Sessions: []string{"S1"}}), receipts.Options{}), receipts.ExitComplete, receipts.ClassComplete)
	})
}

func TestOpenRules(t *testing.T) {
	n, _ := fresh(t)
	n.open("S1")
	for name, c := range map[string]struct {
		session string
		open    receipts.Open
		code    problem.Code
	}{
		"twice":               {"S1", receipts.Open{State: "admitted"}, problem.SessionExists},
		"the control chain":   {receipts.ControlSession, receipts.Open{State: "admitted"}, problem.SessionUnknown},
		"empty":               {"", receipts.Open{State: "admitted"}, problem.SessionUnknown},
		"a subject wildcard":  {"S.>", receipts.Open{State: "admitted"}, problem.SessionUnknown},
		"outside the schema":  {"S2", receipts.Open{State: "maybe"}, problem.Internal},
		"refused and no code": {"S2", receipts.Open{State: "refused"}, problem.Internal},
	} {
		if _, err := n.Open(t.Context(), c.session, c.open, keeperObs); err == nil || problem.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if got := n.Sessions(); len(got) != 1 || got[0].Session != "S1" || got[0].Seq != 1 {
		t.Errorf("sessions %+v", got)
	}
	n.open("S2") // a failed open leaves the id free
	if _, err := n.Control().Close(t.Context(), receipts.Close{Reason: "completed"}); err == nil {
		t.Error("the control chain was closed")
	}
	for _, typ := range []receipts.Type{receipts.TypeSessionOpen, receipts.TypeSessionClose} {
		if _, err := n.Control().Append(t.Context(), receipts.Receipt{Type: typ}); problem.CodeOf(err) != problem.Usage {
			t.Errorf("append of %s: %v", typ, err)
		}
	}
}

// Nothing but the notary's chains can put a receipt or a seal into the log, and
// nothing is sealed before Start.
func TestOnlyWriter(t *testing.T) {
	for name, rec := range map[string]journal.Record{
		"receipt": {Kind: journal.KindReceipt, Subject: "gatehouse.v1.sessions.S1", Data: []byte(`{"v":1}`)},
		"seal":    {Kind: journal.KindSeal, Subject: "gatehouse.v1.log.node-1", Data: []byte("seal")},
	} {
		n, _ := fresh(t)
		if _, err := n.j.Append(rec).Wait(t.Context()); problem.CodeOf(err) != problem.JournalFailed {
			t.Errorf("a foreign %s was written: %v", name, err)
		}
	}
	n := notary.New(notary.Options{Node: "node-1", Keys: testKeys()})
	if _, err := n.Seal([]journal.Record{{Pos: 1, Kind: journal.KindEvent}}); problem.CodeOf(err) != problem.NotStarted {
		t.Errorf("sealed before Start: %v", err)
	}
	if _, err := n.Open(t.Context(), "S1", receipts.Open{State: "admitted"}, keeperObs); problem.CodeOf(err) != problem.NotStarted {
		t.Errorf("opened before Start: %v", err)
	}
	if _, err := n.Control().Append(t.Context(), receipts.Receipt{Type: receipts.TypeHeartbeat, Beat: &receipts.Heartbeat{}}); problem.CodeOf(err) != problem.NotStarted {
		t.Errorf("appended before Start: %v", err)
	}
}

func TestRunHeartbeats(t *testing.T) {
	n, _ := fresh(t)
	c := n.open("S1")
	ctx, stop := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(time.Minute)
	beats := func() (n2 int) {
		for _, r := range n.chainOf(receipts.ControlSession) {
			if r.Type == receipts.TypeHeartbeat {
				n2++
			}
		}
		return n2
	}
	for beats() < 3 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if beats() < 3 {
		t.Fatal("no heartbeats while a session is open")
	}
	closeChain(t, c, "completed")
	stop()
	g.Wait()
	rs := n.chainOf(receipts.ControlSession)
	if last := rs[len(rs)-1]; last.Type != receipts.TypeManifest || last.Man.Closed != 1 || last.Man.Sessions != 1 {
		t.Fatalf("the last control receipt is %s: Run does not checkpoint at its end", last.Type)
	}
	before := n.Size()
	ctx, stop = context.WithCancel(t.Context())
	g.Go(func() { _ = n.Run(ctx) })
	time.Sleep(30 * time.Millisecond) // may only fail to notice
	stop()
	g.Wait()
	if n.Size() != before {
		t.Fatalf("an idle log grew from %d to %d", before, n.Size())
	}
}

func TestEncode(t *testing.T) {
	n, _ := fresh(t)
	ev := n.event("one")
	c := n.open("S1")
	forwarded(c, decide(t, c, 1))
	closeChain(t, c, "completed")
	if _, err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	ks := testKeys().Keyset()
	seen := map[string]int{}
	next := uint64(0)
	for group, err := range n.j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := notary.Encode(group)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			typ := m.Header[receipts.HeaderType]
			seen[typ]++
			switch m.Kind {
			case journal.KindPrivate, journal.KindSnapshot:
				t.Fatalf("published a record of kind %d", m.Kind)
			case journal.KindSeal, journal.KindCheckpoint:
				if !strings.HasPrefix(m.Subject, "gatehouse.v1.log.node-1") || m.Header[receipts.HeaderID] == "" {
					t.Fatalf("%+v", m)
				}
				continue
			}
			msg := receipts.Message{Data: m.Data, Type: typ, Seal: m.Header[receipts.HeaderSeal], ID: m.Header[receipts.HeaderID]}
			h, r, err := msg.Open(ks)
			if err != nil {
				t.Fatalf("%s at %d: %v", typ, m.Pos, err)
			}
			if h.Index() != next {
				t.Fatalf("log index %d, want %d", h.Index(), next)
			}
			next++
			if (r == nil) != (m.Kind == journal.KindEvent) || r == nil && receipts.Leaf(m.Data) != ev {
				t.Fatalf("%+v", m)
			}
		}
		if last := group[len(group)-1]; last.Kind == journal.KindSeal {
			if _, err := notary.Encode(group[:len(group)-1]); problem.CodeOf(err) != problem.LogInconsistent {
				t.Fatalf("leaves without their seal were encoded: %v", err)
			}
		}
	}
	for _, typ := range []string{"event", "session.open", "decision", "outcome", "session.close", "key.add", "manifest", "seal", "checkpoint"} {
		if seen[typ] == 0 {
			t.Errorf("no message of type %s; seen %v", typ, seen)
		}
	}
}
