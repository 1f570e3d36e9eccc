package e2e_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// Sessions that stand for a state.
const (
	sessionEnded   = "01jca000000000000000000000" // in shadow, with everything
	sessionBroken  = "01jca000000000000000000001" // its chain cannot be followed
	sessionRunning = "01jca000000000000000000002" // its purse is frozen
	sessionRefused = "01jca000000000000000000003" // no bundle took its event
)

// Bundles. One has a name as long as a name can get.
const (
	bundleShadow = "fix-failing-ci"
	bundlePaused = "release-notes"
	bundleLong   = "nightly-dependency-update-of-the-documentation-site-and-demo"
	bundleNever  = "not-yet-approved"
)

// world is a node's streams, made by hand.
type world struct {
	t     testing.TB
	view  *view.View
	quiet bool // nothing has happened

	msgs  []bus.Msg
	seqs  map[string]uint64
	prevs map[string]receipts.Hash
	acts  int
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, seqs: map[string]uint64{}, prevs: map[string]receipts.Hash{}}
	w.view = view.New(w, view.Options{Clock: func() time.Time { return noon }})
	w.changes()
	w.past()
	w.today()
	return w
}

func (w *world) put(m bus.Msg) {
	m.Seq = uint64(len(w.msgs)) + 1
	w.msgs = append(w.msgs, m)
	w.view.Fold(m)
}

func (w *world) Read(_ context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return func(yield func(bus.Msg, error) bool) {
		for _, m := range w.msgs {
			if m.Stream == stream && m.Seq >= from && (filter == "" || m.Subject == filter) && !yield(m, nil) {
				return
			}
		}
	}
}

func (w *world) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return w.Read(ctx, stream, filter, from)
}

// add puts a receipt on its chain and returns its leaf.
func (w *world) add(session string, at time.Time, r receipts.Receipt) receipts.Hash {
	w.t.Helper()
	obs := receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"}
	if session == receipts.ControlSession {
		obs = receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}
	}
	r.V, r.Log, r.Session, r.Seq, r.Prev, r.Epoch, r.T, r.Obs = 1, "gatehouse.example/node-1", session, w.seqs[session], w.prevs[session], 1, at, &obs
	if r.Seq == 0 {
		keyset := receipts.Hash{2}
		if r.Open != nil {
			r.Open.Keyset = keyset
		}
		r.Prev = receipts.Genesis(r.Log, session, keyset)
	}
	data, err := r.Encode()
	if err != nil {
		w.t.Fatalf("%s %d: %v", session, r.Seq, err)
	}
	leaf := receipts.Leaf(data)
	w.prevs[session] = leaf
	w.seqs[session]++
	m := bus.Msg{Stream: bus.Sessions, Subject: "gatehouse.v1.sessions." + session, Data: data}
	if session == receipts.ControlSession {
		m.Stream, m.Subject = bus.Log, "gatehouse.v1.control.node-1"
	}
	w.put(m)
	return leaf
}

func (w *world) change(at time.Time, typ receipts.Type, c receipts.Change, x map[string]string) {
	w.t.Helper()
	w.add(receipts.ControlSession, at, receipts.Receipt{Type: typ, Change: &c, X: x})
}

// changes are how the bundles came to be as they are.
func (w *world) changes() {
	day := func(n int) time.Time { return noon.AddDate(0, 0, -n) }
	apply := func(n int, name, by, via, result string, version byte, from, to receipts.Mode) {
		w.change(day(n), receipts.TypeBundleApply, receipts.Change{Bundle: name, Digest: receipts.Hash{version}, By: by, Via: via, Result: result, From: from, To: to}, nil)
	}
	apply(29, bundleShadow, "config", "config", "applied", 1, "", receipts.Shadow)
	apply(12, bundleShadow, "bob@example.com", "api", "applied", 2, receipts.Shadow, receipts.Shadow)
	apply(28, bundlePaused, "config", "config", "applied", 3, "", receipts.Shadow)
	w.change(day(9), receipts.TypeModeChange, receipts.Change{Bundle: bundlePaused, By: "bob@example.com", Via: "ui", Result: "applied", From: receipts.Shadow, To: receipts.Hard, Approvers: 2}, map[string]string{view.XReason: "looked at everything twice"})
	w.change(day(1), receipts.TypePolicyChange, receipts.Change{Bundle: bundlePaused, By: "ann@example.com", Via: "cli", Result: "paused"}, map[string]string{view.XReason: "it comments on its own comments"})
	apply(20, bundleLong, "carol@example.com", "ui", "applied", 4, "", receipts.Shadow)
	w.change(day(2), receipts.TypeModeChange, receipts.Change{Bundle: bundleLong, Enforcer: "egress", By: "bob@example.com", Via: "ui", Result: "applied", From: receipts.Shadow, To: receipts.Hard, Single: true, Approvers: 1}, nil)
	apply(1, bundleLong, "ann@example.com", "ui", "waiting", 5, receipts.Shadow, receipts.Shadow)
	apply(3, bundleNever, "ann@example.com", "ui", "waiting", 6, "", receipts.Shadow)
}

