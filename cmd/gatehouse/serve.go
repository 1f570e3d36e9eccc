package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"gatehouse/enforcers/door"
	"gatehouse/gatekeeper"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/ingest"
	"gatehouse/ingest/cron"
	"gatehouse/internal/api"
	"gatehouse/internal/blob"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/diag"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/view"
	"gatehouse/receipts"
	"gatehouse/wasm"
)

// Time that an orderly stop may take, one step each.
const (
	drainLimit = 10 * time.Second // deliveries in flight
	closeLimit = 5 * time.Second  // HTTP servers

	// linger is how long a receipt that nobody waits for, one of a shadow session
	// or an outcome, may wait for others to share its sync. A crash loses no more
	// than that of them and what the disk had not taken by then, and never one that
	// an effect had to wait for.
	linger = 20 * time.Millisecond
)

// journalOptions are those of a journal whose groups a notary seals: none may be
// larger than what one seal holds.
func journalOptions(n *notary.Notary, keys *notary.Keys) journal.Options {
	return journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal(), Linger: linger, MaxGroup: receipts.MaxGroup}
}

func (c *cli) serveCommand() *cobra.Command {
	var dev bool
	var format string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a node", Args: cobra.NoArgs,
		Long: "Run a node until it is interrupted: take deliveries on the hooks listener, start sessions under the bundles of the configuration,\n" +
			"serve the pages and the API on the operator listener, metrics and readiness on the private one, and the other verbs on a socket\n" +
			"in the state folder. `gatehouse init` writes a first configuration, `gatehouse doctor` checks the machine.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c.file(cmd))
			if err != nil {
				return err
			}
			log, err := diag.NewLogger(c.err, diag.LogOptions{Format: format})
			if err != nil {
				return usage(err.Error(), "use --log text or --log json")
			}
			closeUmask()
			spareProcessor()
			n, err := start(cmd.Context(), cfg, nodeOptions{dev: dev, log: log})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.err, "gatehouse %s: hooks on %s, operator on %s, private on %s\n", version, n.hooks, n.operator, n.private)
			return n.wait()
		},
	}
	cmd.Flags().BoolVar(&dev, "dev", false, "put the configuration's dev substitutions in force; every receipt says so")
	cmd.Flags().StringVar(&format, "log", "text", "log format: text or json")
	return cmd
}

// failuresInARow is how many sessions of a bundle may fail one after the other
// before the node pauses it.
const failuresInARow = 3

// nodeOptions are what a caller other than serve may change: the demo hands
// files to its sandboxes and reads along.
type nodeOptions struct {
	dev      bool
	log      *slog.Logger
	provider func(sandbox.Provider) sandbox.Provider // wraps the local provider; nil = as it is
}

// node is one running `gatehouse serve`.
type node struct {
	hooks, operator, private net.Addr

	log     *slog.Logger
	keys    *notary.Keys
	notary  *notary.Notary
	journal *journal.Journal
	bus     *bus.Bus
	peers   peers
	intake  *ingest.Intake
	cron    *cron.Runner
	gk      *gatekeeper.Gatekeeper
	view    *view.View
	do      commands
	tell    *notifier
	pushes  []*push

	asked *githubAsked

	traces   *tracer   // nil: no collector
	problems *problems // nil: nobody is told

	group *errgroup.Group
	stop  context.CancelFunc
	close []func() // in wiring order; run backwards
}

