package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/gatekeeper/bundle"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

func (c *cli) bundleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bundle", Short: "Read, compare and test capability bundles", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.bundleLint(), c.bundleCovers(), c.bundleTest(), c.bundleApply(), c.bundleHistory())
	cmd.AddCommand(c.bundleChanges()...)
	return cmd
}

// readBundle parses one file; the error names it.
func readBundle(path string) (*bundle.Bundle, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.Usage, "couldn't read "+path, "")
	}
	b, err := bundle.Parse(src)
	if err != nil {
		var p *problem.Error
		if errors.As(err, &p) {
			return nil, problem.New(p.Code, path+": "+p.Msg, p.Hint)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// bundleFiles expands the configuration's patterns.
func bundleFiles(cfg *config.Config) ([]string, error) {
	var files []string
	for _, pattern := range cfg.Bundles {
		found, err := filepath.Glob(cfg.Path(pattern))
		if err != nil {
			return nil, problem.Wrap(err, problem.ConfigInvalid, fmt.Sprintf("bundles: %q is not a pattern", pattern), "")
		}
		files = append(files, found...)
	}
	return files, nil
}

// lintContext returns what lint may know of the node that cfg describes.
func lintContext(cfg *config.Config, all map[string]*bundle.Bundle) bundle.LintContext {
	lc := bundle.LintContext{
		Endpoints: map[string]string{}, Connections: map[string]bundle.Connection{}, Repositories: map[string]string{},
		Bundles: all, Providers: providerNames(cfg), Internal: cfg.InternalNetworks, Now: time.Now(),
		Sets: bundle.Sets(setsDir(cfg)), SetNames: setNames(setsDir(cfg)), Kinds: vocabulary, Modules: modulesOf(cfg).has, Private: touches(cfg.Private()),
	}
	for _, e := range cfg.Endpoints {
		lc.Endpoints[e.Name] = e.Source
	}
	for _, n := range cfg.Connections {
		c := bundle.Connection{Kind: n.Kind, Host: n.Host}
		if _, api, err := apiOf(n); n.Kind == "scm" && n.Provider == "github" && err == nil {
			c.API = api.Host()
		}
		lc.Connections[n.Name] = c
	}
	for _, r := range cfg.Repositories {
		lc.Repositories[r.ID] = r.Name
	}
	return lc
}

func setsDir(cfg *config.Config) fs.FS { return os.DirFS(cfg.Path(cfg.Sets)) }

// lintLine is one finding as -o json shows it.
type lintLine struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Code    string `json:"code"`
	Pointer string `json:"pointer"`
	Msg     string `json:"msg"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

func (c *cli) bundleLint() *cobra.Command {
	return &cobra.Command{
		Use: "lint [FILE...]", Short: "Judge bundles against this node's configuration",
		Long: "Judge bundles against this node's configuration: endpoints, connections, repositories, sets and modules must exist.\n" +
			"Without FILE, the configuration's bundles. Exit 3 when a finding keeps a bundle from being applied.",
		RunE: func(cmd *cobra.Command, files []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			if len(files) == 0 {
				if files, err = bundleFiles(cfg); err != nil {
					return err
				}
			}
			all := map[string]*bundle.Bundle{}
			parsed := make([]*bundle.Bundle, len(files))
			for i, f := range files {
				if parsed[i], err = readBundle(f); err != nil {
					return err
				}
				all[parsed[i].Name] = parsed[i]
			}
			lc := lintContext(cfg, all)
			var lines []lintLine
			blocked := false
			for i, b := range parsed {
				found := bundle.Lint(b, lc)
				blocked = blocked || bundle.Blocks(found)
				for _, p := range found {
					lines = append(lines, lintLine{files[i], p.Line, p.Code, p.Pointer, p.Msg, p.Hint, p.Warning})
				}
			}
			if c.output == "table" {
				for _, l := range lines {
					level := "error"
					if l.Warning {
						level = "warning"
					}
					fmt.Fprintf(c.out, "%s:%d: %s: %s at %s: %s\n", l.File, l.Line, level, l.Code, l.Pointer, l.Msg)
					if l.Hint != "" {
						fmt.Fprintf(c.out, "    hint: %s\n", l.Hint)
					}
				}
				fmt.Fprintf(c.out, "%s, %s\n", amount(len(files), "bundle"), amount(len(lines), "finding"))
			} else if err := rows(c, lines, nil, nil); err != nil {
				return err
			}
			if blocked {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
}

func (c *cli) bundleCovers() *cobra.Command {
	return &cobra.Command{
		Use: "covers A B", Short: "Tell whether bundle A allows whatever bundle B allows",
		Long: "Tell whether bundle A allows whatever bundle B allows, rule by rule. Exit 3 when it does not; the reason names the first thing.",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, files []string) error {
			a, err := readBundle(files[0])
			if err != nil {
				return err
			}
			b, err := readBundle(files[1])
			if err != nil {
				return err
			}
			ok, why := a.Covers(b)
			if c.output != "table" {
				if err := c.json(map[string]any{"covers": ok, "why": why}); err != nil {
					return err
				}
			} else if ok {
				fmt.Fprintf(c.out, "%s covers %s\n", a.Name, b.Name)
			} else {
				fmt.Fprintf(c.out, "%s does not cover %s: %s\n", a.Name, b.Name, why)
			}
			if !ok {
				return &exitError{code: exitNegative}
			}
			return nil
		},
	}
}

// testLine is one payload's answer.
type testLine struct {
	Payload string `json:"payload"`
	Event   string `json:"event"`  // kind.action
	Bundle  string `json:"bundle"` // "" when none admits it
	Floor   string `json:"floor"`
	Pointer string `json:"pointer"` // of the text that set the floor
	Why     string `json:"why"`
}

func (c *cli) bundleTest() *cobra.Command {
	var bundles []string
	var start bool
	p := payload{}
	cmd := &cobra.Command{
		Use: "test PAYLOAD... | --start", Short: "Print which bundle each payload would start, and its floor",
		Long: "Print which bundle each payload would start, the floor of what it would be handed, and the pointer that sets the floor.\n" +
			"A payload is a normalized event or a raw body; a raw body's kind is --kind or the file's name up to \"__\".\n" +
			"Sets, connections and modules are not resolved: bundle lint does that. With --start the agents are started in their\n" +
			"sandboxes instead, to say their version; exit 3 when one does not start.",
		Args: func(cmd *cobra.Command, files []string) error {
			if start {
				return cobra.NoArgs(cmd, files)
			}
			return cobra.MinimumNArgs(1)(cmd, files)
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			repositories := map[string]string{}
			if cfg, err := config.Check(c.file(cmd)); err == nil {
				for _, r := range cfg.Repositories {
					repositories[r.ID] = r.Name
				}
				if len(bundles) == 0 {
					if bundles, err = bundleFiles(cfg); err != nil {
						return err
					}
				}
			} else if len(bundles) == 0 {
				return err
			}
			var parsed []*bundle.Bundle
			for _, f := range bundles {
				b, err := readBundle(f)
				if err != nil {
					return err
				}
				parsed = append(parsed, b)
			}
			if start {
				cfg, err := c.runConfig(cmd)
				if err != nil {
					return err
				}
				return c.startAgents(cmd.Context(), cfg, parsed)
			}
			var lines []testLine
			for _, f := range files {
				p.path = f
				line, err := p.test(parsed, repositories)
				if err != nil {
					return err
				}
				lines = append(lines, line)
			}
			return rows(c, lines, []string{"payload", "event", "bundle", "floor", "set by", "why"}, func(l testLine) []string {
				return []string{filepath.Base(l.Payload), l.Event, l.Bundle, l.Floor, l.Pointer, l.Why}
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&bundles, "bundle", "b", nil, "bundle file, may be repeated; default: the configuration's bundles")
	f.BoolVar(&start, "start", false, "start each bundle's agent and have it say its version")
	f.StringVar(&p.endpoint, "endpoint", "main", "endpoint that a raw body would have come to")
	f.StringVar(&p.source, "source", "github", "source of that endpoint")
	f.StringVar(&p.kind, "kind", "", "kind of a raw body; default: the file's name up to \"__\"")
	return cmd
}

// test judges one payload against every bundle by the function that admission
// decides with, each bundle in its file's mode.
func (p payload) test(bundles []*bundle.Bundle, repositories map[string]string) (testLine, error) {
	now := time.Now()
	e, err := p.event(now)
	if err != nil {
		return testLine{}, err
	}
	line := testLine{Payload: p.path, Event: strings.TrimSuffix(e.Kind+"."+e.Action, ".")}
	c := bundle.Choose(bundles, e, repositories, now)
	if c.Bundle != nil {
		line.Floor, line.Pointer = string(c.Floor.Origin), c.Floor.Pointer
	}
	if c.Code != "" {
		line.Why = string(c.Code) + ": " + c.Why
		return line, nil
	}
	line.Bundle = c.Bundle.Name
	return line, nil
}

// amount is a number of things, in words.
func amount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
