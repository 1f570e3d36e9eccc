package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gatehouse/internal/problem"
	"gatehouse/receipts/verifyjs"
)

// receiptsPage hands out the verifier that is a page, so that whoever has the
// binary has both verifiers. An auditor takes it from a release instead.
func (c *cli) receiptsPage() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "page", Short: "Write verify.html: the second verifier, one page that works from disk and reaches no network",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				_, err := c.out.Write(verifyjs.Page)
				return err
			}
			if err := os.WriteFile(path, verifyjs.Page, 0o644); err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't write "+path, "")
			}
			fmt.Fprintf(c.err, "wrote %s: open it from disk, choose an export and type the root fingerprint\n", path)
			return nil
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "write to FILE instead of standard output")
	return cmd
}
