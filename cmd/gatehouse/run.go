package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/bundle"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/blob"
	"gatehouse/internal/config"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// runOptions are the flags of run.
type runOptions struct {
	bundle, keys, agent, mode, export string
	event                             payload
	dev                               bool
	argv                              []string
}

func (c *cli) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run --bundle FILE [--event FILE] [-- COMMAND...]", Short: "Run one session under a bundle, without a server",
		Long: "Run one session under a bundle, without a server: its own log, one agent, the agent's exit code (3 if refused).\n" +
			"The event is a normalized event, or a raw body with --endpoint and --kind; its signature is not checked, and the receipts\n" +
			"say so. Without --event the start itself is the event. Every run is a log of its own: ORIGIN/run-ID, with keys of its own that\n" +
			"the root in the --keys folder signs; without --keys an ephemeral root does, and its fingerprint is printed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.argv = args
			cfg, err := c.runConfig(cmd)
			if err != nil {
				return err
			}
			code, err := c.runSession(cmd.Context(), cfg, o)
			if err != nil {
				return err
			}
			if code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.bundle, "bundle", "b", "", "bundle file")
	f.StringVar(&o.event.path, "event", "", "event file")
	f.StringVar(&o.event.endpoint, "endpoint", "main", "endpoint that a raw body would have come to")
	f.StringVar(&o.event.source, "source", "github", "source of that endpoint")
	f.StringVar(&o.event.kind, "kind", "", "kind of a raw body; default: the file's name up to \"__\"")
	f.StringVar(&o.keys, "keys", "", "folder of keys made by gatehouse key init, its root.key included; default: an ephemeral root")
	f.StringVar(&o.agent, "agent", "", "claude-code, codex, gemini or opencode instead of the bundle's agent")
	f.StringVar(&o.mode, "mode", "", "hard: harden a shadow bundle for this run")
	f.StringVar(&o.export, "receipts", "", "write the session's receipts to this file, and what replays them to FILE.replay")
	f.BoolVar(&o.dev, "dev", false, "put the configuration's dev substitutions in force; every receipt says so")
	_ = cmd.MarkFlagRequired("bundle")
	return cmd
}

// runConfig reads the configuration when there is one; a laptop needs none.
func (c *cli) runConfig(cmd *cobra.Command) (*config.Config, error) {
	path := c.file(cmd)
	if _, err := os.Stat(path); err != nil && !cmd.Flags().Changed("config") && os.Getenv("GATEHOUSE_CONFIG") == "" {
		cfg := config.Default()
		return &cfg, nil
	}
	return loadConfig(path)
}

// asRun returns the bundle's source with what the command line changes: the
// agent, the mode, and a trigger for a start without an event. The receipts
// hold the digest of exactly this version.
func (o runOptions) asRun() ([]byte, error) {
	b, err := readBundle(o.bundle)
	if err != nil {
		return nil, err
	}
	mode := b.Mode
	switch o.mode {
	case "", string(mode):
	case string(bundle.Hard):
		mode = bundle.Hard
	default:
		return nil, usage(fmt.Sprintf("--mode %s would weaken a %s bundle", o.mode, mode), "--mode may only harden: use --mode hard or leave it out")
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Canonical(), &doc); err != nil {
		return nil, err
	}
	doc["mode"] = string(mode)
	// The canonical form leaves modes out; those of added enforcers are the file's.
	added, _ := doc["enforcers"].(map[string]any)
	for name, e := range b.Enforcers {
		if m, ok := added[name].(map[string]any); ok {
			m["mode"] = string(e.Mode)
		}
	}
	session, ok := doc["session"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: no session in the canonical form", o.bundle)
	}
	switch {
	case len(o.argv) > 0 && o.agent != "":
		return nil, usage("--agent and a command exclude each other", "leave one of them out")
	case len(o.argv) > 0:
		session["agent"] = map[string]any{"command": map[string]any{"argv": o.argv}}
	case o.agent != "":
		session["agent"] = o.agent
	}
	if o.event.path == "" {
		doc["match"] = []any{map[string]any{"source": "cron", "endpoint": runEndpoint, "kinds": []string{runEndpoint}}}
	}
	return json.Marshal(doc)
}

// runEndpoint names the start of a run as an event of its own.
const runEndpoint = "run"

