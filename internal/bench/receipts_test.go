package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/journal"
	"gatehouse/internal/notary"
	"gatehouse/receipts"
)

// writer makes one durable receipt of a session.
type writer func(ctx context.Context, session int) error

// TestBenchReceipts compares durable receipts: sessions that each wait for their
// own, against the same receipts signed one by one and published to a JetStream
// with sync always, conditional on the subject's last message as a chain needs
// it, and against a lone loop of sign, write and fdatasync.
func TestBenchReceipts(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	asServe(t)
	for _, sessions := range []int{1, 64, 1000} {
		sides := []struct {
			name  string
			write writer
			n     int
		}{
			{"ours", notarySide(t, sessions), sessions}, {"sync_always", publishSide(t, sessions), sessions}, {"lone_fdatasync", loneSide(t), 1},
		}
		got := make([][]measure, len(sides))
		for range rounds {
			for i, s := range sides {
				got[i] = append(got[i], write(t, s.write, s.n))
			}
		}
		if sessions == 64 {
			cores := float64(runtime.NumCPU())
			report(t, "notary.durable_receipts_64_sessions/goal", "receipts/s of a core", median(got[0], perSecond)/cores, 15_000)
			report(t, "notary.durable_receipts_64_sessions.p50/goal", "ms", median(got[0], at(50)), 3)
		}
		for i := 1; i < len(sides); i++ {
			name := fmt.Sprintf("notary.durable_receipts_%d_sessions/%s", sessions, sides[i].name)
			report(t, name, "receipts/s", median(got[0], perSecond), median(got[i], perSecond))
			report(t, name+".cpu", "us", median(got[0], cost), median(got[i], cost))
			report(t, name+".p50", "ms", median(got[0], at(50)), median(got[i], at(50)))
			report(t, name+".p99", "ms", median(got[0], at(99)), median(got[i], at(99)))
		}
	}
}

