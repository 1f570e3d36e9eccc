package main

import (
	endian "encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gatehouse/enforcers"
	"gatehouse/enforcers/spend"
	"gatehouse/gatekeeper"
	"gatehouse/ingest"
	"gatehouse/internal/authority"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/journal/faultfs"
	"gatehouse/internal/notary"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// state is what a node knows after a start: a fold of its journal.
type foldState struct {
	Events map[string]bool   // delivery ids that are known
	Open   map[string]string // open session -> its last receipt, as seq and leaf
	Closed []string
	Spent  map[string]int64 // budget -> nanodollars: of sessions, their bundles and the node
	Leaves uint64
}

// TestTruncation cuts a journal at every boundary between two records, and in
// the middle of each, and starts a node on what is left: its state is the fold
// of the whole groups that remain, no more and no less.
func TestTruncation(t *testing.T) {
	keys, err := notary.NewKeys("test.gatehouse.example/node-1")
	if err != nil {
		t.Fatal(err)
	}
	disk, began := &faultfs.FS{}, today()
	w := startRooms(t, disk, keys)
	w.work()
	w.close()
	name := disk.Names(".seg")[0]
	whole := disk.Bytes(name)
	cuts, groups := boundaries(t, whole)
	if len(groups) < 40 || len(cuts) < 2*len(groups) {
		t.Fatalf("%d groups, %d cuts: the journal is too small to show anything", len(groups), len(cuts))
	}
	if testing.Short() {
		t.Logf("short: every seventh of %d cuts; make test runs all", len(cuts))
	}
	for i, at := range cuts {
		if testing.Short() && i%7 != 0 {
			continue
		}
		left := disk.Clone()
		left.Put(name, slices.Clone(whole[:at]))
		// The model knows nothing of the rooms: it reads the groups that are whole.
		want := modelOf(t, keys, left.Clone())
		w := startRooms(t, left, keys)
		if d := cmp.Diff(want, w.state(want)); d != "" {
			if today() != began {
				t.Skip("SKIPPED: the UTC day ended, and with it the ledger's days")
			}
			t.Fatalf("cut at byte %d of %d:\n%s", at, len(whole), d)
		}
		w.recover(want)
		w.close()
	}
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

// rooms are the folds of a node over one journal.
type rooms struct {
	t     *testing.T
	j     *journal.Journal
	n     *notary.Notary
	hooks *httptest.Server
	blobs *blob.Store
	began uint64 // position at which this start's own receipts begin
}

var truncateSecret = []byte("0123456789abcdef0123456789abcdef")

func startRooms(t *testing.T, disk *faultfs.FS, keys *notary.Keys) *rooms {
	t.Helper()
	w := &rooms{t: t}
	w.n = notary.New(notary.Options{Node: "node-1", Keys: keys})
	var err error
	w.j, err = journal.Open("journal", journal.Options{FS: disk, Seal: w.n.Seal, PrivateKey: keys.NodeKey().Reveal(), ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.began = w.j.Next()
	if err := w.n.Start(t.Context(), w.j); err != nil {
		t.Fatal(err)
	}
	if w.blobs, err = blob.Open(filepath.Join(tempDir(t), "blobs")); err != nil {
		t.Fatal(err)
	}
	ep, err := endpointOf(config.Endpoint{Name: "main", Source: "github"}, []secret.Value{secret.New(truncateSecret)})
	if err != nil {
		t.Fatal(err)
	}
	intake, err := ingest.New(t.Context(), ingest.Options{Journal: w.j, Blobs: w.blobs, Endpoints: []ingest.Endpoint{ep}})
	if err != nil {
		t.Fatal(err)
	}
	w.hooks = httptest.NewServer(intake)
	return w
}

func (w *rooms) close() {
	w.t.Helper()
	w.hooks.Close()
	if err := w.j.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// post sends one delivery and returns what the node said.
func (w *rooms) post(id string, body []byte) string {
	w.t.Helper()
	a, err := delivery{URL: w.hooks.URL + "/hooks/main", Source: "github", Kind: "workflow_run", ID: id, Secret: secret.New(truncateSecret), Body: body}.send(w.t.Context())
	if err != nil || a.Status != http.StatusOK {
		w.t.Fatalf("%s: %+v, %v", id, a, err)
	}
	return a.Result
}

// deliveryID is the n-th delivery's, deliveryBody its bytes.
func deliveryID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func deliveryBody(n int) []byte { return workflowRun(n, "failure").body }

const truncateDeliveries = 12

// truncateOutcomes is how the model calls of odd sessions end; 9 and 11 do not.
var truncateOutcomes = map[int]enforcers.Outcome{
	1: {Effect: enforcers.Forwarded, Spent: 101},
	3: {Effect: enforcers.NotForwarded},
	5: {Effect: enforcers.Unknown, Spent: 105},
	7: {Effect: enforcers.Forwarded, Spent: 107},
}

// work writes a journal with everything in it that a start must know again:
// deliveries, sessions in every state, open decisions, calls that cost.
func (w *rooms) work() {
	w.t.Helper()
	ctx := w.t.Context()
	fail := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	to, err := authority.New("https", "packages.test", 443)
	fail(err)
	for n := range truncateDeliveries {
		w.post(deliveryID(n), deliveryBody(n))
		o := receipts.Open{State: "admitted", Event: fmt.Sprint("e", n), EventLeaf: receipts.Leaf([]byte{byte(n)}), Bundle: fmt.Sprint("b", n%2)}
		if n%4 == 3 { // a child: what it spends, its parent spends too
			o.Parent = fmt.Sprintf("s%d", n-1)
		}
		c, err := w.n.Open(ctx, fmt.Sprintf("s%d", n), o,
			receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
		fail(err)
		rec := c.Recorder(receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"})
		for i := range n % 4 {
			a := &enforcers.Action{ID: fmt.Sprint(i), Session: fmt.Sprintf("s%d", n), Kind: enforcers.NetConnect, Connect: &enforcers.Connect{To: to}}
			leaf, err := rec.Decision(ctx, a, &enforcers.Decision{Verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "egress[0]"}, Mode: receipts.Hard, Passed: true}, true)
			fail(err)
			if i > 0 { // the first of each session stays open
				rec.Outcome(leaf, enforcers.Outcome{Effect: enforcers.Forwarded})
			}
		}
		if n%2 == 1 {
			a := &enforcers.Action{ID: "call", Session: fmt.Sprintf("s%d", n), Kind: enforcers.ModelCall, Model: &enforcers.Model{To: to, Provider: "anthropic", Model: "m", MaxTokens: 9, Held: int64(1000 + n)}}
			leaf, err := rec.Decision(ctx, a, &enforcers.Decision{Verdict: enforcers.Verdict{Effect: enforcers.Allow, Rule: "models[0]"}, Mode: receipts.Hard, Passed: true, Held: a.Model.Held}, true)
			fail(err)
			if out, ok := truncateOutcomes[n]; ok {
				rec.Outcome(leaf, out)
			}
		}
		if n%3 == 1 {
			_, err := c.Close(ctx, receipts.Close{Reason: "completed"})
			fail(err)
		}
		if n%5 == 4 {
			_, err := w.n.Checkpoint(ctx)
			fail(err)
		}
	}
}

// state asks the rooms what they know. Receipts that the start itself wrote are
// told apart by their position.
func (w *rooms) state(want foldState) foldState {
	w.t.Helper()
	s := foldState{Events: map[string]bool{}, Open: map[string]string{}, Closed: want.Closed, Leaves: w.n.Size()}
	for n := range truncateDeliveries {
		id := deliveryID(n)
		if w.post(id, deliveryBody(n)) == "duplicate" {
			s.Events[id] = true
		}
	}
	own := map[string]*receipts.Receipt{} // first receipt of this start on each chain
	for group, err := range w.j.Groups(w.began) {
		if err != nil {
			w.t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind != journal.KindReceipt || rec.Pos < w.began {
				continue
			}
			r, err := receipts.Decode(rec.Data)
			if err != nil {
				w.t.Fatal(err)
			}
			if own[r.Session] == nil {
				own[r.Session] = r
			}
			s.Leaves--
		}
	}
	for _, open := range w.n.Sessions() {
		c, err := w.n.Resume(open.Session)
		if err != nil {
			w.t.Fatal(err)
		}
		next := own[open.Session]
		if next == nil { // no outcome was open: a receipt of now shows where the chain ends
			if _, err := c.Append(w.t.Context(), receipts.Receipt{Type: receipts.TypeSessionState, State: &receipts.State{To: "ended", Reason: "lost"}}); err != nil {
				w.t.Fatal(err)
			}
			next = w.last()
		}
		if open.Pending != 0 {
			w.t.Errorf("%s: %d decisions still wait for an outcome", open.Session, open.Pending)
		}
		s.Open[open.Session] = fmt.Sprintf("%d %s", next.Seq, next.Prev)
	}
	ledger, err := ledgerOf(&config.Config{}, w.j)
	if err != nil {
		w.t.Fatal(err)
	}
	s.Spent = map[string]int64{}
	for _, b := range ledger.Budgets() {
		if b.Held != 0 {
			w.t.Errorf("%s %s still holds %d", b.Kind, b.ID, b.Held)
		}
		if b.Spent > 0 {
			s.Spent[b.Kind+" "+b.ID] = int64(b.Spent)
		}
	}
	return s
}

func (w *rooms) last() (last *receipts.Receipt) {
	w.t.Helper()
	for group, err := range w.j.Groups(w.j.Next() - 1) {
		if err != nil {
			w.t.Fatal(err)
		}
		for _, rec := range group {
			if rec.Kind == journal.KindReceipt {
				if last, err = receipts.Decode(rec.Data); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	return last
}

// recover starts a gatekeeper: what was open is closed as lost, and nothing is
// open any more.
func (w *rooms) recover(want foldState) {
	w.t.Helper()
	gk, err := gatekeeper.New(gatekeeper.Options{
		Node: "node-1", Dir: tempDir(w.t), Journal: w.j, Notary: chains{w.n}, Blobs: w.blobs, Bundles: &memoryKV{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := gk.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	gk.Close()
	if left := w.n.Sessions(); len(left) != 0 {
		w.t.Errorf("left open: %+v", left)
	}
	// Revocation is a closed chain: one whose close was durable, or that this start
	// closed, never takes a receipt again, and a Permit needs one.
	for _, id := range slices.Concat(slices.Collect(maps.Keys(want.Open)), want.Closed) {
		if _, err := w.n.Resume(id); err == nil {
			w.t.Errorf("%s goes on", id)
		}
	}
}

// modelOf folds what a journal holds, by itself.
func modelOf(t *testing.T, keys *notary.Keys, disk *faultfs.FS) foldState {
	t.Helper()
	j, err := journal.Open("journal", journal.Options{FS: disk, PrivateKey: keys.NodeKey().Reveal(), ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	s := foldState{Events: map[string]bool{}, Open: map[string]string{}, Spent: map[string]int64{}}
	opened, held := map[string]*receipts.Open{}, map[receipts.Hash]*receipts.Receipt{}
	pay := func(session string, nano int64) {
		bundles := map[string]bool{}
		for ; session != "" && nano > 0; session = opened[session].Parent {
			s.Spent[spend.KindSession+" "+session] += nano
			bundles[opened[session].Bundle] = true
		}
		for b := range bundles {
			s.Spent[spend.KindBundle+" "+b] += nano
		}
		if len(bundles) > 0 {
			s.Spent[spend.KindNode+" node"] += nano
		}
	}
	for group, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range group {
			switch rec.Kind {
			case journal.KindEvent:
				s.Leaves++
				h, err := event.ReadHead(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				s.Events[strings.TrimPrefix(h.ID, "github:main:")] = true
			case journal.KindReceipt:
				s.Leaves++
				r, err := receipts.Decode(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case r.Open != nil:
					opened[r.Session] = r.Open
				case r.Dec != nil && r.Dec.Held > 0:
					held[receipts.Leaf(rec.Data)] = r
				case r.Out != nil && held[r.Out.Ref] != nil:
					pay(r.Session, r.Out.Spent) // these name what was spent, or nothing was
					delete(held, r.Out.Ref)
				}
				switch {
				case r.Session == receipts.ControlSession:
				case r.Type == receipts.TypeSessionClose:
					delete(s.Open, r.Session)
					s.Closed = append(s.Closed, r.Session)
				default:
					s.Open[r.Session] = fmt.Sprintf("%d %s", r.Seq+1, receipts.Leaf(rec.Data))
				}
			}
		}
	}
	for _, r := range held { // nobody knows what the call cost: all of it
		pay(r.Session, r.Dec.Held)
	}
	return s
}

// boundaries returns every place between two records of a segment and one in
// the middle of each record, and the end of every group. The format is that of
// internal/journal/doc.go.
func boundaries(t *testing.T, b []byte) (cuts []int, groups map[int]bool) {
	t.Helper()
	const segmentHeader, frameHeader, trailer, recordHeader = 48, 40, 8, 8
	groups = map[int]bool{}
	all := map[int]bool{segmentHeader: true}
	for off := segmentHeader; off+frameHeader <= len(b) && string(b[off:off+4]) == "GHFR"; {
		count, length := endian.LittleEndian.Uint32(b[off+4:]), int(endian.LittleEndian.Uint32(b[off+16:]))
		at := off + frameHeader
		all[at] = true
		for range count {
			size := recordHeader + int(endian.LittleEndian.Uint16(b[at+2:])) + int(endian.LittleEndian.Uint32(b[at+4:]))
			all[at+size/2] = true
			at += size
			all[at] = true
		}
		if at != off+frameHeader+length {
			t.Fatalf("records end at %d, the body at %d", at, off+frameHeader+length)
		}
		off += frameHeader + (length+7)/8*8 + trailer
		if string(b[off-4:off]) != "GHFE" {
			t.Fatalf("no frame ends at %d", off)
		}
		all[off], groups[off] = true, true
	}
	return slices.Sorted(maps.Keys(all)), groups
}
