package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

func (c *cli) auditorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "auditor", Short: "Let somebody outside read receipts over NATS, and nothing else", Args: cobra.NoArgs, RunE: help,
		Long: "Let somebody outside read receipts over NATS, and nothing else: through pull consumers made for them, in an account of\n" +
			"their own (deploy/nats/nats.conf). Needs nats.url: the embedded server has no listener, so auditors of such a node read\n" +
			"GET /v1/receipts/stream, or exports."}
	cmd.AddCommand(c.auditorAdd(), c.auditorList(), c.auditorRemove())
	return cmd
}

func (c *cli) auditorAdd() *cobra.Command {
	var session, bundle, file, account string
	var expires time.Time
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make an auditor's consumers and credentials", Args: cobra.ExactArgs(1),
		Long: "Make an auditor's consumers and write their credentials to a file (0600), which is kept nowhere else. Without\n" +
			"--account-seed it is an nkey seed, and the line that auditors.conf beside the server's configuration needs is printed;\n" +
			"with the seed of the auditors' account it is a creds file that needs nothing more.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a := bus.Auditor{Name: args[0], Session: session, Bundle: bundle}
			if file == "" {
				file = a.Name + ".creds"
			}
			var seed []byte
			if account != "" {
				var err error
				if seed, err = os.ReadFile(account); err != nil {
					return problem.Wrap(err, problem.Usage, "couldn't read "+account, "")
				}
				defer clear(seed)
			}
			b, err := c.externalBus(cmd)
			if err != nil {
				return err
			}
			defer b.Close()
			creds, err := a.NewCredentials(trimmed(seed), expires)
			if err != nil {
				return err
			}
			if err := writePrivate(file, creds.File); err != nil {
				return err
			}
			if err := b.AddAuditor(cmd.Context(), a); err != nil {
				return errors.Join(err, os.Remove(file))
			}
			if c.output != "table" {
				return c.json(map[string]string{"name": a.Name, "session": session, "bundle": bundle, "file": file, "user": creds.Public, "conf": creds.User})
			}
			fmt.Fprintf(c.out, "wrote %s\n", file)
			if creds.User != "" {
				fmt.Fprintf(c.out, "add to auditors.conf and reload the server:\n  %s\n", creds.User)
			}
			fmt.Fprintf(c.out, "they read with: nats --js-api-prefix %s --inbox-prefix _INBOX_%s consumer next %s auditor_%s\n", bus.AuditorAPI, a.Name, a.Stream(), a.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&session, "session", "", "one session; default all, with the control chains")
	f.StringVar(&bundle, "bundle", "", "the sessions of one bundle, those to come included")
	f.StringVarP(&file, "file", "f", "", "where the credentials go (default NAME.creds)")
	f.StringVar(&account, "account-seed", "", "seed file of the auditors' account, for a server with accounts by JWT")
	f.Var((*timeFlag)(&expires), "expires", "with --account-seed: when the creds file ends (RFC 3339)")
	return cmd
}

func (c *cli) auditorList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the auditors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := c.externalBus(cmd)
			if err != nil {
				return err
			}
			defer b.Close()
			list, err := b.Auditors(cmd.Context())
			if err != nil {
				return err
			}
			type row struct {
				Name    string `json:"name"`
				Session string `json:"session,omitempty"`
				Bundle  string `json:"bundle,omitempty"`
			}
			out := make([]row, len(list))
			for i, a := range list {
				out[i] = row(a)
			}
			return rows(c, out, []string{"NAME", "SESSION", "BUNDLE"}, func(r row) []string { return []string{r.Name, r.Session, r.Bundle} })
		},
	}
}

func (c *cli) auditorRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Delete an auditor's consumers: their credentials then open nothing", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := c.externalBus(cmd)
			if err != nil {
				return err
			}
			defer b.Close()
			return b.RemoveAuditor(cmd.Context(), args[0])
		},
	}
}

// externalBus reaches the NATS servers as the node does.
func (c *cli) externalBus(cmd *cobra.Command) (*bus.Bus, error) {
	cfg, err := config.Check(c.file(cmd))
	if err != nil {
		return nil, err
	}
	if cfg.NATS.URL == "" {
		return nil, usage("the embedded NATS server has no listener for auditors", "set nats.url, or let auditors read GET /v1/receipts/stream")
	}
	return bus.Open(cmd.Context(), bus.Options{
		Node: cfg.Node, URL: cfg.NATS.URL, Creds: cfg.Path(cfg.NATS.Creds),
		Log: slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// writePrivate writes a new file that only its owner may read.
func writePrivate(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return problem.Wrap(err, problem.Conflict, path+" exists", "name another file with -f")
	}
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't write "+path, "")
	}
	return nil
}

func trimmed(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}
