package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/review"
	"gatehouse/internal/view"
)

func (c *cli) shadowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "shadow", Short: "Look at what hard mode would refuse", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.shadowList(), c.shadowShow(), c.shadowMark(), c.shadowSimulate(), c.shadowReady())
	return cmd
}

func (c *cli) shadowList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [FILTER...]", Short: "List groups of what sessions try and the rules deny",
		Long: "List groups of what sessions try and the rules deny. A filter is key:value, with - in front to exclude;\n" +
			"keys: " + strings.Join(view.GroupKeys, " ") + ".\nWithout one, noise, names whose requests are groups of their own, and endpoints that agents call for themselves are left out.",
		Example: "  gatehouse shadow list status:new bundle:fix-failing-ci\n  gatehouse shadow list 'enforcer:egress -host:*.corp.example'",
	}
	sort := cmd.Flags().String("sort", "last", "last, first, count or sessions")
	most := cmd.Flags().IntP("limit", "n", 50, "at most this many, 0 for all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		filter := strings.Join(args, " ")
		if filter == "" {
			filter = "-status:noise -implied:true -own:true"
		}
		list, err := pages[view.Group](cmd.Context(), client, "/v1/would-blocks", url.Values{"q": {filter}, "sort": {*sort}}, *most)
		if err != nil {
			return err
		}
		return rows(c, list, []string{"group", "bundle", "status", "would-block", "refused", "sessions", "events", "target", "rule", "reason", "last"}, func(g view.Group) []string {
			n := func(v uint64) string { return strconv.FormatUint(v, 10) }
			return []string{g.ID, g.Bundle, g.Status, n(g.WouldBlock), n(g.Refused), strconv.Itoa(g.Sessions), strconv.Itoa(g.Events), aim(&g), g.Rule, g.Reason, stamp(g.Last)}
		})
	}
	return cmd
}

// aim is what a group is about, in one cell.
func aim(g *view.Group) string {
	where := g.Host
	if g.Port != 0 && g.Port != 443 {
		where += ":" + strconv.Itoa(g.Port)
	}
	parts := []string{}
	for _, p := range []string{strings.TrimPrefix(g.Kind, "http.request"), g.Method, where + g.Path, g.Name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

func (c *cli) shadowShow() *cobra.Command {
	return &cobra.Command{
		Use: "show GROUP", Short: "Explain a group by its newest attempt", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var g view.GroupDetail
			if err := client.Get(cmd.Context(), "/v1/would-blocks/"+url.PathEscape(args[0]), nil, &g); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(g)
			}
			c.field("group", g.ID)
			c.field("bundle", g.Bundle)
			c.field("tried", aim(&g.Group))
			c.field("denied by", strings.TrimSpace(g.Enforcer+" "+g.Rule)+", "+g.Reason)
			c.field("attempts", fmt.Sprintf("%d passed in shadow, %d refused", g.WouldBlock, g.Refused))
			c.field("sessions", fmt.Sprintf("%d, of which %d count; %d independent events", g.Sessions, g.Counted, g.Events))
			c.field("status", strings.TrimSpace(g.Status+" "+g.Ignored))
			if g.Mark != nil {
				c.field("marked", g.Mark.Reason+", by "+g.Mark.By)
			}
			if len(g.Samples) == 0 {
				return nil
			}
			newest := g.Samples[0]
			var t review.Trace
			if err := client.Get(cmd.Context(), "/v1/sessions/"+url.PathEscape(newest.Session)+"/receipts/"+url.PathEscape(newest.Leaf)+"/explain", nil, &t); err != nil {
				return err
			}
			c.field("newest", fmt.Sprintf("receipt %d of session %s", newest.Seq, newest.Session))
			c.field("why", t.Sentence)
			for _, s := range t.Steps {
				says := "matches"
				if !s.Matches {
					says = "wants " + strings.Join(s.Lacks, " and ")
				}
				c.field(s.Rule, s.Text+": "+says)
			}
			for _, n := range t.Needs {
				c.field("needs", n)
			}
			return nil
		},
	}
}

