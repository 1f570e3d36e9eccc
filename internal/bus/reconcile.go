package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"gatehouse/internal/journal"
)

// key is a truncated SHA-256: of a subject, or of what is compared of a
// message. Sixteen bytes keep the scan of a million messages below 100 MB.
type key [16]byte

// digest covers what the journal decides about a message: its data and the
// headers that are ours. The headers the client adds for one publish are not.
func digest(m Msg) key {
	h := sha256.New()
	var n [8]byte
	put := func(s string) {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		if strings.HasPrefix(name, "Gatehouse-") || name == "Nats-Msg-Id" {
			put(name)
			put(m.Header[name])
		}
	}
	put("")
	h.Write(m.Data)
	return key(h.Sum(nil)[:16])
}

func subjectKey(s string) key {
	sum := sha256.Sum256([]byte(s))
	return key(sum[:16])
}

// held is what a stream holds on one subject, in order, and how far the walk
// through the journal has matched it.
type held struct {
	first key // the only message of most subjects, kept without a slice
	more  []key
	last  uint64 // stream sequence of the last message
	next  int    // messages matched
	seen  bool   // the journal names the subject
	gap   uint64 // journal records that did not match at next
}

func (h *held) len() int { return 1 + len(h.more) }

func (h *held) at(i int) key {
	if i == 0 {
		return h.first
	}
	return h.more[i-1]
}

// resume says where the pump goes on.
type resume struct {
	from   uint64            // position of the first group with a record that is not stored
	stored map[string]int    // messages stored already, by subject, of the groups from there on
	ends   map[string]uint64 // subject -> stream sequence of its last message
}

// errAway marks a failure to reach the streams, which says nothing about them.
var errAway = errors.New("streams not reachable")

// reconcileUntil waits for NATS to come back.
func (b *Bus) reconcileUntil(ctx context.Context, j *journal.Journal, enc Encode) (*resume, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, longest) {
		r, err := b.reconcile(ctx, j, enc)
		if !errors.Is(err, errAway) || ctx.Err() != nil {
			return r, err
		}
		b.o.Log.WarnContext(ctx, "couldn't compare the streams with the journal yet", slog.Any("err", err))
		pause(ctx, wait)
	}
}

// reconcile compares the streams with the journal and changes nothing.
func (b *Bus) reconcile(ctx context.Context, j *journal.Journal, enc Encode) (*resume, error) {
	rctx, cancel := request(ctx)
	drift, err := b.Drift(rctx)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	drift = slices.DeleteFunc(drift, func(d Difference) bool { return !d.Loses })
	if len(drift) > 0 {
		return nil, &DriftError{drift}
	}
	all := map[key]*held{}
	own := map[key]string{} // subjects only this node may write
	for _, s := range []string{logPrefix + b.o.Node, controlPrefix + b.o.Node} {
		own[subjectKey(s)] = s
	}
	for _, stream := range []string{Events, Sessions, Log} {
		if err := b.scan(ctx, stream, all); err != nil {
			return nil, err
		}
	}
	return b.match(ctx, j, enc, all, own)
}

// scan reads one stream whole. RC-34, RC-35: a damaged block makes the server
// deliver fewer messages than it counts.
func (b *Bus) scan(ctx context.Context, stream string, all map[key]*held) error {
	rctx, cancel := request(ctx)
	s, err := b.js.Stream(rctx, stream)
	cancel()
	if err != nil {
		return fmt.Errorf("%w: stream %s: %w", errAway, stream, err)
	}
	counted, n := s.CachedInfo().State.Msgs, uint64(0)
	for m, err := range b.Read(ctx, stream, "", 1) {
		if err != nil {
			return fmt.Errorf("%w: %w", errAway, err)
		}
		n++
		k, d := subjectKey(m.Subject), digest(m)
		if h := all[k]; h != nil {
			h.more, h.last = append(h.more, d), m.Seq
		} else {
			all[k] = &held{first: d, last: m.Seq}
		}
	}
	if n < counted {
		return &DamageError{Stream: stream, Lost: counted - n}
	}
	return nil
}

