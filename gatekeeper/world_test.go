package gatekeeper

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatehouse/enforcers"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/blob"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testOrigin = "gatehouse.test/n1"
	patience   = 20 * time.Second // a safety deadline, never waited for when all is well
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// store is what nodes share: buckets with one clock, and events.
type store struct {
	mu      sync.Mutex
	now     time.Time
	buckets map[string]*bucket
	events  map[string]Message
}

func newStore() *store {
	return &store{now: noon, buckets: map[string]*bucket{}, events: map[string]Message{}}
}

func (s *store) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *store) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *store) bucket(name string) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[name] == nil {
		s.buckets[name] = &bucket{store: s, keys: map[string]Entry{}}
	}
	return s.buckets[name]
}

// bucket is a KV in memory.
type bucket struct {
	store *store
	rev   uint64
	keys  map[string]Entry
	fail  func(op, key string) error
}

func (b *bucket) op(op, key string) error {
	if b.fail != nil {
		return b.fail(op, key)
	}
	return nil
}

func (b *bucket) Get(_ context.Context, key string) (Entry, error) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if err := b.op("get", key); err != nil {
		return Entry{}, err
	}
	e, ok := b.keys[key]
	if !ok {
		return Entry{}, problem.New(problem.NotFound, "no key "+key, "")
	}
	return e, nil
}

func (b *bucket) set(key string, value []byte) uint64 {
	b.rev++
	b.keys[key] = Entry{Key: key, Value: slices.Clone(value), Revision: b.rev, Created: b.store.now}
	return b.rev
}

func (b *bucket) Create(_ context.Context, key string, value []byte) (uint64, error) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if err := b.op("create", key); err != nil {
		return 0, err
	}
	if _, ok := b.keys[key]; ok {
		return 0, problem.New(problem.Conflict, "key "+key+" exists", "")
	}
	return b.set(key, value), nil
}

func (b *bucket) Update(_ context.Context, key string, value []byte, rev uint64) (uint64, error) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if err := b.op("update", key); err != nil {
		return 0, err
	}
	if b.keys[key].Revision != rev {
		return 0, problem.New(problem.Conflict, "key "+key+" changed", "")
	}
	return b.set(key, value), nil
}

