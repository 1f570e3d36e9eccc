package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/bus"
	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// fill appends a mixed load: events, interleaved sessions, private records.
func fill(t testing.TB, j *journal.Journal, from, to int) {
	t.Helper()
	var last journal.Ticket
	for i := from; i < to; i++ {
		last = j.Append(
			event(fmt.Sprint("e", i), fmt.Sprint("event ", i)),
			receipt(i%7, i/7*2), receipt(i%7, i/7*2+1),
		)
	}
	if _, err := last.Wait(context60(t)); err != nil {
		t.Fatal(err)
	}
}

func TestPumpStoresTheJournalInOrder(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
	fill(t, j, 0, 50) // before the pump
	stop := pumping(t, b, j)
	fill(t, j, 50, 300) // while it runs
	stored(t, b, j)
	same(t, b, j)
	if err := stop(); err != nil {
		t.Fatalf("a pump that is told to stop returned %v", err)
	}
	if s := b.Status(); !s.Connected || !s.Embedded || s.Phase != bus.Idle {
		t.Fatalf("status %+v", s)
	}
}

func TestPumpCarriesHeaders(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
	add(t, j, event("a", "x"))
	pumping(t, b, j)
	stored(t, b, j)
	for m, err := range b.Read(context60(t), bus.Events, "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Header["Gatehouse-Seal"] != "seal/1" || m.Header["Nats-Msg-Id"] == "" || m.Stream != bus.Events || m.Seq != 1 {
			t.Fatalf("got %+v", m)
		}
	}
}

// TestPumpEndsWithItsJournal: a node that shuts down closes the journal first
// and loses nothing that is not on the streams yet.
func TestPumpEndsWithItsJournal(t *testing.T) {
	dir := t.TempDir()
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, dir)
	fill(t, j, 0, 200)
	done := make(chan error, 1)
	go func() { done <- b.Pump(context60(t), j, encode) }()
	until(t, func() bool { return b.Status().Phase == bus.Pumping })
	fill(t, j, 200, 400)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	same(t, b, openJournal(t, dir))
}

// IN-03: a crash between journal append and publish, and between publish and
// acknowledgement (RC-39, RC-40), stores each record exactly once.
func TestTamperPump(t *testing.T) {
	for name, restart := range map[string]bool{"IN-03_RC-39_pump_only": false, "RC-40_with_the_store": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := bus.Open(context60(t), bus.Options{Node: "n1", Dir: dir, Duplicates: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			j := openJournal(t, t.TempDir())
			rnd := rand.New(rand.NewPCG(1, 2))
			for round := range 12 {
				fill(t, j, round*40, (round+1)*40)
				ctx, cancel := context.WithCancel(context60(t))
				done := make(chan error, 1)
				go func() { done <- b.Pump(ctx, j, encode) }()
				// Stop somewhere in the middle.
				some := b.Status().Stored + uint64(rnd.IntN(100))
				until(t, func() bool { return b.Status().Stored >= some || b.Status().Stored >= end(t, j) })
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if restart {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					if b, err = bus.Open(context60(t), bus.Options{Node: "n1", Dir: dir, Duplicates: 100 * time.Millisecond}); err != nil {
						t.Fatal(err)
					}
				}
			}
			pumping(t, b, j)
			stored(t, b, j)
			same(t, b, j)
		})
	}
}