// match walks the journal beside what the streams hold.
func (b *Bus) match(ctx context.Context, j *journal.Journal, enc Encode, all map[key]*held, own map[key]string) (*resume, error) {
	r := &resume{stored: map[string]int{}, ends: map[string]uint64{}}
	missing, trimmed, end := false, false, uint64(0)
	suspects := map[string]*held{}
	first := true
	for recs, err := range j.Groups(0) {
		if err != nil {
			return nil, fmt.Errorf("couldn't read the journal: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if first {
			first, trimmed, r.from = false, recs[0].Pos > 1, recs[0].Pos
		}
		if !missing {
			clear(r.stored)
			r.from = recs[0].Pos
		}
		msgs, err := enc(recs)
		if err != nil {
			return nil, fmt.Errorf("couldn't encode the group at %d: %w", recs[0].Pos, err)
		}
		for _, m := range msgs {
			h := all[subjectKey(m.Subject)]
			switch {
			case h == nil || h.len() == h.next && h.seen:
				missing = true // the stream is behind
				continue
			case h.match(digest(m), trimmed):
				if h.gap > 0 {
					stream, _ := streamOf(m.Subject)
					return nil, &DamageError{Stream: stream, Subject: m.Subject, Lost: h.gap}
				}
				r.stored[m.Subject]++
			case h.next == h.len():
				missing = true
			default:
				h.gap++
				suspects[m.Subject] = h
			}
			if _, once := streamOf(m.Subject); !once {
				if r.ends[m.Subject] = h.last; m.Final {
					delete(r.ends, m.Subject)
				}
			}
		}
		end = recs[len(recs)-1].Pos
	}
	switch {
	case missing && len(all) == 0:
		// A first start, or a store that somebody took away whole: nothing was cut.
		b.o.Log.InfoContext(ctx, "the streams are empty; the journal is written to them", slog.Uint64("from", r.from), slog.Uint64("to", end))
	case missing:
		// A crash leaves a few behind; whoever cut a stream, or rolled it back, leaves
		// more. Either way it is said, and put right from the journal.
		b.o.Log.WarnContext(ctx, "the streams lack what the journal holds; it is written again", slog.Uint64("from", r.from), slog.Uint64("to", end))
	default:
		clear(r.stored)
		r.from = end + 1
	}
	for k, subject := range own {
		// What is left of a trimmed journal may not name a subject that goes on.
		if h := all[k]; trimmed && h != nil && !h.seen {
			h.seen, h.next = true, h.len()
			r.ends[subject] = h.last
		}
	}
	// The same streams are the same finding at every start, which is stated once.
	for _, subject := range slices.Sorted(maps.Keys(suspects)) {
		return nil, b.fence(ctx, subject, suspects[subject].next, OtherBytes)
	}
	return r, b.ahead(ctx, j, enc, all, own)
}

// match reports whether d is the next message of the subject. Where the
// journal was trimmed, the stream may hold older messages before the journal's
// first.
func (h *held) match(d key, trimmed bool) bool {
	if !h.seen && trimmed {
		for i := range h.len() {
			if h.at(i) == d {
				h.next = i
				break
			}
		}
		if h.at(h.next) != d {
			h.next = h.len() // all of it is older than the journal
		}
	}
	h.seen = true
	if h.next < h.len() && h.at(h.next) == d {
		h.next++
		return true
	}
	return false
}

// ahead looks for subjects that go on after the journal ends. A subject the
// journal does not name may be another node's, unless it carries this node's
// name.
func (b *Bus) ahead(ctx context.Context, j *journal.Journal, enc Encode, all map[key]*held, own map[key]string) error {
	var found []key
	for k, h := range all {
		if _, mine := own[k]; h.seen && h.next < h.len() || !h.seen && mine {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil
	}
	first := slices.MinFunc(found, func(a, b key) int { return bytes.Compare(a[:], b[:]) })
	subject := own[first]
	if subject == "" {
		subject = subjectIn(j, enc, first)
	}
	return b.fence(ctx, subject, all[first].next, StreamAhead)
}

// subjectIn finds the text of a subject whose key is k in the journal.
func subjectIn(j *journal.Journal, enc Encode, k key) string {
	for recs, err := range j.Groups(0) {
		if err != nil {
			return ""
		}
		msgs, err := enc(recs)
		if err != nil {
			return ""
		}
		for _, m := range msgs {
			if subjectKey(m.Subject) == k {
				return m.Subject
			}
		}
	}
	return ""
}

// fence makes the error for the message at index i of a subject.
func (b *Bus) fence(ctx context.Context, subject string, i int, why Why) error {
	stream, _ := streamOf(subject)
	e := &FenceError{Stream: stream, Subject: subject, Why: why}
	for m, err := range b.Read(ctx, stream, subject, 1) {
		if err != nil {
			break
		}
		if e.Seq = m.Seq; i == 0 {
			break
		}
		i--
	}
	return e
}
