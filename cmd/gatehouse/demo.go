package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/cmd/gatehouse/demo"
	"gatehouse/gatekeeper/sandbox"
	"gatehouse/internal/api"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/receipts"
)

// demoLimit bounds the whole demo: a demo that hangs proves nothing.
const demoLimit = 3 * time.Minute

func (c *cli) demoCommand() *cobra.Command {
	var keep bool
	var weaken string
	cmd := &cobra.Command{
		Use: "demo", Short: "A signed event, a hostile agent in a real sandbox, shadow then hard, receipts verified", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &demonstration{cli: c, weaken: weaken}
			defer d.close()
			report, err := d.run(cmd.Context())
			if err != nil {
				return err
			}
			if err := d.print(report); err != nil {
				return err
			}
			if keep {
				config := d.cfg.Path("gatehouse.yaml")
				fmt.Fprintf(c.err, "kept: gatehouse -c %s session list\n      gatehouse -c %s login   (a link to the pages)\n"+
					"hooks: http://%s/hooks/shadow, signed with the key in %s\nend it with Ctrl-C\n", config, config, d.node.hooks, d.cfg.Path("secret.txt"))
				<-cmd.Context().Done()
			}
			if !report.OK() {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the node up until interrupted")
	// Tests break one rule on purpose and must see the demo fail.
	cmd.Flags().StringVar(&weaken, "weaken", "", "")
	_ = cmd.Flags().MarkHidden("weaken")
	return cmd
}

// demoAgentCommand is what runs inside the sandbox: this same binary.
func (c *cli) demoAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use: demo.AgentVerb, Hidden: true, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := demo.Agent(cmd.Context(), args, c.out); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

// demonstration is one run of the demo.
type demonstration struct {
	cli    *cli
	weaken string
	dir    string
	cfg    *config.Config
	world  *demo.World
	node   *node
	secret string // of the webhook endpoint: itself a canary
	seen   *demo.Watch
}

// run plays the whole story and returns what came of it. The story has a limit; the
// node is there until life ends, for whoever keeps it.
func (d *demonstration) run(life context.Context) (*demo.Report, error) {
	ctx, cancel := context.WithTimeout(life, demoLimit)
	defer cancel()
	if err := d.prepare(); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(d.cli.err, &slog.HandlerOptions{Level: slog.LevelError}))
	var err error
	if d.node, err = start(life, d.cfg, nodeOptions{dev: true, log: log, provider: d.wrap}); err != nil {
		return nil, err
	}
	report := &demo.Report{}
	for i, mode := range []receipts.Mode{receipts.Shadow, receipts.Hard} {
		body, err := demo.Failure(int64(1000 + i))
		if err != nil {
			return nil, err
		}
		d.seen = demo.NewWatch(d.world)
		session, err := d.deliver(ctx, string(mode), body, "ended")
		if err != nil {
			return nil, err
		}
		chain, err := d.verify(ctx, session)
		if err != nil {
			return nil, err
		}
		report.Add(mode, d.seen, chain, d.secret)
	}
	body, err := demo.Fork(2000)
	if err != nil {
		return nil, err
	}
	refused, err := d.deliver(ctx, string(receipts.Hard), body, "refused")
	if err != nil {
		return nil, err
	}
	chain, err := d.verify(ctx, refused)
	if err != nil {
		return nil, err
	}
	report.Refuse("fork", chain)
	return report, nil
}

// prepare writes a node's files into a fresh folder and starts the world.
func (d *demonstration) prepare() error {
	dir, err := os.MkdirTemp("", "gatehouse-demo-")
	if err != nil {
		return err
	}
	d.dir = dir
	if d.world, err = demo.NewWorld(); err != nil {
		return err
	}
	if _, err := initNode(dir, "demo.gatehouse.example/node-1"); err != nil {
		return err
	}
	if d.secret, err = canary(); err != nil {
		return err
	}
	// Canaries lie wherever a secret of the host could: environment, state
	// folder, a file anybody may read.
	if err := os.Setenv("GATEHOUSE_DEMO_SECRET", d.secret); err != nil {
		return err
	}
	for _, path := range []string{"secret.txt", "state/secret.txt"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(d.secret), 0o644); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, "bundles", "fix-failing-ci.yaml")); err != nil {
		return err
	}
	files, err := demo.Files(d.world, d.weaken)
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	d.cfg, err = config.Load(filepath.Join(dir, "gatehouse.yaml"))
	return err
}