func (b *bucket) All(context.Context) iter.Seq2[Entry, error] {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	all := slices.Collect(maps.Values(b.keys))
	err := b.op("all", "")
	return func(yield func(Entry, error) bool) {
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// feed is the events stream: what is in the store, and a queue for Work.
type feed struct {
	store *store
	queue chan Message
}

func (f *feed) Work(ctx context.Context, fn func(context.Context, Message) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case m := <-f.queue:
			wg.Go(func() {
				if fn(ctx, m) != nil && ctx.Err() == nil {
					f.queue <- m
				}
			})
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *feed) Find(_ context.Context, hash string) (Message, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	m, ok := f.store.events[hash]
	if !ok {
		return Message{}, problem.New(problem.NotFound, "no such event", "")
	}
	return m, nil
}

// log is a node's real journal under a real seal key, with chains that fill
// headers as the notary does and are checked by the real receipt codec.
type log struct {
	t      testing.TB
	j      *journal.Journal
	key    ed25519.PrivateKey
	keys   *receipts.Keyset
	clock  func() time.Time
	origin string

	mu     sync.Mutex
	first  uint64
	prev   receipts.Hash
	chains map[string]*chain
	refuse func(r *receipts.Receipt) error // a fault to inject
}

func openLog(t testing.TB, dir, origin string, clock func() time.Time) *log {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, root, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &log{t: t, key: key, clock: clock, origin: origin, chains: map[string]*chain{}}
	l.keys = &receipts.Keyset{
		Origin: origin, Serial: 1, Root: receipts.Key{Purpose: receipts.RootKey, Name: origin + "/root", Public: root.Public().(ed25519.PublicKey)},
		Keys: []receipts.Key{{Purpose: receipts.SealKey, Name: origin + "/seal", Public: pub}},
	}
	l.open(dir)
	return l
}

func (l *log) open(dir string) {
	l.t.Helper()
	j, err := journal.Open(dir, journal.Options{Seal: l.seal})
	if err != nil {
		l.t.Fatal(err)
	}
	l.j = j
	l.t.Cleanup(func() { _ = j.Close() })
}

func (l *log) seal(group []journal.Record) ([]journal.Record, error) {
	var leaves []receipts.Hash
	for _, r := range group {
		leaves = append(leaves, receipts.Leaf(r.Data))
	}
	s, err := receipts.SealGroup(l.key, l.keys.Keys[0].ID(), l.origin, l.first, l.prev, leaves)
	if err != nil {
		return nil, err
	}
	l.first += uint64(len(leaves))
	l.prev = s.Hash()
	return append(group, journal.Record{Kind: journal.KindSeal, Data: s.Encode()}), nil
}

// message journals an event and returns it as the pump would publish it.
func (l *log) message(e *event.Event) Message {
	l.t.Helper()
	data, err := e.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	pos, err := l.j.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: data}).Wait(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for group, err := range l.j.Groups(pos) {
		if err != nil {
			l.t.Fatal(err)
		}
		for i, r := range group {
			if r.Pos == pos {
				return Message{Subject: e.Subject(), Data: data, Header: map[string]string{receipts.HeaderSeal: sealOf(l.t, group).Header(i)}}
			}
		}
	}
	l.t.Fatal("the event is not in the journal")
	return Message{}
}

// sealOf reads the seal of a group and binds it to the group's leaves.
func sealOf(t testing.TB, group []journal.Record) *receipts.Seal {
	t.Helper()
	s, err := receipts.ParseSeal(group[len(group)-1].Data)
	if err != nil {
		t.Fatal(err)
	}
	var leaves []receipts.Hash
	for _, r := range group[:len(group)-1] {
		leaves = append(leaves, receipts.Leaf(r.Data))
	}
	if err := s.Bind(leaves); err != nil {
		t.Fatal(err)
	}
	return s
}

// chain writes one session's receipts.
type chain struct {
	l       *log
	subject string
	session string
	mu      sync.Mutex
	seq     uint64
	prev    receipts.Hash
	tally   receipts.Tally
	closed  bool
}

func (c *chain) Append(ctx context.Context, r receipts.Receipt) (receipts.Hash, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return receipts.Hash{}, errors.New("the chain is closed")
	}
	if c.l.refuse != nil {
		if err := c.l.refuse(&r); err != nil {
			return receipts.Hash{}, err
		}
	}
	r.V, r.Log, r.Session, r.Seq, r.Prev, r.Epoch, r.T = receipts.Version, c.l.origin, c.session, c.seq, c.prev, 1, c.l.clock().UTC()
	data, err := r.Encode()
	if err != nil {
		c.l.t.Errorf("receipt does not encode: %v", err)
		return receipts.Hash{}, err
	}
	if _, err := c.l.j.Append(journal.Record{Kind: journal.KindReceipt, Subject: c.subject, Data: data}).Wait(ctx); err != nil {
		return receipts.Hash{}, err
	}
	c.seq, c.prev, c.closed = c.seq+1, receipts.Leaf(data), r.Type == receipts.TypeSessionClose
	c.tally.Add(&r, c.prev)
	return c.prev, nil
}

func (c *chain) Close(ctx context.Context, cl receipts.Close) (receipts.Hash, error) {
	c.mu.Lock()
	cl.Count, cl.Verdicts = c.seq+1, c.tally.Verdicts
	c.mu.Unlock()
	return c.Append(ctx, receipts.Receipt{Type: receipts.TypeSessionClose, Close: &cl})
}

func (c *chain) Recorder(obs receipts.Obs) enforcers.Recorder { return fakeRecorder{c, obs} }

type fakeRecorder struct {
	c   *chain
	obs receipts.Obs
}

