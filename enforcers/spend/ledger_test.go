package spend_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gatehouse/enforcers/spend"
	"gatehouse/receipts"
)

const dollar spend.Nano = 1e9

func open(t testing.TB, l *spend.Ledger, s spend.Session) {
	t.Helper()
	if err := l.Open(s); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrent admits one of 64 calls that all want the last call's money.
func TestConcurrent(t *testing.T) {
	t.Run("ME-14_one_headroom", func(t *testing.T) {
		l := spend.New(spend.Options{})
		open(t, l, spend.Session{ID: "s", Bundle: "b", Limit: dollar})
		admitted, codes := race(64, func(int) (*spend.Hold, *spend.Refusal) { return l.Hold("s", spend.Exactly(dollar)) })
		if admitted != 1 || codes[spend.CodeHeld] != 63 {
			t.Errorf("%d admitted, refused %v", admitted, codes)
		}
	})
	t.Run("EG-89_fifty_at_one_unit", func(t *testing.T) {
		l := spend.New(spend.Options{})
		open(t, l, spend.Session{ID: "s", Bundle: "b", Limit: dollar, PerDay: 3 * dollar / 2})
		admitted, _ := race(50, func(int) (*spend.Hold, *spend.Refusal) {
			h, refused := l.Hold("s", spend.Exactly(dollar))
			if h != nil {
				h.Settle(dollar)
			}
			return h, refused
		})
		if b, _ := l.Session("s"); admitted != 1 || b.Spent != dollar {
			t.Errorf("%d admitted, spent %s", admitted, b.Spent)
		}
	})
	t.Run("ME-15_EG-92_fan_out", func(t *testing.T) {
		// 64 children on each of 4 levels, all asking at once: the root's money is
		// the bound, however often it was promised.
		l := spend.New(spend.Options{})
		open(t, l, spend.Session{ID: "root", Bundle: "b", Limit: 10 * dollar})
		parents, all := []string{"root"}, []string{}
		for level := range 4 {
			var next []string
			for i := range 64 {
				id := fmt.Sprintf("%d-%d", level, i)
				open(t, l, spend.Session{ID: id, Parent: parents[i%len(parents)], Bundle: "b", Limit: 10 * dollar})
				next = append(next, id)
			}
			parents = next
			all = append(all, next...)
		}
		admitted, _ := race(len(all), func(i int) (*spend.Hold, *spend.Refusal) {
			h, refused := l.Hold(all[i], spend.Exactly(dollar))
			if h != nil && i%3 == 0 {
				h.Keep() // aborted without its usage
			}
			return h, refused
		})
		if b, _ := l.Session("root"); admitted != 10 || b.Spent+b.Held != 10*dollar {
			t.Errorf("%d admitted, root spent %s and holds %s", admitted, b.Spent, b.Held)
		}
	})
}

// race runs n calls at once and counts who was admitted.
func race(n int, call func(i int) (*spend.Hold, *spend.Refusal)) (admitted int, codes map[string]int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	codes = map[string]int{}
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			h, refused := call(i)
			mu.Lock()
			defer mu.Unlock()
			if h != nil {
				admitted++
			} else {
				codes[refused.Code]++
			}
		})
	}
	close(begin)
	wg.Wait()
	return admitted, codes
}