// start wires a node, each room after those that it needs, and returns when it
// serves. The rooms are handed to each other here and nowhere else; data flows
//
//	hooks -> ingest -> journal -> bus -> gatekeeper -> sandbox -> door -> gate -> upstream
//	                      ^--- notary: every receipt --- view -> api
func start(ctx context.Context, cfg *config.Config, o nodeOptions) (_ *node, err error) {
	ctx, stop := context.WithCancel(ctx)
	errs := newProblemLog(o.log.Handler())
	o.log = slog.New(errs)
	n := &node{log: o.log, stop: stop}
	defer func() {
		if err != nil {
			stop()
			n.release()
		}
	}()
	state, err := openState(cfg)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	// The operator listener answers to its own address only, which port 0 leaves
	// to the system: it is opened before anything is told that address.
	opened, err := listenTCP(cfg, cfg.Listen.Operator, true)
	if err != nil {
		return nil, err
	}
	n.onClose(func() { _ = opened.Close() })
	n.operator = opened.Addr()
	cfg = cfg.At(n.operator)

	// The record: keys, notary, journal. Nothing happens before it can be written down.
	if n.keys, err = notary.LoadKeys(state.keys); err != nil {
		return nil, err
	}
	n.notary = notary.New(notary.Options{
		Node: cfg.Node, Keys: n.keys, Keep: append([]string{state.log}, cfg.CheckpointDirs()...),
		Kept: func(dir string, err error) {
			o.log.Warn("checkpoint not kept", slog.String("dir", dir), slog.Any("err", err))
		},
		Budget: notary.Budget{Flood: func(session string) { n.gk.Flood(session) }},
	})
	n.journal, err = journal.Open(state.journal, journalOptions(n.notary, n.keys))
	if err != nil {
		return nil, err
	}
	n.onClose(func() { n.logged("journal", n.journal.Close()) })
	if err := n.notary.Start(ctx, n.journal); err != nil {
		return nil, err
	}
	blobs, err := blob.Open(state.blobs)
	if err != nil {
		return nil, err
	}

	// The way in: hooks -> ingest -> journal -> bus.
	metrics := diag.NewMetrics(version)
	endpoints, err := endpointsOf(cfg)
	if err != nil {
		return nil, err
	}
	busOptions := bus.Options{Node: cfg.Node, URL: cfg.NATS.URL, Creds: cfg.Path(cfg.NATS.Creds), Log: o.log}
	if busOptions.URL == "" {
		busOptions.Dir = state.nats
	}
	if n.bus, err = bus.Open(ctx, busOptions); err != nil {
		return nil, err
	}
	n.onClose(func() { n.logged("bus", n.bus.Close()) })
	behind := newBacklog(n.journal, n.bus, cfg.NATS.Backlog)
	if n.intake, err = ingest.New(ctx, ingest.Options{
		Journal: n.journal, Blobs: blobs, Endpoints: endpoints, Log: o.log, Seen: seen(metrics), Room: behind.err,
	}); err != nil {
		return nil, err
	}
	if n.cron, err = n.schedules(ctx, cfg); err != nil {
		return nil, err
	}

	// The way out: door -> gate (enforcers) -> upstream.
	host, err := wasm.NewHost(ctx, wasm.Options{CacheDir: state.wasm})
	if err != nil {
		return nil, err
	}
	n.onClose(func() { n.logged("wasm", host.Close(context.WithoutCancel(ctx))) })
	inject, err := injectorsOf(cfg)
	if err != nil {
		return nil, err
	}
	up, err := newUpstream(cfg, inject, n.tripped, o.dev)
	if err != nil {
		return nil, err
	}
	n.onClose(func() { n.logged("upstream", up.Close()) })
	if n.problems, err = n.newProblems(cfg, up, metrics, o.dev && !cfg.Dev.Zero()); err != nil {
		return nil, err
	}
	errs.to.Store(n.problems)
	n.onClose(n.problems.flush)
	if n.traces, err = n.newTracer(cfg, up, metrics, o.dev && !cfg.Dev.Zero()); err != nil {
		return nil, err
	}
	kept := newActions(o.log)
	exits := &doors{
		host: host, up: up, actions: kept, modules: modulesOf(cfg), control: n.notary.Control().Append,
		room: door.NewRoom(0), dev: o.dev && !cfg.Dev.Zero(), log: o.log,
	}
	if exits.mediators, err = mediatorsOf(ctx, parts{cfg: cfg, state: state, signers: state.keys, up: up, inject: inject, journal: n.journal, notary: n.notary, metrics: metrics, dev: exits.dev, log: o.log}); err != nil {
		return nil, err
	}
	asked, err := n.askGitHub(cfg, up, endpoints, exits.dev)
	if err != nil {
		return nil, err
	}
	n.asked = asked

	// Where agents run.
	var provider sandbox.Provider
	providers := map[string]sandbox.Provider{}
	if provider, err = newLocal(cfg, state, blobs); err != nil {
		// A node without a provider still records, refuses and exports: admission
		// answers provider_capability_missing, and doctor says what to install.
		o.log.WarnContext(ctx, "no sandbox provider", slog.Any("err", err))
	} else {
		if o.provider != nil {
			provider = o.provider(provider)
		}
		providers[provider.Name()] = provider
	}
	if err := n.distantProviders(cfg, state, up, blobs, exits.dev, providers); err != nil {
		return nil, err
	}

	// Who decides: gatekeeper.
	if n.gk, err = newGatekeeper(ctx, cfg, n, gatekeeper.Options{
		Dir: state.dir, Blobs: blobs, Providers: providers, Doors: exits, Dev: exits.dev, Lift: asked.lift, Log: o.log,
		Images: imagesOf(cfg), Caches: cachesOf(cfg), Report: reportsOf(state, n.keys.Keyset), Admitted: admittedTo(exits.mediators),
		Failures: failuresInARow, Mediated: inject.mediates, Delivered: func(d gatekeeper.Delivery) { metrics.Deliveries.WithLabelValues(d.Kind, d.Mode).Inc() },
	}); err != nil {
		return nil, err
	}

	exits.children = func() children { return n.gk }

	// Who looks: view -> api.
	n.view = view.New(n.bus, view.Options{Keyset: n.keys.Keyset()})
	health := &diag.Health{}
	health.Check("journal", n.journal.Err)
	health.Check("bus", func() error { s := n.bus.Status(); return cmp.Or(s.Err, s.Waits) })
	health.Check("credentials", n.gk.Credentials)
	metrics.Gauge("bundles_compatibility", "Bundles in force under the credential policy compatibility.", func() float64 { return float64(len(n.gk.Weaker())) })
	health.Note("compatibility", func() string { return strings.Join(n.gk.Weaker(), ", ") })
	health.Check("streams", behind.err)
	gauges(metrics, health, behind, n.notary, n.keys.Keyset())
	n.do = commands{gk: n.gk, notary: n.notary, keys: n.keys, bus: n.bus, blobs: blobs, exits: exits, view: n.view}
	status := n.status(cfg, health, began, exits.dev)
	has := inventory{cfg: cfg, state: state, providers: providers, keyset: n.keys.Keyset, gk: n.gk, bus: n.bus}
	rev, err := n.newReview(ctx, cfg, state.wasm, has)
	if err != nil {
		return nil, err
	}
	pages, err := n.newPages(ctx, rev, has, status)
	if err != nil {
		return nil, err
	}
	people, err := n.newAuth(cfg, up, exits.dev)
	if err != nil {
		return nil, err
	}
	if n.tell, err = n.newNotifier(cfg, up, rev, exits.dev); err != nil {
		return nil, err
	}
	if n.pushes, err = n.newPushes(cfg, up, exits.dev); err != nil {
		return nil, err
	}
	operator, err := api.New(api.Options{
		View: n.view, UI: pages, Auth: people, Review: reviews{rev}, Proposals: changes{stepsOf{n.gk}, rev}, Sessions: n.do, Events: n.do, Bundles: n.do, Receipts: n.do, Node: newMaintenance(n, cfg, state, up, exits.dev), Spend: exits.budgets,
		Status: status,
		URL:    cfg.OperatorURL(), Hosts: cfg.OperatorHosts(), Origins: cfg.OperatorOrigins(), Loopback: cfg.TLS == nil, Log: o.log,
	})
	if err != nil {
		return nil, err
	}

	if err := n.serve(ctx, cfg, state, opened, operator, ownHosts(cfg.Listen.Private, diag.Handler(metrics, health)), kept); err != nil {
		return nil, err
	}
	counted := n.journal.Next()
	n.group.Go(func() error {
		count(ctx, n.journal, counted, metrics)
		return nil
	})
	// Compiling takes seconds on a cold cache; deliveries do not wait for it, and
	// the first session finds it done.
	n.group.Go(func() error {
		_, err := host.Builtin(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("couldn't compile the built-in enforcers: %w", err)
		}
		return nil
	})
	return n, nil
}