func (r fakeRecorder) Decision(ctx context.Context, a *enforcers.Action, d *enforcers.Decision, _ bool) (receipts.Hash, error) {
	return r.c.Append(ctx, receipts.Receipt{
		Type: receipts.TypeDecision, Act: &receipts.Act{ID: a.ID, Kind: string(a.Kind)}, Obs: &r.obs,
		Dec: &receipts.Dec{Verdict: receipts.Verdict(d.Effect), Mode: d.Mode, Passed: d.Passed, Rule: d.Rule},
	})
}

func (r fakeRecorder) Outcome(of receipts.Hash, o enforcers.Outcome) {
	_, _ = r.c.Append(context.Background(), receipts.Receipt{Type: receipts.TypeOutcome, Out: &receipts.Out{Ref: of, Effect: o.Effect}})
}

func (r fakeRecorder) Progress(context.Context, receipts.Hash, enforcers.Outcome, bool) error {
	return nil
}

func (l *log) chain(session string) *chain {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chains[session]
	if c == nil {
		c = &chain{l: l, session: session, subject: "gatehouse.v1.sessions." + session, prev: receipts.Genesis(l.origin, session, l.keys.Digest())}
		if session == receipts.ControlSession {
			c.subject = "gatehouse.v1.control.n1"
		}
		l.chains[session] = c
	}
	return c
}

func (l *log) Open(ctx context.Context, session string, o receipts.Open, obs receipts.Obs) (Chain, error) {
	c := l.chain(session)
	if c.seq > 0 {
		l.t.Errorf("session %s is opened twice", session)
		return nil, errors.New("the session is open")
	}
	o.Keyset = l.keys.Digest()
	_, err := c.Append(ctx, receipts.Receipt{Type: receipts.TypeSessionOpen, Open: &o, Obs: &obs})
	return c, err
}

func (l *log) Control() Chain { return l.chain(receipts.ControlSession) }

func (l *log) Resume(session string) (Chain, error) {
	c := l.chain(session)
	if c.seq == 0 || c.closed {
		return nil, problem.New(problem.NotFound, "no open session "+session, "")
	}
	return c, nil
}

