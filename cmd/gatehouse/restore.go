package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gatehouse/internal/config"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/receipts"
)

func (c *cli) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore DIR", Short: "Make a node's state from a backup, as a new shard of its log",
		Long: "Make a node's state from a backup. The log that was backed up may have gone on since, and a log that goes on twice is forged: so the\n" +
			"node starts a new shard, with keys of its own, whose first receipt says what it follows. The old shard is kept under archive/,\n" +
			"verified seal by seal. Bundles keep the version and mode they had. Deliveries from before the backup are not known any more: a\n" +
			"sender that repeats one starts its session again.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			r, err := restore(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(r)
			}
			c.field("old shard", fmt.Sprintf("%s, %d leaves, root %s", r.Old, r.Size, r.OldRoot))
			c.field("new shard", fmt.Sprintf("%s, root %s", r.Origin, r.Root))
			c.field("bundles", strings.Join(r.Bundles, ", "))
			fmt.Fprintf(c.out, "This is a new shard. Give its root fingerprint to your auditors and move state/keys/root.key offline.\n")
			return nil
		},
	}
}

// restored is what restore made.
type restored struct {
	Old     string   `json:"old_origin"`
	OldRoot string   `json:"old_root"`
	Size    uint64   `json:"old_size"` // leaves
	Origin  string   `json:"origin"`
	Root    string   `json:"root"`
	Bundles []string `json:"bundles"`
}

// restore makes a state folder from a backup. It never writes into the backup
// and never signs with the old keys.
func restore(ctx context.Context, cfg *config.Config, dir string) (restored, error) {
	s := stateOf(cfg)
	var mark backupMark
	b, err := os.ReadFile(filepath.Join(dir, backupFile))
	if err == nil {
		err = json.Unmarshal(b, &mark)
	}
	if err == nil && mark.Format != backupFormat {
		err = fmt.Errorf("format %d", mark.Format)
	}
	if err != nil {
		return restored{}, problem.Wrap(err, problem.Usage, dir+" is not a whole backup", "name a folder that `gatehouse backup` made")
	}
	for _, path := range []string{s.keys, s.journal, s.blobs} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return restored{}, problem.New(problem.Conflict, path+" exists", "a node is restored into an empty state folder")
		}
	}
	if cfg.NATS.URL != "" && cfg.Node == mark.Node {
		return restored{}, problem.New(problem.ConfigInvalid, "the streams of node "+mark.Node+" hold its old shard", "give this node another name: node: "+mark.Node+"-2")
	}
	archive := filepath.Join(s.dir, "archive", strings.Map(plainName, mark.Origin))
	if err := os.MkdirAll(filepath.Dir(archive), 0o700); err != nil {
		return restored{}, err
	}
	if err := os.Mkdir(archive, 0o700); err != nil {
		return restored{}, err
	}
	for _, name := range []string{"journal", "keys"} {
		if _, _, err := copyFolder(ctx, filepath.Join(archive, name), filepath.Join(dir, name), nil); err != nil {
			return restored{}, err
		}
	}
	if _, err := copyFile(filepath.Join(archive, backupFile), filepath.Join(dir, backupFile)); err != nil {
		return restored{}, err
	}
	old, err := readShard(archive)
	if err != nil {
		return restored{}, fmt.Errorf("the backup does not verify: %w", err)
	}
	if old.last != mark.Last {
		return restored{}, problem.New(problem.JournalDamaged, fmt.Sprintf("the backup's journal ends at %d, not at %d", old.last, mark.Last), "use an older backup")
	}
	if _, _, err := copyFolder(ctx, s.blobs, filepath.Join(dir, "blobs"), nil); err != nil {
		return restored{}, err
	}
	r := restored{Old: mark.Origin, OldRoot: old.root, Size: old.size, Origin: nextShard(mark.Origin), Bundles: slices.Sorted(maps.Keys(old.bundles))}
	if r.Root, err = notary.GenerateKeys(s.keys, r.Origin); err != nil {
		return restored{}, err
	}
	return r, beginShard(ctx, cfg.Node, s, old)
}

// shard is what a new shard must know of the one it follows.
type shard struct {
	root    string // fingerprint
	size    uint64 // leaves
	last    uint64 // journal position
	head    receipts.Hash
	bundles map[string]*bundleState
}

// bundleState is a bundle as the control chain leaves it.
type bundleState struct {
	apply receipts.Change            // the version in force, in the mode in force
	modes map[string]receipts.Change // by enforcer
}

