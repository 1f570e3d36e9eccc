package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"gatehouse/ingest/linear"
	"gatehouse/ingest/sentry"
)

// Sentry and Linear make the secret themselves, after they were given the URL:
// connect runs once without it and once with it.

func (c *cli) connectSentry() *cobra.Command {
	return c.connectVendor(sentry.Name, "errors", "Print the fields of a Sentry integration and the YAML",
		`In Sentry: Settings, Developer Settings, Create New Integration, Internal Integration
  Webhook URL         %[1]s
  Alert Rule Action   on, to get event_alert
  Permissions         Issue & Event: read
  Webhooks            issue; error and comment where your plan has them
  Then save: Sentry shows the Client Secret

An internal integration gets each delivery once: Sentry waits one second and does not repeat it.
`)
}

func (c *cli) connectLinear() *cobra.Command {
	return c.connectVendor(linear.Name, "tasks", "Print the fields of a Linear webhook and the YAML",
		`In Linear: Settings, Administration, API, Webhooks, New webhook (workspace admins)
  Label         gatehouse
  URL           %[1]s
  Data change events  the kinds your bundles match, for example Issues and Comments
  Then create: Linear shows the Signing secret

For agent sessions set the same URL on the OAuth application, with Agent session events on.
`)
}

// connectVendor prints the fields of a vendor that makes its secret itself, and
// takes the secret from the standard input once there is one.
func (c *cli) connectVendor(source, standard, short, fields string) *cobra.Command {
	var endpoint string
	var stdin bool
	cmd := &cobra.Command{
		Use: source, Short: short,
		Long: short + ". The vendor makes the secret: run it again with --stdin and pipe the secret in; it is\n" +
			"written to a 0600 file beside the configuration and never printed. The configuration is not changed: it has one author.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, dir, err := c.connecting(cmd, endpoint)
			if err != nil {
				return err
			}
			name := endpoint + ".key"
			if !stdin {
				fmt.Fprintf(c.out, fields+`
Next, with the secret on the clipboard or in a pipe:
  gatehouse connect %[2]s --endpoint %[3]s --stdin
`, publicURL(cfg, endpoint), source, endpoint)
				return nil
			}
			value, err := c.secretOf(source, true)
			if err != nil {
				return err
			}
			if err := writeSecretOf(filepath.Join(dir, name), value); err != nil {
				return err
			}
			fmt.Fprintf(c.out, `Wrote the secret to %[1]s (0600).

In gatehouse.yaml, under endpoints:
  - {name: %[2]s, source: %[3]s, secrets: ["${file:%[1]s}"]}

Then: gatehouse config check, and gatehouse endpoint test %[2]s once the node runs
`, name, endpoint, source)
			return nil
		},
	}
	endpointFlag(cmd, &endpoint, standard)
	cmd.Flags().BoolVar(&stdin, "stdin", false, "read the vendor's secret from the standard input")
	return cmd
}