// serve opens the listeners and starts every long-runner. The first that fails
// ends the others.
func (n *node) serve(ctx context.Context, cfg *config.Config, state state, pages net.Listener, operator *api.API, private http.Handler, kept *actions) error {
	var group *errgroup.Group
	group, ctx = errgroup.WithContext(ctx)
	n.group = group

	hooks := ingest.Server(access(n.intake, cfg.TrustedProxies, n.log))
	servers := []*http.Server{hooks}
	on := func(l net.Listener, srv *http.Server) {
		servers = append(servers, srv)
		group.Go(func() error { return ended(srv.Serve(l)) })
	}
	listen := func(addr string, srv *http.Server, secure bool) (net.Addr, error) {
		l, err := listenTCP(cfg, addr, secure)
		if err != nil {
			return nil, err
		}
		on(l, srv)
		return l.Addr(), nil
	}
	server := func(h http.Handler) *http.Server {
		return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)}
	}
	var err error
	if n.hooks, err = listen(cfg.Listen.Hooks, hooks, true); err != nil {
		return err
	}
	on(pages, server(operator.Operator()))
	if n.private, err = listen(cfg.Listen.Private, server(private), false); err != nil {
		return err
	}
	socket, err := api.ListenSocket(filepath.Join(state.dir, socketName))
	if err != nil {
		return err
	}
	onSocket := server(operator.Socket())
	servers = append(servers, onSocket)
	for _, s := range servers {
		s.RegisterOnShutdown(operator.Stop)
	}
	group.Go(func() error { return ended(onSocket.Serve(socket)) })

	// What flows keeps flowing until the way in and the sessions have ended.
	flow, dry := context.WithCancel(context.WithoutCancel(ctx))
	pumped := make(chan struct{})
	group.Go(func() error {
		defer close(pumped)
		return n.pump(flow)
	})
	group.Go(func() error { return n.cron.Run(ctx) })
	var asking sync.WaitGroup
	for _, r := range n.asked.reconcilers {
		asking.Add(1)
		group.Go(func() error {
			defer asking.Done()
			return r.Run(ctx)
		})
	}
	for _, m := range n.do.exits.mediators {
		if r, ok := m.(interface{ Run(context.Context) error }); ok {
			group.Go(func() error { return r.Run(ctx) })
		}
	}
	old := &retention{journal: n.journal, notary: n.notary, bus: n.bus, blobs: n.do.blobs, keep: time.Duration(cfg.Retain), log: n.log}
	group.Go(func() error { return old.run(ctx) })
	group.Go(func() error { return kept.run(flow, n.bus) })
	if cfg.NATS.URL != "" { // the embedded server has no listener for auditors
		copies := &auditCopies{bus: n.bus, journal: n.journal, origin: n.notary.Origin(), every: auditorsEvery, log: n.log}
		group.Go(func() error { return copies.run(flow) })
	}
	group.Go(func() error { return n.tell.run(ctx) })
	group.Go(func() error { return n.traces.run(ctx) })
	for _, p := range n.pushes {
		group.Go(func() error { return p.run(ctx) })
	}
	group.Go(func() error { return n.view.Run(flow) })
	sealing, sealed := context.WithCancel(flow)
	noted := make(chan struct{})
	group.Go(func() error {
		defer close(noted)
		return n.notary.Run(sealing)
	})
	gated := make(chan struct{})
	group.Go(func() error {
		defer close(gated)
		return n.gk.Run(ctx)
	})

	// An orderly stop goes the way of the data: no new deliveries, sessions
	// closed, the node's own tokens given back, last checkpoint, journal closed and pumped out, then the readers.
	group.Go(func() error {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
		defer cancel()
		n.logged("drain", n.intake.Drain(drain))
		<-gated
		asking.Wait() // who could mint another token has ended
		n.logged("github", n.asked.revoke(context.WithoutCancel(ctx)))
		sealed()
		<-noted
		n.logged("journal", n.journal.Close())
		select {
		case <-pumped:
		case <-time.After(drainLimit): // the streams are behind; the next start republishes
		}
		dry()
		for _, s := range servers {
			shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
			n.logged("server", s.Shutdown(shut))
			cancel()
		}
		return nil
	})
	return nil
}