// readShard reads a copied journal and checks each leaf against the seals: they
// must be one unbroken row under the keys.
func readShard(dir string) (*shard, error) {
	keys, err := notary.LoadKeys(filepath.Join(dir, "keys"))
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{PrivateKey: keys.NodeKey().Reveal(), ReserveBytes: -1})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	out := &shard{root: keys.RootFingerprint(), last: j.Next() - 1, bundles: map[string]*bundleState{}}
	for group, err := range j.Groups(0) {
		if err != nil {
			return nil, err
		}
		sealed, err := notary.Encode(group)
		if err != nil {
			return nil, err
		}
		for _, m := range sealed {
			if m.Kind != journal.KindEvent && m.Kind != journal.KindReceipt {
				continue
			}
			if err := out.leaf(m, keys.Keyset()); err != nil {
				return nil, fmt.Errorf("journal position %d: %w", m.Pos, err)
			}
		}
		if n := len(group); group[n-1].Kind == journal.KindSeal {
			seal, err := receipts.ParseSeal(group[n-1].Data)
			if err != nil {
				return nil, err
			}
			if out.size > 0 && seal.Prev != out.head || out.size != 0 && seal.First != out.size {
				return nil, fmt.Errorf("journal position %d: the seal does not follow the one before", group[n-1].Pos)
			}
			out.head, out.size = seal.Hash(), seal.First+uint64(seal.Count)
		}
	}
	return out, nil
}

// leaf checks one leaf and folds what it says about bundles.
func (s *shard) leaf(m notary.Sealed, keys *receipts.Keyset) error {
	h, err := receipts.ParseHeader(m.Header[receipts.HeaderSeal])
	if err != nil {
		return err
	}
	if err := h.Verify(receipts.Leaf(m.Data), keys); err != nil {
		return err
	}
	if m.Kind != journal.KindReceipt {
		return nil
	}
	r, err := receipts.Decode(m.Data)
	if err != nil {
		return err
	}
	if r.Change == nil || r.Type != receipts.TypeBundleApply && r.Type != receipts.TypeModeChange {
		return nil
	}
	b := s.bundles[r.Change.Bundle]
	switch {
	case r.Type == receipts.TypeBundleApply && r.Change.Result == "applied":
		if b == nil {
			b = &bundleState{modes: map[string]receipts.Change{}}
			s.bundles[r.Change.Bundle] = b
		}
		b.apply = *r.Change
	case b == nil:
	case r.Type == receipts.TypeModeChange && r.Change.Enforcer != "":
		b.modes[r.Change.Enforcer] = *r.Change
	case r.Type == receipts.TypeModeChange:
		b.apply.To = r.Change.To
	}
	return nil
}

// beginShard writes the first receipts of the new log: what it follows, and the
// bundles in force.
func beginShard(ctx context.Context, node string, s state, old *shard) error {
	keys, err := notary.LoadKeys(s.keys)
	if err != nil {
		return err
	}
	n := notary.New(notary.Options{Node: node, Keys: keys})
	j, err := journal.Open(s.journal, journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		return err
	}
	defer j.Close()
	if err := n.Start(ctx, j); err != nil {
		return err
	}
	first := []receipts.Receipt{{Type: receipts.TypeLoss, Loss: &receipts.Loss{Cause: "restored", First: old.size, Head: old.head}}}
	for _, name := range slices.Sorted(maps.Keys(old.bundles)) {
		b := old.bundles[name]
		apply := b.apply
		apply.By, apply.Via, apply.From, apply.Old = "restore", "cli", "", receipts.Hash{}
		first = append(first, receipts.Receipt{Type: receipts.TypeBundleApply, Change: &apply})
		for _, enforcer := range slices.Sorted(maps.Keys(b.modes)) {
			mode := b.modes[enforcer]
			mode.By, mode.Via, mode.From = "restore", "cli", ""
			first = append(first, receipts.Receipt{Type: receipts.TypeModeChange, Change: &mode})
		}
	}
	for _, r := range first {
		if _, err := n.Control().Append(ctx, r); err != nil {
			return fmt.Errorf("couldn't begin the new shard: %w", err)
		}
	}
	if _, err := n.Checkpoint(ctx); err != nil {
		return err
	}
	return j.Close()
}

// nextShard names the log that follows: a/b is followed by a/b/shard-2.
func nextShard(origin string) string {
	base, number, ok := strings.Cut(origin, "/shard-")
	if n, err := strconv.Atoi(number); ok && err == nil {
		return base + "/shard-" + strconv.Itoa(n+1)
	}
	return origin + "/shard-2"
}

// plainName maps an origin to a folder's name.
func plainName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
		return r
	}
	return '_'
}
