package gatekeeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/event"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// Options are everything a gatekeeper works with.
type Options struct {
	Node         string // this node's name, as in claims
	Dir          string // state folder; the gatekeeper owns sessions/ in it
	Journal      Journal
	Notary       Notary
	Blobs        Blobs
	Events       Events // nil for a node that is handed its events (Admit)
	Claims       KV     // nil together with Events
	Bundles      KV
	Providers    map[string]sandbox.Provider
	Doors        Doors                        // nil: no session has an exit
	Report       Report                       // nil: no distant provider has one
	Images       Images                       // nil: no bundle may name an image
	Caches       map[string]string            // package caches of the node: name -> folder, shown read-only
	Sets         bundle.SetResolver           // read when a version is made, never for a session
	Repositories map[string]string            // id -> owner/name
	Upstreams    []bundle.Upstream            // hosts of connections, for compiled policies
	Endpoints    map[string]string            // name -> source
	Keysets      map[string]*receipts.Keyset  // log origin -> keyset: the nodes whose events are taken
	Identities   []string                     // "<source>:<actor id>" that Gatehouse writes with
	Lift         Lift                         // nil: every author is what the event says
	Lint         *bundle.LintContext          // nil: Apply does not lint
	Mediated     func(connection string) bool // whether the node adds that connection's credential outside; nil = of none
	Delivered    func(Delivery)               // told of each credential of a session that opens; nil = nobody
	Unlimited    bool                         // sandbox.unlimited: accepted
	Dev          bool                         // dev substitutions in force
	Running      int                          // sessions at a time, 0 = 32
	Failures     int                          // sessions of a bundle that fail in a row before it is paused, 0 = it never is
	Approvers    int                          // people that a widening needs, 0 = 2; 1 is recorded as single_approver
	Clock        func() time.Time             // nil = time.Now
	Log          *slog.Logger                 // nil = slog.Default()

	// Admitted is told of each event that starts a session, before anything is
	// prepared. Nil = nobody.
	Admitted func(context.Context, Admitted)
}

// Report says why the conformance report of a provider does not hold, nil when
// it does. Hard mode asks for one where this node cannot see who runs the probe:
// sandbox.Distant.
type Report func(p sandbox.Provider) error

// Lift returns e with the authors' levels that a platform confirmed when the
// node asked it, or e itself: IN-17. The stored event stays as it came.
type Lift func(ctx context.Context, e *event.Event) *event.Event

// Gatekeeper admits events and runs sessions. Its methods are safe for
// concurrent use after Start.
type Gatekeeper struct {
	o          Options
	fold       *fold
	registry   *registry
	identities map[string]bool
	queue      *queue
	below      *queue // of children
	streaks    *streaks
	applying   sync.Mutex // one Apply at a time

	mu      sync.Mutex
	live    map[string]*session // not ended yet
	judging map[string]bool     // claim keys that a goroutine of this node is on
	closing bool
	drains  bool // nothing new starts
	running sync.WaitGroup
	base    context.Context // of all sessions
	stop    context.CancelCauseFunc
}