// tripped ends a session whose answer held a connection's credential. Whoever
// owns the credential must replace it: the other side has shown it.
func (n *node) tripped(session, connection string) {
	n.log.Error("an answer held a credential: replace it", slog.String("session", session), slog.String("connection", connection))
	n.gk.Tripped(session)
}

// wait blocks until the node has stopped, and releases what it holds.
func (n *node) wait() error {
	err := n.group.Wait()
	n.stop()
	n.release()
	return err
}

func (n *node) onClose(f func()) { n.close = append(n.close, f) }

func (n *node) release() {
	for i := len(n.close) - 1; i >= 0; i-- {
		n.close[i]()
	}
	n.close = nil
}

func (n *node) logged(what string, err error) {
	if err != nil {
		n.log.Warn("stop", slog.String("room", what), slog.Any("err", err))
	}
}

func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// status is what GET /v1/status says.
func (n *node) status(cfg *config.Config, health *diag.Health, began time.Time, dev bool) func() api.Status {
	return func() api.Status {
		b := n.bus.Status()
		s := api.Status{
			Node: cfg.Node, Version: version, Started: began, Running: len(n.gk.Sessions()), Dev: dev, Reasons: []api.Reason{},
			Bus: api.BusStatus{Connected: b.Connected, Embedded: b.Embedded, Phase: string(b.Phase), Stored: b.Stored, Durable: n.journal.Next()},
		}
		for _, r := range health.Reasons() {
			s.Reasons = append(s.Reasons, api.Reason(r))
		}
		s.Ready = len(s.Reasons) == 0
		return s
	}
}

