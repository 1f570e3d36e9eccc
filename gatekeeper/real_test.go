package gatekeeper_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/blob"
	"gatehouse/internal/bus"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

// The adapters between the real parts and the gatekeeper's interfaces, as cmd
// wires them.

type notaryPort struct{ *notary.Notary }

func (n notaryPort) Open(ctx context.Context, session string, o receipts.Open, obs receipts.Obs) (gatekeeper.Chain, error) {
	return n.Notary.Open(ctx, session, o, obs)
}
func (n notaryPort) Resume(session string) (gatekeeper.Chain, error) { return n.Notary.Resume(session) }
func (n notaryPort) Control() gatekeeper.Chain                       { return n.Notary.Control() }
func (n notaryPort) Left() []string {
	var out []string
	for _, s := range n.Sessions() {
		out = append(out, s.Session)
	}
	return out
}

type kvPort struct{ bus.KV }

func code(err error) error {
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return problem.Wrap(err, problem.NotFound, "no such key", "")
	case errors.Is(err, bus.ErrExists), errors.Is(err, bus.ErrConflict):
		return problem.Wrap(err, problem.Conflict, "the key changed", "")
	}
	return err
}

func (k kvPort) Get(ctx context.Context, key string) (gatekeeper.Entry, error) {
	e, err := k.KV.Get(ctx, key)
	return gatekeeper.Entry(e), code(err)
}

func (k kvPort) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := k.KV.Create(ctx, key, value)
	return rev, code(err)
}

func (k kvPort) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	next, err := k.KV.Update(ctx, key, value, rev)
	return next, code(err)
}

func (k kvPort) All(ctx context.Context) iter.Seq2[gatekeeper.Entry, error] {
	return func(yield func(gatekeeper.Entry, error) bool) {
		for e, err := range k.KV.All(ctx) {
			if !yield(gatekeeper.Entry(e), err) {
				return
			}
		}
	}
}

type eventsPort struct{ b *bus.Bus }

func (p eventsPort) Work(ctx context.Context, fn func(context.Context, gatekeeper.Message) error) error {
	return p.b.Work(ctx, bus.Events, "gatekeeper", func(ctx context.Context, m bus.Msg) error {
		return fn(ctx, gatekeeper.Message{Subject: m.Subject, Data: m.Data, Header: m.Header})
	})
}

func (p eventsPort) Find(ctx context.Context, hash string) (gatekeeper.Message, error) {
	for m, err := range p.b.Read(ctx, bus.Events, event.SubjectPrefix+"*.*.*.*."+hash, 1) {
		if err != nil {
			return gatekeeper.Message{}, err
		}
		return gatekeeper.Message{Subject: m.Subject, Data: m.Data, Header: m.Header}, nil
	}
	return gatekeeper.Message{}, problem.New(problem.NotFound, "no such event", "")
}

func encode(group []journal.Record) ([]bus.Msg, error) {
	sealed, err := notary.Encode(group)
	if err != nil {
		return nil, err
	}
	out := make([]bus.Msg, len(sealed))
	for i, s := range sealed {
		out[i] = bus.Msg{Subject: s.Subject, Data: s.Data, Header: s.Header}
	}
	return out, nil
}

// quick is a sandbox that runs nothing.
type quick struct{}

func (quick) Name() string { return "local" }
func (quick) Capabilities() map[sandbox.Capability]bool {
	out := map[sandbox.Capability]bool{}
	for _, c := range []sandbox.Capability{sandbox.NetworkClosed, sandbox.EnvironmentClean, sandbox.FilesystemPrivate, sandbox.ProcessesPrivate, sandbox.Unprivileged} {
		out[c] = true
	}
	return out
}
func (q quick) Start(context.Context, sandbox.Spec, net.Listener) (sandbox.Sandbox, error) {
	return q, nil
}
func (q quick) Probe(context.Context) (sandbox.Report, error) {
	r := sandbox.Report{Provider: "local"}
	for c := range q.Capabilities() {
		r.Cases = append(r.Cases, sandbox.Case{ID: string(c), Outcome: sandbox.Passed, Proves: c})
	}
	return r, nil
}
func (quick) Run(context.Context) (sandbox.End, error) {
	return sandbox.End{Reason: sandbox.Faulted, Exit: 7}, nil
}
func (quick) Close() error { return nil }

