package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"gatehouse/receipts"
)

// world is a node's log made by hand from fixed keys and a fixed clock, so that
// every byte of it is reproducible: the vectors are cut from it.
type world struct {
	t       testing.TB
	root    ed25519.PrivateKey
	seal    ed25519.PrivateKey
	cp      ed25519.PrivateKey
	ks      *receipts.Keyset
	note    []byte
	now     time.Time
	pending []leaf
	groups  []group
	tree    receipts.Tree
	last    receipts.Hash // of the last seal
	chains  map[string]*chainState
	opened  uint64
	closed  uint64
	count   uint64
}

type leaf struct {
	kind    receipts.LeafKind
	session string // "" for an event
	data    []byte
}

type group struct {
	seal   *receipts.Seal
	leaves []leaf
}

type chainState struct {
	seq    uint64
	prev   receipts.Hash
	tally  receipts.Tally
	opened time.Time
	closed bool
}

const (
	origin   = "gatehouse.example/node-1"
	sessionA = "01JCA000000000000000000001" // admitted, closed
	sessionB = "01JCB000000000000000000002" // refused
	sessionC = "01JCC000000000000000000003" // admitted, still open
)

// key makes a private key from a label. The same label gives the same key on
// every machine; nothing but tests and vectors is signed with it.
func key(label string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("gatehouse test key: " + label))
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func digest(s string) receipts.Hash { return sha256.Sum256([]byte(s)) }

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, root: key("root"), seal: key("seal"), cp: key("checkpoint"),
		now: time.Date(2026, 11, 14, 10, 0, 0, 0, time.UTC), chains: map[string]*chainState{},
	}
	w.ks = &receipts.Keyset{
		Origin: origin, Serial: 1,
		Root: receipts.Key{Purpose: receipts.RootKey, Name: "gatehouse.example/root", Public: public(w.root)},
		Keys: []receipts.Key{
			{Purpose: receipts.SealKey, Name: origin + "/seal", Public: public(w.seal)},
			{Purpose: receipts.CheckpointKey, Name: origin, Public: public(w.cp)},
		},
	}
	w.sign()
	return w
}