// newGatekeeper makes the gatekeeper, ends what an earlier run left open, and
// applies the configuration's bundles.
func newGatekeeper(ctx context.Context, cfg *config.Config, n *node, o gatekeeper.Options) (*gatekeeper.Gatekeeper, error) {
	claims, err := n.bus.KV(ctx, bus.Claims)
	if err != nil {
		return nil, err
	}
	bundles, err := n.bus.KV(ctx, bus.Bundles)
	if err != nil {
		return nil, err
	}
	lint := lintContext(cfg, nil)
	o.Approvers = cfg.Promotion.Approvers
	o.Node, o.Journal, o.Notary = cfg.Node, carried{n.journal}, chains{n.notary}
	o.Events, o.Claims, o.Bundles = eventStream{n.bus}, bucket{claims}, bucket{bundles}
	o.Sets, o.Repositories, o.Endpoints, o.Lint = lint.Sets, lint.Repositories, lint.Endpoints, &lint
	if o.Keysets, err = keysetsOf(cfg, n.keys); err != nil {
		return nil, err
	}
	n.peers = maps.Clone(o.Keysets)
	delete(n.peers, n.keys.Origin())
	o.Unlimited = cfg.Sandbox.Unlimited == "accepted"
	o.Upstreams = upstreamsOf(cfg)
	gk, err := gatekeeper.New(o)
	if err != nil {
		return nil, err
	}
	if err := gk.Start(ctx); err != nil {
		return nil, err
	}
	files, err := readBundles(cfg)
	if err != nil {
		return nil, err
	}
	done, err := gk.Apply(ctx, files, "config", "config")
	if err != nil {
		return nil, err
	}
	for _, a := range done {
		if a.Result == gatekeeper.ResultRejected {
			return nil, rejected(a)
		}
		n.log.InfoContext(ctx, "bundle", slog.String("name", a.Bundle), slog.String("result", a.Result), slog.String("mode", string(a.Mode)), slog.String("why", a.Why))
	}
	return gk, nil
}

func readBundles(cfg *config.Config) ([]gatekeeper.File, error) {
	paths, err := bundleFiles(cfg)
	if err != nil {
		return nil, err
	}
	files := make([]gatekeeper.File, len(paths))
	for i, p := range paths {
		src, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("couldn't read bundle %s: %w", p, err)
		}
		files[i] = gatekeeper.File{Name: p, Source: src}
	}
	return files, nil
}
