package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatehouse/internal/api"
	"gatehouse/internal/bus"
	"gatehouse/internal/config"
	"gatehouse/internal/event"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/internal/problem"
	"gatehouse/internal/view"
	"gatehouse/receipts"
)

const (
	maxDifferences = 20               // that a check lists
	settleLimit    = 15 * time.Second // for a row that is on its way to be there
)

func (c *cli) rebuildCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Make the NATS store again from the journal, or with --check compare both",
		Long: "Make the embedded NATS store of a stopped node again from the journal's segments; the old store is kept beside it.\n" +
			"With --check a running node folds its archive again and compares streams and views with it: exit 3 when they differ.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return c.rebuildCheck(cmd)
			}
			cfg, err := config.Check(c.file(cmd))
			if err != nil {
				return err
			}
			done, err := rebuild(cmd.Context(), cfg, slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			if c.output != "table" {
				return c.json(done)
			}
			c.field("positions", fmt.Sprint(done.Positions))
			if done.Kept != "" {
				c.field("old store", done.Kept)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "change nothing: compare the running node's streams and views with its archive")
	return cmd
}

func (c *cli) rebuildCheck(cmd *cobra.Command) error {
	client, err := c.remote(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	var got api.Checked
	if err := client.Post(cmd.Context(), "/v1/node/check", nil, &got); err != nil {
		return err
	}
	if c.output != "table" {
		err = c.json(got)
	} else {
		c.field("archive", fmt.Sprintf("positions %d to %d", got.First, got.Last))
		c.field("streams", fmt.Sprintf("%d messages, %d of them other nodes'", got.Messages, got.Others))
		c.field("views", fmt.Sprintf("%d sessions, %d events, %d bundles", got.Sessions, got.Events, got.Bundles))
		for _, d := range got.Differences {
			c.field("differs", plain(d))
		}
	}
	if err == nil && len(got.Differences) > 0 {
		err = &exitError{code: exitNegative}
	}
	return err
}

// rebuilt is what rebuild did.
type rebuilt struct {
	Positions uint64 `json:"positions"`
	Kept      string `json:"old_store,omitempty"`
}

// rebuild moves a stopped node's embedded store away and makes it again from
// the journal. Claims are not made again: the journal itself says which events
// were judged.
func rebuild(ctx context.Context, cfg *config.Config, log *slog.Logger) (rebuilt, error) {
	if cfg.NATS.URL != "" {
		return rebuilt{}, problem.New(problem.ConfigInvalid, "the streams are on an external NATS",
			"delete the damaged streams there with an administrator's credentials: the node publishes them again")
	}
	s := stateOf(cfg)
	keys, err := notary.LoadKeys(s.keys)
	if err != nil {
		return rebuilt{}, err
	}
	// The journal's lock says that no node runs.
	j, err := journal.Open(s.journal, journal.Options{PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		return rebuilt{}, err
	}
	defer j.Close()
	var done rebuilt
	old := s.nats + "." + time.Now().UTC().Format("20060102T150405.000Z")
	switch err := os.Rename(s.nats, old); {
	case err == nil:
		done.Kept = old
	case !errors.Is(err, fs.ErrNotExist):
		return rebuilt{}, fmt.Errorf("couldn't move the old store away: %w", err)
	}
	b, err := bus.Open(ctx, bus.Options{Node: cfg.Node, Dir: s.nats, Log: log})
	if err != nil {
		return rebuilt{}, err
	}
	defer b.Close()
	done.Positions = j.Next() - 1
	// A pump ends when its journal does, after it has stored all of it.
	pumped := make(chan error, 1)
	go func() { pumped <- b.Pump(ctx, j, encode) }()
	if err := errors.Join(j.Close(), <-pumped, ctx.Err()); err != nil {
		return rebuilt{}, err
	}
	return done, nil
}

// check folds the archive of a running node again and compares its streams and
// its live view with that. What is on its way is waited for. What other nodes
// sealed is theirs to check: the views hold it as the streams do.
func (n *node) check(ctx context.Context, live *view.View) (api.Checked, error) {
	streams, err := compareStreams(ctx, n.bus, n.journal, n.peers)
	if err != nil {
		return api.Checked{}, err
	}
	got := api.Checked{Messages: streams.messages, Others: streams.others, Differences: streams.differ}
	again := &refold{view: view.New(n.bus, view.Options{Keyset: n.keys.Keyset()}), j: n.journal, bus: n.bus, peers: n.peers, seq: map[string]uint64{}}
	// What was let go by the archive is on the streams only, and is taken from them.
	if err := streams.older(ctx, n.bus, again.view.Fold); err != nil {
		return api.Checked{}, err
	}
	// All that there is, however long it takes: each message of another node is
	// verified. What is limited is the wait for what comes meanwhile.
	if _, err := again.snapshot(ctx); err != nil {
		return api.Checked{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		// A row that does not change while the live view is read must be the same
		// there; one that changes is looked at again.
		before, err := again.snapshot(ctx)
		if err != nil {
			return api.Checked{}, err
		}
		have := live.Snapshot()
		after, err := again.snapshot(ctx)
		if err != nil {
			return api.Checked{}, err
		}
		got.First, got.Last = again.first, again.last
		got.Sessions, got.Events, got.Bundles = len(after.Sessions), len(after.Events), len(after.Bundles)
		rows := compareSnapshots(before, have, after)
		if len(rows) > 0 {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		got.Differences = append(got.Differences, rows...)
		if len(got.Differences) > maxDifferences {
			more := len(got.Differences) - maxDifferences
			got.Differences = append(got.Differences[:maxDifferences], fmt.Sprintf("and %d more", more))
		}
		return got, nil
	}
}

// refold is a view made from the journal, and from the streams only what other
// nodes put there.
type refold struct {
	view        *view.View
	j           *journal.Journal
	first, last uint64 // positions folded

	bus   *bus.Bus
	peers peers
	seq   map[string]uint64 // by stream: the last message looked at
}

// snapshot folds what the journal and the other nodes have got since and returns
// the state.
func (r *refold) snapshot(ctx context.Context) (view.Snapshot, error) {
	if len(r.peers) > 0 {
		if err := r.theirs(ctx); err != nil {
			return view.Snapshot{}, err
		}
	}
	for group, err := range r.j.Groups(r.next()) {
		if problem.CodeOf(err) == problem.JournalTrimmed && r.last > 0 {
			break // nothing new
		}
		if err != nil {
			return view.Snapshot{}, fmt.Errorf("couldn't read the archive: %w", err)
		}
		if group[len(group)-1].Pos <= r.last {
			continue
		}
		msgs, err := encode(group)
		if err != nil {
			return view.Snapshot{}, err
		}
		for _, m := range msgs {
			r.view.Fold(m)
		}
		if r.first == 0 {
			r.first = group[0].Pos
		}
		r.last = group[len(group)-1].Pos
	}
	return r.view.Snapshot(), nil
}

// theirs folds what other nodes have put on the streams since.
func (r *refold) theirs(ctx context.Context) error {
	for _, stream := range recordStreams {
		for m, err := range r.bus.Read(ctx, stream, "", r.seq[stream]+1) {
			if err != nil {
				return err
			}
			if r.seq[stream] = m.Seq; r.peers.sealed(m) {
				r.view.Fold(m)
			}
		}
	}
	return nil
}

func (r *refold) next() uint64 {
	if r.last == 0 {
		return 0
	}
	return r.last + 1
}

// compareSnapshots names the rows that are equal before and after, and others in
// have.
func compareSnapshots(before, have, after view.Snapshot) []string {
	var out []string
	out = append(out, compareRows("session", before.Sessions, have.Sessions, after.Sessions, func(s view.Session) string { return s.ID })...)
	out = append(out, compareRows("event", before.Events, have.Events, after.Events, func(e view.Event) string { return e.ID })...)
	out = append(out, compareRows("bundle", before.Bundles, have.Bundles, after.Bundles, func(b view.Bundle) string { return b.Name })...)
	if have.Strange > after.Strange {
		out = append(out, fmt.Sprintf("the view met %d messages that cannot be read, the archive has %d", have.Strange, after.Strange))
	}
	return out
}

func compareRows[T any](what string, before, have, after []T, id func(T) string) []string {
	index := func(rows []T) map[string]T {
		m := make(map[string]T, len(rows))
		for _, r := range rows {
			m[id(r)] = r
		}
		return m
	}
	was, is, now := index(before), index(have), index(after)
	var out []string
	for k, a := range now {
		b, old := was[k]
		h, shown := is[k]
		switch {
		case !old || !reflect.DeepEqual(a, b): // changing
		case !shown:
			out = append(out, what+" "+k+" is not in the view")
		case !reflect.DeepEqual(a, h):
			out = append(out, what+" "+k+" is another one in the view")
		}
	}
	for k := range is {
		if _, ok := now[k]; !ok {
			out = append(out, what+" "+k+" is not in the archive")
		}
	}
	slices.Sort(out)
	return out
}

// compared is what the streams hold beside the archive.
type compared struct {
	differ   []string
	messages uint64
	others   uint64         // of them sealed by other nodes
	before   map[string]int // messages of a subject that are older than the archive
	peers    peers
}

// compareStreams reads the streams and then the archive: what a stream holds of
// this node must be what the archive holds, in its order, whole up to where the
// pump said it was. The archive may go on behind that, and the stream may begin
// before an archive that let its oldest segments go.
func compareStreams(ctx context.Context, b *bus.Bus, j *journal.Journal, p peers) (*compared, error) {
	stored := b.Status().Stored
	c := &compared{before: map[string]int{}, peers: p}
	held, others := map[string][][32]byte{}, map[string]int{}
	for _, stream := range recordStreams {
		for m, err := range b.Read(ctx, stream, "", 0) {
			if err != nil {
				return nil, err
			}
			c.messages++
			if p.sealed(m) {
				c.others++
				others[m.Subject]++
				continue
			}
			held[m.Subject] = append(held[m.Subject], sha256.Sum256(m.Data))
		}
	}
	first, trimmed, seen := true, false, map[string]bool{}
	for group, err := range j.Groups(0) {
		if err != nil {
			return nil, fmt.Errorf("couldn't read the archive: %w", err)
		}
		if first {
			first, trimmed = false, group[0].Pos > 1
		}
		msgs, err := encode(group)
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			have, sum := held[m.Subject], sha256.Sum256(m.Data)
			if trimmed && !seen[m.Subject] {
				n := slices.Index(have, sum)
				if n < 0 {
					n = len(have)
				}
				c.before[m.Subject], have = n, have[n:]
			}
			seen[m.Subject] = true
			switch {
			case len(have) == 0 && group[len(group)-1].Pos > stored:
			case len(have) == 0:
				c.differ = append(c.differ, fmt.Sprintf("%s lacks a message of position %d", m.Subject, group[0].Pos))
			case have[0] != sum:
				c.differ = append(c.differ, fmt.Sprintf("%s holds other bytes than position %d", m.Subject, group[0].Pos))
				fallthrough
			default:
				have = have[1:]
			}
			held[m.Subject] = have
		}
	}
	for subject, left := range held {
		switch {
		case trimmed && !seen[subject]:
			c.before[subject] = len(left)
		case len(left) > 0:
			c.differ = append(c.differ, fmt.Sprintf("%s holds %d messages that the archive does not have", subject, len(left)))
		}
	}
	// An event is told to any node, and stands on its subject once; the rest has one
	// writer.
	for subject, n := range others {
		if seen[subject] && !strings.HasPrefix(subject, event.SubjectPrefix) {
			c.differ = append(c.differ, fmt.Sprintf("%s holds %d messages of another node, and the archive writes it", subject, n))
		}
	}
	slices.Sort(c.differ)
	return c, nil
}

// recordStreams are the streams that the journal is the source of.
var recordStreams = [...]string{bus.Events, bus.Sessions, bus.Log}

// older gives the messages that are older than the archive, in the streams' order.
func (c *compared) older(ctx context.Context, b *bus.Bus, take func(bus.Msg)) error {
	if len(c.before) == 0 {
		return nil
	}
	for _, stream := range recordStreams {
		n := map[string]int{}
		for m, err := range b.Read(ctx, stream, "", 0) {
			if err != nil {
				return err
			}
			if c.peers.sealed(m) {
				continue
			}
			if n[m.Subject]++; n[m.Subject] <= c.before[m.Subject] {
				take(m)
			}
		}
	}
	return nil
}

// peers are the nodes that share this one's streams: their keysets, by log.
type peers map[string]*receipts.Keyset

// sealed reports whether a message is what another node's log says of itself: a
// leaf under its seal, the seal, or a checkpoint. A message that only claims it
// is nobody's, and a difference.
func (p peers) sealed(m bus.Msg) bool {
	if len(p) == 0 {
		return false
	}
	switch m.Header[receipts.HeaderType] {
	case notary.TypeSeal:
		s, err := receipts.ParseSeal(m.Data)
		return err == nil && p[s.Origin] != nil && s.Verify(p[s.Origin]) == nil
	case notary.TypeCheckpoint:
		for _, ks := range p {
			if _, err := receipts.ParseCheckpoint(m.Data, ks); err == nil {
				return true
			}
		}
		return false
	}
	h, err := receipts.ParseHeader(m.Header[receipts.HeaderSeal])
	if err != nil || p[h.Seal.Origin] == nil {
		return false
	}
	leaf := receipts.Message{Data: m.Data, Type: m.Header[receipts.HeaderType], Seal: m.Header[receipts.HeaderSeal], ID: m.Header[receipts.HeaderID]}
	_, _, err = leaf.Open(p[h.Seal.Origin])
	return err == nil
}
