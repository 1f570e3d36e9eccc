package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/api"
	"gatehouse/internal/view"
)

func (c *cli) spendCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "spend", Short: "Show what sessions spend", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.spendShow())
	return cmd
}

func (c *cli) spendShow() *cobra.Command {
	var tree bool
	cmd := &cobra.Command{
		Use: "show [SESSION]", Short: "Show budgets: limit, spent and held", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var all api.Budgets
			if err := client.Get(cmd.Context(), "/v1/spend", nil, &all); err != nil {
				return err
			}
			list := all.Budgets
			if len(args) == 1 {
				if list = branch(list, args[0]); len(list) == 0 {
					// A session that ended before today is in the views only.
					var s view.Session
					if err := client.Get(cmd.Context(), "/v1/sessions/"+url.PathEscape(args[0]), nil, &s); err != nil {
						return err
					}
					list = []spend.Budget{{Kind: spend.KindSession, ID: s.ID, Parent: s.Parent, Bundle: s.Bundle, Spent: spend.Nano(s.Spent), Unlimited: true}}
				}
			}
			if tree {
				list = nested(list)
			}
			depth := map[string]int{}
			return rows(c, list, []string{"budget", "bundle", "limit", "spent", "held", "calls", "state"}, func(b spend.Budget) []string {
				name := b.ID
				switch {
				case b.Kind != spend.KindSession:
					name = strings.TrimSpace(b.ID + " " + b.Day)
				case tree:
					if d, ok := depth[b.Parent]; ok {
						depth[b.ID] = d + 1
					} else {
						depth[b.ID] = 0
					}
					name = strings.Repeat("  ", depth[b.ID]) + name
				}
				limit := "none"
				if !b.Unlimited {
					limit = b.Limit.String()
				}
				return []string{name, b.Bundle, limit, b.Spent.String(), b.Held.String(), fmt.Sprint(b.Calls), budgetState(b)}
			})
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "children under the session that pays for them")
	return cmd
}

func budgetState(b spend.Budget) string {
	switch {
	case b.Frozen != "":
		return b.Frozen
	case b.Open:
		return "open"
	case b.Kind == spend.KindSession:
		return "closed"
	default:
		return ""
	}
}

// branch is a session and all below it.
func branch(list []spend.Budget, id string) []spend.Budget {
	in := map[string]bool{id: true}
	for range list { // a child may stand before its parent
		for _, b := range list {
			in[b.ID] = in[b.ID] || b.Kind == spend.KindSession && in[b.Parent]
		}
	}
	var out []spend.Budget
	for _, b := range list {
		if b.Kind == spend.KindSession && in[b.ID] {
			out = append(out, b)
		}
	}
	return out
}

// nested puts each session behind its parent, and days first.
func nested(list []spend.Budget) []spend.Budget {
	known := map[string]bool{}
	for _, b := range list {
		known[b.ID] = known[b.ID] || b.Kind == spend.KindSession
	}
	var out []spend.Budget
	var below func(parent string)
	below = func(parent string) {
		for _, b := range list {
			if b.Kind == spend.KindSession && b.Parent == parent {
				out = append(out, b)
				below(b.ID)
			}
		}
	}
	for _, b := range list {
		switch {
		case b.Kind != spend.KindSession:
			out = append(out, b)
		case b.Parent == "" || !known[b.Parent]:
			out = append(out, b)
			below(b.ID)
		}
	}
	return out
}

// budgetsOf returns the budgets of sessions, by id.
func budgetsOf(all api.Budgets) map[string]spend.Budget {
	by := map[string]spend.Budget{}
	for _, b := range all.Budgets {
		if b.Kind == spend.KindSession {
			by[b.ID] = b
		}
	}
	return by
}