// start returns the run's event.
func (o runOptions) start(now time.Time) (*event.Event, error) {
	if o.event.path != "" {
		return o.event.event(now)
	}
	return &event.Event{
		ID: "cron:" + runEndpoint + ":" + newUUID(), Source: "cron", Endpoint: runEndpoint, Kind: runEndpoint,
		Time: now.UTC(), Received: now.UTC(), Trust: event.TrustOperator, Actor: event.Actor{Kind: "system", Level: event.Operator},
		Auth: event.Auth{Scheme: "none"}, BodySHA256: emptySHA256, Payload: []byte("{}"),
	}, nil
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// signing returns the keys of the run's own log. A run begins a log at index 0:
// under a name that it shared with another run, or with the node whose keys
// these are, the two would be a fork (RC-14).
func (o runOptions) signing() (*notary.Keys, error) {
	name := "run-" + strings.ToLower(ulid.Make().String())
	if o.keys == "" {
		return notary.NewKeys(defaultOrigin() + "/" + name)
	}
	keys, err := notary.LoadKeys(o.keys)
	if err != nil {
		return nil, err
	}
	return keys.Run(name)
}

// runSession wires the rooms that one session needs, runs it, and returns the
// process's exit code.
func (c *cli) runSession(ctx context.Context, cfg *config.Config, o runOptions) (int, error) {
	dir, err := os.MkdirTemp("", "gatehouse-run-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelWarn}))

	keys, err := o.signing()
	if err != nil {
		return 0, err
	}
	var gk *gatekeeper.Gatekeeper
	n := notary.New(notary.Options{Node: cfg.Node, Keys: keys, Budget: notary.Budget{Flood: func(session string) { gk.Flood(session) }}})
	j, err := journal.Open(filepath.Join(dir, "journal"), journalOptions(n, keys))
	if err != nil {
		return 0, err
	}
	defer j.Close()
	if err := n.Start(ctx, j); err != nil {
		return 0, err
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return 0, err
	}
	host, err := wasm.NewHost(ctx, wasm.Options{CacheDir: wasmCache()})
	if err != nil {
		return 0, err
	}
	defer host.Close(context.WithoutCancel(ctx))
	inject, err := injectorsOf(cfg)
	if err != nil {
		return 0, err
	}
	up, err := newUpstream(cfg, inject, func(session, _ string) { gk.Tripped(session) }, o.dev)
	if err != nil {
		return 0, err
	}
	defer up.Close()
	provider, err := newLocal(cfg, state{dir: dir, run: filepath.Join(dir, "run")}, blobs)
	if err != nil {
		return 0, err
	}
	providers, err := runProviders(cfg, state{dir: dir, run: filepath.Join(dir, "run")}, blobs, provider, c.out)
	if err != nil {
		return 0, err
	}
	var replay *runReplay
	if o.export != "" {
		if replay, err = keepReplay(ctx, o.export, log); err != nil {
			return 0, err
		}
		defer replay.stop()
	}
	dev := o.dev && !cfg.Dev.Zero()
	exits := &doors{host: host, up: up, modules: modulesOf(cfg), control: n.Control().Append, dev: dev, log: log}
	if replay != nil {
		exits.actions = replay.kept
	}
	if exits.mediators, err = mediatorsOf(ctx, parts{cfg: cfg, state: state{dir: dir}, signers: cmp.Or(o.keys, stateOf(cfg).keys), up: up, inject: inject, journal: j, notary: n, dev: dev, log: log}); err != nil {
		return 0, err
	}
	traces, err := (&node{log: log, notary: n, journal: j}).newTracer(cfg, up, nil, dev)
	if err != nil {
		return 0, err
	}
	defer traces.during(ctx)()
	lint := lintContext(cfg, nil)
	lint.Endpoints[runEndpoint] = "cron"
	if o.keys != "" {
		lint.Private = touches(append(cfg.Private(), o.keys))
	}
	if o.event.path != "" {
		lint.Endpoints[o.event.endpoint] = o.event.source
	}
	gk, err = gatekeeper.New(gatekeeper.Options{
		Node: cfg.Node, Dir: dir, Journal: j, Notary: chains{n}, Blobs: blobs, Bundles: &memoryKV{},
		Providers: providers,
		Doors:     exits, Upstreams: upstreamsOf(cfg), Mediated: inject.mediates,
		Images: imagesOf(cfg), Caches: cachesOf(cfg),
		Sets: lint.Sets, Repositories: lint.Repositories, Endpoints: lint.Endpoints, Lint: &lint,
		Unlimited: cfg.Sandbox.Unlimited == "accepted", Dev: dev, Log: log,
	})
	if err != nil {
		return 0, err
	}
	exits.children = func() children { return gk }
	if err := gk.Start(ctx); err != nil {
		return 0, err
	}
	source, err := o.asRun()
	if err != nil {
		return 0, err
	}
	done, err := gk.Apply(ctx, []gatekeeper.File{{Name: o.bundle, Source: source}}, "run", "cli")
	if err != nil {
		return 0, err
	}
	if done[0].Result == gatekeeper.ResultRejected {
		return 0, rejected(done[0])
	}
	code, session, err := c.runEvent(ctx, o, n, j, gk, commands{gk: gk, notary: n, blobs: blobs}, keys)
	if err == nil && replay != nil {
		err = replay.finish(context.WithoutCancel(ctx), dir, session)
	}
	return code, err
}

// runEvent makes the event durable, has it admitted, and waits for the end. It
// returns the exit code and the session, "" when none was opened.
func (c *cli) runEvent(ctx context.Context, o runOptions, n *notary.Notary, j *journal.Journal, gk *gatekeeper.Gatekeeper, do commands, keys *notary.Keys) (code int, session string, err error) {
	e, err := o.start(time.Now())
	if err != nil {
		return 0, "", err
	}
	data, err := e.Encode()
	if err != nil {
		return 0, "", fmt.Errorf("couldn't encode the event: %w", err)
	}
	if _, err := j.Append(journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: data}).Wait(ctx); err != nil {
		return 0, "", err
	}
	a, err := gk.Admit(ctx, e, receipts.Leaf(data))
	if err != nil {
		return 0, a.Session, err
	}
	code = exitNegative
	if a.Code == "" {
		stop := context.AfterFunc(ctx, func() { _ = gk.Kill(context.WithoutCancel(ctx), a.Session) })
		r, err := gk.Wait(context.WithoutCancel(ctx), a.Session)
		stop()
		if err != nil {
			return 0, a.Session, err
		}
		switch {
		case r.State == "refused":
			fmt.Fprintf(c.err, "gatehouse: refused: %s %s\n", r.Code, plain(r.Detail))
		case r.Exit == nil:
			code = exitFailed
			fmt.Fprintf(c.err, "gatehouse: session %s %s: %s %s\n", r.Session, r.Reason, r.Code, plain(r.Detail))
		default:
			code = *r.Exit
			fmt.Fprintf(c.err, "gatehouse: session %s %s (%s): %d allowed, %d would-block, %d denied\n",
				r.Session, r.Reason, r.Mode, r.Counts.Allowed, r.Counts.WouldBlock, r.Counts.Denied)
		}
	} else {
		fmt.Fprintf(c.err, "gatehouse: refused: %s: %s\n", a.Code, plain(a.Why))
	}
	if o.keys == "" {
		fmt.Fprintf(c.err, "gatehouse: ephemeral root %s\n", keys.RootFingerprint())
	}
	if o.export != "" {
		f, err := os.OpenFile(o.export, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return 0, a.Session, problem.Wrap(err, problem.Usage, "couldn't write "+o.export, "")
		}
		defer f.Close()
		if err := n.Export(context.WithoutCancel(ctx), f, notary.Filter{Sessions: []string{a.Session}, Bundles: do.bundle}); err != nil {
			return 0, a.Session, err
		}
		if err := f.Sync(); err != nil {
			return 0, a.Session, err
		}
	}
	return code, a.Session, nil
}

// wasmCache is the user's cache folder for compiled modules; "" keeps them in
// memory.
func wasmCache() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(base, "gatehouse", "wasm")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	return dir
}