// wrap hands the agent to each sandbox and reads along as it prints.
func (d *demonstration) wrap(p sandbox.Provider) sandbox.Provider { return &demoProvider{p, d} }

type demoProvider struct {
	sandbox.Provider
	d *demonstration
}

func (p *demoProvider) Start(ctx context.Context, s sandbox.Spec, door net.Listener) (sandbox.Sandbox, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"agent": binary}
	for k, v := range s.Files {
		files[k] = v
	}
	s.Files = files
	if p.d.weaken == "secret" {
		s.Env = map[string]string{"LEAKED": p.d.secret}
	}
	s.Canaries = append(s.Canaries, p.d.secret)
	return (&tee{p.Provider, p.d.seen}).Start(ctx, s, door)
}

// deliver sends one signed body and waits until its session is in state.
func (d *demonstration) deliver(ctx context.Context, endpoint string, body []byte, state string) (string, error) {
	a, err := delivery{
		URL: "http://" + d.node.hooks.String() + "/hooks/" + endpoint, Source: "github", Kind: "workflow_run",
		Secret: secret.FromString(d.secret), Body: body,
	}.send(ctx)
	if err != nil {
		return "", err
	}
	if a.Status != 200 {
		return "", fmt.Errorf("the delivery to %s was answered %d %s", endpoint, a.Status, a.Code)
	}
	for {
		e, err := d.node.view.Event(ctx, a.ID)
		if err == nil && len(e.Sessions) > 0 && e.Sessions[0].State == state {
			return e.Sessions[0].ID, nil
		}
		if err != nil && problem.CodeOf(err) != problem.NotFound {
			return "", err
		}
		if err == nil && len(e.Sessions) > 0 && e.Sessions[0].State == "refused" {
			return "", fmt.Errorf("the delivery to %s was refused: %s", endpoint, e.Sessions[0].Reason)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no session of %s was %s in time: %w", endpoint, state, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// verify exports a session as an auditor would get it and verifies the file
// with nothing but the root fingerprint.
func (d *demonstration) verify(ctx context.Context, session string) (*demo.Chain, error) {
	var file bytes.Buffer
	if err := d.node.do.Export(ctx, &file, api.ExportOf{Session: session}, api.Actor{Name: "demo", Via: "cli"}); err != nil {
		return nil, err
	}
	chain := &demo.Chain{Session: session}
	chain.Result = receipts.Verify(&file, receipts.Options{
		Root: d.node.keys.RootFingerprint(), Session: session, Canaries: [][]byte{[]byte(d.secret)},
		Visit: func(_ uint64, leaf receipts.Hash, r *receipts.Receipt) {
			if r.Session == session {
				chain.Receipts = append(chain.Receipts, demo.Sealed{Leaf: leaf, Receipt: r})
			}
		},
	})
	return chain, nil
}

func (d *demonstration) print(r *demo.Report) error {
	if d.cli.output != "table" {
		return d.cli.json(r)
	}
	return r.WriteText(d.cli.out)
}

func (d *demonstration) close() {
	var errs []error
	if d.node != nil {
		d.node.stop()
		errs = append(errs, d.node.wait())
	}
	if d.world != nil {
		d.world.Close()
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(d.cli.err, "gatehouse: demo: couldn't clean up: %v\n", err)
	}
}

// canary returns a value of the form the agent looks for.
func canary() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return "gh-canary-" + hex.EncodeToString(b[:]), nil
}
