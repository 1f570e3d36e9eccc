package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

// watched is where a watcher gets a log's checkpoints and proofs.
type watched interface {
	keyset(ctx context.Context) ([]byte, error)
	checkpoint(ctx context.Context, origin string) ([]byte, error)
	prove(ctx context.Context, ks *receipts.Keyset, older, newer uint64) ([]receipts.Hash, error)
}

func (c *cli) receiptsWatch() *cobra.Command {
	var root, keep, dir, keyset string
	var every, maxAge time.Duration
	var once bool
	cmd := &cobra.Command{
		Use: "watch", Short: "Follow the log's checkpoints: it may only grow, and may not fall silent",
		Long: "Follow the log's checkpoints, keeping the last one in --keep, which should lie where the node cannot write. A log that\n" +
			"shrank or contradicts what was seen exits 1 (rollback, fork), silence past --max-age 3 (time), a foreign key 4 (key).\n" +
			"With --dir it watches a folder of checkpoint and tiles, such as a copy named under checkpoints: in the configuration,\n" +
			"and needs --keyset and no node.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if root == "" {
				return usage("--root is missing", "give the root fingerprint that you obtained outside")
			}
			var from watched = folder{dir, keyset}
			if dir == "" {
				client, err := c.remote(cmd)
				if err != nil {
					return err
				}
				defer client.Close()
				from = remoteLog{client}
			}
			w := &watch{c: c, from: from, root: root, keep: keep, w: receipts.Watcher{MaxAge: maxAge}, began: time.Now()}
			for {
				err := w.look(cmd.Context())
				if code := problem.CodeOf(err); !once && (code == problem.Unreachable || code == problem.NotFound) {
					err = w.unreached(err)
				}
				if err != nil || once {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(every):
				}
			}
		},
	}
	f := cmd.Flags()
	f.StringVar(&root, "root", "", "root fingerprint, obtained outside the node")
	f.StringVar(&keep, "keep", "", "file that keeps the last checkpoint between runs")
	f.StringVar(&dir, "dir", "", "watch a folder of checkpoint and tiles instead of a node")
	f.StringVar(&keyset, "keyset", "", "with --dir: the keyset, from key export")
	f.DurationVar(&every, "every", 10*time.Second, "how often to look")
	f.DurationVar(&maxAge, "max-age", 2*time.Minute, "silence that is a finding; an idle node signs its checkpoint again every 30 s")
	f.BoolVar(&once, "once", false, "look once")
	return cmd
}

// watch is one watcher of one log.
type watch struct {
	c          *cli
	from       watched
	root, keep string
	w          receipts.Watcher
	note       []byte // the last checkpoint that was printed
	silent     bool   // the node did not answer, and that was said
	began      time.Time
}

// patienceOfWatch is how long a node may take to answer. One that is paused
// accepts the question and never does.
const patienceOfWatch = 10 * time.Second

// unreached is a look at a node that does not answer, or has no checkpoint to
// show. A node may be started again; it is silent when its last checkpoint is
// too old, or when there is none for as long.
func (w *watch) unreached(err error) error {
	if w.w.Last == nil && (problem.CodeOf(err) == problem.Unreachable || time.Since(w.began) > w.w.MaxAge) {
		return err // nothing to go by
	}
	if !w.silent {
		fmt.Fprintf(w.c.err, "gatehouse: %v\n", err)
		w.silent = true
	}
	if f := w.w.Silence(time.Now()); f != nil {
		return w.found(f)
	}
	return nil
}

// found prints a finding and makes it the exit.
func (w *watch) found(f *receipts.Finding) error {
	if w.c.output != "table" {
		if err := w.c.json(f); err != nil {
			return err
		}
		return &exitError{code: int(f.Exit)}
	}
	return &exitError{int(f.Exit), fmt.Errorf("%s: %s", f.Class, f.Message)}
}

// look takes in the newest checkpoint. What is wrong with the log is an
// exitError with verify's exit.
func (w *watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOfWatch)
	defer cancel()
	if err := w.renew(ctx); err != nil {
		return err
	}
	note, err := w.from.checkpoint(ctx, w.w.Keyset.Origin)
	if err != nil {
		return err
	}
	var noProof error // a proof that could not be asked for proves nothing against the log
	w.w.Prove = func(older, newer uint64) (path []receipts.Hash, err error) {
		path, err = w.from.prove(ctx, w.w.Keyset, older, newer)
		if problem.CodeOf(err) == problem.Unreachable || errors.Is(err, errMovedOn) {
			noProof = err
		}
		return path, err
	}
	before := w.w.Last
	f := w.w.See(note, time.Now())
	if errors.Is(noProof, errMovedOn) {
		return w.look(ctx)
	}
	if noProof != nil {
		return noProof
	}
	if w.w.Last != before && w.keep != "" { // also when it is old: it was seen
		if err := replace(w.keep, note); err != nil {
			return err
		}
	}
	if f != nil {
		return w.found(f)
	}
	w.silent = false
	if string(note) == string(w.note) {
		return nil
	}
	w.note = note
	cp := w.w.Last
	if w.c.output != "table" {
		return w.c.json(struct {
			Origin string    `json:"origin"`
			Size   uint64    `json:"size"`
			Root   string    `json:"root"`
			Time   time.Time `json:"time"`
		}{cp.Origin, cp.Size, cp.Root.String(), cp.Time})
	}
	fmt.Fprintf(w.c.out, "%s %s size %d root %s\n", cp.Time.UTC().Format(time.RFC3339), cp.Origin, cp.Size, cp.Root)
	return nil
}

