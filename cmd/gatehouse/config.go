package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// file returns the configuration file's path: the flag, else GATEHOUSE_CONFIG.
func (c *cli) file(cmd *cobra.Command) string {
	if env := os.Getenv("GATEHOUSE_CONFIG"); env != "" && !cmd.Flags().Changed("config") {
		return env
	}
	return c.configPath
}

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check, print or describe the configuration", Args: cobra.NoArgs, RunE: help}
	check := &cobra.Command{
		Use: "check", Short: "Read the file and resolve every secret reference", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c.file(cmd))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s: ok, %d endpoints, %d connections\n", c.file(cmd), len(cfg.Endpoints), len(cfg.Connections))
			return nil
		},
	}
	var defaults bool
	show := &cobra.Command{
		Use: "print", Short: "Print the effective configuration; secrets appear as references", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := config.Default()
			if !defaults {
				loaded, err := config.Check(c.file(cmd))
				if err != nil {
					return err
				}
				cfg = *loaded
			}
			b, err := cfg.YAML()
			if err != nil {
				return err
			}
			_, err = c.out.Write(b)
			return err
		},
	}
	show.Flags().BoolVar(&defaults, "defaults", false, "print what an empty file means")
	schema := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := config.Schema()
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s\n", b)
			return nil
		},
	}
	cmd.AddCommand(check, show, schema)
	return cmd
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.output == "table" {
				fmt.Fprintf(c.out, "gatehouse %s\n", version)
				return nil
			}
			return c.json(map[string]string{"version": version})
		},
	}
}

// json writes one JSON value on one line.
func (c *cli) json(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// usage returns a usage error with a hint.
func usage(msg, hint string) error { return problem.New(problem.Usage, msg, hint) }