// TestEventsAreWrittenOnce: the message id stops a copy only inside its
// window; the subject stops it for ever.
func TestEventsAreWrittenOnce(t *testing.T) {
	o := bus.Options{Dir: t.TempDir(), Duplicates: 100 * time.Millisecond}
	b, j := open(t, o), openJournal(t, t.TempDir())
	add(t, j, event("a", "first"))
	pumping(t, b, j)
	stored(t, b, j)

	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	var id string
	for m := range b.Read(context60(t), bus.Events, "", 0) {
		id = m.Header["Nats-Msg-Id"]
	}
	// Inside the window the copy is called a duplicate; the answer changes when
	// the window has passed, and then it must be a refusal.
	until(t, func() bool {
		ack, err := js.Publish(context60(t), eventSubject("a"), []byte("first"), jetstream.WithMsgID(id))
		if err == nil && ack.Duplicate {
			return false
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != 10077 {
			t.Fatalf("a second message was answered %+v, %v", ack, err)
		}
		return true
	})
	same(t, b, j)
}

func TestDeletedStoreIsMadeAgainFromTheJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	j := openJournal(t, t.TempDir())
	fill(t, j, 0, 100)
	// Empty streams are no alarm, as at every first start; streams that end early are.
	var warned bytes.Buffer
	log := slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn}))
	run := func() {
		b, err := bus.Open(context60(t), bus.Options{Node: "n1", Dir: dir, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		stop := pumping(t, b, j)
		stored(t, b, j)
		same(t, b, j)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	run()
	if warned.Len() > 0 {
		t.Errorf("empty streams were warned of: %s", warned.String())
	}
	fill(t, j, 100, 110)
	run()
	if !strings.Contains(warned.String(), "the streams lack what the journal holds") {
		t.Errorf("streams that end early were not warned of: %s", warned.String())
	}
}

// RC-36: a stream deleted and made again at a higher sequence is shown, and
// filled again from the journal.
func TestTamperStream(t *testing.T) {
	t.Run("RC-36_first_seq", func(t *testing.T) {
		b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
		fill(t, j, 0, 20)
		stop := pumping(t, b, j)
		stored(t, b, j)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		js, _ := jetstream.New(b.Conn())
		s, err := js.Stream(context60(t), bus.Sessions)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		if err := js.DeleteStream(context60(t), bus.Sessions); err != nil {
			t.Fatal(err)
		}
		cfg.FirstSeq = 1001
		if _, err := js.CreateStream(context60(t), cfg); err != nil {
			t.Fatal(err)
		}
		drift, err := b.Drift(context60(t))
		if err != nil || len(drift) != 1 || drift[0].Field != "FirstSeq" || drift[0].Loses {
			t.Fatalf("drift %v, %v", drift, err)
		}
		pumping(t, b, j)
		stored(t, b, j)
		same(t, b, j)
	})
}

// fenced fails unless err is a fence on subject for the given reason.
func fenced(t *testing.T, err error, subject string, seq uint64, why bus.Why) {
	t.Helper()
	var f *bus.FenceError
	if !errors.As(err, &f) || f.Subject != subject || f.Why != why || f.Seq != seq {
		t.Fatalf("got %v (%+v), want a fence on %s at %d: %s", err, f, subject, seq, why)
	}
	if problem.CodeOf(err) != problem.StreamFenced {
		t.Fatalf("code %s", problem.CodeOf(err))
	}
}

func TestReconcileFences(t *testing.T) {
	cases := map[string]struct {
		journal []journal.Record
		stream  []bus.Msg // written past the bus before the pump starts
		subject string
		seq     uint64
		why     bus.Why
	}{
		"other_bytes_at_the_head": {
			journal: []journal.Record{receipt(1, 0), receipt(1, 1)},
			stream:  []bus.Msg{{Subject: sessionSubject(1), Data: []byte("forged")}},
			subject: sessionSubject(1), seq: 1, why: bus.OtherBytes,
		},
		"session_ahead": {
			journal: []journal.Record{receipt(1, 0)},
			stream:  []bus.Msg{{Subject: sessionSubject(1), Data: []byte("session 1 receipt 0")}, {Subject: sessionSubject(1), Data: []byte("one more")}},
			subject: sessionSubject(1), seq: 1, why: bus.OtherBytes, // the forged first one lacks the seal header
		},
		"event_with_other_bytes": {
			journal: []journal.Record{event("a", "mine")},
			stream:  []bus.Msg{{Subject: eventSubject("a"), Data: []byte("theirs")}},
			subject: eventSubject("a"), seq: 1, why: bus.OtherBytes,
		},
		"control_subject_of_this_node": {
			journal: []journal.Record{receipt(1, 0)},
			stream:  []bus.Msg{{Subject: "gatehouse.v1.control.n1", Data: []byte("bundle.apply")}},
			subject: "gatehouse.v1.control.n1", seq: 1, why: bus.StreamAhead,
		},
		"empty_journal_and_a_log": {
			stream:  []bus.Msg{{Subject: "gatehouse.v1.log.n1", Data: []byte("seal")}},
			subject: "gatehouse.v1.log.n1", seq: 1, why: bus.StreamAhead,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
			for _, r := range c.journal {
				add(t, j, r)
			}
			for _, m := range c.stream {
				intrude(t, b, m.Subject, string(m.Data))
			}
			before := contents(t, b, bus.Sessions)
			stop := pumping(t, b, j)
			fenced(t, stopsWith(t, b, stop), c.subject, c.seq, c.why)
			if after := contents(t, b, bus.Sessions); fmt.Sprint(before) != fmt.Sprint(after) {
				t.Fatalf("the pump wrote before it stopped: %v", after)
			}
		})
	}
}

// TestStreamAhead: everything the journal holds is there, and one message more.
func TestStreamAhead(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
	add(t, j, receipt(1, 0), receipt(2, 0))
	stop := pumping(t, b, j)
	stored(t, b, j)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	intrude(t, b, sessionSubject(1), "one more")
	fenced(t, stopsWith(t, b, pumping(t, b, j)), sessionSubject(1), 3, bus.StreamAhead)
}

// RC-42: somebody writes to a session of this node while the pump runs.
func TestTamperLive(t *testing.T) {
	t.Run("RC-42_second_writer", func(t *testing.T) {
		b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
		add(t, j, receipt(1, 0))
		stop := pumping(t, b, j)
		stored(t, b, j)
		intrude(t, b, sessionSubject(1), "forged")
		add(t, j, receipt(1, 1))
		fenced(t, stopsWith(t, b, stop), sessionSubject(1), 2, bus.OtherBytes)
	})
}

// TestOtherNodesAreLeftAlone: their sessions, events and logs are not ours to judge.
func TestOtherNodesAreLeftAlone(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
	intrude(t, b, "gatehouse.v1.sessions.OTHER", "x")
	intrude(t, b, "gatehouse.v1.log.n2", "x")
	intrude(t, b, "gatehouse.v1.control.n2", "x")
	intrude(t, b, eventSubject("other"), "x")
	add(t, j, receipt(1, 0))
	pumping(t, b, j)
	stored(t, b, j)
	if got := contents(t, b, bus.Sessions)["gatehouse.v1.sessions.OTHER"]; len(got) != 1 {
		t.Fatalf("got %v", got)
	}
}

// RC-37: max_msgs lowered, also in a store that is stopped; discard, age and
// rewriting settings likewise.
func TestTamperSettings(t *testing.T) {
	cases := map[string]struct {
		stream string
		change func(*jetstream.StreamConfig)
		field  string
	}{
		"RC-37_max_msgs":  {bus.Sessions, func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, "MaxMsgs"},
		"max_age":         {bus.Sessions, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "MaxAge"},
		"max_bytes":       {bus.Events, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "MaxBytes"},
		"per_subject":     {bus.Sessions, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, "MaxMsgsPerSubject"},
		"republish":       {bus.Sessions, func(c *jetstream.StreamConfig) { c.RePublish = &jetstream.RePublish{Destination: "x.>"} }, "RePublish"},
		"discard_old":     {bus.Log, func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, "Discard"},
		"second_event_ok": {bus.Events, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 }, "MaxMsgsPerSubject"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b, j := open(t, bus.Options{Dir: dir}), openJournal(t, t.TempDir())
			js, _ := jetstream.New(b.Conn())
			s, err := js.Stream(context60(t), c.stream)
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			c.change(&cfg)
			if _, err := js.UpdateStream(context60(t), cfg); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = open(t, bus.Options{Dir: dir})
			err = stopsWith(t, b, pumping(t, b, j))
			var d *bus.DriftError
			if !errors.As(err, &d) || len(d.Differences) != 1 || d.Differences[0].Field != c.field || d.Differences[0].Stream != c.stream {
				t.Fatalf("got %v", err)
			}
			if problem.CodeOf(err) != problem.StreamDrift || problem.HintOf(err) == "" {
				t.Fatalf("code %s, hint %q", problem.CodeOf(err), problem.HintOf(err))
			}
		})
	}
}

