package view_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	deadline = 60 * time.Second
	origin   = "gatehouse.example/node-1"
)

var testKeys = sync.OnceValue(func() *notary.Keys {
	k, err := notary.NewKeys(origin)
	if err != nil {
		panic(err)
	}
	return k
})

// world is a node from the journal to the streams: real journal, notary and bus.
type world struct {
	t      testing.TB
	bus    *bus.Bus
	j      *journal.Journal
	notary *notary.Notary
	n      int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	w.notary = notary.New(notary.Options{Node: "n1", Keys: testKeys(), CheckpointEvery: 5 * time.Millisecond})
	var err error
	w.j, err = journal.Open(t.TempDir(), journal.Options{Seal: w.notary.Seal, PrivateKey: testKeys().NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.notary.Start(ctx, w.j); err != nil {
		t.Fatal(err)
	}
	w.bus, err = bus.Open(ctx, bus.Options{Node: "n1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.bus.Pump(ctx, w.j, encode); err != nil {
			t.Errorf("pump: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = w.bus.Close()
		_ = w.j.Close()
	})
	return w
}

func encode(group []journal.Record) ([]bus.Msg, error) {
	sealed, err := notary.Encode(group)
	if err != nil {
		return nil, err
	}
	var out []bus.Msg
	for _, s := range sealed {
		out = append(out, bus.Msg{Subject: s.Subject, Data: s.Data, Header: s.Header})
	}
	return out, nil
}

// stored waits until everything appended so far is on the streams.
func (w *world) stored() {
	w.t.Helper()
	want := w.j.Next() - 1
	until(w.t, func() bool { return w.bus.Status().Stored >= want })
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still waiting")
		}
	}
}

// event appends one delivery and returns its id.
func (w *world) event(kind, endpoint string, level event.Origin) string {
	w.t.Helper()
	w.n++
	id := fmt.Sprintf("github:%s:d%d", endpoint, w.n)
	e := &event.Event{
		ID: id, Source: "github", Endpoint: endpoint, Kind: kind, Action: "created", EntityPath: "repo/501/issue/11",
		Time: time.Date(2026, 11, 20, 10, 0, w.n, 0, time.UTC), Received: time.Date(2026, 11, 20, 10, 1, w.n, 0, time.UTC),
		Delivery: fmt.Sprint("d", w.n), Trust: event.TrustUntrusted, BodySHA256: strings.Repeat("ab", 32),
		Entity:  event.Entity{Kind: "issue", ID: "9001", Number: "11", Scope: map[string]string{"repo": "501"}},
		Actor:   event.Actor{ID: "77", Kind: "user", Level: level},
		Auth:    event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Facts:   map[string]string{"repository.id": "501"},
		Text:    []event.Passage{event.NewPassage("/issue/title", "title", "<script>alert(1)</script>\u202e", event.Outsider, "88")},
		Prov:    map[string]event.Origin{"/issue/title": event.Outsider},
		Payload: []byte(`{}`), Anomalies: []string{"bom"},
	}
	b, err := e.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: b})
	return id
}

func (w *world) append(r journal.Record) {
	w.t.Helper()
	if _, err := w.j.Append(r).Wait(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

var (
	keeperObs = receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}
	doorObs   = receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	digestA   = receipts.Hash{1}
	digestB   = receipts.Hash{2}
)

// open admits or refuses a session.
func (w *world) open(id, eventID, bundle, state, code string) *notary.Chain {
	w.t.Helper()
	o := receipts.Open{State: state, Code: code, Event: eventID, Bundle: bundle}
	if state == "admitted" {
		o.Digest, o.Mode, o.Policy, o.Provider, o.Floor, o.Points = digestA, receipts.Shadow, "credential_free", "local", "member", []string{"door"}
	}
	c, err := w.notary.Open(w.t.Context(), id, o, keeperObs)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) add(c *notary.Chain, r receipts.Receipt) receipts.Hash {
	w.t.Helper()
	h, err := c.Append(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// decide appends a decision and, if it passed, its outcome.
func (w *world) decide(c *notary.Chain, v receipts.Verdict, passed bool, fault string, spent int64) {
	w.t.Helper()
	w.n++
	obs := doorObs
	h := w.add(c, receipts.Receipt{
		Type: receipts.TypeDecision, Obs: &obs,
		Act: &receipts.Act{ID: fmt.Sprint(c.Session(), "-", w.n), Kind: "http.request", Scheme: "https", Host: "packages.example.com", Port: 443, Method: "GET"},
		Dec: &receipts.Dec{Verdict: v, Mode: receipts.Shadow, Passed: passed, Fault: fault, Rule: "egress[0]", Reason: "default_deny", By: "egress"},
	})
	if passed {
		w.add(c, receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: h, Effect: "forwarded", Address: "93.184.216.34", Status: 200, Up: 10, Down: 20, Spent: spent}})
	}
}

func (w *world) close(c *notary.Chain, reason string) {
	w.t.Helper()
	if _, err := c.Close(w.t.Context(), receipts.Close{Reason: reason}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) change(typ receipts.Type, c receipts.Change) {
	w.t.Helper()
	w.add(w.notary.Control(), receipts.Receipt{Type: typ, Change: &c})
}

// loaded is a fresh view of everything on the streams.
func (w *world) loaded(o view.Options) *view.View {
	w.t.Helper()
	w.stored()
	v := view.New(w.bus, o)
	if err := v.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// tape is what the streams hold, to be changed and played to a view.
type tape []bus.Msg

func (w *world) tape() tape {
	w.t.Helper()
	w.stored()
	var out tape
	for _, s := range []string{bus.Events, bus.Sessions, bus.Log} {
		for m, err := range w.bus.Read(w.t.Context(), s, "", 0) {
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, m)
		}
	}
	return out
}

// Read plays the messages of a stream.
func (t tape) Read(_ context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return func(yield func(bus.Msg, error) bool) {
		for _, m := range t {
			if m.Stream == stream && m.Seq >= from && (filter == "" || filter == m.Subject) && !yield(m, nil) {
				return
			}
		}
	}
}

// Follow plays and ends.
func (t tape) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return t.Read(ctx, stream, filter, from)
}