// renew takes in the keyset, which may only move on, and at first the kept
// checkpoint.
func (w *watch) renew(ctx context.Context) error {
	b, err := w.from.keyset(ctx)
	if err != nil {
		return err
	}
	ks, err := receipts.ParseKeyset(b, w.root)
	switch {
	case ks == nil:
		return &exitError{int(receipts.ExitTampered), fmt.Errorf("the keyset does not hold: %w", err)}
	case err != nil:
		return &exitError{int(receipts.ExitUntrusted), err}
	case w.w.Keyset != nil && ks.Digest() != w.w.Keyset.Digest() && !ks.Knows(w.w.Keyset.Digest()): // RC-11
		return &exitError{int(receipts.ExitTampered), errors.New("key: the keyset is not a later one of the same log")}
	}
	first := w.w.Keyset == nil
	w.w.Keyset = ks
	if !first || w.keep == "" {
		return nil
	}
	note, err := os.ReadFile(w.keep)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't read "+w.keep, "")
	}
	if w.w.Last, err = receipts.ParseCheckpoint(note, ks); err != nil {
		return usage("the checkpoint in "+w.keep+" is not one of this log", "name another file with --keep, and find out why")
	}
	return nil
}

// replace writes a file so that it is whole or as before.
func replace(path string, b []byte) error {
	tmp := path + ".new"
	err := os.WriteFile(tmp, b, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return problem.Wrap(err, problem.Usage, "couldn't keep the checkpoint in "+path, "")
	}
	return nil
}

// remoteLog watches the node that the configuration names.
type remoteLog struct{ client *api.Client }

func (r remoteLog) keyset(ctx context.Context) ([]byte, error) {
	var ks api.Keyset
	err := r.client.Get(ctx, "/v1/receipts/keyset", nil, &ks)
	return []byte(ks.Note), err
}

func (r remoteLog) checkpoint(ctx context.Context, origin string) ([]byte, error) {
	var page view.Page[view.Head]
	if err := r.client.Get(ctx, "/v1/receipts/head", nil, &page); err != nil {
		return nil, err
	}
	for _, h := range page.Items {
		if len(h.Checkpoint) > len(origin) && h.Checkpoint[:len(origin)+1] == origin+"\n" {
			return []byte(h.Checkpoint), nil
		}
	}
	return nil, problem.New(problem.NotFound, "the node shows no checkpoint of "+origin, "It writes one a second once something happened.")
}

func (r remoteLog) prove(ctx context.Context, _ *receipts.Keyset, older, newer uint64) ([]receipts.Hash, error) {
	var p api.Consistency
	q := url.Values{"from": {strconv.FormatUint(older, 10)}, "to": {strconv.FormatUint(newer, 10)}}
	if err := r.client.Get(ctx, "/v1/receipts/consistency", q, &p); err != nil {
		return nil, err
	}
	path := make([]receipts.Hash, len(p.Path))
	for i, s := range p.Path {
		h, err := receipts.ParseHash(s)
		if err != nil {
			return nil, fmt.Errorf("the node's proof: %w", err)
		}
		path[i] = h
	}
	return path, nil
}

// errMovedOn: the node wrote its next checkpoint between two reads.
var errMovedOn = errors.New("the folder has moved on")

// folder watches what a node has written into one of its checkpoints folders.
type folder struct{ dir, keys string }

func (f folder) keyset(context.Context) ([]byte, error) {
	b, err := os.ReadFile(f.keys)
	if err != nil {
		return nil, usage("couldn't read the keyset", "--dir needs --keyset FILE, from key export")
	}
	return b, nil
}

func (f folder) checkpoint(context.Context, string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, "checkpoint"))
	if err != nil {
		return nil, problem.Wrap(err, problem.NotFound, "there is no checkpoint in "+f.dir, "a node writes one into each folder under checkpoints: and into state/log")
	}
	return b, nil
}

func (f folder) prove(ctx context.Context, ks *receipts.Keyset, older, newer uint64) ([]receipts.Hash, error) {
	note, err := f.checkpoint(ctx, "")
	if err != nil {
		return nil, err
	}
	cp, err := receipts.ParseCheckpoint(note, ks)
	if err != nil {
		return nil, err
	}
	if cp.Size != newer {
		return nil, errMovedOn
	}
	return receipts.OpenTiles(os.DirFS(f.dir), cp).Consistency(older)
}
