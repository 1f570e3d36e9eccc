package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "List, hand out and change the keys that sign receipts", Args: cobra.NoArgs, RunE: help,
		Long: "List, hand out and change the keys that sign receipts. The root key signs the list of the others and is needed for a\n" +
			"change only: keep it offline and bring it with --root-key. A change needs a stopped node, because the outgoing key must\n" +
			"seal the receipts that end it; it is in the log before the new key signs anything."}
	cmd.AddCommand(c.keyInit(), c.keyList(), c.keyExport(), c.keyRotate(), c.keyRetire(), c.keyRevoke())
	return cmd
}

// row of key list.
type keyRow struct {
	Purpose string `json:"purpose"`
	ID      string `json:"id"`
	From    uint64 `json:"from"`
	Until   uint64 `json:"until,omitempty"`
	State   string `json:"state"`
}

func keyRows(ks *receipts.Keyset) []keyRow {
	out := []keyRow{{Purpose: string(receipts.RootKey), ID: ks.Root.ID(), State: "active"}}
	for _, k := range ks.Keys {
		state := "active"
		switch {
		case k.Revoked:
			state = "revoked"
		case k.Until != 0:
			state = "retired"
		}
		out = append(out, keyRow{string(k.Purpose), k.ID(), k.From, k.Until, state})
	}
	return out
}

func (c *cli) keyInit() *cobra.Command {
	var origin string
	cmd := &cobra.Command{
		Use: "init DIR", Short: "Make the keys of a new log in a folder, for example on a machine that stays offline", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if origin == "" {
				origin = defaultOrigin()
			}
			root, err := notary.GenerateKeys(args[0], origin)
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(map[string]string{"origin": origin, "root": root})
			}
			fmt.Fprintln(c.out, root)
			return nil
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "name of the node's log, for example hooks.example.com/node-1 (default: from the host's name)")
	return cmd
}

func (c *cli) keyList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the log's keys with the log indices they are good for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := c.keys(cmd, notary.LoadKeys)
			if err != nil {
				return err
			}
			return rows(c, keyRows(keys.Keyset()), []string{"PURPOSE", "KEY", "FROM", "UNTIL", "STATE"}, func(k keyRow) []string {
				until := "-"
				if k.Until != 0 {
					until = strconv.FormatUint(k.Until, 10)
				}
				return []string{k.Purpose, k.ID, strconv.FormatUint(k.From, 10), until, k.State}
			})
		},
	}
}

func (c *cli) keyExport() *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Print the keyset, public keys signed by the root, for auditors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := c.keys(cmd, notary.LoadKeys)
			if err != nil {
				return err
			}
			_, err = c.out.Write(keys.Note())
			return err
		},
	}
}

func (c *cli) keyRotate() *cobra.Command {
	var purpose, root string
	cmd := &cobra.Command{
		Use: "rotate", Short: "Retire the seal or checkpoint key and put a new one in force", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changeKeys(cmd, root, notary.KeyChange{Purpose: receipts.Purpose(purpose)})
		},
	}
	purposeFlag(cmd, &purpose)
	rootFlag(cmd, &root)
	return cmd
}

func (c *cli) keyRetire() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "retire", Short: "Retire both keys without successors: the log ends for good", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changeKeys(cmd, root, notary.KeyChange{Retire: true})
		},
	}
	rootFlag(cmd, &root)
	return cmd
}

func (c *cli) keyRevoke() *cobra.Command {
	var purpose, root string
	var from uint64
	cmd := &cobra.Command{
		Use: "revoke", Short: "Say from which log index on the seal or checkpoint key was lost, and put a new one in force", Args: cobra.NoArgs,
		Long: "Say from which log index on the seal or checkpoint key was no longer the node's alone, and put a new one in force.\n" +
			"What it sealed from there on is not trusted any more; what it sealed before is, as far as a checkpoint by a key that is\n" +
			"not revoked covers it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changeKeys(cmd, root, notary.KeyChange{Purpose: receipts.Purpose(purpose), Revoke: true, From: from})
		},
	}
	purposeFlag(cmd, &purpose)
	rootFlag(cmd, &root)
	cmd.Flags().Uint64Var(&from, "from", 0, "first log index that cannot be trusted")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func purposeFlag(cmd *cobra.Command, purpose *string) {
	cmd.Flags().StringVar(purpose, "purpose", string(receipts.SealKey), "seal or checkpoint")
}

func rootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root-key", "", "the root key's file (default: root.key in the key folder)")
}

func (c *cli) keys(cmd *cobra.Command, load func(dir string, held ...notary.Signer) (*notary.Keys, error)) (*notary.Keys, error) {
	cfg, err := config.Check(c.file(cmd))
	if err != nil {
		return nil, err
	}
	return load(stateOf(cfg).keys)
}

// changeKeys opens the log of a stopped node as its only writer.
func (c *cli) changeKeys(cmd *cobra.Command, root string, change notary.KeyChange) error {
	if change.Purpose != receipts.SealKey && change.Purpose != receipts.CheckpointKey && !change.Retire {
		return usage(fmt.Sprintf("unknown purpose %q", change.Purpose), "use --purpose seal or --purpose checkpoint")
	}
	cfg, err := config.Check(c.file(cmd))
	if err != nil {
		return err
	}
	state := stateOf(cfg)
	keys, err := notary.OpenKeys(state.keys)
	if err != nil {
		return err
	}
	if root != "" {
		if err := keys.UseRoot(root); err != nil {
			return err
		}
	}
	note, err := changeOffline(cmd.Context(), state, notary.Options{Node: cfg.Node, Keys: keys, Keep: append([]string{state.log}, cfg.CheckpointDirs()...)}, change)
	if problem.CodeOf(err) == problem.JournalLocked {
		return problem.Wrap(err, problem.Conflict, "the node runs", "Stop it, change the key, start it again.")
	}
	if err != nil {
		return err
	}
	ks, err := receipts.ParseKeyset(note, keys.RootFingerprint())
	if err != nil {
		return fmt.Errorf("the new keyset: %w", err)
	}
	if c.output != "table" {
		return c.json(struct {
			Serial uint64   `json:"serial"`
			Keys   []keyRow `json:"keys"`
		}{ks.Serial, keyRows(ks)})
	}
	fmt.Fprintf(c.out, "keyset %d is in force; hand it out with: gatehouse key export\n", ks.Serial)
	return nil
}

func changeOffline(ctx context.Context, s state, o notary.Options, change notary.KeyChange) (note []byte, err error) {
	n := notary.New(o)
	j, err := journal.Open(s.journal, journal.Options{Seal: n.Seal, PrivateKey: o.Keys.NodeKey().Reveal()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := n.Start(ctx, j); err != nil {
		return nil, err
	}
	return notary.ChangeKeys(ctx, s.keys, n, change)
}
