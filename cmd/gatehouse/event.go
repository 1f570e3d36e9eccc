package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/event"
	"gatehouse/internal/view"
)

func (c *cli) eventCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "event", Short: "Send, list and show events", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.eventSend(), c.eventList(), c.eventShow(), c.eventRedeliver())
	return cmd
}

func (c *cli) eventList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List events, the newest first", Args: cobra.NoArgs}
	flags := filterFlags(cmd, map[string]string{
		"source": "source", "endpoint": "endpoint", "kind": "kind", "level": "actor's level", "state": "state of its latest session, or none",
	})
	most := cmd.Flags().IntP("limit", "n", 50, "at most this many, 0 for all")
	odd := cmd.Flags().Bool("quarantined", false, "only deliveries that are kept and started nothing because they are odd; short for --kind quarantined")
	cmd.MarkFlagsMutuallyExclusive("quarantined", "kind")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *odd {
			*flags["kind"] = event.KindQuarantined
		}
		client, err := c.remote(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		list, err := pages[view.Event](cmd.Context(), client, "/v1/events", filters(flags), *most)
		if err != nil {
			return err
		}
		return rows(c, list, []string{"event", "kind", "anomalies", "actor", "level", "session", "state", "received"}, func(e view.Event) []string {
			session, state := "", ""
			if n := len(e.Sessions); n > 0 {
				last := e.Sessions[n-1]
				session, state = last.ID, strings.TrimSuffix(last.State+" ("+last.Reason+")", " ()")
			}
			return []string{e.ID, strings.TrimSuffix(e.Kind+"."+e.Action, "."), strings.Join(e.Anomalies, ","), e.Actor.ID, e.Actor.Level, session, state, stamp(e.Received)}
		})
	}
	return cmd
}

func (c *cli) eventShow() *cobra.Command {
	return &cobra.Command{
		Use: "show EVENT", Short: "Show one event: facts, and text with the origin of each value", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var e view.EventDetail
			if err := client.Get(cmd.Context(), "/v1/events/"+url.PathEscape(args[0]), nil, &e); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(e)
			}
			c.field("event", e.ID)
			c.field("kind", strings.TrimSuffix(e.Kind+"."+e.Action, "."))
			c.field("seal", string(e.Seal))
			c.field("signature", e.Scheme+" "+e.Key)
			c.field("received", stamp(e.Received))
			c.field("anomalies", strings.Join(e.Anomalies, ", "))
			for _, k := range slices.Sorted(maps.Keys(e.Facts)) {
				c.field("fact", k+" = "+e.Facts[k])
			}
			for _, k := range slices.Sorted(maps.Keys(e.Lists)) {
				c.field("fact", k+" = ["+strings.Join(e.Lists[k], ", ")+"]")
			}
			for _, p := range e.Passages {
				c.field("text", fmt.Sprintf("%s, by %s, %d bytes%s", p.Pointer, p.Origin, p.Length, marks(p.Marks)))
				// Each line says whose it is: a value may hold what looks like
				// another value's head.
				for line := range strings.Lines(p.Value) {
					fmt.Fprintf(c.out, "%s | %s\n", p.Origin, strings.TrimSuffix(plain(strings.TrimSuffix(line, "\n")+" "), " "))
				}
			}
			return nil
		},
	}
}

func marks(m []string) string {
	if len(m) == 0 {
		return ""
	}
	return " [" + strings.Join(m, ", ") + "]"
}

func (c *cli) eventRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver EVENT", Short: "Let a stored event start a session again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var named api.Named
			if err := client.Post(cmd.Context(), "/v1/events/"+url.PathEscape(args[0])+"/redeliver", nil, &named); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "session %s\n", named.ID)
			return nil
		},
	}
}
