//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/bus"
)

// damaged is a way to change a stopped node's NATS store.
type damaged struct {
	do   func(t *testing.T, store string)
	want string // the class with which the node refuses; "" when it puts the store right by itself
}

// TestTamperStore changes the JetStream store of a stopped node: the node
// notices at its next start and either publishes what is missing again from the
// journal, or refuses with the class of the damage and is well after a rebuild.
// It never goes on with a stream that differs.
func TestTamperStore(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: each damage takes three starts of a node; internal/bus has the same in short")
	}
	t.Parallel()
	n := newLiveNode(t, "", sleeper("0"))
	n.start()
	kept := n.deliver(failure(1), quiet(2), quiet(3))
	n.settled(kept...)
	n.stop()
	earlier := filepath.Join(tempDir(t), "nats")
	if err := os.CopyFS(earlier, os.DirFS(n.path("state", "nats"))); err != nil {
		t.Fatal(err)
	}
	n.start() // what the copy does not have
	kept = append(kept, n.deliver(quiet(4))...)
	n.settled(kept...)
	n.stop()
	cases := map[string]damaged{
		"session_deleted": {deleteFirst(bus.Sessions), ""},
		"rolled_back": {func(t *testing.T, store string) {
			if err := errors.Join(os.RemoveAll(store), os.CopyFS(store, os.DirFS(earlier))); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"RC-35_flipped_payload_bit": {flipIn(bus.Sessions, `"type":"session.open"`), "store_damage"},
		"flipped_bit_in_an_event":   {flipIn(bus.Events, `workflow_run.completed`), "store_damage"},
		// The server takes what it can still read for the whole: the stream is
		// behind, which is put right.
		"RC-34_flipped_length_bit":  {flipLength(bus.Log), ""},
		"truncated_block":           {truncateBlock(bus.Log, false), ""},
		"truncated_block_and_index": {truncateBlock(bus.Log, true), ""},
		"RC-36_recreated_stream":    {recreate(bus.Sessions), ""},
		"RC-37_lowered_max_msgs":    {lower(bus.Log, false), "stream_drift"},
		// Put back afterwards: no setting shows it any more.
		"RC-37_lowered_max_msgs_and_raised": {lower(bus.Log, true), "store_damage"},
		"store_deleted": {func(t *testing.T, store string) {
			if err := os.RemoveAll(store); err != nil {
				t.Fatal(err)
			}
		}, ""},
	}
	run := 10
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n.t = t
			defer n.kill() // when it fails half-way
			// A store of its own: what an earlier case left in further blocks would
			// make another damage of this one.
			n.gatehouse(exitOK, "rebuild")
			c.do(t, n.path("state", "nats"))
			before := n.said()
			n.launch()
			n.until("ready or refused", func() bool {
				select {
				case <-n.exited:
					return true
				default:
				}
				s := n.status()
				// Ready comes before the comparison is done; what it found ends the node.
				return s.Ready && s.Bus.Phase == string(bus.Pumping) && s.Bus.Stored+1 >= s.Bus.Durable
			})
			refused := ""
			select {
			case <-n.exited:
				refused = n.lastLine()
				n.cmd = nil
			default:
			}
			switch {
			case c.want == "" && refused != "":
				t.Fatalf("refused: %s", refused)
			case c.want == "" && n.said() == before:
				t.Fatal("the node put the streams right and said nothing")
			case c.want != "" && !strings.Contains(refused, "("+c.want+")"):
				t.Fatalf("the node says %q, want %s", refused, c.want)
			case refused != "":
				n.gatehouse(exitOK, "rebuild")
				n.start()
			}
			run++
			kept = append(kept, n.deliver(quiet(run))...)
			n.settled(kept...)
			n.gatehouse(exitOK, "rebuild", "--check")
			n.stop()
		})
	}
	n.t = t
}

// said counts how often the node said that it put streams right.
func (n *liveNode) said() int {
	n.t.Helper()
	b, err := os.ReadFile(n.path("log"))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Count(string(b), "the streams lack what the journal holds") + strings.Count(string(b), "the streams are empty; the journal is written to them")
}

