package notary_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/enforcers"
	"gatehouse/internal/authority"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const origin = "gatehouse.example/node-1"

var testKeys = sync.OnceValue(func() *notary.Keys {
	k, err := notary.NewKeys(origin)
	if err != nil {
		panic(err)
	}
	return k
})

// testSigner is a key that signs nothing but benchmarks.
func testSigner() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, 32)) }

// clock is a hand-moved clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 14, 10, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(time.Millisecond)
	return c.t
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// node is a notary on a journal.
type node struct {
	*notary.Notary
	t     testing.TB
	j     *journal.Journal
	disk  journal.FS
	dir   string
	clock *clock
}

// start opens the journal of a disk and folds it.
func start(t testing.TB, disk journal.FS, dir string, c *clock) *node {
	t.Helper()
	n, err := tryStart(t, disk, dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryStart(t testing.TB, disk journal.FS, dir string, c *clock) (*node, error) {
	n := &node{t: t, disk: disk, dir: dir, clock: c}
	n.Notary = notary.New(notary.Options{
		Node: "node-1", Keys: testKeys(), Clock: c.Now,
		CheckpointEvery: 5 * time.Millisecond, HeartbeatEvery: 5 * time.Millisecond,
		Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40, FoldAfter: 1 << 40},
	})
	var err error
	n.j, err = journal.Open(dir, journal.Options{Seal: n.Seal, PrivateKey: testKeys().NodeKey().Reveal(), FS: disk, SegmentBytes: 64 << 10, ReserveBytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = n.j.Close() })
	return n, n.Start(context.Background(), n.j)
}

// fresh is a node on an empty disk in memory.
func fresh(t testing.TB) (*node, *faultfs.FS) {
	t.Helper()
	disk := &faultfs.FS{}
	return start(t, disk, "journal", newClock()), disk
}

// again closes the node's journal and starts another on the same disk.
func (n *node) again() *node {
	n.t.Helper()
	if err := n.j.Close(); err != nil {
		n.t.Fatal(err)
	}
	return start(n.t, n.disk, n.dir, n.clock)
}

var (
	keeperObs = receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}
	doorObs   = receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	bundle    = []byte(`{"kind":"Bundle","name":"fix-failing-ci"}`)
)

func (n *node) open(session string) *notary.Chain {
	n.t.Helper()
	c, err := n.Open(context.Background(), session, receipts.Open{
		State: "admitted", Event: "github:main:1", Bundle: "fix-failing-ci", Digest: sum(bundle),
		Mode: receipts.Hard, Policy: "credential_free", Points: []string{"door"}, Floor: "member",
	}, keeperObs)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *node) event(s string) receipts.Hash {
	n.t.Helper()
	b := fmt.Appendf(nil, `{"id":%q}`, s)
	if _, err := n.j.Append(journal.Record{Kind: journal.KindEvent, Subject: "gatehouse.v1.events.x", Data: b}).Wait(context.Background()); err != nil {
		n.t.Fatal(err)
	}
	return receipts.Leaf(b)
}

// get is an action of a session, and a decision on it.
func get(t testing.TB, c *notary.Chain, seq uint64, path string) (*enforcers.Action, *enforcers.Decision) {
	t.Helper()
	to, err := authority.New("https", "packages.example.com", 443)
	if err != nil {
		t.Fatal(err)
	}
	return &enforcers.Action{
			ID: fmt.Sprintf("%s-%d", c.Session(), seq), Session: c.Session(), Seq: seq, Kind: enforcers.HTTPRequest,
			At: time.Date(2026, 11, 14, 10, 0, 0, 0, time.UTC), Generation: 1,
			HTTP: &enforcers.HTTP{To: to, Method: "GET", Path: path, Body: enforcers.Body{Mode: "none"}},
		}, &enforcers.Decision{
			Verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "egress[0]", Reason: "listed", Fuel: 12},
			Mode:    receipts.Hard, Passed: true, By: "egress", Policy: sum(bundle), Micros: 3,
		}
}

// decide writes an allow and returns its leaf.
func decide(t testing.TB, c *notary.Chain, seq uint64) receipts.Hash {
	t.Helper()
	a, d := get(t, c, seq, fmt.Sprintf("/acme/%d.tgz", seq))
	leaf, err := c.Recorder(doorObs).Decision(context.Background(), a, d, true)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func forwarded(c *notary.Chain, of receipts.Hash) {
	c.Recorder(doorObs).Outcome(of, enforcers.Outcome{Effect: enforcers.Forwarded, Address: "93.184.216.34", Status: 200, Up: 100, Down: 2000})
}

func closeChain(t testing.TB, c *notary.Chain, reason string) {
	t.Helper()
	if _, err := c.Close(context.Background(), receipts.Close{Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

func sum(b []byte) receipts.Hash { return sha256.Sum256(b) }

func (n *node) export(f notary.Filter) []byte {
	n.t.Helper()
	var b bytes.Buffer
	if err := n.Export(context.Background(), &b, f); err != nil {
		n.t.Fatal(err)
	}
	return b.Bytes()
}

// verify judges an export as an auditor with the root pinned does.
func (n *node) verify(export []byte, o receipts.Options) *receipts.Result {
	o.Root, o.Now = testKeys().RootFingerprint(), n.clock.Now()
	return receipts.Verify(bytes.NewReader(export), o)
}

func want(t testing.TB, r *receipts.Result, exit receipts.Exit, class receipts.Class) {
	t.Helper()
	if r.Exit != exit || r.Class != class {
		t.Fatalf("exit %d %s, want %d %s; findings %+v", r.Exit, r.Class, exit, class, r.Findings)
	}
}

// chainOf returns the receipts of a subject as the journal has them.
func (n *node) chainOf(session string) (out []*receipts.Receipt) {
	n.t.Helper()
	suffix := "." + session
	if session == receipts.ControlSession {
		suffix = ".control.node-1"
	}
	for group, err := range n.j.Groups(0) {
		if err != nil {
			n.t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt || !strings.HasSuffix(rec.Subject, suffix) {
				continue
			}
			r, err := receipts.Decode(rec.Data)
			if err != nil {
				n.t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	return out
}

func types(rs []*receipts.Receipt) (out []string) {
	for _, r := range rs {
		s := string(r.Type)
		if r.Out != nil {
			s += " " + r.Out.Effect
		}
		out = append(out, s)
	}
	return out
}
