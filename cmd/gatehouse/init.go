package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
)

//go:embed templates/gatehouse.yaml
var starterConfig []byte

//go:embed templates/bundle.yaml
var starterBundle []byte

func (c *cli) initCommand() *cobra.Command {
	var origin string
	cmd := &cobra.Command{
		Use: "init [DIR]", Short: "Write a commented configuration, a starter bundle, a webhook secret and the node's keys",
		Long: "Write a commented configuration, a starter bundle, a webhook secret and the node's keys. Existing files are never\n" +
			"overwritten. The root fingerprint is printed once more by `gatehouse receipts root`: give it to your auditors.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if origin == "" {
				origin = defaultOrigin()
			}
			fingerprint, err := initNode(dir, origin)
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(map[string]string{"config": filepath.Join(dir, "gatehouse.yaml"), "origin": origin, "root": fingerprint})
			}
			enter := ""
			if filepath.Clean(dir) != "." {
				enter = "\n  cd " + dir
			}
			fmt.Fprintf(c.out, `Wrote gatehouse.yaml, bundles/fix-failing-ci.yaml, main.key and state/keys (0600).

Root fingerprint (auditors pin it; keep it outside this machine):
  %s
The root key is state/keys/root.key: move it offline. The node runs without it.

Next:%s
  gatehouse doctor                # can this machine run sandboxes?
  gatehouse bundle lint           # is the starter bundle right for you?
  gatehouse serve                 # POST /hooks/main, signed with the content of main.key
`, fingerprint, enter)
			return nil
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "name of the node's log, for example hooks.example.com/node-1 (default: from the host's name)")
	return cmd
}

// initNode writes a node's files into dir and returns the root fingerprint.
func initNode(dir, origin string) (string, error) {
	path := filepath.Join(dir, "gatehouse.yaml")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", problem.New(problem.Conflict, path+" exists", "name another folder: `gatehouse init DIR`")
	}
	if err := os.MkdirAll(filepath.Join(dir, "bundles"), 0o755); err != nil {
		return "", problem.Wrap(err, problem.Usage, "couldn't make the folder", "name one that you may write: `gatehouse init DIR`")
	}
	cfg := config.Default()
	fingerprint, err := notary.GenerateKeys(filepath.Join(dir, cfg.State, "keys"), origin)
	if err != nil {
		return "", err
	}
	if err := writeSecret(filepath.Join(dir, "main.key")); err != nil {
		return "", err
	}
	if err := writeNew(filepath.Join(dir, "bundles", "fix-failing-ci.yaml"), starterBundle); err != nil {
		return "", err
	}
	return fingerprint, writeNew(path, starterConfig)
}

func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("couldn't write %s: %w", path, err)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// defaultOrigin makes a C2SP origin from the host's name.
func defaultOrigin() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	return clean + "/node-1"
}
