package ingest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatehouse/internal/event"
	"gatehouse/internal/journal"
)

// TestFoldFromTheWindow: a node with a long journal reads the window and little
// else, finds every delivery in it, and reads more rather than less when it
// cannot tell: between receipts, behind a trimmed beginning, after a clock that
// went back.
func TestFoldFromTheWindow(t *testing.T) {
	const events, window = 16_000, 24 * time.Hour
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Minute) }
	now := at(events)
	record := func(i int, received time.Time) journal.Record {
		e := &event.Event{ID: fmt.Sprintf("github:main:%d", i), Source: "github", Endpoint: "main", Kind: "ping", Time: received, Received: received,
			Trust: event.TrustUntrusted, Actor: event.Actor{Kind: "none", Level: event.Outsider}, Auth: event.Auth{Scheme: "hmac"}, BodySHA256: fmt.Sprintf("%064x", i), Payload: []byte("{}")}
		b, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return journal.Record{Kind: journal.KindEvent, Subject: e.Subject(), Data: b}
	}
	receipt := journal.Record{Kind: journal.KindReceipt, Data: []byte(strings.Repeat("r", 100))}
	for name, c := range map[string]struct {
		record func(i int) journal.Record
		trim   uint64
		within uint64 // of the start of the window, as far as records go
	}{
		"events":              {func(i int) journal.Record { return record(i, at(i)) }, 0, 2 * nearby},
		"a beginning is gone": {func(i int) journal.Record { return record(i, at(i)) }, events - 1000, 2 * nearby},
		"receipts between": {func(i int) journal.Record {
			if i%10 != 0 {
				return receipt
			}
			return record(i, at(i))
		}, 0, 2 * nearby},
		"receipts at last": {func(i int) journal.Record {
			if i > events/3 && i < events-100 {
				return receipt
			}
			return record(i, at(i))
		}, 0, events},
		"clock went back": {func(i int) journal.Record {
			if i > events-5000 {
				return record(i, at(i).Add(-clockSlack/2))
			}
			return record(i, at(i))
		}, 0, 3 * nearby},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), journal.Options{SegmentBytes: 1 << 20, ReserveBytes: -1, QueueBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			var last journal.Ticket
			want := 0
			for i := range events {
				r := c.record(i)
				last = j.Append(r)
				if r.Kind == journal.KindEvent {
					h, err := event.ReadHead(r.Data)
					if err != nil {
						t.Fatal(err)
					}
					if now.Sub(h.Received) <= window {
						want++
					}
				}
			}
			if _, err := last.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.trim > 0 {
				if err := j.Trim(c.trim); err != nil {
					t.Fatal(err)
				}
			}
			g := &gate{Endpoint: Endpoint{Name: "main"}, traits: Traits{Name: "github"}, dedupe: newDedupe(window, true)}
			in := &Intake{o: Options{Journal: j, Now: func() time.Time { return now }}, names: map[string]*gate{"main": g}, gates: []*gate{g}}
			from, err := in.since(t.Context(), now.Add(-window-clockSlack))
			if err != nil {
				t.Fatal(err)
			}
			if first := uint64(events) - uint64(window/time.Minute); from < first-min(first, c.within) && c.trim == 0 {
				t.Errorf("reads from %d of %d", from, j.Next())
			}
			if err := in.fold(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, x := range g.dedupe.gens {
				got += len(x.list)
			}
			if c.trim == 0 && got != want || got == 0 {
				t.Errorf("knows %d deliveries, want %d", got, want)
			}
		})
	}
}
