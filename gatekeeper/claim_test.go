package gatekeeper

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// second makes another node on the same store, with a journal of its own.
func (w *world) second(name string) *world {
	w.t.Helper()
	n := &world{t: w.t, dir: w.t.TempDir(), store: w.store, room: newRoom()}
	n.log = openLog(w.t, filepath.Join(n.dir, "journal"), "gatehouse.test/"+name, w.store.time)
	blobs, err := blob.Open(filepath.Join(n.dir, "blobs"))
	if err != nil {
		w.t.Fatal(err)
	}
	o := w.o
	o.Node, o.Dir, o.Journal, o.Notary, o.Blobs, o.Providers = name, n.dir, n.log.j, n.log, blobs, map[string]sandbox.Provider{"local": n.room}
	if n.Gatekeeper, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	if err := n.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(n.Close)
	return n
}

func (w *world) putClaim(key string, c claim) {
	w.t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.bucket("claims").Create(w.t.Context(), key, raw); err != nil {
		w.t.Fatal(err)
	}
}

const claimedID = "01jdzzzzzzzzzzzzzzzzzzzzzz"

func TestClaims(t *testing.T) {
	key := eventHash("github:main:this")
	cases := map[string]struct {
		claim    *claim
		beat     bool          // the other node shows life after the pause
		pause    time.Duration // before the event comes
		code     problem.Code  // of handle's error: it comes again
		admitted string        // session that runs here, "" none, "new" any
	}{
		"free":             {admitted: "new"},
		"own_unopened":     {claim: &claim{Node: "n1", Session: claimedID}, admitted: claimedID},
		"own_opened":       {claim: &claim{Node: "n1", Session: claimedID, Opened: true}},
		"other_lives":      {claim: &claim{Node: "n2", Session: claimedID}, pause: 59 * time.Second, code: problem.Conflict},
		"other_beats":      {claim: &claim{Node: "n2", Session: claimedID}, pause: time.Hour, beat: true, code: problem.Conflict},
		"other_silent":     {claim: &claim{Node: "n2", Session: claimedID}, pause: 60 * time.Second, admitted: "new"},
		"other_gave_up":    {claim: &claim{Node: "n2", Session: claimedID, Free: true}, admitted: "new"},
		"own_given_up":     {claim: &claim{Node: "n1", Session: claimedID, Free: true}, admitted: "new"},
		"other_opened":     {claim: &claim{Node: "n2", Session: claimedID, Opened: true}},
		"other_opened_old": {claim: &claim{Node: "n2", Session: claimedID, Opened: true}, pause: time.Hour},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			if c.claim != nil {
				w.putClaim(key, *c.claim)
			}
			w.store.pass(c.pause)
			if c.beat {
				if _, err := w.store.bucket("claims").Create(t.Context(), heartbeatKey("n2"), []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			m := w.log.message(failedRun("this"))
			err := w.handle(t.Context(), m)
			if c.code != "" {
				if problem.CodeOf(err) != c.code {
					t.Errorf("handle: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			id := w.sessionOf(key)
			if c.admitted == "" {
				if n := len(w.log.chains); n != 1 {
					t.Errorf("%d chains beside the control chain", n-1)
				}
				return
			}
			if c.admitted != "new" && id != c.admitted {
				t.Errorf("session %s, want %s", id, c.admitted)
			}
			w.ended(id)
			w.wantStory(id, happy)
			if err := w.handle(t.Context(), m); err != nil {
				t.Errorf("the event came again: %v", err)
			}
			w.wantStory(id, happy)
		})
	}
}

// A claim that nobody can write or read starts nothing.
func TestClaimsFailClosed(t *testing.T) {
	down := errors.New("no quorum")
	for _, op := range []string{"create", "get", "all", "update"} {
		t.Run(op, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			if op == "get" {
				w.putClaim(eventHash("github:main:this"), claim{Node: "n2", Session: claimedID})
			}
			fail := func(what, _ string) error {
				if what == op {
					return down
				}
				return nil
			}
			w.store.bucket("claims").fail = fail
			w.store.bucket("bundles").fail = fail
			err := w.handle(t.Context(), w.log.message(failedRun("this")))
			if op != "update" {
				if err == nil || len(w.log.chains) != 1 {
					t.Errorf("handle: %v, %d chains", err, len(w.log.chains))
				}
				return
			}
			// session.open is written, and nobody can tell whether the claim still
			// holds: the session ends before anything of it starts.
			if err != nil {
				t.Fatal(err)
			}
			w.running.Wait()
			id := w.sessionOf(eventHash("github:main:this"))
			w.wantStory(id, "open admitted, ended(lost), close lost")
			if n, _ := w.room.count(); n != 0 {
				t.Error("a sandbox started")
			}
		})
	}
}

// A node that slept between claim and session.open must not start a session
// that another node has started meanwhile.
func TestClaimTakenWhileAsleep(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	other := w.second("n2")
	other.room.run = func(_ context.Context, s sandbox.Spec) (sandbox.End, error) {
		return sandbox.End{Reason: sandbox.Faulted, Exit: 1}, nil
	}
	m := w.log.message(failedRun("this"))
	asleep := true
	w.log.refuse = func(r *receipts.Receipt) error {
		if r.Open != nil && asleep {
			asleep = false
			w.store.pass(2 * time.Minute)
			if err := other.handle(w.t.Context(), m); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if err := w.handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.running.Wait()
	mine := w.log.Left()
	if len(mine) != 0 {
		t.Errorf("chains left open: %v", mine)
	}
	if n, _ := w.room.count(); n != 0 {
		t.Error("the sleeper started a sandbox")
	}
	other.ended(w.sessionOf(eventHash("github:main:this")))
	if n, _ := other.room.count(); n != 1 {
		t.Errorf("%d sandboxes on the other node", n)
	}
}

// Many nodes and many deliveries of one event: one session.
// A node whose disk is full lives and beats, and still keeps no event from others,
// whether it would admit or refuse it.
func TestClaimOfAFullNode(t *testing.T) {
	for name, e := range map[string]*event.Event{"admitted": failedRun("this"), "refused": failedRun("this", func(e *event.Event) { e.Facts["conclusion"] = "success" })} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{fixCI})
			other := w.second("n2")
			w.log.refuse = func(*receipts.Receipt) error { return problem.New(problem.JournalFull, "the disk is full", "") }
			m := w.log.message(e)
			if err := w.handle(t.Context(), m); problem.CodeOf(err) != problem.JournalFull {
				t.Fatalf("handle: %v", err)
			}
			if err := other.handle(t.Context(), m); err != nil {
				t.Fatalf("the other node: %v", err)
			}
			w.log.refuse = nil
			if err := w.handle(t.Context(), m); err != nil {
				t.Fatalf("the event came again: %v", err)
			}
			if n := len(other.log.chains); n != 1 {
				t.Errorf("%d chains at the other node, which had only this event", n)
			}
			if s, _ := w.room.count(); s != 0 {
				t.Error("the full node started something")
			}
		})
	}
}

