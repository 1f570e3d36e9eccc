package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/outside"
	"gatehouse/receipts"
)

// TestCrash kills a node again and again, at random points of its work.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: kill -9 under deliveries and sandboxes takes minutes; make test runs 5 rounds, make soak 100")
	}
	t.Parallel()
	s := soakOf(t, 5, 100)
	for round := 0; s.more(round); s.count(round) {
		c := newCrash(t)
		for n := 0; n < nodeRounds && s.more(round); n++ {
			c.round(n)
			round++
		}
		c.finish()
		c.verify()
	}
}

// nodeRounds is how many rounds one node takes: its lists, by which the test finds
// deliveries, hold 20,000 events.
const nodeRounds = 50

// soak is how many rounds one run makes. A long count may be done in several
// runs, each with a node of its own that is verified whole.
type soak struct {
	t     *testing.T
	left  int       // rounds of the count that no earlier run made
	done  int       // those that one did
	until time.Time // no round begins later, zero = no bound
	file  string    // keeps done, "" = nothing is counted
}

// leastRounds is one of each kind.
const leastRounds = 2

// soakOf is few rounds, or many in a soak: GATEHOUSE_SOAK_ROUNDS is another
// count, GATEHOUSE_SOAK_TIME a time after which none begins, and
// GATEHOUSE_SOAK_COUNT a file that counts rounds over several runs.
func soakOf(t *testing.T, few, many int) *soak {
	t.Helper()
	s := &soak{t: t, left: few}
	if os.Getenv("GATEHOUSE_SOAK") == "" {
		return s
	}
	s.left = many
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_SOAK_ROUNDS")); err == nil && n >= leastRounds {
		t.Logf("soak: %d rounds instead of %d", n, many)
		s.left = n
	}
	if text := os.Getenv("GATEHOUSE_SOAK_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		s.until = time.Now().Add(d)
	}
	if s.file = os.Getenv("GATEHOUSE_SOAK_COUNT"); s.file != "" {
		b, err := os.ReadFile(s.file)
		if err == nil {
			s.done, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if s.left -= s.done; s.left <= 0 {
			t.Skipf("SKIPPED: all %d rounds are made, as %s says", s.done, s.file)
		}
		s.left = max(s.left, leastRounds)
	}
	return s
}

// more reports whether another round follows so many.
func (s *soak) more(made int) bool {
	return made < leastRounds || made < s.left && (s.until.IsZero() || time.Now().Before(s.until))
}