// write has every session write receipts for one round.
func write(t *testing.T, w writer, sessions int) measure {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	start, used := time.Now(), processor(t)
	var g sync.WaitGroup
	for s := range sessions {
		g.Go(func() {
			var took []time.Duration
			for time.Since(start) < roundFor {
				from := time.Now()
				if err := w(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
				took = append(took, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	g.Wait()
	m := measure{took: all, seconds: time.Since(start).Seconds(), used: processor(t) - used}
	slices.Sort(m.took)
	return m
}

func decision(session, seq int) receipts.Receipt {
	return receipts.Receipt{
		Type: receipts.TypeDecision,
		Act: &receipts.Act{ID: fmt.Sprintf("%d-%d", session, seq), Kind: "http.request", Scheme: "https", Host: "packages.example.com", Port: 443, Method: "GET",
			Args: map[string]receipts.Hash{"path": receipts.Leaf([]byte(strconv.Itoa(seq)))}},
		Dec: &receipts.Dec{Verdict: receipts.Deny, Mode: receipts.Hard, Rule: "egress.default_deny", Reason: "not_listed", By: "egress", Gen: 1, Fuel: 4210, Dur: 7,
			Policy: receipts.Leaf([]byte("policy")), Module: receipts.Leaf([]byte("module"))},
		Obs: &receipts.Obs{Point: "door", Kind: "egress-proxy", Level: 2, Mediation: "sole"},
		In:  receipts.Leaf([]byte("in")),
	}
}

// nodeLog opens a notary on a journal of its own.
func nodeLog(t *testing.T) *notary.Notary {
	t.Helper()
	keys, err := notary.NewKeys("bench.gatehouse.example/node-1")
	if err != nil {
		t.Fatal(err)
	}
	n := notary.New(notary.Options{Node: "node-1", Keys: keys, Budget: notary.Budget{Receipts: 1 << 40, Refusals: 1 << 40, FoldAfter: 1 << 40}})
	j, err := journal.Open(t.TempDir(), journal.Options{Seal: n.Seal, PrivateKey: keys.NodeKey().Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if err := n.Start(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return n
}

func notarySide(t *testing.T, sessions int) writer {
	t.Helper()
	n := nodeLog(t)
	chains, seq := make([]*notary.Chain, sessions), make([]int, sessions)
	for i := range chains {
		c, err := n.Open(t.Context(), fmt.Sprintf("S%d", i), receipts.Open{State: "admitted", Event: "bench", Mode: receipts.Hard}, *decision(0, 0).Obs)
		if err != nil {
			t.Fatal(err)
		}
		chains[i] = c
	}
	return func(ctx context.Context, s int) error {
		seq[s]++
		_, err := chains[s].Append(ctx, decision(s, seq[s]))
		return err
	}
}

// signed encodes a receipt and signs it alone.
func signed(key ed25519.PrivateKey, session, seq int, prev receipts.Hash) (b []byte, leaf receipts.Hash, seal *receipts.Seal, err error) {
	r := decision(session, seq)
	r.V, r.Log, r.Session, r.Seq, r.Prev, r.Epoch, r.T = 1, "bench.gatehouse.example/node-1", fmt.Sprintf("S%d", session), uint64(seq), prev, 1, time.Now()
	if b, err = r.Encode(); err != nil {
		return nil, leaf, nil, err
	}
	leaf = receipts.Leaf(b)
	seal, err = receipts.SealGroup(key, "k+00000000", r.Log, 0, receipts.Hash{}, []receipts.Hash{leaf})
	return b, leaf, seal, err
}

func benchKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func publishSide(t *testing.T, sessions int) writer {
	t.Helper()
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), DontListen: true, SyncAlways: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SESSIONS", Subjects: []string{"gatehouse.v1.sessions.*"}, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	key := benchKey()
	type place struct {
		seq  int
		last uint64
		prev receipts.Hash
	}
	at := make([]place, sessions)
	return func(ctx context.Context, s int) error {
		p := &at[s]
		p.seq++
		if p.prev.IsZero() {
			p.prev = receipts.Leaf(nil)
		}
		b, leaf, seal, err := signed(key, s, p.seq, p.prev)
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: fmt.Sprintf("gatehouse.v1.sessions.S%d", s), Data: b, Header: nats.Header{}}
		m.Header.Set(receipts.HeaderSeal, seal.Header(0))
		ack, err := js.PublishMsg(ctx, m, jetstream.WithMsgID(leaf.String()), jetstream.WithExpectLastSequencePerSubject(p.last))
		if err != nil {
			return err
		}
		p.last, p.prev = ack.Sequence, leaf
		return nil
	}
}

func loneSide(t *testing.T) writer {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	key, seq, prev := benchKey(), 0, receipts.Leaf(nil)
	return func(context.Context, int) error {
		seq++
		b, leaf, seal, err := signed(key, 0, seq, prev)
		if err != nil {
			return err
		}
		prev = leaf
		if _, err := f.Write(append(b, seal.Encode()...)); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	}
}

// TestBenchCheckpointDelay measures how long a durable receipt waits for the
// first checkpoint that covers it, against the goal of a second and what the
// signing and syncing of one adds.
func TestBenchCheckpointDelay(t *testing.T) {
	if os.Getenv("GATEHOUSE_BENCH") != "1" {
		t.Skip("set GATEHOUSE_BENCH=1")
	}
	n := nodeLog(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	c, err := n.Open(ctx, "S1", receipts.Open{State: "admitted", Event: "bench", Mode: receipts.Hard}, *decision(0, 0).Obs)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for i := range 20 {
		if _, err := c.Append(ctx, decision(1, i)); err != nil {
			t.Fatal(err)
		}
		from, size := time.Now(), n.Size()
		for covered(t, n.Head()) < size {
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(from))
		time.Sleep(time.Duration(i*53%1000) * time.Millisecond) // anywhere between two checkpoints
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	slices.Sort(took)
	all := []measure{{took: took, seconds: 1}}
	report(t, "notary.checkpoint_delay.p50/goal", "ms", median(all, at(50)), 1000)
	report(t, "notary.checkpoint_delay.p99/goal", "ms", median(all, at(99)), 1000)
}

// covered returns the size of a checkpoint, 0 if there is none.
func covered(t *testing.T, note []byte) uint64 {
	t.Helper()
	lines := bytes.SplitN(note, []byte("\n"), 3)
	if len(lines) < 3 {
		return 0
	}
	size, err := strconv.ParseUint(string(lines[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return size
}