// event puts a delivery on its stream.
func (w *world) event(n int, source, endpoint, kind, action string, at time.Time, edit func(*event.Event)) string {
	w.t.Helper()
	e := &event.Event{
		ID: fmt.Sprintf("%s:%s:d%06d", source, endpoint, n), Source: source, Endpoint: endpoint, Kind: kind, Action: action, EntityPath: "repo/501/issue/11",
		Time: at.Add(-time.Minute), Received: at, Delivery: fmt.Sprintf("5f0e1f6a-0000-4000-8000-%012d", n), Trust: event.TrustUntrusted, BodySHA256: strings.Repeat("ab", 32),
		Entity: event.Entity{Kind: "issue", ID: "9001", Number: "11", Scope: map[string]string{"repo": "501"}}, Actor: event.Actor{ID: "77", Kind: "user", Level: event.Outsider},
		Auth: event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}}, Facts: map[string]string{"repository.id": "501"}, Payload: []byte(`{}`),
	}
	if edit != nil {
		edit(e)
	}
	b, err := e.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(bus.Msg{Stream: bus.Events, Subject: e.Subject(), Data: b})
	return e.ID
}

func (w *world) open(id, eventID, bundle string, mode receipts.Mode, at time.Time, edit func(*receipts.Open)) {
	o := receipts.Open{State: "admitted", Event: eventID, Bundle: bundle, Digest: receipts.Hash{1}, Mode: mode, Policy: "credential_free", Provider: "local", Floor: "member", Points: []string{"door"}}
	if edit != nil {
		edit(&o)
	}
	w.add(id, at, receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &o})
}

// tried puts a decision on a chain, and the outcome of what went on.
func (w *world) tried(id string, at time.Time, act receipts.Act, d receipts.Dec, out *receipts.Out) {
	w.acts++
	act.ID = fmt.Sprint(id, "-", w.acts)
	leaf := w.add(id, at, receipts.Receipt{Type: receipts.TypeDecision, Act: &act, Dec: &d})
	if out != nil {
		out.Ref = leaf
		w.add(id, at.Add(40*time.Millisecond), receipts.Receipt{Type: receipts.TypeOutcome, Out: out})
	}
}

func (w *world) close(id string, at time.Time, reason string, exit int64, out map[string]receipts.Hash) {
	w.add(id, at, receipts.Receipt{Type: receipts.TypeSessionClose, Close: &receipts.Close{Reason: reason, Exit: &exit, Out: out}})
}

func get(host string) receipts.Act {
	return receipts.Act{Kind: "http.request", Scheme: "https", Host: host, Port: 443, Method: "GET"}
}

var (
	allowed  = receipts.Dec{Verdict: receipts.Allow, Mode: receipts.Shadow, Passed: true, Rule: "egress[0]", Reason: "listed", By: "egress"}
	wouldBe  = receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Shadow, Passed: true, Rule: "egress.default_deny", Reason: "host_not_listed", By: "egress"}
	refused  = receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Hard, Rule: "egress.default_deny", Reason: "host_not_listed", By: "egress"}
	faulted  = receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Hard, Fault: "enforcer_timeout", Rule: "egress.fault", Reason: "enforcer_timeout", By: "egress"}
	sent     = receipts.Out{Effect: "forwarded", Address: "93.184.216.34", Status: 200, Up: 412, Down: 1_300_000}
	modelled = receipts.Out{Effect: "forwarded", Address: "93.184.216.35", Status: 200, Up: 18_000, Down: 2_048, Spent: 31_250_000}
)

// many is a decision that stands for n.
func many(d receipts.Dec, n uint64) receipts.Dec { d.Count = n; return d }

func some(o receipts.Out) *receipts.Out { return &o }

// past is a month of sessions, for what is drawn over time.
func (w *world) past() {
	for day := 29; day >= 1; day-- {
		if day%7 == 3 {
			continue // a day on which nothing happened
		}
		at := noon.AddDate(0, 0, -day).Add(time.Duration(day%5) * time.Hour)
		id := fmt.Sprintf("01jc%022d", 100+day)
		w.open(id, w.event(100+day, "github", "main", "workflow_run", "completed", at, nil), bundleShadow, receipts.Shadow, at, nil)
		for n := range 4 + day%6 {
			w.tried(id, at.Add(time.Duration(n)*time.Second), get("registry.example.net"), allowed, some(modelled))
		}
		for n := range day % 4 {
			w.tried(id, at.Add(time.Minute+time.Duration(n)*time.Second), get("packages.example.com"), wouldBe, some(sent))
		}
		if day%5 == 0 {
			w.tried(id, at.Add(2*time.Minute), get("cdn.example.com"), wouldBe, some(sent))
		}
		w.close(id, at.Add(3*time.Minute), "completed", 0, nil)
	}
}
