package review_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/authority"
	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 60 * time.Second

// now is when the world's people look; its receipts are as old as the test.
var keys = sync.OnceValue(func() *notary.Keys {
	k, err := notary.NewKeys("gatehouse.example/node-1")
	if err != nil {
		panic(err)
	}
	return k
})

// world is a node without sandboxes: real journal, notary, streams, enforcers in
// wasm and gates; a test plays the agents.
type world struct {
	t      testing.TB
	bus    *bus.Bus
	j      *journal.Journal
	notary *notary.Notary
	host   *wasm.Host
	sets   fs.FS
	known  map[string][]byte // bundle versions
	force  []gatekeeper.InForce
	forget bool // actions have expired
	n      int
}

func newWorld(t testing.TB, sets map[string]string, bundles ...string) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, known: map[string][]byte{}}
	files := fstest.MapFS{}
	for name, src := range sets {
		files[name+".yaml"] = &fstest.MapFile{Data: []byte(src)}
	}
	w.sets = files
	w.notary = notary.New(notary.Options{Node: "n1", Keys: keys()})
	var err error
	if w.j, err = journal.Open(t.TempDir(), journal.Options{Seal: w.notary.Seal, PrivateKey: keys().NodeKey().Reveal()}); err != nil {
		t.Fatal(err)
	}
	if err := w.notary.Start(ctx, w.j); err != nil {
		t.Fatal(err)
	}
	if w.bus, err = bus.Open(ctx, bus.Options{Node: "n1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if w.host, err = wasm.NewHost(ctx, wasm.Options{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.bus.Pump(ctx, w.j, func(group []journal.Record) ([]bus.Msg, error) {
			sealed, err := notary.Encode(group)
			var out []bus.Msg
			for _, s := range sealed {
				out = append(out, bus.Msg{Subject: s.Subject, Data: s.Data, Header: s.Header})
			}
			return out, err
		}); err != nil {
			t.Errorf("pump: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = w.host.Close(context.Background())
		_ = w.bus.Close()
		_ = w.j.Close()
	})
	for _, src := range bundles {
		w.apply(src)
	}
	return w
}

// apply puts a version in force.
func (w *world) apply(src string) *bundle.Bundle {
	w.t.Helper()
	b, err := bundle.Parse([]byte(src))
	if err != nil {
		w.t.Fatal(err)
	}
	if b, err = b.Pin(bundle.Sets(w.sets)); err != nil {
		w.t.Fatal(err)
	}
	w.known[fmt.Sprintf("%x", b.Digest())] = b.Canonical()
	for i := range w.force {
		if w.force[i].Bundle.Name == b.Name {
			w.force[i].Bundle = b
			return b
		}
	}
	w.force = append(w.force, gatekeeper.InForce{Bundle: b})
	return b
}

func (w *world) Bundles(context.Context) ([]gatekeeper.InForce, error) { return w.force, nil }

func (w *world) Version(digest string) ([]byte, error) {
	if b, ok := w.known[digest]; ok {
		return b, nil
	}
	return nil, problem.New(problem.NotFound, "no version "+digest, "")
}

