package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/spend"
	"gatehouse/internal/config"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
)

// The table that this build carries is a part of the binary, and trusted as far
// as that is. A table of the operator's own decides what every session may
// spend: it counts only as the node's key signed it.
const (
	pricesType = "application/vnd.gatehouse.prices+json"
	pricesSig  = ".sig" // of the signature's file, beside the table's

	codePricesUnsigned problem.Code = "prices_unsigned"
	codePricesAltered  problem.Code = "prices_altered" // or signed by somebody else
)

// signedPrices is what is signed of a table.
type signedPrices struct {
	Version string `json:"version"`
	SHA256  string `json:"sha256"` // of the table's file, byte by byte
}

func (c *cli) pricesSign() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "sign FILE", Short: "Sign a price table of your own with the node's key", Args: cobra.ExactArgs(1),
		Long: "Check a price table and sign it with the seal key of the node, into FILE.sig. A node takes spend.prices only with a\n" +
			"signature of its own active key: sign again after every change of the table, and after every change of the key.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				cfg, err := config.Check(c.file(cmd))
				if err != nil {
					return err
				}
				dir = stateOf(cfg).keys
			}
			keys, err := notary.LoadKeys(dir)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(args[0])
			if err != nil {
				return problem.Wrap(err, problem.Usage, "couldn't read "+args[0], "")
			}
			t, err := spend.ParseTable(b)
			if err != nil {
				return problem.Wrap(err, problem.ConfigInvalid, err.Error(), "")
			}
			raw, err := json.Marshal(signedPrices{t.Version, hex.EncodeToString(t.Digest[:])})
			if err != nil {
				return err
			}
			signed, err := keys.Attest(pricesType, raw)
			if err != nil {
				return err
			}
			if err := replaceFile(args[0]+pricesSig, append(signed, '\n')); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "signed price table %s, sha256 %x\n", t.Version, t.Digest)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "keys", "", "the key folder (default: the node's)")
	return cmd
}

// pricesOf returns the price table in force. keys is the folder of the keys
// that an operator's own table must be signed with.
func pricesOf(cfg *config.Config, keys string) (*spend.Table, error) {
	if cfg.Spend.Prices == "" {
		return spend.Prices()
	}
	path := cfg.Path(cfg.Spend.Prices)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "spend.prices: couldn't read the table", "")
	}
	signed, err := os.ReadFile(path + pricesSig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(codePricesUnsigned, "spend.prices: the table is not signed", signAgain(cfg))
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "spend.prices: couldn't read the signature", "")
	}
	loaded, err := notary.LoadKeys(keys)
	if err != nil {
		return nil, problem.Wrap(err, codePricesUnsigned, "spend.prices: there is no key to check the signature with", "run gatehouse init, or name a key folder with --keys")
	}
	raw, err := notary.Attested(loaded.Keyset(), pricesType, signed)
	if err != nil {
		return nil, problem.Wrap(err, codePricesAltered, "spend.prices: the signature is not this node's", signAgain(cfg))
	}
	var s signedPrices
	if sum := sha256.Sum256(b); json.Unmarshal(raw, &s) != nil || s.SHA256 != hex.EncodeToString(sum[:]) {
		return nil, problem.New(codePricesAltered, "spend.prices: the table is not the one that was signed", signAgain(cfg))
	}
	t, err := spend.ParseTable(b)
	if err != nil {
		return nil, problem.Wrap(err, problem.ConfigInvalid, "spend.prices: "+err.Error(), "")
	}
	return t, nil
}

func signAgain(cfg *config.Config) string {
	return "look at it, and run gatehouse prices sign " + cfg.Spend.Prices
}

// table is the price table that the configuration puts in force, or the
// build's own without a configuration.
func (c *cli) table(cmd *cobra.Command) (*spend.Table, error) {
	if _, err := os.Stat(c.file(cmd)); err != nil {
		return spend.Prices()
	}
	cfg, err := config.Load(c.file(cmd))
	if err != nil {
		return nil, err
	}
	return pricesOf(cfg, stateOf(cfg).keys)
}
