package main

import (
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func (c *cli) receiptsProof() *cobra.Command {
	var path, keyset, root string
	var check bool
	cmd := &cobra.Command{
		Use: "proof SESSION SEQ", Short: "Prove that the log holds one receipt: a C2SP tlog-proof beside the receipt's bytes",
		Long: "Prove that the log holds one receipt. -f NAME writes NAME.json, the receipt's exact bytes, and NAME.tlog-proof.\n" +
			"`gatehouse receipts proof --check NAME.json NAME.tlog-proof --keyset FILE --root FINGERPRINT` judges them offline.\n" +
			"The proof shows that the log holds this receipt, not that its session's chain is whole: an export shows that.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				return c.checkProof(args[0], args[1], keyset, root)
			}
			seq, err := strconv.ParseUint(args[1], 10, 53)
			if err != nil {
				return usage(fmt.Sprintf("%q is not a sequence number", args[1]), "receipts tail shows them")
			}
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			var p api.LogProof
			if err := client.Get(cmd.Context(), fmt.Sprintf("/v1/sessions/%s/receipts/%d/proof", url.PathEscape(args[0]), seq), nil, &p); err != nil {
				return err
			}
			switch {
			case path != "":
				for name, text := range map[string]string{path + ".json": p.Receipt, path + ".tlog-proof": p.Proof} {
					if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
						return problem.Wrap(err, problem.Usage, "couldn't write "+name, "")
					}
				}
				fmt.Fprintf(c.err, "leaf %d of %d; wrote %s.json and %s.tlog-proof\n", p.Index, p.Size, path, path)
				return nil
			case c.output != "table":
				return c.json(p)
			}
			fmt.Fprint(c.out, p.Proof)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&path, "file", "f", "", "write NAME.json and NAME.tlog-proof instead of printing the proof")
	f.BoolVar(&check, "check", false, "judge the two files offline")
	f.StringVar(&keyset, "keyset", "", "with --check: the keyset, from key export")
	f.StringVar(&root, "root", "", "with --check: root fingerprint, obtained elsewhere")
	return cmd
}

// checkProof answers with verify's exits.
func (c *cli) checkProof(receipt, proof, keyset, root string) error {
	var in [3][]byte
	for i, name := range []string{receipt, proof, keyset} {
		b, err := os.ReadFile(name)
		if err != nil {
			return usage("couldn't read "+name, "--check takes a receipt, its proof and --keyset")
		}
		in[i] = b
	}
	ks, err := receipts.ParseKeyset(in[2], root)
	if ks == nil {
		return &exitError{int(receipts.ExitTampered), fmt.Errorf("the keyset does not hold: %w", err)}
	}
	if err != nil {
		return &exitError{int(receipts.ExitUntrusted), err}
	}
	p, err := receipts.ParseLogProof(in[1])
	if err != nil {
		return &exitError{int(receipts.ExitUsage), err}
	}
	cp, err := p.Verify(in[0], ks)
	if err != nil {
		return &exitError{int(receipts.ExitTampered), err}
	}
	fmt.Fprintf(c.out, "leaf %d of the log %s, which had %d leaves at %s\ndoes not show: that its session's chain is whole\n",
		p.Proof.Index, cp.Origin, cp.Size, cp.Time.UTC().Format("2006-01-02T15:04:05Z"))
	return nil
}
