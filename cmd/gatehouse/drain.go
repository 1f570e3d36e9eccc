package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
)

// drainTimeout is how long sessions get when nobody says otherwise.
const drainTimeout = 30 * time.Minute

func (c *cli) drainCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "drain", Short: "Take no more deliveries, let the sessions end, stop the node",
		Long: "Take no more deliveries (503, senders retry), start nothing, wait until the running sessions have ended, stop the node.\n" +
			"What arrived and was not started stays in the journal for the next start. Exit 3 when the timeout ended sessions as lost.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var d api.Drained
			if err := client.Post(cmd.Context(), "/v1/node/drain?limit="+url.QueryEscape(limit.String()), nil, &d); err != nil {
				return err
			}
			if c.output != "table" {
				err = c.json(d)
			} else if d.Lost > 0 {
				fmt.Fprintf(c.out, "drained; %d sessions did not end in time and are lost\n", d.Lost)
			} else {
				fmt.Fprintln(c.out, "drained")
			}
			if err == nil && d.Lost > 0 {
				err = &exitError{code: exitNegative}
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", drainTimeout, "how long the running sessions may take")
	return cmd
}

// Drain ends the node in good order. A caller that goes away stops the waiting,
// not the drain: the node takes nothing any more.
func (m maintenance) Drain(ctx context.Context, limit time.Duration, by api.Actor) (api.Drained, error) {
	m.n.log.InfoContext(ctx, "drain", slog.String("by", by.Name), slog.Duration("limit", limit))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := m.n.intake.Drain(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return api.Drained{}, err
	}
	err := m.n.gk.Drain(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return api.Drained{}, err
	}
	d := api.Drained{Lost: len(m.n.gk.Sessions())}
	m.n.stop() // the answer is written before the servers shut down
	return d, nil
}
