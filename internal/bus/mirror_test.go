package bus_test

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/bus"
	"gatehouse/receipts"
)

func TestTamperMirror(t *testing.T) { t.Run("RC-38_origin_made_again", recreatedOrigin) }

// recreatedOrigin: an auditor's mirror of the log stream may stop
// when its origin was deleted and made again, without anybody saying so: NATS
// shows no lag. Who goes by the age of the last checkpoint notices (RC-38).
func recreatedOrigin(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	const mirror = "AUDIT_LOG"
	if _, err := js.CreateStream(context60(t), jetstream.StreamConfig{Name: mirror, Mirror: &jetstream.StreamSource{Name: bus.Log}}); err != nil {
		t.Fatal(err)
	}
	key, watcher := checkpoints(t)
	log := new(receipts.Tree)
	now := time.Date(2026, 11, 14, 10, 0, 0, 0, time.UTC)
	watcher.Prove = log.Consistency

	// sign grows the log by a leaf and stores the checkpoint on the origin.
	sign := func() []byte {
		now = now.Add(time.Second)
		log.Append(receipts.Leaf([]byte(now.String())))
		root, err := log.Root(log.Size())
		if err != nil {
			t.Fatal(err)
		}
		note, err := receipts.SignCheckpoint(key, receipts.Checkpoint{Origin: watcher.Keyset.Origin, Size: log.Size(), Root: root, Time: now})
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: "gatehouse.v1.log.n1", Data: note, Header: nats.Header{}}
		m.Header.Set(receipts.HeaderType, "checkpoint")
		if _, err := js.PublishMsg(context60(t), m); err != nil {
			t.Fatal(err)
		}
		return note
	}
	// newest is the last checkpoint that the mirror holds.
	newest := func() string {
		s, err := js.Stream(context60(t), mirror)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.GetLastMsgForSubject(context60(t), "gatehouse.v1.log.n1")
		if err != nil {
			return ""
		}
		return string(m.Data)
	}
	for range 3 {
		note := sign()
		until(t, func() bool { return newest() == string(note) })
		if f := watcher.See(note, now); f != nil {
			t.Fatalf("a log that grows: %+v", f)
		}
	}

	s, err := js.Stream(context60(t), bus.Log)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := js.DeleteStream(context60(t), bus.Log); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(context60(t), cfg); err != nil {
		t.Fatal(err)
	}
	last := sign()
	seen := newest()
	for end := time.Now().Add(2 * time.Second); seen != string(last) && time.Now().Before(end); seen = newest() {
		select { // whether it goes on is the server's affair; that is what is being looked at
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
	now = now.Add(time.Hour)
	f := watcher.See([]byte(seen), now)
	if f == nil || f.Exit != receipts.ExitUnproven || f.Class != receipts.ClassTime {
		t.Fatalf("an hour later the watcher says %+v", f)
	}
	t.Logf("the mirror went on: %t; the watcher says: %s", seen == string(last), f.Message)
}

// checkpoints returns a checkpoint key and a watcher who trusts it.
func checkpoints(t *testing.T) (ed25519.PrivateKey, *receipts.Watcher) {
	t.Helper()
	const origin = "gatehouse.example/n1"
	seed := make([]byte, ed25519.SeedSize)
	root := ed25519.NewKeyFromSeed(seed)
	seed[0] = 1
	key := ed25519.NewKeyFromSeed(seed)
	return key, &receipts.Watcher{MaxAge: time.Minute, Keyset: &receipts.Keyset{
		Origin: origin, Serial: 1,
		Root: receipts.Key{Purpose: receipts.RootKey, Name: origin + "/root", Public: root.Public().(ed25519.PublicKey)},
		Keys: []receipts.Key{{Purpose: receipts.CheckpointKey, Name: origin, Public: key.Public().(ed25519.PublicKey)}},
	}}
}