// count adds the rounds of this run, which all went well.
func (s *soak) count(made int) {
	s.t.Helper()
	if s.t.Failed() || s.file == "" {
		return
	}
	s.t.Logf("soak: %d rounds in this run, %d in all", made, s.done+made)
	if err := os.WriteFile(s.file, fmt.Appendln(nil, s.done+made), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// What one round sends, and how long the node is away.
const (
	crashDeliveries = 200
	crashSandboxes  = 20
	crashPause      = 3 * time.Second // longer than the streams' duplicate window
	crashWindow     = time.Second
	marker          = "71.8281828" // a number that no other process sleeps for
)

// crash is one run: what was sent and what was answered.
type crash struct {
	*liveNode
	rnd      *rand.Rand
	mu       sync.Mutex
	answered map[string]string // delivery id -> event id
	unsent   []post            // not answered 200 yet
	starts   map[string]bool   // delivery ids that the bundle takes
	asked    atomic.Int64      // requests that the outside is answering
}

func newCrash(t *testing.T) *crash {
	c := &crash{answered: map[string]string{}, starts: map[string]bool{}}
	world, err := outside.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	// An answer that takes its time, so that a kill meets open decisions.
	_, err = world.HTTP("slow.test", netip.MustParseAddr("93.184.216.34"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		defer c.asked.Add(-1)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("slow\n"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	c.liveNode = newLiveNode(t, worldConfig(world), `apiVersion: gatehouse/v1
kind: Bundle
name: crash
mode: hard
accepts: member
match:
  - {source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, repository.id: ["1"], fork: false}}
session:
  agent:
    command:
      argv: [/bin/bash, -c, "for i in 1 2; do exec 3<>/dev/tcp/slow.test/80 && printf 'GET / HTTP/1.1\\r\\nHost: slow.test\\r\\nConnection: close\\r\\n\\r\\n' >&3 && cat <&3; done; sleep `+marker+` & sleep 0.2"]
  task: "run {{ facts.run_id }}"
  timeout: 1m
egress:
  - {host: slow.test, ports: [80], schemes: [http], methods: [GET], paths: ["/**"]}
`)
	c.args = []string{"--dev"}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c.rnd = rand.New(rand.NewPCG(seed, 0))
	// The streams' own defence against copies is shorter than the node is away:
	// what keeps a delivery single must be the subject and the journal.
	b, err := bus.Open(t.Context(), bus.Options{Node: "node-1", Dir: c.path("state", "nats"), Duplicates: crashWindow})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// round starts the node, sends to it and kills it somewhere in between.
func (c *crash) round(round int) {
	c.t.Helper()
	c.start()
	posts := c.batch(round)
	after, wait := 1+c.rnd.IntN(len(posts)), time.Duration(c.rnd.IntN(20))*time.Millisecond
	enough := make(chan struct{})
	sending, stop := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.sendAll(sending, posts, after, enough)
	}()
	select {
	case <-enough:
	case <-time.After(patience):
		c.t.Fatal("the node does not answer")
	}
	// Even rounds die among deliveries, odd ones while a session waits for an
	// answer that it was allowed to ask for.
	if round%2 == 1 {
		c.until("asking outside", func() bool { return c.asked.Load() > 0 })
		wait = time.Duration(c.rnd.IntN(400)) * time.Millisecond
	}
	time.Sleep(wait) // the random point: not a wait for anything
	c.kill()
	killed := time.Now()
	stop()
	<-done
	c.t.Logf("round %d: killed %v after answer %d, %d not answered", round, wait, after, len(c.unsent))
	c.noProcess("after kill -9")
	time.Sleep(time.Until(killed.Add(crashPause))) // the stated condition: away for 3 s
}

// batch is what no round has got answered yet, and 200 new ones.
func (c *crash) batch(round int) []post {
	posts := slices.Clone(c.unsent)
	every := crashDeliveries / crashSandboxes
	for i := range crashDeliveries {
		run := 1 + round*crashDeliveries + i
		if i%every == 0 {
			p := failure(run)
			c.starts[p.id] = true
			posts = append(posts, p)
		} else {
			posts = append(posts, quiet(run))
		}
	}
	c.rnd.Shuffle(len(posts), func(i, j int) { posts[i], posts[j] = posts[j], posts[i] })
	return posts
}

// sendAll sends each post once, some twice, and closes enough after so many
// answers.
func (c *crash) sendAll(ctx context.Context, posts []post, after int, enough chan struct{}) {
	c.unsent = nil
	count := 0
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, p := range posts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ok := false
			for range 1 + i%10/9 { // every tenth twice, as senders do
				if ctx.Err() != nil {
					break
				}
				a, err := c.send(p)
				ok = ok || err == nil && a.Status == http.StatusOK
				if ok && a.ID != "" {
					c.mu.Lock()
					c.answered[p.id] = a.ID
					c.mu.Unlock()
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if !ok {
				c.unsent = append(c.unsent, p)
			}
			if count++; count == after {
				close(enough)
			}
		})
	}
	wg.Wait()
}

// finish brings everything to its end and stops the node.
func (c *crash) finish() {
	c.t.Helper()
	c.start()
	for i, id := range c.deliver(c.unsent...) {
		c.answered[c.unsent[i].id] = id
	}
	c.settled(slices.Collect(maps.Values(c.answered))...)
	// Shows 4: the archive, folded again, is what streams and views show.
	c.gatehouse(exitOK, "rebuild", "--check")
	c.stop()
	c.noProcess("after the end")
	c.nothingLeft()
}

// noProcess fails when a process of a sandbox is alive. The kernel kills them
// with the node; it needs a moment for that.
func (c *crash) noProcess(when string) {
	c.t.Helper()
	var left []string
	c.until("free of sandbox processes "+when, func() bool {
		left = c.processes()
		return len(left) == 0
	})
}

// processes lists what runs in or for a sandbox of this node.
func (c *crash) processes() (out []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // gone
		}
		if bytes.Contains(line, []byte(marker)) || bytes.Contains(line, []byte(c.dir)) {
			out = append(out, e.Name()+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// nothingLeft looks for mounts and for folders of sessions that have ended.
func (c *crash) nothingLeft() {
	c.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		c.t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(c.dir)) {
		c.t.Errorf("mounts left behind:\n%s", mounts)
	}
	run, err := os.ReadDir(c.path("state", "run"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range run {
		if e.IsDir() {
			c.t.Errorf("a session's folder is left: %s", e.Name())
		}
	}
	sockets, err := filepath.Glob(c.path("state", "sessions", "*", "door.sock"))
	if err != nil || len(sockets) > 0 {
		c.t.Errorf("doors left behind: %v, %v", sockets, err)
	}
}

// verify reads the stopped node's journal, streams and chains.
func (c *crash) verify() {
	c.t.Helper()
	keys, err := notary.LoadKeys(c.path("state", "keys"))
	if err != nil {
		c.t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "node-1", Keys: keys})
	j, err := journal.Open(c.path("state", "journal"), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		c.t.Fatal(err)
	}
	defer j.Close()
	if err := n.Start(c.t.Context(), j); err != nil {
		c.t.Fatal(err)
	}
	c.exactlyOnce(j)
	c.started(j)
	c.chains(n, keys.RootFingerprint())
}

// exactlyOnce: every delivery answered 200 is on the events stream once, and
// each stream holds exactly what the journal holds.
func (c *crash) exactlyOnce(j *journal.Journal) {
	c.t.Helper()
	b, err := bus.Open(c.t.Context(), bus.Options{Node: "node-1", Dir: c.path("state", "nats")})
	if err != nil {
		c.t.Fatal(err)
	}
	defer b.Close()
	on := map[string]int{}
	for m, err := range b.Read(c.t.Context(), bus.Events, "", 0) {
		if err != nil {
			c.t.Fatal(err)
		}
		h, err := event.ReadHead(m.Data)
		if err != nil {
			c.t.Fatal(err)
		}
		on[h.ID]++
	}
	for delivery, id := range c.answered {
		if on[id] != 1 {
			c.t.Errorf("delivery %s was answered 200 as %s and is %d times on the stream", delivery, id, on[id])
		}
	}
	if len(on) != len(c.answered) {
		c.t.Errorf("%d events on the stream, %d deliveries answered", len(on), len(c.answered))
	}
	streams, err := compareStreams(c.t.Context(), b, j, nil)
	if err != nil || len(streams.differ) > 0 {
		c.t.Errorf("streams and journal: %+v, %v", streams, err)
	}
}

// started: each event was judged once, started nothing twice, and every
// session has its end.
func (c *crash) started(j *journal.Journal) {
	c.t.Helper()
	judged, running := map[string][]string{}, map[string]int{}
	event, open := map[string]string{}, map[string]bool{}
	reasons, unknown := map[string]int{}, 0
	for group, err := range j.Groups(0) {
		if err != nil {
			c.t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt {
				continue
			}
			r, err := receipts.Decode(rec.Data)
			if err != nil {
				c.t.Fatal(err)
			}
			switch {
			case r.Type == receipts.TypeSessionOpen:
				judged[r.Open.Event] = append(judged[r.Open.Event], r.Open.State)
				event[r.Session], open[r.Session] = r.Open.Event, true
			case r.Type == receipts.TypeSessionState && r.State.To == "running":
				running[event[r.Session]]++
			case r.Type == receipts.TypeSessionClose:
				delete(open, r.Session)
				reasons[r.Close.Reason]++
			case r.Type == receipts.TypeOutcome && r.Out.Effect == "unknown":
				unknown++
			}
		}
	}
	for delivery, id := range c.answered {
		want := "refused"
		if c.starts[delivery] {
			want = "admitted"
		}
		if got := judged[id]; len(got) != 1 || got[0] != want {
			c.t.Errorf("event %s was judged %v, want once %s", id, got, want)
		}
		if running[id] > 1 {
			c.t.Errorf("event %s started %d times", id, running[id])
		}
	}
	if len(open) > 0 {
		c.t.Errorf("sessions without an end: %v", open)
	}
	c.t.Logf("endings: %v, %d unknown outcomes", reasons, unknown)
	// The test must have met what it is about.
	if unknown == 0 || reasons["lost"] == 0 || reasons["completed"]+reasons["no_effect"] == 0 {
		c.t.Errorf("no session was killed at work, or none came through: %v", reasons)
	}
}

// chains: every chain verifies with the root's fingerprint, complete or with
// outcomes that the node itself says it does not know.
func (c *crash) chains(n *notary.Notary, root string) {
	c.t.Helper()
	var file bytes.Buffer
	if err := n.Export(c.t.Context(), &file, notary.Filter{}); err != nil {
		c.t.Fatal(err)
	}
	res := receipts.Verify(&file, receipts.Options{Root: root, Checkpoint: n.Head()})
	if res.Exit != receipts.ExitComplete && res.Exit != receipts.ExitAdmitted {
		c.t.Errorf("exit %d %s: %+v", res.Exit, res.Class, res.FirstBad)
	}
	for _, f := range res.Findings {
		if f.Class != receipts.ClassUnmatched && f.Class != receipts.ClassGap {
			c.t.Errorf("finding %+v", f)
		}
	}
	c.t.Logf("receipts: exit %d %s, %d findings, %d receipts", res.Exit, res.Class, len(res.Findings)+res.More, res.Integrity.Receipts)
}
