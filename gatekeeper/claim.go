package gatekeeper

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"gatehouse/internal/problem"
)

// An event starts at most one session, however often it is delivered and to
// however many nodes: whoever creates its key in the claims bucket admits it.
// After session.open the claim is marked opened by compare-and-set, and only
// then does anything start; a node that slept while its claim was taken sees
// the conflict and starts nothing.
const (
	beatEvery = 15 * time.Second
	silentFor = 60 * time.Second
)

type claim struct {
	Node    string `json:"node"`
	Session string `json:"session"`
	Opened  bool   `json:"opened"`
	Free    bool   `json:"free,omitempty"` // given up by its node: whoever is next takes it

	key      string
	revision uint64
}

// errElsewhere brings an event back later: somebody who lives is on it.
var errElsewhere = problem.New(problem.Conflict, "this event is being admitted elsewhere", "")

// once runs fn for a claim that this node holds, and for each key on one
// goroutine at a time: two copies of an event that come at the same moment
// would both find the node's own claim and go on with it.
func (g *Gatekeeper) once(ctx context.Context, key string, fn func(*claim) error) error {
	g.mu.Lock()
	if g.drains {
		g.mu.Unlock()
		return errDraining
	}
	busy := g.judging[key]
	g.judging[key] = true
	g.mu.Unlock()
	if busy {
		return errElsewhere
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.judging, key)
	}()
	c, err := g.claimFor(ctx, key)
	if err != nil || c == nil {
		return err
	}
	if err = fn(c); problem.CodeOf(err) == problem.JournalFull {
		c.release(ctx, g.o.Claims)
	}
	return err
}

// claimFor takes the claim of key, or finds it settled (nil, nil).
func (g *Gatekeeper) claimFor(ctx context.Context, key string) (*claim, error) {
	c := &claim{Node: g.o.Node, Session: g.newID(), key: key}
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	c.revision, err = g.o.Claims.Create(ctx, key, raw)
	if err == nil {
		return c, nil
	}
	// Also after an unclear error the key may be ours: what stands there decides.
	entry, getErr := g.o.Claims.Get(ctx, key)
	if getErr != nil {
		return nil, fmt.Errorf("couldn't claim an event: %w", err)
	}
	have := &claim{key: key, revision: entry.Revision}
	if err := json.Unmarshal(entry.Value, have); err != nil {
		return nil, fmt.Errorf("claim %s is not readable: %w", key, err)
	}
	if have.Free {
		return g.takeOver(ctx, c, raw, entry)
	}
	if have.Node == g.o.Node {
		if _, known := g.fold.get(have.Session); known || have.Opened {
			return nil, nil //nolint:nilnil // settled: the session is in the journal already
		}
		return have, nil // claimed before a restart and not opened: go on
	}
	if have.Opened {
		return nil, nil //nolint:nilnil // settled on another node
	}
	silent, err := g.silent(ctx, have.Node, entry)
	if err != nil {
		return nil, err
	}
	if !silent {
		return nil, errElsewhere
	}
	return g.takeOver(ctx, c, raw, entry)
}

func (g *Gatekeeper) takeOver(ctx context.Context, c *claim, raw []byte, entry Entry) (*claim, error) {
	var err error
	if c.revision, err = g.o.Claims.Update(ctx, c.key, raw, entry.Revision); err != nil {
		return nil, errElsewhere // somebody was faster
	}
	return c, nil
}

// release gives a claim up. A node whose disk is full lives and beats, and could
// keep an event from every other one for as long as the stream hands it to them
// and not to itself. It starts nothing for a claim that it gave up: session.open
// never came about.
func (c *claim) release(ctx context.Context, kv KV) {
	c.Free = true
	if raw, err := json.Marshal(c); err == nil {
		_, _ = kv.Update(ctx, c.key, raw, c.revision) // or it stays this node's, which tries again
	}
}

// opened marks the claim after session.open. An error means that another node
// took it meanwhile, or that nobody can tell: nothing may start.
func (c *claim) opened(ctx context.Context, kv KV) error {
	c.Opened = true
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	c.revision, err = kv.Update(ctx, c.key, raw, c.revision)
	return err
}

// heartbeatKey is the key that a node writes to show that it lives. Event keys
// are hashes, so the dot keeps them apart.
func heartbeatKey(node string) string { return "node." + node }

// heartbeat writes the node's key until ctx ends, and now and then forgets
// what is too old to matter.
func (g *Gatekeeper) heartbeat(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for n := 1; ; n++ {
		if n%int(time.Hour/beatEvery) == 0 {
			g.fold.forget(g.o.Clock())
			g.prune()
		}
		if err := g.beat(ctx); err != nil && ctx.Err() == nil {
			g.o.Log.WarnContext(ctx, "couldn't write the node's heartbeat", slog.Any("err", err))
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Gatekeeper) beat(ctx context.Context) error {
	key := heartbeatKey(g.o.Node)
	entry, err := g.o.Claims.Get(ctx, key)
	if problem.CodeOf(err) == problem.NotFound {
		_, err = g.o.Claims.Create(ctx, key, []byte(`{}`))
		return err
	}
	if err != nil {
		return err
	}
	_, err = g.o.Claims.Update(ctx, key, []byte(`{}`), entry.Revision)
	return err
}

// silent reports whether a node has shown no life for silentFor. Both times are
// the store's, so the nodes' clocks do not matter.
func (g *Gatekeeper) silent(ctx context.Context, node string, claimed Entry) (bool, error) {
	if err := g.beat(ctx); err != nil {
		return false, fmt.Errorf("couldn't compare heartbeats: %w", err)
	}
	mine, err := g.o.Claims.Get(ctx, heartbeatKey(g.o.Node))
	if err != nil {
		return false, fmt.Errorf("couldn't compare heartbeats: %w", err)
	}
	last := claimed.Created
	theirs, err := g.o.Claims.Get(ctx, heartbeatKey(node))
	switch {
	case err == nil && theirs.Created.After(last):
		last = theirs.Created
	case err != nil && problem.CodeOf(err) != problem.NotFound:
		return false, fmt.Errorf("couldn't compare heartbeats: %w", err)
	}
	return mine.Created.Sub(last) >= silentFor, nil
}

// eventHash is the last token of an event's subject and the key of its claim.
func eventHash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
