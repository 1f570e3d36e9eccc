package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the running node's state; exit 3 when it is not ready", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var s api.Status
			if err := client.Get(cmd.Context(), "/v1/status", nil, &s); err != nil {
				return err
			}
			if c.output != "table" {
				err = c.json(s)
			} else {
				c.field("node", s.Node+" "+s.Version)
				c.field("started", stamp(s.Started))
				c.field("ready", strconv.FormatBool(s.Ready))
				c.field("running", fmt.Sprintf("%d sessions", s.Running))
				c.field("streams", fmt.Sprintf("%s, %d of %d journal positions stored", s.Bus.Phase, s.Bus.Stored, s.Bus.Durable))
				for _, r := range s.Reasons {
					c.field("reason", fmt.Sprintf("%s: %s: %s", r.Name, r.Code, r.Detail))
				}
				if s.Dev {
					c.field("dev", "development substitutions are in force")
				}
			}
			if err == nil && !s.Ready {
				err = &exitError{code: exitNegative}
			}
			return err
		},
	}
}
