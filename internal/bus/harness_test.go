package bus_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
)

const deadline = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func context60(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// open opens a bus and closes it at the end of the test.
func open(t testing.TB, o bus.Options) *bus.Bus {
	t.Helper()
	if o.Node == "" {
		o.Node = "n1"
	}
	if o.Log == nil {
		o.Log = quiet(t)
	}
	b, err := bus.Open(context60(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// quiet logs nowhere, or with BUS_LOG set to the test's output.
func quiet(t testing.TB) *slog.Logger {
	if os.Getenv("BUS_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openJournal opens a journal whose groups end with a seal record on the
// node's log subject, as a real node's do.
func openJournal(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, journal.Options{Seal: func(g []journal.Record) ([]journal.Record, error) {
		return append(g, journal.Record{Kind: journal.KindSeal, Subject: "gatehouse.v1.log.n1", Data: fmt.Appendf(nil, "seal of %d at %d", len(g), g[0].Pos)}), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// encode stands for notary.Encode.
func encode(group []journal.Record) ([]bus.Msg, error) {
	var out []bus.Msg
	for _, r := range group {
		if r.Kind == journal.KindPrivate || r.Kind == journal.KindSnapshot {
			continue
		}
		sum := sha256.Sum256(append([]byte(r.Subject), r.Data...))
		out = append(out, bus.Msg{Subject: r.Subject, Data: r.Data, Header: map[string]string{
			"Nats-Msg-Id": hex.EncodeToString(sum[:]), "Gatehouse-Seal": fmt.Sprintf("seal/%d", group[0].Pos),
		}})
	}
	return out, nil
}

func eventSubject(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "gatehouse.v1.events.github.main.workflow_run.completed." + hex.EncodeToString(sum[:])
}

func sessionSubject(n int) string { return fmt.Sprintf("gatehouse.v1.sessions.S%d", n) }

func event(id, data string) journal.Record {
	return journal.Record{Kind: journal.KindEvent, Subject: eventSubject(id), Data: []byte(data)}
}

func receipt(session, seq int) journal.Record {
	return journal.Record{Kind: journal.KindReceipt, Subject: sessionSubject(session), Data: fmt.Appendf(nil, "session %d receipt %d", session, seq)}
}

// add appends and waits for durability; it returns the end of the journal.
func add(t testing.TB, j *journal.Journal, recs ...journal.Record) {
	t.Helper()
	if _, err := j.Append(recs...).Wait(context60(t)); err != nil {
		t.Fatal(err)
	}
}

// end returns the last position of the journal.
func end(t testing.TB, j *journal.Journal) (pos uint64) {
	t.Helper()
	for g, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		pos = g[len(g)-1].Pos
	}
	return pos
}

// pumping runs a pump until stop is called, which returns the pump's error.
func pumping(t testing.TB, b *bus.Bus, j *journal.Journal) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context60(t))
	done := make(chan error, 1)
	go func() { done <- b.Pump(ctx, j, encode) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			err, stopped = <-done, true
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// stored waits until the pump has stored everything, or has stopped.
func stored(t testing.TB, b *bus.Bus, j *journal.Journal) {
	t.Helper()
	want := end(t, j)
	until(t, func() bool {
		s := b.Status()
		return s.Phase == bus.Stopped || s.Phase == bus.Pumping && s.Stored >= want
	})
	if s := b.Status(); s.Err != nil {
		t.Fatalf("the pump stopped: %v", s.Err)
	}
}

// until polls; the deadline is a safety net, not a measurement.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still waiting after", deadline)
		}
	}
}

// stopsWith waits for the pump to stop by itself and returns why.
func stopsWith(t testing.TB, b *bus.Bus, stop func() error) error {
	t.Helper()
	until(t, func() bool { return b.Status().Phase == bus.Stopped })
	err := stop()
	if err == nil {
		t.Fatal("the pump stopped without an error")
	}
	if got := b.Status().Err; !errors.Is(got, err) {
		t.Fatalf("status shows %v, the pump returned %v", got, err)
	}
	return err
}

// contents reads a stream into subject -> data in order.
func contents(t testing.TB, b *bus.Bus, stream string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for m, err := range b.Read(context60(t), stream, "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		out[m.Subject] = append(out[m.Subject], string(m.Data))
	}
	return out
}

// wanted is what the streams must hold: the journal by subject.
func wanted(t testing.TB, j *journal.Journal) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for g, err := range j.Groups(0) {
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := encode(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			out[m.Subject] = append(out[m.Subject], string(m.Data))
		}
	}
	return out
}

// same fails unless the streams hold exactly the journal.
func same(t testing.TB, b *bus.Bus, j *journal.Journal) {
	t.Helper()
	have := contents(t, b, bus.Events)
	for _, s := range []string{bus.Sessions, bus.Log} {
		for k, v := range contents(t, b, s) {
			have[k] = v
		}
	}
	want := wanted(t, j)
	for k, v := range want {
		if !slices.Equal(have[k], v) {
			t.Fatalf("%s holds\n%q, want\n%q", k, have[k], v)
		}
	}
	if len(have) != len(want) {
		t.Fatalf("%d subjects stored, want %d", len(have), len(want))
	}
}

// intrude publishes past the bus.
func intrude(t testing.TB, b *bus.Bus, subject, data string) {
	t.Helper()
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(context60(t), &nats.Msg{Subject: subject, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}