func (l *log) Left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for id, c := range l.chains {
		if id != receipts.ControlSession && c.seq > 0 && !c.closed {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// receipts returns one chain as it stands in the journal.
func (l *log) receipts(session string) []*receipts.Receipt {
	l.t.Helper()
	var out []*receipts.Receipt
	for group, err := range l.j.Groups(0) {
		if err != nil {
			l.t.Fatal(err)
		}
		for _, r := range group {
			if r.Kind != journal.KindReceipt {
				continue
			}
			rec, err := receipts.Decode(r.Data)
			if err != nil {
				l.t.Fatal(err)
			}
			if rec.Session == session {
				out = append(out, rec)
			}
		}
	}
	return out
}

// story writes a chain in one line: "open admitted, preparing, running, ended(completed), close completed".
func (l *log) story(session string) string {
	l.t.Helper()
	s := ""
	for _, r := range l.receipts(session) {
		if s != "" {
			s += ", "
		}
		switch r.Type {
		case receipts.TypeSessionOpen:
			s += "open " + r.Open.State
			if r.Open.Code != "" {
				s += " " + r.Open.Code
			}
		case receipts.TypeSessionState:
			s += r.State.To
			if r.State.Reason != "" {
				s += "(" + r.State.Reason + ")"
			}
		case receipts.TypeSessionClose:
			s += "close " + r.Close.Reason
		default:
			s += string(r.Type)
		}
	}
	return s
}

// room is a provider whose sandboxes do what the test says.
type room struct {
	mu       sync.Mutex
	declared map[sandbox.Capability]bool
	start    func(context.Context, sandbox.Spec) error
	probe    func(context.Context) (sandbox.Report, error)
	run      func(context.Context, sandbox.Spec) (sandbox.End, error)
	specs    []sandbox.Spec
	open     int // sandboxes not closed
	running  map[string]int
	most     int // highest number at a time
}

var everything = []sandbox.Capability{
	sandbox.NetworkClosed, sandbox.DoorOnly, sandbox.EnvironmentClean, sandbox.FilesystemPrivate, sandbox.ProcessesPrivate,
	sandbox.Unprivileged, sandbox.SyscallsFiltered, sandbox.VsockClosed, sandbox.ResourceLimited, sandbox.Supervised,
}

func newRoom() *room {
	r := &room{declared: map[sandbox.Capability]bool{}, running: map[string]int{}}
	for _, c := range everything {
		r.declared[c] = true
	}
	return r
}

func proving(caps ...sandbox.Capability) sandbox.Report {
	rep := sandbox.Report{Provider: "local", At: noon}
	for _, c := range caps {
		rep.Cases = append(rep.Cases, sandbox.Case{ID: "SB-" + string(c), Outcome: sandbox.Passed, Proves: c})
	}
	return rep
}

func (r *room) Name() string                              { return "local" }
func (r *room) Capabilities() map[sandbox.Capability]bool { return r.declared }

func (r *room) Start(ctx context.Context, s sandbox.Spec, _ net.Listener) (sandbox.Sandbox, error) {
	if r.start != nil {
		if err := r.start(ctx, s); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs = append(r.specs, s)
	r.open++
	r.most = max(r.most, r.open)
	return &box{room: r, spec: s}, nil
}

func (r *room) count() (started, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.specs), r.open
}

type box struct {
	room *room
	spec sandbox.Spec
	once sync.Once
}

func (b *box) Probe(ctx context.Context) (sandbox.Report, error) {
	if b.room.probe != nil {
		return b.room.probe(ctx)
	}
	return proving(everything...), nil
}

func (b *box) Run(ctx context.Context) (sandbox.End, error) {
	if b.room.run != nil {
		return b.room.run(ctx, b.spec)
	}
	return sandbox.End{Reason: sandbox.Completed, Artifacts: map[string]string{"fix.patch": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}, nil
}

func (b *box) Close() error {
	b.once.Do(func() {
		b.room.mu.Lock()
		defer b.room.mu.Unlock()
		b.room.open--
	})
	return nil
}

// waits blocks a run until the sandbox is told to end, as a well-behaved
// provider does.
func waits(started chan<- string) func(context.Context, sandbox.Spec) (sandbox.End, error) {
	return func(ctx context.Context, s sandbox.Spec) (sandbox.End, error) {
		if started != nil {
			started <- s.Session
		}
		<-ctx.Done()
		return sandbox.End{Reason: sandbox.Cancelled, Exit: 143}, nil
	}
}

// world is one node.
type world struct {
	*Gatekeeper
	t     testing.TB
	dir   string
	store *store
	log   *log
	room  *room
	feed  *feed
	opts  Options
}

type option func(*world)

// newWorld makes a node with the bundles given, applied and in force.
func newWorld(t testing.TB, bundles []string, with ...option) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), store: newStore(), room: newRoom()}
	for _, o := range with {
		o(w)
	}
	w.log = openLog(t, filepath.Join(w.dir, "journal"), testOrigin, w.store.time)
	w.start()
	var files []File
	for _, src := range bundles {
		files = append(files, File{Name: "test.yaml", Source: []byte(src)})
	}
	if _, err := w.Apply(t.Context(), files, "config", "config"); err != nil {
		t.Fatal(err)
	}
	return w
}

