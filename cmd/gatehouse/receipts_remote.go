package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
)

// tailEvery is how often receipts tail --follow asks the node again.
const tailEvery = 500 * time.Millisecond

func (c *cli) receiptsTail() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "tail [SESSION]", Short: "Print the receipts of a session, or of every session, in chain order",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			if follow && len(args) == 0 {
				return usage("--follow needs a session", "list them with `gatehouse session list`")
			}
			ids := args
			if len(ids) == 0 {
				list, err := pages[view.Session](cmd.Context(), client, "/v1/sessions", nil, 0)
				if err != nil {
					return err
				}
				for i := len(list) - 1; i >= 0; i-- { // the oldest first
					ids = append(ids, list[i].ID)
				}
			}
			for _, id := range ids {
				if err := c.tail(cmd.Context(), client, id, follow); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more until the session closes")
	return cmd
}

// tail prints one chain. Its end is session.close, after which nothing may follow.
func (c *cli) tail(ctx context.Context, client *api.Client, id string, follow bool) error {
	seen := uint64(0)
	for {
		list, err := pages[view.Receipt](ctx, client, "/v1/sessions/"+url.PathEscape(id)+"/receipts", nil, 0)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Seq < seen {
				continue
			}
			seen = r.Seq + 1
			if err := c.receipt(r); err != nil {
				return err
			}
			if r.Type == "session.close" {
				return nil
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tailEvery):
		}
	}
}

func (c *cli) receipt(r view.Receipt) error {
	if c.output != "table" {
		return c.json(r)
	}
	what := []string{r.Kind, r.Method, r.Target, r.Verdict, r.Rule, r.Reason, r.Fault, r.Effect, r.Address}
	kept := what[:0]
	for _, w := range what {
		if w != "" {
			kept = append(kept, plain(w))
		}
	}
	if r.Count > 1 {
		kept = append(kept, "x"+strconv.FormatUint(r.Count, 10))
	}
	if r.Up+r.Down > 0 {
		kept = append(kept, fmt.Sprintf("%d up %d down", r.Up, r.Down))
	}
	_, err := fmt.Fprintf(c.out, "%s %4d  %-15s %s\n", r.Session, r.Seq, r.Type, strings.Join(kept, " "))
	return err
}

func (c *cli) receiptsExport() *cobra.Command {
	var session, path, format string
	var since, until time.Time
	var open []string
	cmd := &cobra.Command{
		Use: "export", Short: "Write receipts as one self-contained file; the export is a receipt itself",
		Long: "Write receipts as one self-contained file; the export is a receipt itself. With --since and --until it holds the sessions\n" +
			"opened in the period, and verify says how many the log opened then. --open paths,refs discloses what the receipts hold\n" +
			"commitments to, as far as it is still kept for replay; bodies and queries are never kept.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			q := url.Values{}
			if session != "" {
				q.Set("session", session)
			}
			for name, t := range map[string]time.Time{"since": since, "until": until} {
				if !t.IsZero() {
					q.Set(name, t.Format(time.RFC3339))
				}
			}
			if session != "" && len(q) > 1 {
				return usage("--session and a period exclude each other", "leave one out")
			}
			if len(open) > 0 {
				q.Set("open", strings.Join(open, ","))
			}
			route := "/v1/receipts/export"
			switch {
			case format == "dsse" && (session == "" || len(q) != 1):
				return usage("--format dsse takes one --session and nothing else", "add --session SESSION; leave --since, --until and --open out")
			case format == "dsse":
				route, q = "/v1/sessions/"+url.PathEscape(session)+"/envelope", nil
			case format != "native":
				return usage(fmt.Sprintf("unknown format %q", format), "use native or dsse")
			}
			r, err := client.File(cmd.Context(), route, q)
			if err != nil {
				return err
			}
			defer r.Close()
			out := c.out
			if path != "-" {
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return problem.Wrap(err, problem.Usage, "couldn't write "+path, "")
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				out = f
			}
			n, err := io.Copy(out, r)
			if err != nil {
				return fmt.Errorf("the export broke off: %w", err)
			}
			if path != "-" && format == "native" {
				fmt.Fprintf(c.err, "wrote %d bytes to %s; verify it with: gatehouse receipts verify %s --root FINGERPRINT\n", n, path, path)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "one session; default all")
	cmd.Flags().Var((*timeFlag)(&since), "since", "sessions opened in this period (RFC 3339)")
	cmd.Flags().Var((*timeFlag)(&until), "until", "end of the period (RFC 3339)")
	cmd.Flags().StringVar(&format, "format", "native", "native, or dsse: one session's digests as a signed in-toto statement")
	cmd.Flags().StringSliceVar(&open, "open", nil, "disclose committed values: paths, refs")
	cmd.Flags().StringVarP(&path, "file", "f", "-", "file to write, - for standard output")
	return cmd
}

func (c *cli) receiptsHead() *cobra.Command {
	return &cobra.Command{
		Use: "head", Short: "Print the last checkpoint of each node's log; keep it where the node cannot change it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var page view.Page[view.Head]
			if err := client.Get(cmd.Context(), "/v1/receipts/head", nil, &page); err != nil {
				return err
			}
			if c.output != "table" {
				return rows(c, page.Items, nil, nil)
			}
			for _, h := range page.Items {
				fmt.Fprint(c.out, h.Checkpoint)
			}
			return nil
		},
	}
}
