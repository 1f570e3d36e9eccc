package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
	"gatehouse/internal/secret"
	"gatehouse/internal/secretstore"
)

// loadConfig reads the configuration with every reference resolved, those into
// the node's secret store included.
func loadConfig(path string) (*config.Config, error) {
	var store secretstore.Store // opened once, when the first reference asks for it
	return config.LoadWith(path, func(c *config.Config, name string) (secret.Value, error) {
		if store == nil {
			s, err := openSecrets(c)
			if err != nil {
				return secret.Value{}, err
			}
			store = s
		}
		return store.Get(context.Background(), name)
	})
}

// identityFile is where the store's identity is unless the configuration names
// another.
func identityFile(cfg *config.Config) string {
	return filepath.Join(filepath.Dir(cfg.SecretsFile()), "identity")
}

// openSecrets opens the node's store with the identity that the configuration
// names, which is resolved already, or the one beside the file.
func openSecrets(cfg *config.Config) (*secretstore.File, error) {
	if cfg.Secrets.Identity.Ref() != "" {
		return secretstore.Open(cfg.SecretsFile(), cfg.Secrets.Identity.Value())
	}
	path := identityFile(cfg)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem.New(problem.ConfigInvalid, "the secret store has no identity", "set a first secret with `gatehouse secret set NAME`, or name an identity under secrets:")
	case err != nil:
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't read the secret store's identity", "")
	case info.Mode().Perm()&0o077 != 0:
		return nil, problem.New(problem.ConfigInvalid, path+" may be read by others", "chmod 600 it, and set every secret anew at its vendor")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "couldn't read the secret store's identity", "")
	}
	return secretstore.Open(cfg.SecretsFile(), secret.New(b))
}

// makeSecrets makes the store's folder and identity unless they are there. A
// store that exists without its identity is not given another one.
func makeSecrets(cfg *config.Config) error {
	dir := filepath.Dir(cfg.SecretsFile())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return problem.Wrap(err, problem.ConfigInvalid, "couldn't make the secret store's folder", "")
	}
	if cfg.Secrets.Identity.Ref() != "" {
		return nil
	}
	path := identityFile(cfg)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(cfg.SecretsFile()); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, problem.New(problem.ConfigInvalid, "the secret store is there, its identity is not", "bring "+path+" back, or move the store away and set every secret anew"))
	}
	id, err := secretstore.NewIdentity()
	if err != nil {
		return err
	}
	if _, err := writeFile(path, id.Reveal()); err != nil {
		return fmt.Errorf("couldn't write the secret store's identity: %w", err)
	}
	return syncFolder(dir)
}

func (c *cli) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Short: "Keep credentials in the node's encrypted store", Args: cobra.NoArgs, RunE: help,
		Long: "Keep credentials in the node's encrypted store, for the configuration to name as ${secret:NAME}. A value comes by standard\n" +
			"input, never as an argument, and no verb prints one. A running node has read its secrets at its start: restart it after a change.",
	}
	cmd.AddCommand(c.secretSet(), c.secretList(), c.secretRemove())
	return cmd
}

// secrets opens the store for a verb. The configuration's other references need
// not resolve: the secret that is missing may be the one to be set. Before the
// first secret there is a store to read, with nothing in it.
func (c *cli) secrets(cmd *cobra.Command, make bool) (secretstore.Store, error) {
	cfg, err := config.Check(c.file(cmd))
	if err != nil {
		return nil, err
	}
	if err := cfg.ResolveIdentity(); err != nil {
		return nil, err
	}
	if make {
		if err := makeSecrets(cfg); err != nil {
			return nil, err
		}
		return openSecrets(cfg)
	}
	if _, err := os.Lstat(cfg.SecretsFile()); errors.Is(err, fs.ErrNotExist) {
		unkept, err := secretstore.NewIdentity()
		if err != nil {
			return nil, err
		}
		return secretstore.Open(cfg.SecretsFile(), unkept)
	}
	return openSecrets(cfg)
}

func (c *cli) secretSet() *cobra.Command {
	return &cobra.Command{
		Use: "set NAME", Short: "Set a secret to what standard input holds, less the newline at its end", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := secretstore.CheckName(args[0]); err != nil {
				return err
			}
			b, err := io.ReadAll(io.LimitReader(c.in, secretstore.MaxValue+2))
			if err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't read the secret from standard input", "")
			}
			// Editors and echo end their output with a newline that is no part of it.
			v := secret.FromString(strings.TrimRight(string(b), "\r\n"))
			clear(b)
			defer v.Wipe()
			if err := secretstore.CheckValue(v); err != nil {
				return err
			}
			store, err := c.secrets(cmd, true)
			if err != nil {
				return err
			}
			if err := store.Set(cmd.Context(), args[0], v); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(map[string]string{"secret": args[0], "reference": "${secret:" + args[0] + "}"})
			}
			fmt.Fprintf(c.out, "set; write ${secret:%s} in the configuration\n", args[0])
			return nil
		},
	}
}

func (c *cli) secretList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the names of the store's secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := c.secrets(cmd, false)
			if err != nil {
				return err
			}
			all, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			type row struct {
				Name string    `json:"name"`
				Set  time.Time `json:"set"`
			}
			out := make([]row, len(all))
			for i, e := range all {
				out[i] = row(e)
			}
			return rows(c, out, []string{"NAME", "SET"}, func(r row) []string { return []string{r.Name, r.Set.Format(time.RFC3339)} })
		},
	}
}

func (c *cli) secretRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget a secret", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := c.secrets(cmd, false)
			if err != nil {
				return err
			}
			return store.Remove(cmd.Context(), args[0])
		},
	}
}