// start makes and starts a gatekeeper over what the world has, as a restart does.
func (w *world) start() {
	w.t.Helper()
	blobs, err := blob.Open(filepath.Join(w.dir, "blobs"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.feed = &feed{store: w.store, queue: make(chan Message, 1000)}
	o := Options{
		Node: "n1", Dir: w.dir, Journal: w.log.j, Notary: w.log, Blobs: blobs, Events: w.feed,
		Claims: w.store.bucket("claims"), Bundles: w.store.bucket("bundles"), Providers: map[string]sandbox.Provider{"local": w.room},
		Repositories: map[string]string{"1296269": "acme/shop"}, Endpoints: map[string]string{"main": "github"},
		Keysets:    map[string]*receipts.Keyset{testOrigin: w.log.keys},
		Identities: []string{"github:777"}, Clock: w.store.time, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if w.opts.Doors != nil {
		o.Doors = w.opts.Doors
	}
	o.Failures = w.opts.Failures
	o.Mediated, o.Delivered, o.Upstreams, o.Report = w.opts.Mediated, w.opts.Delivered, w.opts.Upstreams, w.opts.Report
	if w.opts.Providers != nil {
		o.Providers = w.opts.Providers
	}
	o.Running, o.Unlimited, o.Sets, o.Lift = w.opts.Running, w.opts.Unlimited, w.opts.Sets, w.opts.Lift
	o.Admitted = w.opts.Admitted
	if w.Gatekeeper, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.Close)
}

// take hands one event to the gatekeeper as the stream would and returns the
// session it got.
func (w *world) take(e *event.Event) string {
	w.t.Helper()
	m := w.log.message(e)
	w.store.mu.Lock()
	w.store.events[eventHash(e.ID)] = m
	w.store.mu.Unlock()
	if err := w.handle(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
	return w.sessionOf(eventHash(e.ID))
}

func (w *world) sessionOf(key string) string {
	w.t.Helper()
	entry, err := w.store.bucket("claims").Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	var c claim
	if err := json.Unmarshal(entry.Value, &c); err != nil {
		w.t.Fatal(err)
	}
	return c.Session
}

// ended waits for a session of this run and returns its result.
func (w *world) ended(id string) Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := w.Wait(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) wantStory(id, want string) {
	w.t.Helper()
	if got := w.log.story(id); got != want {
		w.t.Errorf("chain of %s is\n\t%s\nwant\n\t%s", id, got, want)
	}
}

func (w *world) newest() []*receipts.Receipt { return w.log.receipts(receipts.ControlSession) }

// failedRun is a failed workflow run of the repository's own branch. n tells
// deliveries apart.
func failedRun(n string, change ...func(*event.Event)) *event.Event {
	e := &event.Event{
		ID: "github:main:" + n, Source: "github", Endpoint: "main", Kind: "workflow_run", Action: "completed",
		EntityPath: "repo/1296269/workflow_run/99", Time: noon, Received: noon, Delivery: n, Trust: event.TrustUntrusted,
		BodySHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		Entity:     event.Entity{Kind: "workflow_run", ID: "99", Scope: map[string]string{"repo": "1296269"}},
		Actor:      event.Actor{ID: "42", Kind: "user", Level: event.Member},
		Auth:       event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Facts: map[string]string{
			"repository.id": "1296269", "conclusion": "failure", "fork": "false", "run_id": "99", "workflow_id": "7", "branch_hash": "0a1b2c3d", "actor.level": "member",
		},
		Lists: map[string][]string{"pull_requests": {"12"}},
		Text: []event.Passage{
			event.NewPassage("/workflow_run/name", "name", "CI", event.Member, ""),
			event.NewPassage("/workflow_run/head_branch", "head_branch", "feature", event.Member, ""),
		},
		Prov:    map[string]event.Origin{"/workflow_run/name": event.Member, "/workflow_run/head_branch": event.Member},
		Payload: []byte(`{}`),
	}
	for _, fn := range change {
		fn(e)
	}
	return e
}

const fixCI = `apiVersion: gatehouse/v1
kind: Bundle
name: fix-ci
accepts: member
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, fork: false}}]
session: {agent: {command: {argv: [/bin/agent, --now]}}, task: "CI failed on {{ repository.name }}, run {{ run_id }}.", timeout: 45m}
`

const happy = "open admitted, preparing, running, ended(completed), close completed"

func writeGolden(t *testing.T, file string, got []byte) []byte {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return want
}