func TestRefusals(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
	l := spend.New(spend.Options{PerDay: 8 * dollar, Clock: func() time.Time { return now }})
	open(t, l, spend.Session{ID: "root", Bundle: "b", Limit: 5 * dollar, PerDay: 6 * dollar})
	open(t, l, spend.Session{ID: "child", Parent: "root", Bundle: "c", Limit: 4 * dollar})
	refusal := func(id string, n spend.Nano, want spend.Refusal) {
		t.Helper()
		h, got := l.Hold(id, spend.Exactly(n))
		if h != nil || *got != want {
			t.Errorf("%s: %v %+v, want %+v", id, h, got, want)
		}
	}
	refusal("nobody", 1, spend.Refusal{Code: spend.CodeClosed, Budget: "session nobody"})
	h, _ := l.Hold("child", spend.Exactly(3*dollar))
	refusal("root", 3*dollar, spend.Refusal{Code: spend.CodeHeld, Budget: "session root", Remaining: 5 * dollar, Held: 3 * dollar, Limit: 5 * dollar})
	refusal("child", 5*dollar, spend.Refusal{Code: spend.CodeExceeded, Budget: "session child", Remaining: 4 * dollar, Held: 3 * dollar, Limit: 4 * dollar})
	h.Settle(2 * dollar)
	refusal("root", 4*dollar, spend.Refusal{Code: spend.CodeExceeded, Budget: "session root", Remaining: 3 * dollar, Limit: 5 * dollar})

	// The bundle's day, and the next one.
	open(t, l, spend.Session{ID: "second", Bundle: "b", Limit: 5 * dollar, PerDay: 6 * dollar})
	refusal("second", 5*dollar, spend.Refusal{Code: spend.CodeExceeded, Budget: "bundle b, day 2026-11-30", Remaining: 4 * dollar, Limit: 6 * dollar})
	now = now.Add(2 * time.Hour)
	if h, refused := l.Hold("second", spend.Exactly(5*dollar)); refused != nil {
		t.Errorf("a new day: %+v", refused)
	} else {
		h.Release()
	}

	// More than was held freezes the session and what is below it.
	h, _ = l.Hold("root", spend.Exactly(dollar))
	h.Settle(dollar + 1)
	for _, id := range []string{"root", "child"} {
		if h, refused := l.Hold(id, spend.Exactly(1)); h != nil || refused.Code != spend.CodeFrozen {
			t.Errorf("%s after a wrong bound: %+v", id, refused)
		}
	}
	l.Close("second")
	refusal("second", 1, spend.Refusal{Code: spend.CodeClosed, Budget: "session second", Remaining: 5 * dollar, Limit: 5 * dollar})
	if err := l.Open(spend.Session{ID: "x", Parent: "second"}); err == nil {
		t.Error("a child of an ended session was opened")
	}
}

// world drives a ledger and keeps the truth beside it.
type world struct {
	t     *rapid.T
	l     *spend.Ledger
	now   time.Time
	log   []entry
	tree  []node
	calls []call
	n     uint64
}

type entry struct {
	leaf receipts.Hash
	r    receipts.Receipt
}

type node struct {
	spend.Session
	parent, depth int
	closed        bool
	cost, held    spend.Nano // of it and all below it
}

type call struct {
	h           *spend.Hold
	node        int
	day         string
	held, truth spend.Nano // truth: what upstream will charge
	leaf        receipts.Hash
}

const (
	perDay     = 40 * dollar
	perNodeDay = 60 * dollar
)

func (w *world) write(r receipts.Receipt) receipts.Hash {
	w.n++
	r.T = w.now
	leaf := receipts.Leaf(fmt.Append(nil, w.n))
	w.log = append(w.log, entry{leaf, r})
	return leaf
}

func (w *world) options() spend.Options {
	return spend.Options{PerDay: perNodeDay, Clock: func() time.Time { return w.now }}
}

func (w *world) open(v uint64) {
	s := node{Session: spend.Session{ID: fmt.Sprint("s", len(w.tree)), Bundle: "b", Limit: spend.Nano(1+v%20) * dollar, PerDay: perDay}, parent: -1}
	if len(w.tree) > 0 && v%8 != 0 {
		p := int(v>>8) % len(w.tree)
		if w.tree[p].depth == 4 || w.shut(p) {
			return
		}
		s.parent, s.depth, s.Parent = p, w.tree[p].depth+1, w.tree[p].ID
	}
	w.write(receipts.Receipt{Type: receipts.TypeSessionOpen, Session: s.ID, Open: &receipts.Open{Bundle: s.Bundle, Parent: s.Parent}})
	if err := w.l.Open(s.Session); err != nil {
		w.t.Fatal(err)
	}
	w.tree = append(w.tree, s)
}

func (w *world) shut(i int) bool {
	for ; i >= 0; i = w.tree[i].parent {
		if w.tree[i].closed {
			return true
		}
	}
	return false
}

// hold asks for a call. Its true cost is at most the worst case.
func (w *world) hold(v uint64) {
	i := int(v>>8) % len(w.tree)
	least := spend.Nano(v>>16%1e9) + 1
	h, refused := w.l.Hold(w.tree[i].ID, func(room spend.Nano) (spend.Nano, bool) { return min(room, 5*least), room >= least })
	if refused != nil {
		return
	}
	if w.shut(i) {
		w.t.Fatal("an ended session was given money")
	}
	c := call{h: h, node: i, day: w.now.Format(time.DateOnly), held: h.Amount(), truth: h.Amount() * spend.Nano(v%100) / 99}
	c.leaf = w.write(receipts.Receipt{Type: receipts.TypeDecision, Session: w.tree[i].ID, Dec: &receipts.Dec{Passed: true, Held: int64(c.held)}})
	w.charge(c, 0, c.held)
	w.calls = append(w.calls, c)
}