func TestFreshStreamsHaveNoDrift(t *testing.T) {
	dir := t.TempDir()
	b := open(t, bus.Options{Dir: dir})
	for range 2 {
		drift, err := b.Drift(context60(t))
		if err != nil || len(drift) != 0 {
			t.Fatalf("drift %v, %v", drift, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, bus.Options{Dir: dir})
	}
}

// TestDeletedStreamWhilePumping: the pump must notice, not wait for ever.
func TestDeletedStreamWhilePumping(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir(), AckTimeout: 200 * time.Millisecond}), openJournal(t, t.TempDir())
	add(t, j, receipt(1, 0))
	stop := pumping(t, b, j)
	stored(t, b, j)
	js, _ := jetstream.New(b.Conn())
	if err := js.DeleteStream(context60(t), bus.Sessions); err != nil {
		t.Fatal(err)
	}
	add(t, j, receipt(1, 1))
	if err := stopsWith(t, b, stop); !errors.As(err, new(*bus.DriftError)) {
		t.Fatalf("got %v", err)
	}
}

// TestHostileSubjectStopsThePump, IN-21: a record whose subject no stream
// stores is a defect of its writer, never published elsewhere.
func TestHostileSubjectStopsThePump(t *testing.T) {
	for name, subject := range map[string]string{
		"IN-21_wildcard":    "gatehouse.v1.sessions.*",
		"IN-21_deeper":      "gatehouse.v1.sessions.a.b",
		"IN-21_other_root":  "$JS.API.STREAM.DELETE.GATEHOUSE_EVENTS",
		"IN-21_space":       "gatehouse.v1.sessions.a b",
		"IN-21_empty_token": "gatehouse.v1.events.github..x.y.z",
		"IN-21_line_break":  "gatehouse.v1.sessions.a\r\nPUB x 0",
		"IN-21_greater":     "gatehouse.v1.events.github.main.push.none.>",
	} {
		t.Run(name, func(t *testing.T) {
			b, j := open(t, bus.Options{Dir: t.TempDir()}), openJournal(t, t.TempDir())
			add(t, j, journal.Record{Kind: journal.KindReceipt, Subject: subject, Data: []byte("x")})
			stopsWith(t, b, pumping(t, b, j))
		})
	}
}

// TestForeignMessageID: somebody else uses the message id of a receipt before
// it is published. "Duplicate" then does not mean that the receipt is stored.
func TestForeignMessageID(t *testing.T) {
	b, j := open(t, bus.Options{Dir: t.TempDir(), Duplicates: 100 * time.Millisecond}), openJournal(t, t.TempDir())
	add(t, j, receipt(1, 0))
	for g := range j.Groups(0) {
		msgs, err := encode(g)
		if err != nil {
			t.Fatal(err)
		}
		js, _ := jetstream.New(b.Conn())
		if _, err := js.Publish(context60(t), "gatehouse.v1.sessions.OTHER", []byte("x"), jetstream.WithMsgID(msgs[0].Header["Nats-Msg-Id"])); err != nil {
			t.Fatal(err)
		}
	}
	pumping(t, b, j)
	stored(t, b, j)
	if got := contents(t, b, bus.Sessions)[sessionSubject(1)]; len(got) != 1 {
		t.Fatalf("stored %v", got)
	}
}