// node is everything real but the sandbox.
type node struct {
	t      *testing.T
	dir    string
	keys   *notary.Keys
	j      *journal.Journal
	notary *notary.Notary
	bus    *bus.Bus
	blobs  *blob.Store
	gk     *gatekeeper.Gatekeeper
	stop   func()
}

const bundleSrc = `apiVersion: gatehouse/v1
kind: Bundle
name: fix-ci
accepts: member
match: [{source: github, endpoint: main, kinds: [workflow_run.completed], where: {conclusion: failure, fork: false}}]
session: {agent: {command: {argv: [/bin/agent]}}, task: "CI failed on {{ repository.name }}, run {{ run_id }}."}
`

func startNode(t *testing.T, dir string, keys *notary.Keys) *node {
	t.Helper()
	n := &node{t: t, dir: dir, keys: keys}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	n.notary = notary.New(notary.Options{Node: "n1", Keys: keys})
	var err error
	n.j, err = journal.Open(filepath.Join(dir, "journal"), journal.Options{Seal: n.notary.Seal, PrivateKey: keys.NodeKey().Reveal()})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	must(n.notary.Start(ctx, n.j))
	n.bus, err = bus.Open(ctx, bus.Options{Node: "n1", Dir: filepath.Join(dir, "nats"), Log: quiet})
	must(err)
	n.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	must(err)
	claims, err := n.bus.KV(ctx, bus.Claims)
	must(err)
	bundles, err := n.bus.KV(ctx, bus.Bundles)
	must(err)
	n.gk, err = gatekeeper.New(gatekeeper.Options{
		Node: "n1", Dir: dir, Journal: n.j, Notary: notaryPort{n.notary}, Blobs: n.blobs, Events: eventsPort{n.bus},
		Claims: kvPort{claims}, Bundles: kvPort{bundles}, Providers: map[string]sandbox.Provider{"local": quick{}},
		Repositories: map[string]string{"1296269": "acme/shop"}, Endpoints: map[string]string{"main": "github"},
		Keysets: map[string]*receipts.Keyset{keys.Origin(): keys.Keyset()}, Log: quiet,
	})
	must(err)
	must(n.gk.Start(ctx))
	_, err = n.gk.Apply(ctx, []gatekeeper.File{{Name: "fix-ci.yaml", Source: []byte(bundleSrc)}}, "config", "config")
	must(err)
	ran := make(chan error, 2)
	work, cancelWork := context.WithCancel(ctx)
	go func() { ran <- n.bus.Pump(ctx, n.j, encode) }()
	go func() { ran <- n.gk.Run(work) }()
	n.stop = func() {
		cancelWork()
		n.gk.Close()
		cancel()
		for range 2 {
			if err := <-ran; err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(n.j.Close(), n.bus.Close()); err != nil {
			t.Error(err)
		}
	}
	return n
}

func failed(id string) *event.Event {
	return &event.Event{
		ID: "github:main:" + id, Source: "github", Endpoint: "main", Kind: "workflow_run", Action: "completed", EntityPath: "repo/1296269/workflow_run/99",
		Time: time.Now().UTC().Truncate(time.Second), Received: time.Now().UTC().Truncate(time.Second), Delivery: id, Trust: event.TrustUntrusted,
		BodySHA256: strings.Repeat("0", 64), Entity: event.Entity{Kind: "workflow_run", ID: "99", Scope: map[string]string{"repo": "1296269"}},
		Actor: event.Actor{ID: "42", Kind: "user", Level: event.Member}, Auth: event.Auth{Scheme: "github-hmac-sha256", Key: "k1", Signed: []string{"body"}},
		Facts: map[string]string{"repository.id": "1296269", "conclusion": "failure", "fork": "false", "run_id": "99", "workflow_id": "7", "branch_hash": "0a1b2c3d"},
		Lists: map[string][]string{}, Payload: []byte("{}"),
		Text: []event.Passage{event.NewPassage("/workflow_run/name", "name", "CI", event.Member, "")},
		Prov: map[string]event.Origin{"/workflow_run/name": event.Member},
	}
}

func (n *node) send(e *event.Event) {
	n.t.Helper()
	data, err := e.Encode()
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.j.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: data}).Wait(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// closed follows the sessions stream until a chain of the event is closed, and
// returns the session.
func (n *node) closed(e *event.Event) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 60*time.Second)
	defer cancel()
	session := ""
	for m, err := range n.bus.Follow(ctx, bus.Sessions, "", 1) {
		if err != nil {
			n.t.Fatal(err)
		}
		r, err := receipts.Decode(m.Data)
		if err != nil {
			n.t.Fatal(err)
		}
		if r.Open != nil && r.Open.Event == e.ID {
			session = r.Session
		}
		if r.Session == session && r.Type == receipts.TypeSessionClose {
			return session
		}
	}
	n.t.Fatal("the session was not closed")
	return ""
}