// charge moves the truth of a call's path.
func (w *world) charge(c call, cost, held spend.Nano) {
	for i := c.node; i >= 0; i = w.tree[i].parent {
		n := &w.tree[i]
		n.cost, n.held = n.cost+cost, n.held+held
		if n.cost+n.held > n.Limit {
			w.t.Fatalf("session %s: cost %s + held %s is over %s", n.ID, n.cost, n.held, n.Limit)
		}
	}
}

// end settles a call in one of the ways a call can end.
func (w *world) end(v uint64) {
	if len(w.calls) == 0 {
		return
	}
	k := int(v>>8) % len(w.calls)
	c := w.calls[k]
	w.calls = append(w.calls[:k], w.calls[k+1:]...)
	out := receipts.Out{Ref: c.leaf, Effect: "forwarded"}
	spent := c.truth
	switch v % 4 {
	case 0: // nothing was sent
		out.Effect, spent = "not_forwarded", 0
		c.h.Release()
	case 1: // aborted, and nobody knows
		out.Effect, spent = "unknown", c.held
		c.h.Keep()
	default:
		out.Spent = int64(spent)
		c.h.Settle(spent)
	}
	w.write(receipts.Receipt{Type: receipts.TypeOutcome, Session: w.tree[c.node].ID, Out: &out})
	w.charge(c, spent, -c.held)
}

// restart is a crash: a new ledger knows what the receipts say. Calls under way
// may have cost anything up to what was held.
func (w *world) restart() {
	w.l = spend.New(w.options())
	for _, e := range w.log {
		w.l.Fold(e.leaf, &e.r)
	}
	w.l.Folded()
	for _, c := range w.calls {
		w.charge(c, c.held, -c.held)
		// What the notary writes when it finds the decision alone.
		w.write(receipts.Receipt{Type: receipts.TypeOutcome, Session: w.tree[c.node].ID, Out: &receipts.Out{Ref: c.leaf, Effect: "unknown"}})
	}
	w.calls = nil
	for i := range w.tree {
		if w.shut(i) {
			continue
		}
		if err := w.l.Open(w.tree[i].Session); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) check() {
	totals := map[string]spend.Nano{}
	for _, b := range w.l.Budgets() {
		if b.Kind != spend.KindSession {
			if b.Limit > 0 && b.Spent+b.Held > b.Limit {
				w.t.Fatalf("%s %s: %s spent and %s held of %s", b.Kind, b.Day, b.Spent, b.Held, b.Limit)
			}
			continue
		}
		totals[b.ID] = b.Spent + b.Held
	}
	for _, n := range w.tree {
		if got, ok := totals[n.ID]; ok && got < n.cost+n.held {
			w.t.Fatalf("session %s: the ledger says %s, true is %s", n.ID, got, n.cost+n.held)
		}
	}
}

// scatter spreads drawn numbers, which are mostly small, over all of them.
func scatter(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// TestTree is the state machine: trees five deep with aborts, retries,
// children and restarts. True cost and holds never pass any limit.
func TestTree(t *testing.T) {
	steps, rounds := 10_000, 1 // of 100 runs each: 10^6 steps
	switch {
	case os.Getenv("GATEHOUSE_SOAK") != "":
		rounds = 10
	case testing.Short():
		steps = 500
	}
	for range rounds {
		rapid.Check(t, func(t *rapid.T) {
			w := &world{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
			w.l = spend.New(w.options())
			w.open(0)
			for _, v := range rapid.SliceOfN(rapid.Uint64(), steps, steps).Draw(t, "steps") {
				v = scatter(v)
				op := v >> 58
				switch {
				case op < 6 && len(w.tree) < 64:
					w.open(v)
				case op < 36:
					w.hold(v)
				case op < 60:
					w.end(v)
				case op == 60:
					i := int(v>>8) % len(w.tree)
					if !w.tree[i].closed {
						w.write(receipts.Receipt{Type: receipts.TypeSessionClose, Session: w.tree[i].ID, Close: &receipts.Close{}})
					}
					w.tree[i].closed = true
					w.l.Close(w.tree[i].ID)
				case op == 61 && v%16 == 0:
					w.restart()
				case op == 62 && v%64 == 0:
					w.now = w.now.Add(13 * time.Hour)
				default:
					w.check()
				}
			}
			w.check()
		})
	}
}
