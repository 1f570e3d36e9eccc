package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/enforcers/upstream"
	"gatehouse/internal/api"
	"gatehouse/internal/config"
	"gatehouse/internal/problem"
)

// backupFile marks a folder as a backup. It is written last: a folder without
// it is a copy that was cut short.
const backupFile = "backup.json"

// backupFormat is the layout of a backup: journal/, blobs/, keys/.
const backupFormat = 1

// backupMark is the content of backupFile.
type backupMark struct {
	Format int       `json:"format"`
	Node   string    `json:"node"`
	Origin string    `json:"origin"`
	Last   uint64    `json:"last"` // journal position
	At     time.Time `json:"at"`
	Head   string    `json:"head,omitempty"` // newest checkpoint note of the log
}

func (c *cli) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Copy a running node's journal, blobs and keys into a new folder",
		Long: "Copy a running node's journal, blobs and keys into a new folder on the node's machine. Deliveries go on meanwhile. The root key,\n" +
			"transcripts and the NATS store are left out. The folder holds secrets: keep it as you keep the state folder.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.remote(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			var b api.Backup
			if err := client.Post(cmd.Context(), "/v1/node/backup?dir="+url.QueryEscape(dir), nil, &b); err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(b)
			}
			c.field("folder", b.Dir)
			c.field("journal", fmt.Sprintf("up to position %d of %s", b.Last, b.Origin))
			c.field("blobs", fmt.Sprint(b.Blobs))
			c.field("bytes", fmt.Sprint(b.Bytes))
			return nil
		},
	}
	cmd.AddCommand(c.restoreCommand())
	return cmd
}

// Backup copies what the node cannot make again. The journal comes first: every
// blob that a record names was on the disk before the record.
func (m maintenance) Backup(ctx context.Context, dir string, by api.Actor) (api.Backup, error) {
	if !filepath.IsAbs(dir) {
		return api.Backup{}, usage("a backup needs an absolute folder", "the node makes it, wherever it was started")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return api.Backup{}, problem.New(problem.Conflict, dir+" exists", "name a folder that does not exist yet")
		}
		return api.Backup{}, problem.Wrap(err, problem.Usage, "couldn't make "+dir, "its parent must exist and be the node's to write in")
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	last, size, err := m.n.journal.Copy(ctx, in("journal"))
	if err != nil {
		return api.Backup{}, err
	}
	b := api.Backup{Dir: dir, Origin: m.n.keys.Origin(), Last: last, Bytes: size}
	var n int64
	if b.Blobs, n, err = copyFolder(ctx, in("blobs"), m.state.blobs, nil); err != nil {
		return api.Backup{}, err
	}
	b.Bytes += n
	// The root key belongs to another place than both the node and its backups.
	if _, n, err = copyFolder(ctx, in("keys"), m.state.keys, func(name string) bool { return name == "root.key" }); err != nil {
		return api.Backup{}, err
	}
	b.Bytes += n
	mark, err := json.MarshalIndent(backupMark{
		Format: backupFormat, Node: m.node, Origin: b.Origin, Last: last, At: time.Now().UTC(), Head: string(m.n.notary.Head()),
	}, "", "  ")
	if err != nil {
		return api.Backup{}, err
	}
	if _, err := writeFile(in(backupFile), mark); err != nil {
		return api.Backup{}, err
	}
	m.n.log.InfoContext(ctx, "backup", "dir", dir, "last", last, "by", by.Name)
	return b, syncFolder(dir)
}

// copyFolder copies the plain files of a folder, but for those that skip names
// and the ones that are still being written (.tmp-).
func copyFolder(ctx context.Context, to, from string, skip func(name string) bool) (files int, size int64, err error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return 0, 0, err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if !e.Type().IsRegular() || e.Name()[0] == '.' || skip != nil && skip(e.Name()) {
			continue
		}
		n, err := copyFile(filepath.Join(to, e.Name()), filepath.Join(from, e.Name()))
		if err != nil {
			return 0, 0, fmt.Errorf("couldn't copy %s: %w", e.Name(), err)
		}
		files, size = files+1, size+n
	}
	return files, size, syncFolder(to)
}

func copyFile(to, from string) (int64, error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, in)
	return n, errors.Join(err, out.Sync(), out.Close())
}

func writeFile(path string, b []byte) (int, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(append(b, '\n'))
	return n, errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// refuseBackup keeps a node from running on a backup: it would go on with a log
// that went on elsewhere, and two histories would be signed.
func refuseBackup(dir string) error {
	switch _, err := os.Lstat(filepath.Join(dir, backupFile)); {
	case err == nil:
		return problem.New(problem.Conflict, "the state folder is a backup", "make a node from it with `gatehouse backup restore "+dir+"`")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

// maintenance acts on the node as a whole, for the unix socket.
type maintenance struct {
	n     *node
	state state
	node  string
	cfg   *config.Config
	up    *upstream.Client
	dev   bool
}

// Check folds the archive again.
func (m maintenance) Check(ctx context.Context) (api.Checked, error) { return m.n.check(ctx, m.n.view) }

func newMaintenance(n *node, cfg *config.Config, s state, up *upstream.Client, dev bool) maintenance {
	return maintenance{n: n, state: s, node: cfg.Node, cfg: cfg, up: up, dev: dev}
}