// A signed delivery's event goes through the real journal, seals, streams and
// claims to a session whose chain an auditor's verifier accepts, and a restart
// does not start it again.
func TestRealNode(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an embedded NATS server")
	}
	keys, err := notary.NewKeys("gatehouse.test/n1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	n := startNode(t, dir, keys)
	first := failed("first")
	n.send(first)
	id := n.closed(first)
	refused := failed("second")
	refused.Facts["fork"] = "true"
	n.send(refused)
	no := n.closed(refused)

	var file bytes.Buffer
	if err := n.notary.Export(t.Context(), &file, notary.Filter{Sessions: []string{id, no, receipts.ControlSession}, Bundles: func(d receipts.Hash) ([]byte, bool) {
		rc, err := n.blobs.Get(hex.EncodeToString(d[:]))
		if err != nil {
			return nil, false
		}
		defer rc.Close()
		b, err := io.ReadAll(rc)
		return b, err == nil
	}}); err != nil {
		t.Fatal(err)
	}
	for _, session := range []string{id, no} {
		if r := receipts.Verify(bytes.NewReader(file.Bytes()), receipts.Options{Root: keys.RootFingerprint(), Session: session}); r.Exit != receipts.ExitComplete {
			t.Errorf("verify of %s: exit %d, %+v", session, r.Exit, r)
		}
	}
	if r, err := n.gk.Result(id); err != nil || r.Reason != "failed" || *r.Exit != 7 {
		t.Errorf("result %+v, %v", r, err)
	}
	again, err := n.gk.Retry(t.Context(), id)
	if err != nil || again.Code != "" {
		t.Fatalf("%+v, %v", again, err)
	}
	if r, err := n.gk.Wait(t.Context(), again.Session); err != nil || r.Reason != "failed" {
		t.Errorf("result %+v, %v", r, err)
	}
	n.stop()

	n = startNode(t, dir, keys)
	third := failed("third")
	n.send(third)
	n.closed(third)
	count := map[string]int{}
	for m, err := range n.bus.Read(t.Context(), bus.Sessions, "", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if r, err := receipts.Decode(m.Data); err == nil && r.Open != nil {
			count[r.Open.Event]++
		}
	}
	if count[first.ID] != 2 || count[refused.ID] != 1 || count[third.ID] != 1 {
		t.Errorf("sessions by event after a restart: %v", count)
	}
	if h := n.gk.History("fix-ci"); len(h) != 1 || h[0].Result != "applied" {
		t.Errorf("history %+v", h)
	}
	n.stop()
	if _, err := os.Stat(filepath.Join(dir, "sessions", id, "result.json")); err != nil {
		t.Error(err)
	}
}