// New checks the options. Start must follow.
func New(o Options) (*Gatekeeper, error) {
	if o.Node == "" || o.Dir == "" || o.Journal == nil || o.Notary == nil || o.Bundles == nil || o.Blobs == nil {
		return nil, errors.New("gatekeeper: node, folder, journal, notary, blobs and bundles are needed")
	}
	if (o.Events == nil) != (o.Claims == nil) {
		return nil, errors.New("gatekeeper: events and claims go together")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Running <= 0 {
		o.Running = 32
	}
	if o.Approvers <= 0 {
		o.Approvers = 2
	}
	g := &Gatekeeper{o: o, fold: newFold(), streaks: &streaks{}, identities: map[string]bool{}, queue: newQueue(o.Running), below: newQueue(o.Running), live: map[string]*session{}, judging: map[string]bool{}}
	g.fold.streaks = g.streaks
	g.registry = &registry{kv: o.Bundles, blobs: o.Blobs, fold: g.fold}
	for _, id := range o.Identities {
		g.identities[id] = true
	}
	g.base, g.stop = context.WithCancelCause(context.Background())
	return g, nil
}

// Start folds the journal, ends what an earlier run left open as lost, and
// brings the bundles bucket up to the control chain. Nothing is admitted
// before it returned.
func (g *Gatekeeper) Start(ctx context.Context) error {
	if err := os.MkdirAll(g.folder(""), 0o700); err != nil {
		return fmt.Errorf("couldn't make the sessions folder: %w", err)
	}
	if err := g.fold.load(g.o.Journal, g.o.Clock()); err != nil {
		return err
	}
	for _, id := range g.o.Notary.Left() {
		if err := g.lost(ctx, id); err != nil {
			return fmt.Errorf("couldn't end session %s of an earlier run: %w", id, err)
		}
	}
	g.prune()
	return g.registry.rebuild(ctx)
}

// keepFolders is how long transcripts and results are kept.
const keepFolders = 30 * 24 * time.Hour

// prune removes the folders of old sessions. Receipts stay.
func (g *Gatekeeper) prune() {
	entries, err := os.ReadDir(g.folder(""))
	if err != nil {
		g.o.Log.Warn("couldn't list the session folders", slog.Any("err", err))
		return
	}
	for _, e := range entries {
		id, err := ulid.ParseStrict(strings.ToUpper(e.Name()))
		if err != nil || !idForm.MatchString(e.Name()) || g.o.Clock().Sub(id.Timestamp()) < keepFolders {
			continue
		}
		if err := os.RemoveAll(g.folder(e.Name())); err != nil {
			g.o.Log.Warn("couldn't remove an old session's folder", slog.String("session", e.Name()), slog.Any("err", err))
		}
	}
}

// lost closes the chain of a session whose node died under it. Its sandbox is
// gone with the node; its providers sweep what they left.
func (g *Gatekeeper) lost(ctx context.Context, id string) error {
	chain, err := g.o.Notary.Resume(id)
	if err != nil {
		return err
	}
	why := sandbox.Lost
	if p, ok := g.fold.get(id); ok && !p.admitted {
		why = stateRefused // the node died between the two receipts of a refusal
	} else if _, err := chain.Append(ctx, receipts.Receipt{
		Type: receipts.TypeSessionState, State: &receipts.State{To: stateEnded, Reason: sandbox.Lost},
	}); err != nil {
		return err
	}
	if _, err := chain.Close(ctx, receipts.Close{Reason: why}); err != nil {
		return err
	}
	g.fold.closed(id)
	return g.unsocket(id)
}

// unsocket removes the door that the dead node left in a session's folder:
// nobody listens there any more.
func (g *Gatekeeper) unsocket(id string) error {
	entries, err := os.ReadDir(g.folder(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket {
			if err := os.Remove(filepath.Join(g.folder(id), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run takes events until ctx ends, then ends the running sessions as lost and
// waits for their chains to be closed.
func (g *Gatekeeper) Run(ctx context.Context) error {
	defer g.Close()
	if g.o.Events == nil {
		<-ctx.Done()
		return nil
	}
	beat := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		g.heartbeat(ctx)
		close(beat)
	}()
	err := g.o.Events.Work(ctx, g.handle)
	cancel()
	<-beat
	return err
}

// Drain lets nothing new start and returns when every session has ended by
// itself, or ctx has ended: then what still runs is left to Close. Events that
// come meanwhile stay on the stream for the next start.
func (g *Gatekeeper) Drain(ctx context.Context) error {
	g.mu.Lock()
	g.drains = true
	g.mu.Unlock()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		g.mu.Lock()
		busy := len(g.judging) > 0
		var next *session
		for _, next = range g.live {
			break
		}
		g.mu.Unlock()
		switch {
		case next != nil:
			select {
			case <-next.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case !busy:
			return nil
		default: // an admission that had begun
			select {
			case <-pause.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func (g *Gatekeeper) draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drains
}

var errDraining = problem.New(problem.Draining, "the node is being drained and starts nothing", "Ask again when it has been started anew.")

// Close ends every session as lost and waits until their chains are closed.
func (g *Gatekeeper) Close() {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	g.stop(end{reason: sandbox.Lost})
	g.running.Wait()
}

// Kill ends a session as cancelled and returns when its chain is closed, or
// ctx has ended.
func (g *Gatekeeper) Kill(ctx context.Context, id string) error {
	return g.finish(ctx, id, end{reason: sandbox.Cancelled})
}

// Revoke takes a session's authority away and ends it as revoked.
func (g *Gatekeeper) Revoke(ctx context.Context, id string) error {
	return g.finish(ctx, id, end{reason: reasonRevoked})
}

// Flood ends a session that has used up its receipts. It does not wait: whoever
// notices is in the middle of one of the session's actions.
func (g *Gatekeeper) Flood(id string) { g.cut(id, end{reason: reasonFlood}) }

// Tripped ends a session into which an answer would have carried a credential.
// It does not wait, as Flood does not. The outcome of that action says
// credential_reflected.
func (g *Gatekeeper) Tripped(id string) {
	g.cut(id, end{reason: reasonRevoked})
}

func (g *Gatekeeper) cut(id string, why end) {
	g.mu.Lock()
	s := g.live[id]
	g.mu.Unlock()
	if s != nil {
		s.cancel(why)
	}
}

func (g *Gatekeeper) finish(ctx context.Context, id string, why end) error {
	g.mu.Lock()
	s := g.live[id]
	g.mu.Unlock()
	if s == nil {
		return problem.New(problem.NotFound, "session "+id+" does not run", "gatehouse session list shows what does")
	}
	s.cancel(why)
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns the result of a session of this run once it has ended.
func (g *Gatekeeper) Wait(ctx context.Context, id string) (Result, error) {
	g.mu.Lock()
	s := g.live[id]
	g.mu.Unlock()
	if s != nil {
		select {
		case <-s.done:
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
	return g.Result(id)
}

// Retry starts a new session for the event of an earlier one, linked to it. The
// event is judged again under the bundles in force; the loop guard counts the
// new session and does not stop it, since a person asked.
func (g *Gatekeeper) Retry(ctx context.Context, id string) (Admission, error) {
	p, ok := g.fold.get(id)
	if !ok || p.event == "" {
		return Admission{}, problem.New(problem.NotFound, "session "+id+" is not known here", "a session can be tried again for 30 days, a refusal for 7, on the node that had it")
	}
	if !p.closed {
		return Admission{}, problem.New(problem.Conflict, "session "+id+" has not ended", "kill it first")
	}
	if p.parent != "" {
		return Admission{}, problem.New(problem.Conflict, "session "+id+" is a child", "try its parent again: gatehouse session retry "+p.parent)
	}
	return g.again(ctx, p.event, id)
}

// Redeliver judges a stored event as if it had just arrived: the loop guard
// counts it, and nothing that it started before is touched.
func (g *Gatekeeper) Redeliver(ctx context.Context, eventID string) (Admission, error) {
	return g.again(ctx, eventID, "")
}

func (g *Gatekeeper) again(ctx context.Context, eventID, retryOf string) (Admission, error) {
	if g.draining() {
		return Admission{}, errDraining
	}
	if g.o.Events == nil {
		return Admission{}, problem.New(problem.Unavailable, "this node does not keep events", "")
	}
	m, err := g.o.Events.Find(ctx, eventHash(eventID))
	if err != nil {
		return Admission{}, err
	}
	e, leaf, err := g.verify(m)
	if err != nil {
		return Admission{}, err
	}
	return g.admit(ctx, g.newID(), e, leaf, retryOf)
}

// Live is one session that has not ended.
type Live struct {
	ID      string
	Bundle  string
	State   string // admitted | preparing | running
	Started time.Time
}

// Sessions lists the sessions of this node that have not ended.
func (g *Gatekeeper) Sessions() []Live {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Live, 0, len(g.live))
	for _, s := range g.live {
		out = append(out, Live{ID: s.id, Bundle: s.choice.Bundle.Name, State: s.stateNow(), Started: s.opened})
	}
	return out
}

// newID returns a session id: a ULID in lower case, which is a subject token
// and a folder's name.
func (g *Gatekeeper) newID() string {
	b := ulid.MustNew(ulid.Timestamp(g.o.Clock()), rand.Reader)
	return strings.ToLower(b.String())
}

func (g *Gatekeeper) folder(session string) string {
	return filepath.Join(g.o.Dir, "sessions", session)
}

// stopped ends the sessions that lost what they work on: the repository was
// made private or removed, the installation suspended (IN-23).
func (g *Gatekeeper) stopped(scope string, ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.live {
		for _, id := range ids {
			if s.about(scope, id) {
				s.cancel(end{reason: reasonRevoked})
			}
		}
	}
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}