// tee copies what agents print to one more writer.
type tee struct {
	sandbox.Provider
	to io.Writer
}

func (t *tee) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	if s.Output == nil {
		s.Output = t.to
	} else {
		s.Output = io.MultiWriter(s.Output, t.to)
	}
	return t.Provider.Start(ctx, s, door)
}

// memoryKV is the bundles bucket of a run: one process, one writer, gone with it.
type memoryKV struct {
	mu      sync.Mutex
	entries map[string]gatekeeper.Entry
	rev     uint64
}

func (m *memoryKV) Get(_ context.Context, key string) (gatekeeper.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok {
		return e, problem.New(problem.NotFound, "no key "+key, "")
	}
	return e, nil
}

func (m *memoryKV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return m.Update(ctx, key, value, 0)
}

func (m *memoryKV) Update(_ context.Context, key string, value []byte, rev uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[key].Revision != rev {
		return 0, problem.New(problem.Conflict, "key "+key+" has another revision", "")
	}
	m.rev++
	if m.entries == nil {
		m.entries = map[string]gatekeeper.Entry{}
	}
	m.entries[key] = gatekeeper.Entry{Key: key, Value: slices.Clone(value), Revision: m.rev, Created: time.Now()}
	return m.rev, nil
}

func (m *memoryKV) All(context.Context) iter.Seq2[gatekeeper.Entry, error] {
	m.mu.Lock()
	all := maps.Clone(m.entries)
	m.mu.Unlock()
	return func(yield func(gatekeeper.Entry, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(all[key], nil) {
				return
			}
		}
	}
}
