package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

func (c *cli) connectCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "connect", Short: "Make a webhook secret and print what to paste where", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.connectGitHub())
	return cmd
}

func (c *cli) connectGitHub() *cobra.Command {
	var endpoint string
	cmd := &cobra.Command{
		Use: "github", Short: "Make a GitHub webhook secret; print the hook's fields and the YAML",
		Long: "Make a GitHub webhook secret, write it to a 0600 file beside the configuration, and print the fields of the hook\n" +
			"and the YAML of the endpoint. The configuration is not changed: it has one author.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := c.file(cmd)
			cfg, err := config.Check(path)
			if err != nil {
				return err
			}
			for _, e := range cfg.Endpoints {
				if e.Name == endpoint {
					return problem.New(problem.Conflict, fmt.Sprintf("endpoint %q is configured already", endpoint), "name another with --endpoint")
				}
			}
			name := endpoint + ".key"
			if err := writeSecret(filepath.Join(filepath.Dir(path), name)); err != nil {
				return err
			}
			url := strings.TrimSuffix(cfg.PublicURL, "/")
			if url == "" {
				url = "https://<public_url>"
			}
			fmt.Fprintf(c.out, `Wrote the secret to %s (0600).

In the repository or organization: Settings, Webhooks, Add webhook
  Payload URL   %s/hooks/%s
  Content type  application/json
  Secret        the content of %s
  Events        the kinds your bundles match, for example Workflow runs

In gatehouse.yaml, under endpoints:
  - {name: %s, source: github, secrets: ["${file:%s}"]}

Then: gatehouse config check
`, name, url, endpoint, name, endpoint, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&endpoint, "endpoint", "main", "name of the endpoint, the last part of its URL")
	return cmd
}

// writeSecret writes 32 random bytes in hex to a new 0600 file. An existing
// file is never overwritten: somebody may be signing with it.
func writeSecret(path string) error {
	var b [32]byte
	_, _ = rand.Read(b[:])
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return problem.New(problem.Conflict, path+" exists", "remove it, or name another endpoint with --endpoint")
	}
	if err != nil {
		return fmt.Errorf("couldn't write the secret: %w", err)
	}
	if _, err := fmt.Fprintln(f, hex.EncodeToString(b[:])); err != nil {
		_ = f.Close()
		return fmt.Errorf("couldn't write the secret: %w", err)
	}
	return f.Close()
}
