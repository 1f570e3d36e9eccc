package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/api"
	"gatehouse/internal/view"
)

func (c *cli) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "List, show, read and end sessions", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.sessionList(), c.sessionShow(), c.sessionTail(), c.sessionLogs(),
		c.sessionCommandOn("kill", "End a running session", "ending"),
		c.sessionCommandOn("retry", "Admit a session's event again", "new session"))
	return cmd
}

func (c *cli) sessionList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List sessions, the newest first", Args: cobra.NoArgs}
	flags := filterFlags(cmd, map[string]string{
		"state": "admitted, preparing, running, ended or refused", "reason": "end reason or refusal code",
		"bundle": "bundle name", "mode": "shadow or hard", "event": "event id",
	})
	most := cmd.Flags().IntP("limit", "n", 50, "at most this many, 0 for all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		list, err := pages[view.Session](cmd.Context(), client, "/v1/sessions", filters(flags), *most)
		if err != nil {
			return err
		}
		var money api.Budgets
		if err := client.Get(cmd.Context(), "/v1/spend", nil, &money); err != nil {
			return err
		}
		budgets := budgetsOf(money)
		return rows(c, list, []string{"session", "state", "reason", "bundle", "mode", "allow", "would-block", "deny", "fault", "spent", "held", "limit", "started"}, func(s view.Session) []string {
			n := func(v uint64) string { return strconv.FormatUint(v, 10) }
			// The ledger knows the sessions of today; the views know what is over.
			spent, held, limit := spend.Nano(s.Spent), spend.Nano(0), ""
			if b, ok := budgets[s.ID]; ok {
				spent, held = max(spent, b.Spent), b.Held
				if !b.Unlimited {
					limit = b.Limit.String()
				}
			}
			return []string{s.ID, s.State, s.Reason, s.Bundle, s.Mode, n(s.Counts.Allow), n(s.Counts.WouldBlock), n(s.Counts.Deny), n(s.Counts.Fault),
				spent.String(), held.String(), limit, stamp(s.Started)}
		})
	}
	return cmd
}

func (c *cli) sessionShow() *cobra.Command {
	return &cobra.Command{
		Use: "show SESSION", Short: "Show one session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var s view.Session
			if err := client.Get(cmd.Context(), "/v1/sessions/"+url.PathEscape(args[0]), nil, &s); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(s)
			}
			c.field("session", s.ID)
			c.field("state", strings.TrimSuffix(s.State+" ("+s.Reason+")", " ()"))
			c.field("bundle", s.Bundle+" "+s.Digest)
			c.field("mode", s.Mode)
			c.field("credentials", s.Policy)
			c.field("provider", s.Provider)
			c.field("event", s.Event)
			c.field("parent", s.Parent)
			c.field("floor", s.Floor)
			c.field("observed", fmt.Sprintf("level %d", s.Level))
			c.field("started", stamp(s.Started))
			if s.Ended != nil {
				c.field("ended", stamp(*s.Ended))
			}
			if s.Exit != nil {
				c.field("exit", strconv.FormatInt(*s.Exit, 10))
			}
			c.field("decisions", fmt.Sprintf("%d allowed, %d would-block, %d denied, %d faults", s.Counts.Allow, s.Counts.WouldBlock, s.Counts.Deny, s.Counts.Fault))
			c.field("receipts", strconv.FormatUint(s.Receipts, 10))
			for _, k := range slices.Sorted(maps.Keys(s.Facts)) {
				c.field(k, s.Facts[k])
			}
			if s.Dev {
				c.field("dev", "development substitutions were in force")
			}
			if s.Broken != "" {
				c.field("broken", s.Broken)
			}
			return nil
		},
	}
}

// field prints one line of a show verb; nothing when there is nothing to say.
func (c *cli) field(name, value string) {
	if strings.TrimSpace(value) == "" {
		return
	}
	fmt.Fprintf(c.out, "%-14s %s\n", name, plain(value))
}

func (c *cli) sessionTail() *cobra.Command {
	return &cobra.Command{
		Use: "tail SESSION", Short: "Follow what a session does, receipt by receipt, until it has ended", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			return c.tail(cmd.Context(), client, args[0], true)
		},
	}
}

func (c *cli) sessionLogs() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use: "logs SESSION", Short: "Print a session's transcript; what it says is untrusted", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			r, err := client.File(cmd.Context(), "/v1/sessions/"+url.PathEscape(args[0])+"/logs", nil)
			if err != nil {
				return err
			}
			defer r.Close()
			if raw {
				_, err = io.Copy(c.out, r)
				return err
			}
			return c.boxed(r)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes as they are; they may move your cursor or hide text")
	return cmd
}

// boxed prints untrusted output line by line behind a bar, control characters
// as escapes, so that no line can pose as Gatehouse's own.
func (c *cli) boxed(r io.Reader) error {
	buf := make([]byte, 32<<10)
	var line []byte
	flush := func() {
		fmt.Fprintf(c.out, "| %s\n", strings.TrimSuffix(plain(string(line)+" "), " "))
		line = line[:0]
	}
	for {
		n, err := r.Read(buf)
		for _, b := range buf[:n] {
			if b == '\n' || len(line) > 8<<10 {
				flush()
			}
			if b != '\n' {
				line = append(line, b)
			}
		}
		if err == io.EOF {
			if len(line) > 0 {
				flush()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("the transcript broke off: %w", err)
		}
	}
}

func (c *cli) sessionCommandOn(verb, short, says string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " SESSION", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var named api.Named
			if err := client.Post(cmd.Context(), "/v1/sessions/"+url.PathEscape(args[0])+"/"+verb, nil, &named); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(named)
			}
			fmt.Fprintf(c.out, "%s %s\n", says, named.ID)
			return nil
		},
	}
}

// stamp is how every list shows a time: UTC, to the second.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