// event stores one delivery and returns its id.
func (w *world) event(kind string) string {
	w.t.Helper()
	w.n++
	id := fmt.Sprintf("github:main:d%d", w.n)
	e := &event.Event{
		ID: id, Source: "github", Endpoint: "main", Kind: kind, Action: "created", EntityPath: "repo/501/issue/11",
		Time: time.Now().UTC(), Received: time.Now().UTC(), Delivery: fmt.Sprint("d", w.n), Trust: event.TrustUntrusted, BodySHA256: strings.Repeat("ab", 32),
		Entity: event.Entity{Kind: "issue", ID: "9001", Number: "11", Scope: map[string]string{"repo": "501"}},
		Actor:  event.Actor{ID: "77", Kind: "user", Level: event.Member}, Auth: event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Facts: map[string]string{"repository.id": "501"}, Prov: map[string]event.Origin{}, Payload: []byte(`{}`),
	}
	b, err := e.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.j.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: b}).Wait(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// agent is one session with a gate that judges by the bundle in force.
type agent struct {
	w     *world
	gate  *enforcers.Gate
	chain *notary.Chain
	done  []func()
}

type keeper struct {
	enforcers.Recorder
	w *world
}

func (k keeper) Decision(ctx context.Context, a *enforcers.Action, d *enforcers.Decision, durable bool) (receipts.Hash, error) {
	leaf, err := k.Recorder.Decision(ctx, a, d, durable)
	if err != nil || d.Folded {
		return leaf, err
	}
	b, err := a.Stored().Canonical()
	if err != nil {
		return leaf, err
	}
	return leaf, k.w.bus.PutAction(ctx, leaf.String(), b)
}

func (w *world) session(eventID, name, floor string) *agent {
	w.t.Helper()
	w.n++
	var b *bundle.Bundle
	for _, f := range w.force {
		if f.Bundle.Name == name {
			b = f.Bundle
		}
	}
	obs := receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}
	digest := b.Digest()
	chain, err := w.notary.Open(w.t.Context(), fmt.Sprintf("01jc%022d", w.n), receipts.Open{
		State: "admitted", Event: eventID, Bundle: name, Digest: digest, Mode: receipts.Shadow, Policy: "credential_free", Provider: "local", Floor: floor, Points: []string{"door"},
	}, obs)
	if err != nil {
		w.t.Fatal(err)
	}
	policy, err := b.Policy(bundle.Sets(w.sets), bundle.Subject{})
	if err != nil {
		w.t.Fatal(err)
	}
	a := &agent{w: w, chain: chain}
	p := enforcers.Policy{Digest: digest}
	if p.Grants, err = enforcers.Grants(policy); err != nil {
		w.t.Fatal(err)
	}
	std, err := w.host.Builtin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range []string{"egress", "git", "spend"} {
		e, err := std.Enforcer(w.t.Context(), wasm.Configure(policy, wasm.BuiltinParams(n)))
		if err != nil {
			w.t.Fatal(err)
		}
		a.done = append(a.done, e.Close)
		p.Enforcers = append(p.Enforcers, enforcers.Bound{Enforcer: e, Mode: receipts.Shadow, Builtin: true})
	}
	door := receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	a.gate = enforcers.NewGate(enforcers.GateOptions{Session: chain.Session(), Mode: receipts.Shadow, Policy: p, Recorder: keeper{chain.Recorder(door), w}})
	return a
}

// tries plays one request and returns the leaf of its decision.
func (a *agent) tries(method, host, path string) receipts.Hash {
	a.w.t.Helper()
	to, err := authority.New("https", host, 443)
	if err != nil {
		a.w.t.Fatal(err)
	}
	act := a.gate.Action(enforcers.HTTPRequest)
	act.HTTP = &enforcers.HTTP{To: to, Method: method, Path: path, Body: enforcers.Body{Mode: "none"}}
	p, d := a.gate.Decide(a.w.t.Context(), act)
	if p != nil {
		p.Done(enforcers.Outcome{Effect: enforcers.Forwarded, Status: 200})
	}
	return d.Receipt
}

// tunnels plays the connection under requests of a host.
func (a *agent) tunnels(host string) {
	a.w.t.Helper()
	to, err := authority.New("tcp", host, 443)
	if err != nil {
		a.w.t.Fatal(err)
	}
	act := a.gate.Action(enforcers.NetConnect)
	act.Connect = &enforcers.Connect{To: to}
	if p, _ := a.gate.Decide(a.w.t.Context(), act); p != nil {
		p.Done(enforcers.Outcome{Effect: enforcers.Forwarded})
	}
}

func (a *agent) ends(reason string) {
	a.w.t.Helper()
	for _, f := range a.done {
		f()
	}
	if _, err := a.chain.Close(a.w.t.Context(), receipts.Close{Reason: reason}); err != nil {
		a.w.t.Fatal(err)
	}
}

// review returns a review over everything that is on the streams by now.
func (w *world) review(with ...func(*review.Options)) *review.Review {
	w.t.Helper()
	want := w.j.Next() - 1
	for end := time.Now().Add(deadline); w.bus.Status().Stored < want; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("the streams stay behind")
		}
	}
	v := view.New(w.bus, view.Options{})
	if err := v.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	o := review.Options{
		View: v, Bundles: w, Host: w.host, Sets: bundle.Sets(w.sets), Repositories: map[string]string{"501": "acme/shop"},
		Actions: func(ctx context.Context, leaf string) ([]byte, error) {
			if w.forget {
				return nil, bus.ErrNotFound
			}
			return w.bus.GetAction(ctx, leaf)
		},
		Control: func(ctx context.Context, r receipts.Receipt) (receipts.Hash, error) {
			return w.notary.Control().Append(ctx, r)
		},
		Names: func() (names []string) {
			for _, name := range []string{"npm", "pypi", "several", "lone"} {
				if _, err := fs.Stat(w.sets, name+".yaml"); err == nil {
					names = append(names, name)
				}
			}
			return names
		},
	}
	for _, f := range with {
		f(&o)
	}
	r, err := review.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}
