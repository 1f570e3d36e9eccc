package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// TestPeersOwnSubjects: what another node sealed is its own to check on its own
// subjects. On a subject that this node's archive writes it is a difference here:
// nobody hides a message there by having it from somewhere else.
func TestPeersOwnSubjects(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := tempDir(t)
	node := func(name, session string) (*journal.Journal, *notary.Keys) {
		t.Helper()
		keys, err := notary.NewKeys("test.gatehouse.example/" + name)
		must(err)
		n := notary.New(notary.Options{Node: name, Keys: keys})
		j, err := journal.Open(filepath.Join(dir, name), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
		must(err)
		t.Cleanup(func() { _ = j.Close() })
		must(n.Start(t.Context(), j))
		c, err := n.Open(t.Context(), session, receipts.Open{State: "refused", Code: "no_match"}, receipts.Obs{Point: "gatekeeper", Kind: "gatekeeper", Level: 2, Mediation: "sole"})
		must(err)
		_, err = c.Close(t.Context(), receipts.Close{Reason: "refused"})
		must(err)
		return j, keys
	}
	own, _ := node("node-1", "ours")
	their, keys := node("node-2", "theirs")
	for name, to := range map[string]string{"EG-102_its_own": "theirs", "EG-102_this_node": "ours"} {
		t.Run(name, func(t *testing.T) {
			b, err := bus.Open(t.Context(), bus.Options{Node: "node-2", Dir: filepath.Join(dir, name), Log: slog.New(slog.DiscardHandler)})
			must(err)
			defer b.Close()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			pumped := make(chan error, 1)
			go func() {
				pumped <- b.Pump(ctx, their, func(group []journal.Record) ([]bus.Msg, error) {
					out, err := encode(group)
					for i := range out {
						if rest, ok := strings.CutSuffix(out[i].Subject, ".theirs"); ok {
							out[i].Subject = rest + "." + to
						}
					}
					return out, err
				})
			}()
			defer func() { stop(); <-pumped }()
			eventually(t, "all is published", func() bool { return b.Status().Stored == their.Next()-1 })
			got, err := compareStreams(t.Context(), b, own, peers{keys.Origin(): keys.Keyset()})
			must(err)
			hidden := !slices.ContainsFunc(got.differ, func(d string) bool {
				return strings.HasPrefix(d, "gatehouse.v1.sessions.ours holds 2 messages of another node")
			})
			if hidden != (to == "theirs") || got.others == 0 {
				t.Errorf("%d are others', differences %q", got.others, got.differ)
			}
		})
	}
}
