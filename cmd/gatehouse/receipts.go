package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func (c *cli) receiptsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "receipts", Short: "Read, export and verify receipts", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(c.receiptsProof(), c.receiptsWatch(), c.receiptsTamperDemo(), c.receiptsPage())
	cmd.AddCommand(c.receiptsTail(), c.receiptsVerify(), c.receiptsExport(), c.receiptsHead(), c.receiptsReplay(), c.receiptsRoot())
	return cmd
}

func (c *cli) receiptsVerify() *cobra.Command {
	var o receipts.Options
	var checkpoint string
	cmd := &cobra.Command{
		Use: "verify EXPORT", Short: "Verify an export offline",
		Long: "Verify an export offline. Exit 0 complete, 1 tampered or forked, 2 usage or unreadable, 3 valid prefix with its end unproven,\n" +
			"4 key not trusted, 5 complete with admitted losses or unmatched decisions, 6 unsupported. docs/receipts-spec.md has the rules.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't open "+args[0], "")
			}
			defer f.Close()
			if checkpoint != "" {
				if o.Checkpoint, err = os.ReadFile(checkpoint); err != nil {
					return problem.Wrap(err, problem.Usage, "couldn't read "+checkpoint, "")
				}
			}
			res := receipts.Verify(f, o)
			if c.output == "table" {
				err = res.WriteText(c.out)
			} else {
				err = c.json(res)
			}
			if err != nil {
				return fmt.Errorf("couldn't print the result: %w", err)
			}
			if res.Exit != receipts.ExitComplete {
				return &exitError{code: int(res.Exit)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Root, "root", "", "root fingerprint, obtained outside the file; without it the exit is 4 at best")
	f.StringVar(&o.Session, "session", "", "judge this session's end only")
	f.StringVar(&checkpoint, "checkpoint", "", "a checkpoint note that did not come with the file")
	f.DurationVar(&o.MaxAge, "max-age", receipts.DefaultMaxAge, "how old that checkpoint may be for exit 0")
	f.Var((*timeFlag)(&o.Since), "since", "with --until: state the sessions opened in this period (RFC 3339)")
	f.Var((*timeFlag)(&o.Until), "until", "end of the period (RFC 3339)")
	return cmd
}

func (c *cli) receiptsRoot() *cobra.Command {
	return &cobra.Command{
		Use: "root", Short: "Print the root fingerprint that auditors pin", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			keys, err := notary.LoadKeys(stateOf(cfg).keys)
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(map[string]string{"origin": keys.Origin(), "root": keys.RootFingerprint()})
			}
			fmt.Fprintln(c.out, keys.RootFingerprint())
			return nil
		},
	}
}

// timeFlag reads an RFC 3339 time.
type timeFlag time.Time

func (t *timeFlag) String() string {
	if time.Time(*t).IsZero() {
		return ""
	}
	return time.Time(*t).Format(time.RFC3339)
}

func (t *timeFlag) Set(s string) error {
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("want an RFC 3339 time such as 2026-01-02T15:04:05Z")
	}
	*t = timeFlag(v)
	return nil
}

func (t *timeFlag) Type() string { return "time" }