// sign signs the keyset as it now is.
func (w *world) sign() {
	w.t.Helper()
	var err error
	if w.note, err = w.ks.Sign(w.root); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fingerprint() string { return w.ks.RootFingerprint() }

// fill completes a receipt as the next of its session's chain.
func (w *world) fill(session string, r receipts.Receipt) receipts.Receipt {
	c := w.chains[session]
	if c == nil {
		c = &chainState{prev: receipts.Genesis(origin, session, w.ks.Digest()), opened: w.now}
		w.chains[session] = c
	}
	w.now = w.now.Add(time.Millisecond)
	r.V, r.Log, r.Session, r.Seq, r.Prev, r.Epoch = receipts.Version, origin, session, c.seq, c.prev, 1
	if r.T.IsZero() {
		r.T = w.now
	}
	if r.Mono == 0 {
		r.Mono = uint64(w.now.Sub(c.opened))
	}
	return r
}

// add appends a receipt to its session's chain and to the pending group, and
// returns its leaf hash.
func (w *world) add(session string, r receipts.Receipt) receipts.Hash {
	w.t.Helper()
	r = w.fill(session, r)
	b, err := r.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.push(session, &r, b)
}

// push takes bytes in as the next receipt of a session whatever they are.
func (w *world) push(session string, r *receipts.Receipt, b []byte) receipts.Hash {
	c := w.chains[session]
	h := receipts.Leaf(b)
	c.seq, c.prev = c.seq+1, h
	c.tally.Add(r, h)
	w.count++
	switch {
	case r.Type == receipts.TypeSessionOpen:
		w.opened++
	case r.Type == receipts.TypeSessionClose:
		w.closed++
		c.closed = true
	}
	w.pending = append(w.pending, leaf{receipts.LeafReceipt, session, b})
	return h
}

// event appends an event record and returns its leaf hash.
func (w *world) event(json string) receipts.Hash {
	w.pending = append(w.pending, leaf{receipts.LeafEvent, "", []byte(json)})
	return receipts.Leaf([]byte(json))
}

// flush seals the pending leaves as one group.
func (w *world) flush() *receipts.Seal {
	w.t.Helper()
	id := receipts.KeyID(origin+"/seal", public(w.seal))
	return w.flushWith(w.seal, id)
}

func (w *world) flushWith(k ed25519.PrivateKey, id string) *receipts.Seal {
	w.t.Helper()
	if len(w.pending) == 0 {
		w.t.Fatal("nothing to seal")
	}
	var leaves []receipts.Hash
	for _, l := range w.pending {
		leaves = append(leaves, receipts.Leaf(l.data))
	}
	s, err := receipts.SealGroup(k, id, origin, w.tree.Size(), w.last, leaves)
	if err != nil {
		w.t.Fatal(err)
	}
	w.tree.Append(leaves...)
	w.last = s.Hash()
	w.groups = append(w.groups, group{s, w.pending})
	w.pending = nil
	return s
}

// ending is a checkpoint with what belongs to it.
type ending struct {
	note     []byte
	manifest []byte
	index    uint64
	heads    []receipts.Head
}

// checkpoint seals what is pending, then a manifest, and signs a checkpoint that
// ends in it.
func (w *world) checkpoint() ending {
	w.t.Helper()
	if len(w.pending) > 0 {
		w.flush()
	}
	var e ending
	for id, c := range w.chains {
		if id != receipts.ControlSession && !c.closed {
			e.heads = append(e.heads, receipts.Head{Session: id, Seq: c.seq - 1, Leaf: c.prev, Closed: c.closed})
		}
	}
	root, err := receipts.HeadsRoot(e.heads)
	if err != nil {
		w.t.Fatal(err)
	}
	w.add(receipts.ControlSession, receipts.Receipt{Type: receipts.TypeManifest, Man: &receipts.ManifestDoc{
		Size: w.tree.Size(), Heads: root, Tree: uint64(len(e.heads)),
		Sessions: w.opened, Closed: w.closed, Receipts: w.count,
	}})
	e.manifest = w.pending[0].data
	w.flush()
	e.index = w.tree.Size() - 1
	e.note = w.checkpointAt(w.tree.Size())
	return e
}

func (w *world) checkpointAt(size uint64) []byte {
	w.t.Helper()
	root, err := w.tree.Root(size)
	if err != nil {
		w.t.Fatal(err)
	}
	note, err := receipts.SignCheckpoint(w.cp, receipts.Checkpoint{Origin: origin, Size: size, Root: root, Time: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	return note
}

// cut says what an export of the world holds.
type cut struct {
	sessions []string // empty = the whole log
	first    uint64   // of the whole log
	events   bool
	hide     func(index uint64, l leaf) bool
	end      *ending
	bundles  [][]byte
	openings []receipts.Opening
	marks    []ending
	older    []uint64 // sizes of older trees
}

func (w *world) export(c cut) []byte {
	w.t.Helper()
	if len(w.pending) > 0 {
		w.flush()
	}
	var buf bytes.Buffer
	e, err := receipts.NewExport(&buf, receipts.ExportHead{
		Origin: origin, Log: len(c.sessions) == 0, First: c.first, Sessions: c.sessions,
		Keyset: w.note, Bundles: c.bundles, Openings: c.openings,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range w.groups {
		var out []receipts.ExportLeaf
		for i, l := range g.leaves {
			index := g.seal.First + uint64(i)
			switch {
			case index < c.first:
			case c.hide != nil && c.hide(index, l):
				out = append(out, receipts.ExportLeaf{Index: i, Kind: receipts.LeafHidden, Leaf: receipts.Leaf(l.data)})
			case len(c.sessions) == 0, slices.Contains(c.sessions, l.session), l.kind == receipts.LeafEvent && c.events:
				out = append(out, receipts.ExportLeaf{Index: i, Kind: l.kind, Data: l.data})
			}
		}
		if len(out) > 0 {
			if err := e.Group(g.seal, out); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	var end receipts.ExportEnd
	if c.end != nil {
		end = w.exportEnd(c)
	}
	if err := e.Close(end); err != nil {
		w.t.Fatal(err)
	}
	return buf.Bytes()
}

func (w *world) exportEnd(c cut) (end receipts.ExportEnd) {
	w.t.Helper()
	size := c.end.index + 1
	proof := func(index uint64) receipts.Proof {
		p, err := w.tree.Proof(index, size)
		if err != nil {
			w.t.Fatal(err)
		}
		return p
	}
	end.Checkpoint, end.Manifest, end.Proof = c.end.note, c.end.manifest, proof(c.end.index)
	for _, id := range c.sessions {
		if h, err := receipts.ProveHead(c.end.heads, id); err == nil {
			end.Heads = append(end.Heads, h)
		}
	}
	for _, m := range c.marks {
		end.Marks = append(end.Marks, receipts.Mark{Manifest: m.manifest, Proof: proof(m.index)})
	}
	for _, n := range c.older {
		root, err := w.tree.Root(n)
		if err != nil {
			w.t.Fatal(err)
		}
		path, err := w.tree.Consistency(n, size)
		if err != nil {
			w.t.Fatal(err)
		}
		end.Older = append(end.Older, receipts.OlderTree{Size: n, Root: root, Path: path})
	}
	return end
}

// Receipts of the story.

var bundleText = []byte(`{"apiVersion":"gatehouse/v1","kind":"Bundle","mode":"shadow","name":"fix-failing-ci"}`)

func (w *world) open(session string, o receipts.Open) receipts.Hash {
	o.Keyset = w.ks.Digest()
	return w.add(session, receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &o,
		Obs: &receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"}})
}

func (w *world) admit(session string, event receipts.Hash) receipts.Hash {
	return w.open(session, receipts.Open{
		State: "admitted", Event: "github:main:72d3162e-cc78-11e3-81ab-4c9367dc0958", EventLeaf: event,
		Bundle: "fix-failing-ci", Digest: sha256.Sum256(bundleText), Mode: receipts.Shadow, Policy: "credential_free",
		Provider: "local", Contract: digest("contract"), Floor: "member", FloorAt: "/workflow_run/head_branch",
		Modules: map[string]receipts.Hash{"egress": digest("egress.wasm")},
		Points:  []string{"door", "git"}, NotSeen: []string{"udp", "environment reads inside the sandbox"},
		Facts: map[string]string{"repository.id": "1296269", "run_id": "30433642"},
		Text:  "text read later through the door is not rated", Deliveries: []string{"/workflow_run/head_branch"},
	})
}

func (w *world) state(session, from, to string, level int) receipts.Hash {
	return w.add(session, receipts.Receipt{Type: receipts.TypeSessionState,
		State: &receipts.State{From: from, To: to, Level: level, Evidence: digest("probe")}})
}

var doorObs = receipts.Obs{Point: "door", Kind: "egress-proxy", Build: digest("build"), Level: 3, Mediation: "sole", Contract: digest("contract")}

// sessionKey is the commitment key of every session of the story.
var sessionKey = []byte("0123456789abcdef0123456789abcdef")

const requestPath = "/acme/left-pad/-/left-pad-1.3.0.tgz"

func decision(id string, d receipts.Dec) receipts.Receipt {
	obs := doorObs
	if d.Rule == "" {
		d.Rule, d.By = "egress[0]", "egress"
	}
	d.Mode, d.Policy, d.Module = receipts.Shadow, sha256.Sum256(bundleText), digest("egress.wasm")
	d.Gen, d.Fuel, d.Dur = 1, 4210, 7
	return receipts.Receipt{
		Type: receipts.TypeDecision,
		Act: &receipts.Act{ID: id, Kind: "http.request", Scheme: "https", Host: "packages.example.com", Port: 443, Method: "GET",
			Args: map[string]receipts.Hash{"path": receipts.Commit(receipts.CommitKey(sessionKey, "path"), []byte(requestPath))}},
		Dec: &d, Obs: &obs, In: receipts.Commit(receipts.CommitKey(sessionKey, "in"), []byte(id)),
	}
}

func (w *world) decide(session, id string, v receipts.Verdict, passed bool) receipts.Hash {
	d := receipts.Dec{Verdict: v, Passed: passed}
	if v == receipts.Deny {
		d.Rule, d.By, d.Reason = "egress.default_deny", "egress", "not_listed"
	}
	return w.add(session, decision(id, d))
}

func (w *world) outcome(session string, ref receipts.Hash, effect string) receipts.Hash {
	o := receipts.Out{Ref: ref, Effect: effect}
	if effect == "forwarded" {
		o.Address, o.Status, o.Up, o.Down = "93.184.216.34", 200, 212, 18042
	}
	return w.add(session, receipts.Receipt{Type: receipts.TypeOutcome, Out: &o})
}

func (w *world) close(session, reason string, exit int64) receipts.Hash {
	c := w.chains[session]
	l := receipts.Close{Reason: reason, Count: c.seq + 1, Verdicts: c.tally.Verdicts, Unknown: c.tally.Unknown, Spent: c.tally.Spent}
	if exit >= 0 {
		l.Exit = &exit
	}
	return w.add(session, receipts.Receipt{Type: receipts.TypeSessionClose, Close: &l})
}

// story is the log that most tests and vectors cut from: session A runs and
// ends, B is refused, C stays open; the control chain applies a bundle.
func story(t testing.TB) (*world, ending) {
	t.Helper()
	w := newWorld(t)
	w.add(receipts.ControlSession, receipts.Receipt{Type: receipts.TypeBundleApply, Change: &receipts.Change{
		Bundle: "fix-failing-ci", Digest: sha256.Sum256(bundleText), By: "config", Via: "config", Result: "applied", To: receipts.Shadow}})
	w.flush()
	ev := w.event(`{"id":"github:main:72d3162e-cc78-11e3-81ab-4c9367dc0958","specversion":"1.0"}`)
	w.admit(sessionA, ev)
	w.flush()
	w.state(sessionA, "admitted", "running", 3)
	a := w.decide(sessionA, "a-1", receipts.Allow, true)
	w.flush()
	w.outcome(sessionA, a, "forwarded")
	w.admit(sessionC, ev)
	w.decide(sessionA, "a-2", receipts.Deny, false)
	b := w.decide(sessionA, "a-3", receipts.Deny, true)
	w.flush()
	w.outcome(sessionA, b, "forwarded")
	w.open(sessionB, receipts.Open{State: "refused", Code: "no_match", Event: "github:main:f00d", Points: nil})
	w.close(sessionB, "refused", -1)
	w.close(sessionA, "completed", 0)
	w.state(sessionC, "admitted", "running", 3)
	w.flush()
	c := w.decide(sessionC, "c-1", receipts.Allow, true)
	w.outcome(sessionC, c, "forwarded")
	end := w.checkpoint()
	return w, end
}

// options are those of an auditor who has pinned the root and reads the file a
// minute after the world's last moment.
func (w *world) options() receipts.Options {
	return receipts.Options{Root: w.fingerprint(), Now: w.now.Add(time.Minute)}
}

func verify(b []byte, o receipts.Options) *receipts.Result {
	return receipts.Verify(bytes.NewReader(b), o)
}

// want fails unless the result has this exit and class.
func want(t *testing.T, r *receipts.Result, exit receipts.Exit, class receipts.Class) {
	t.Helper()
	if r.Exit != exit || r.Class != class {
		t.Errorf("exit %d %s, want %d %s; findings %+v", r.Exit, r.Class, exit, class, r.Findings)
	}
}