func TestClaimRace(t *testing.T) {
	const nodes, copies = 4, 5
	w := newWorld(t, []string{fixCI})
	all := []*world{w}
	for _, name := range []string{"n2", "n3", "n4"} {
		all = append(all, w.second(name))
	}
	m := w.log.message(failedRun("this"))
	var wg sync.WaitGroup
	for range copies {
		for _, n := range all {
			wg.Go(func() {
				if err := n.handle(t.Context(), m); err != nil && problem.CodeOf(err) != problem.Conflict {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	admitted, started := 0, 0
	for _, n := range all {
		n.Close()
		for id := range n.log.chains {
			if id == receipts.ControlSession {
				continue
			}
			admitted++
			if got := n.log.story(id); !stories[got] {
				t.Errorf("chain of %s: %s", id, got)
			}
		}
		s, open := n.room.count()
		if started += s; open != 0 {
			t.Error("a sandbox is left")
		}
	}
	if admitted != 1 || started > 1 {
		t.Errorf("%d sessions, %d sandboxes on %d nodes", admitted, started, nodes)
	}
}

// Two events of one entity at the same moment cannot both be its last one.
func TestPerEntityRace(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	var wg sync.WaitGroup
	ms := []Message{}
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		ms = append(ms, w.log.message(failedRun(n)))
	}
	for _, m := range ms {
		wg.Go(func() {
			if err := w.handle(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	admitted := 0
	for id := range w.log.chains {
		if rs := w.log.receipts(id); rs[0].Open != nil && rs[0].Open.State == "admitted" {
			admitted++
		}
	}
	if admitted != 3 {
		t.Errorf("%d sessions of one entity, want 3", admitted)
	}
}

func TestRunTakesEventsAndBeats(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	done := make(chan string, 1)
	w.room.run = func(_ context.Context, s sandbox.Spec) (sandbox.End, error) {
		done <- s.Session
		return sandbox.End{Reason: sandbox.Completed}, nil
	}
	w.feed.queue <- w.log.message(failedRun("this"))
	id := <-done
	w.ended(id)
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.bucket("claims").Get(t.Context(), heartbeatKey("n1")); err != nil {
		t.Errorf("no heartbeat: %v", err)
	}
}

func TestRestart(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	before := w.take(failedRun("before"))
	w.ended(before)
	// A crash: receipts of a session that the journal has, and nothing after.
	if _, err := w.log.Open(t.Context(), claimedID, receipts.Open{State: "admitted", Event: "github:main:crashed", Facts: map[string]string{"entity": "1296269/pr-12"}},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Mediation: "sole"}); err != nil {
		t.Fatal(err)
	}
	halfRefused := "01jdyyyyyyyyyyyyyyyyyyyyyy"
	if _, err := w.log.Open(t.Context(), halfRefused, receipts.Open{State: "refused", Code: "no_match", Event: "github:main:half"},
		receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Mediation: "sole"}); err != nil {
		t.Fatal(err)
	}
	w.putClaim(eventHash("github:main:crashed"), claim{Node: "n1", Session: claimedID})
	if err := os.MkdirAll(w.folder(claimedID), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(w.folder(claimedID), "door.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false) // as kill -9 does not
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	unopened := "01jdxxxxxxxxxxxxxxxxxxxxxx"
	w.putClaim(eventHash("github:main:unopened"), claim{Node: "n1", Session: unopened})
	w.Close()
	w.start()

	w.wantStory(claimedID, "open admitted, ended(lost), close lost")
	w.wantStory(halfRefused, "open refused no_match, close refused")
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead node's door is still there: %v", err)
	}
	w.wantStory(before, happy)
	// The crashed session's event comes again: it had its session.
	if err := w.handle(t.Context(), w.log.message(failedRun("crashed"))); err != nil {
		t.Fatal(err)
	}
	w.wantStory(claimedID, "open admitted, ended(lost), close lost")
	// An event that was claimed and not opened is admitted under its claim.
	third := w.take(failedRun("unopened"))
	if third != unopened {
		t.Errorf("session %s, want %s", third, unopened)
	}
	w.ended(third)
	w.wantStory(third, happy)
	// What was counted before the restart still counts: before, crashed, unopened.
	if fourth := w.take(failedRun("fourth")); w.log.receipts(fourth)[0].Open.Code != string(problem.PerEntity) {
		t.Errorf("the loop guard forgot: %s", w.log.story(fourth))
	}
	if r, err := w.Result(before); err != nil || r.Reason != "completed" {
		t.Errorf("result %+v, %v", r, err)
	}
}

// TestRestartWithoutClaims: the NATS store was lost and made again from the
// journal. Every event comes once more, and starts nothing a second time.
func TestRestartWithoutClaims(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	ran := w.take(failedRun("ran"))
	w.ended(ran)
	other := failedRun("other", func(e *event.Event) { e.Kind = "issues" })
	refused := w.take(other)
	w.Close()
	w.store.mu.Lock()
	delete(w.store.buckets, "claims")
	w.store.mu.Unlock()
	w.start()
	started, _ := w.room.count()
	for _, e := range []*event.Event{failedRun("ran"), other} {
		if err := w.handle(t.Context(), w.log.message(e)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if again, _ := w.room.count(); again != started {
		t.Errorf("%d sandboxes started, want %d", again, started)
	}
	w.wantStory(ran, happy)
	w.wantStory(refused, "open refused no_match, close refused")
	if keys := w.store.bucket("claims").keys; len(keys) != 0 {
		t.Errorf("claimed again: %v", keys)
	}
}

func TestFoldForgets(t *testing.T) {
	f := newFold()
	f.opened("old", past{entity: "e", admitted: true, opened: noon, closed: true})
	f.opened("open", past{entity: "e", admitted: true, opened: noon})
	f.opened("refused", past{event: "x", opened: noon, closed: true})
	f.forget(noon.Add(8 * 24 * time.Hour))
	if _, ok := f.get("refused"); ok {
		t.Error("a refusal of last week is kept")
	}
	if n, _ := f.starts("e", noon); n != 2 {
		t.Errorf("%d starts", n)
	}
	f.forget(noon.Add(31 * 24 * time.Hour))
	if _, ok := f.get("open"); !ok {
		t.Error("an open session was forgotten")
	}
	if _, ok := f.get("old"); ok {
		t.Error("a start of last month is kept")
	}
}

func TestPruneKeepsWhatIsYoungOrNotOurs(t *testing.T) {
	w := newWorld(t, []string{fixCI})
	id := w.take(failedRun("this"))
	w.ended(id)
	strange := filepath.Join(w.dir, "sessions", "notes")
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	w.store.pass(29 * 24 * time.Hour)
	w.prune()
	if _, err := w.Result(id); err != nil {
		t.Errorf("a young session's folder is gone: %v", err)
	}
	w.store.pass(2 * 24 * time.Hour)
	w.prune()
	if _, err := w.Result(id); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("an old session's folder is kept: %v", err)
	}
	if _, err := os.Stat(strange); err != nil {
		t.Error("somebody else's folder is gone")
	}
}
