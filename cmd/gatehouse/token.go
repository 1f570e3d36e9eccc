package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/auth"
	"gatehouse/internal/view"
)

func (c *cli) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke API tokens", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.tokenAdd(), c.tokenList(), c.tokenRevoke())
	return cmd
}

func (c *cli) tokenAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make an API token for yourself; it is printed once", Args: cobra.ExactArgs(1),
		Long: "Make an API token for yourself; it is printed once and kept nowhere. On the node's socket you are nobody in\n" +
			"particular, and so is who holds the token: it approves nothing where two people are needed.",
	}
	roles := cmd.Flags().StringSlice("role", []string{"viewer"}, "viewer, reviewer, approver, operator, admin or auditor; may be repeated")
	life := cmd.Flags().Duration("for", time.Hour, "how long it lives: an hour at most with approver or admin, 2160h otherwise")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return send(c, cmd, "/v1/tokens", api.TokenRequest{Name: args[0], Roles: *roles, Life: life.String()}, func(t api.NewToken) string { return t.Text })
	}
	return cmd
}

func (c *cli) tokenList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List API tokens, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var page view.Page[auth.Token]
			if err := client.Get(cmd.Context(), "/v1/tokens", nil, &page); err != nil {
				return err
			}
			return rows(c, page.Items, []string{"token", "person", "name", "roles", "expires"}, func(t auth.Token) []string {
				return []string{t.ID, t.Person, t.Name, strings.Trim(fmt.Sprint(t.Roles), "[]"), stamp(t.Expires)}
			})
		},
	}
}

func (c *cli) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN", Short: "End an API token", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return send(c, cmd, "/v1/tokens/"+url.PathEscape(args[0])+"/revoke", struct{}{}, func(api.Named) string { return "revoked" })
		},
	}
}
