package main

import (
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

func (c *cli) bundleApply() *cobra.Command {
	return &cobra.Command{
		Use: "apply FILE...", Short: "Make bundle versions the desired ones on the running node",
		Long: "Make bundle versions the desired ones on the running node. A version that widens a hard bundle waits for approval,\n" +
			"and the version in force stays. Exit 3 when one waits.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var done []api.Applied
			waits := false
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					return problem.Wrap(err, problem.Usage, "couldn't read "+f, "")
				}
				var a api.Applied
				if err := client.Post(cmd.Context(), "/v1/bundles", src, &a); err != nil {
					return err
				}
				waits = waits || a.Result == "waiting"
				done = append(done, a)
			}
			err = rows(c, done, []string{"bundle", "result", "mode", "digest", "note"}, func(a api.Applied) []string {
				return []string{a.Name, a.Result, a.Mode, a.Digest, a.Note}
			})
			if err == nil && waits {
				return &exitError{code: exitNegative}
			}
			return err
		},
	}
}

func (c *cli) bundleHistory() *cobra.Command {
	return &cobra.Command{
		Use: "history BUNDLE", Short: "Print a bundle's changes, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var page view.Page[view.Change]
			if err := client.Get(cmd.Context(), "/v1/bundles/"+url.PathEscape(args[0])+"/history", nil, &page); err != nil {
				return err
			}
			return rows(c, page.Items, []string{"time", "change", "result", "mode", "digest", "by", "via"}, func(h view.Change) []string {
				mode := h.To
				if h.From != "" {
					mode = h.From + " -> " + h.To
				}
				return []string{stamp(h.Time), h.Type, h.Result, mode, h.Digest, h.By, h.Via}
			})
		},
	}
}

func (c *cli) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "login", Short: "Print a one-time link to the operator listener: works once, for a minute", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var link api.Link
			if err := client.Post(cmd.Context(), "/v1/login-links", nil, &link); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(link)
			}
			_, err = c.out.Write([]byte(link.URL + "\n"))
			return err
		},
	}
}