func (c *cli) shadowMark() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mark GROUP kept|noise|new", Short: "Say what a group means: expected to stay blocked, noise, or undecided again", Args: cobra.ExactArgs(2),
	}
	reason := cmd.Flags().String("reason", "", "why; stands in the receipt")
	expires := cmd.Flags().String("expires", "", "when it counts again: an RFC 3339 time or a date")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := api.MarkRequest{Status: args[1], Reason: *reason}
		if *expires != "" {
			at, err := time.Parse(time.RFC3339, *expires)
			if err != nil {
				at, err = time.Parse(time.DateOnly, *expires)
			}
			if err != nil {
				return usage("--expires is no time", "write 2026-12-31 or 2026-12-31T12:00:00Z")
			}
			body.Expires = at
		}
		return send(c, cmd, "/v1/would-blocks/"+url.PathEscape(args[0])+"/mark", body, func(m view.Mark) string {
			return m.Status + ", receipt " + m.Leaf
		})
	}
	return cmd
}

// send posts JSON and prints the answer: a line for people, the whole otherwise.
func send[T any](c *cli, cmd *cobra.Command, path string, body any, line func(T) string) error {
	client, err := c.remote(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	var out T
	if err := client.Send(cmd.Context(), path, body, http.Header{}, &out); err != nil {
		return err
	}
	if c.output != "table" {
		return c.json(out)
	}
	_, err = fmt.Fprintln(c.out, line(out))
	return err
}

func (c *cli) shadowSimulate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "simulate FILE", Short: "Judge past actions again under a candidate bundle, in hard mode", Args: cobra.ExactArgs(1),
		Long: "Judge past actions again under a candidate bundle, in hard mode, with the real enforcers. Exit 3 when something\n" +
			"that passed would be refused.",
	}
	since := cmd.Flags().Duration("since", 0, "how far back: 720h by default")
	actions := cmd.Flags().Int("actions", 0, "at most this many actions, 0 for 20,000")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src, err := os.ReadFile(args[0])
		if err != nil {
			return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "")
		}
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		q := url.Values{"actions": {strconv.Itoa(*actions)}}
		if *since > 0 {
			q.Set("since", time.Now().Add(-*since).UTC().Format(time.RFC3339))
		}
		var s review.Simulation
		if err := client.Post(cmd.Context(), "/v1/simulations?"+q.Encode(), src, &s); err != nil {
			return err
		}
		if c.output != "table" {
			err = c.json(s)
		} else {
			err = c.simulation(&s)
		}
		if err == nil && s.WouldStop > 0 {
			return &exitError{code: exitNegative}
		}
		return err
	}
	return cmd
}

func (c *cli) simulation(s *review.Simulation) error {
	c.field("bundle", s.Bundle)
	c.field("judged", fmt.Sprintf("%d actions of %d sessions", s.Actions, s.Sessions))
	c.field("stopped", fmt.Sprintf("%d sessions; %d would not have started", s.Stopped, s.Missed))
	c.field("newly blocked", strconv.FormatUint(s.NewlyBlocked, 10))
	c.field("newly allowed", strconv.FormatUint(s.NewlyAllowed, 10))
	c.field("unchanged", fmt.Sprintf("%d blocked, %d allowed", s.StillBlocked, s.StillAllowed))
	for name, list := range map[string][]review.Changed{"blocked": s.Blocked, "allowed": s.Allowed, "left": s.Left} {
		for _, x := range list {
			c.field(name, fmt.Sprintf("%d x %s (%s, %s) in %d sessions", x.Count, aim(&x.Group), x.Rule, x.Reason, x.Sessions))
		}
	}
	for _, l := range s.Limits {
		c.field("cannot know", l)
	}
	return nil
}

func (c *cli) shadowReady() *cobra.Command {
	return &cobra.Command{
		Use: "ready BUNDLE", Short: "List what still stands against turning a bundle to hard; exit 3 when something does", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var r review.Readiness
			if err := client.Get(cmd.Context(), "/v1/bundles/"+url.PathEscape(args[0])+"/readiness", nil, &r); err != nil {
				return err
			}
			if c.output != "table" {
				err = c.json(r)
			} else {
				for _, i := range r.Items {
					mark := "ok  "
					if !i.OK {
						mark = "open"
					}
					fmt.Fprintf(c.out, "%s  %-10s  %s\n", mark, i.ID, plain(i.Text))
				}
				_, err = fmt.Fprintln(c.out, r.Expect)
			}
			if err == nil && !r.Ready {
				return &exitError{code: exitNegative}
			}
			return err
		},
	}
}