// lastLine is the last thing that the node said that is no log line.
func (n *liveNode) lastLine() string {
	n.t.Helper()
	b, err := os.ReadFile(n.path("log"))
	if err != nil {
		n.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "gatehouse: ") && !strings.HasPrefix(lines[i], "gatehouse: hint") {
			return lines[i]
		}
	}
	return ""
}

// blocksOf returns the block files of a stream in a stopped store.
func blocksOf(t *testing.T, store, stream string) (blocks []string) {
	t.Helper()
	err := filepath.WalkDir(store, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".blk") && strings.Contains(p, "/"+stream+"/") {
			blocks = append(blocks, p)
		}
		return err
	})
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no blocks of %s: %v", stream, err)
	}
	slices.Sort(blocks)
	return blocks
}

func change(t *testing.T, file string, at func(b []byte) int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := at(b)
	if i < 0 || i >= len(b) {
		t.Fatalf("nothing to change in %s", file)
	}
	b[i] ^= 0x40
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func flipIn(stream, text string) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		change(t, blocksOf(t, store, stream)[0], func(b []byte) int { return bytes.Index(b, []byte(text)) })
	}
}

// flipLength changes the length field of the second record of a block.
func flipLength(stream string) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		change(t, blocksOf(t, store, stream)[0], func(b []byte) int { return int(b[0]) | int(b[1])<<8 })
	}
}

func truncateBlock(stream string, index bool) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		block := blocksOf(t, store, stream)[0]
		st, err := os.Stat(block)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(block, st.Size()*9/10); err != nil {
			t.Fatal(err)
		}
		if index {
			if err := os.Remove(filepath.Join(filepath.Dir(block), "index.db")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// administer opens a stopped store with a server of its own, as somebody with
// the files can.
func administer(t *testing.T, store string, do func(ctx context.Context, js jetstream.JetStream) error) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{ServerName: "node-1", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: store, MaxPayload: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := do(ctx, js); err != nil {
		t.Fatal(err)
	}
}

// lower has the server evict all but the last messages of a stream; deny-delete
// and deny-purge do not forbid that.
func lower(stream string, raise bool) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		administer(t, store, func(ctx context.Context, js jetstream.JetStream) error {
			s, err := js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			cfg.MaxMsgs, cfg.Discard = 5, jetstream.DiscardOld
			if _, err := js.UpdateStream(ctx, cfg); err != nil || !raise {
				return err
			}
			cfg.MaxMsgs, cfg.Discard = -1, jetstream.DiscardNew
			_, err = js.UpdateStream(ctx, cfg)
			return err
		})
	}
}

// deleteFirst makes a stream again with everything but the first subject's messages.
func deleteFirst(stream string) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		administer(t, store, func(ctx context.Context, js jetstream.JetStream) error {
			s, err := js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			info := s.CachedInfo()
			var kept []*nats.Msg
			gone := ""
			for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
				m, err := s.GetMsg(ctx, seq)
				if err != nil {
					return err
				}
				if gone == "" {
					gone = m.Subject
				}
				if m.Subject != gone {
					kept = append(kept, &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
				}
			}
			if len(kept) == 0 {
				return errors.New("there is one session only")
			}
			if err := js.DeleteStream(ctx, stream); err != nil {
				return err
			}
			if _, err := js.CreateStream(ctx, info.Config); err != nil {
				return err
			}
			for _, m := range kept {
				for _, h := range []string{"Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Sequence"} {
					m.Header.Del(h)
				}
				if _, err := js.PublishMsg(ctx, m); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// recreate deletes a stream and makes it again, empty and with higher numbers.
func recreate(stream string) func(*testing.T, string) {
	return func(t *testing.T, store string) {
		administer(t, store, func(ctx context.Context, js jetstream.JetStream) error {
			s, err := js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			if err := js.DeleteStream(ctx, stream); err != nil {
				return err
			}
			cfg.FirstSeq = 1001
			_, err = js.CreateStream(ctx, cfg)
			return err
		})
	}
}
