package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gatehouse/internal/journal"
	"gatehouse/internal/problem"
)

// Encode turns one durable journal group into the messages to publish, in
// order, with their headers. It must give the same answer for the same group
// for ever: the pump compares it with what the streams hold. cmd adapts
// notary.Encode.
type Encode func(group []journal.Record) ([]Msg, error)

const (
	inFlight   = 512  // publishes waiting for an answer, over all subjects
	backlogMax = 4096 // messages taken from the journal and not stored yet

	longest = 5 * time.Second // between two tries while NATS is away
)

// Pump carries the journal's groups to the streams until ctx ends or the
// journal is closed, and then returns nil; after a close it first stores what
// the journal still held. It first compares every subject of this node with the journal,
// whole: what is missing at the end is published, anything else stops it with
// a *FenceError, *DamageError or *DriftError before it writes a byte. While it
// runs, a lost or unclear answer is settled by reading the subject back; other
// bytes there are a *FenceError. One Pump runs
// at a time.
func (b *Bus) Pump(ctx context.Context, j *journal.Journal, enc Encode) error {
	if !b.pumping.CompareAndSwap(false, true) {
		return errors.New("bus: a pump runs already")
	}
	defer b.pumping.Store(false)
	err := b.pump(ctx, j, enc)
	for errors.Is(err, errStore) && ctx.Err() == nil {
		if err = b.revive(ctx); err == nil {
			err = b.pump(ctx, j, enc) // what the store lost is published again
		}
	}
	if ctx.Err() != nil && !errors.As(err, new(*FenceError)) {
		err = nil
	}
	b.update(func(s *Status) {
		s.Waits = nil
		if s.Phase = Idle; err != nil {
			s.Phase, s.Err = Stopped, err
		}
	})
	return err
}

func (b *Bus) pump(ctx context.Context, j *journal.Journal, enc Encode) error {
	b.update(func(s *Status) { s.Phase, s.Err, s.Waits = Reconciling, nil, nil })
	resume, err := b.reconcileUntil(ctx, j, enc)
	if err != nil {
		return err
	}
	b.update(func(s *Status) { s.Phase, s.Stored = Pumping, max(resume.from, 1)-1 })
	p := &pump{bus: b, lanes: map[string]*lane{}, ends: resume.ends, answers: b.answers}
	return p.run(ctx, j, enc, resume)
}

// publisher makes the JetStream context that pumps publish with. Its answer
// handlers only pass on: the client calls one of them with its own lock held.
// It lives as long as the connection, because nats.go can leave a goroutine
// behind when a publisher is cleaned up right after its first publish.
func (b *Bus) publisher() (err error) {
	b.answers = make(chan answer, inFlight)
	b.pub, err = jetstream.New(b.nc,
		jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncTimeout(b.o.AckTimeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck) {
			if ack.Duplicate { // an id seen before says nothing about where it is stored
				b.answers <- answer{subject: m.Subject, err: errDuplicate}
				return
			}
			b.answers <- answer{subject: m.Subject, seq: ack.Sequence}
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			b.answers <- answer{subject: m.Subject, err: err}
		}),
	)
	return err
}

var errDuplicate = errors.New("the server has seen this message id")

// pump is the single owner of every subject it writes. All of its fields
// belong to the goroutine of run.
type pump struct {
	bus     *Bus
	lanes   map[string]*lane  // subjects with work
	ends    map[string]uint64 // idle subject that may go on -> stream sequence of its last message
	groups  []*group          // oldest first, not wholly stored
	flying  int               // publishes without an answer
	backlog int               // messages in lanes
	waiting []*lane           // ready to publish, in order, once flying allows
	answers chan answer       // exactly one for each publish in flight, with room for all of them
}

// lane is one subject. At most one of its messages is un-acknowledged: the
// expected-last-subject-sequence of the next is the answer to the last, and a
// replicated stream refuses a second conditional publish in flight.
type lane struct {
	subject string
	stream  string
	once    bool
	last    uint64 // stream sequence of the last message stored on the subject
	queue   []item // the first is in flight or next
	tries   int    // publishes of the first
}

type item struct {
	msg   Msg
	group *group
}

type group struct {
	pos  uint64 // position of its last record
	left int    // messages not stored
}

// answer is the fate of a lane's first message: stored at seq, absent (retry),
// or err, which is to be settled.
type answer struct {
	subject string
	seq     uint64
	absent  bool
	err     error
}

type encoded struct {
	pos  uint64
	msgs []Msg
	err  error
}

func (p *pump) run(ctx context.Context, j *journal.Journal, enc Encode, r *resume) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	groups := make(chan encoded)
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		follow(ctx, j, enc, r, groups)
	}()
	defer func() {
		cancel()
		<-reader
		// Nothing may be under way when another pump starts. Each publish is
		// answered, at the latest by its timeout.
		for ; p.flying > 0; p.flying-- {
			<-p.answers
		}
	}()

	var ended error // the journal gives no more groups; what was taken is still stored
	for ended == nil || p.backlog > 0 {
		in := groups
		if p.backlog >= backlogMax || ended != nil {
			in = nil // the journal waits, nothing is dropped
		}
		select {
		case g := <-in:
			if ended = g.err; ended != nil {
				continue
			}
			if err := p.take(g); err != nil {
				return err
			}
		case a := <-p.answers:
			if err := p.settle(ctx, a); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.publish(); err != nil {
			return err
		}
	}
	if problem.CodeOf(ended) == problem.JournalClosed {
		return nil // the node shuts down, and everything is on the streams
	}
	return ended
}

// follow reads and encodes ahead of the pump.
func follow(ctx context.Context, j *journal.Journal, enc Encode, r *resume, out chan<- encoded) {
	stored := maps.Clone(r.stored)
	send := func(e encoded) bool {
		select {
		case out <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for recs, err := range j.Follow(ctx, r.from) {
		if err != nil {
			send(encoded{err: fmt.Errorf("couldn't read the journal: %w", err)})
			return
		}
		msgs, err := enc(recs)
		if err != nil {
			send(encoded{err: fmt.Errorf("couldn't encode the group at %d: %w", recs[0].Pos, err)})
			return
		}
		todo := msgs[:0:0]
		for _, m := range msgs {
			if stored[m.Subject] > 0 {
				stored[m.Subject]--
				continue
			}
			todo = append(todo, m)
		}
		if !send(encoded{pos: recs[len(recs)-1].Pos, msgs: todo}) {
			return
		}
	}
}

// take queues one group.
func (p *pump) take(g encoded) error {
	gr := &group{pos: g.pos, left: len(g.msgs)}
	p.groups = append(p.groups, gr)
	for _, m := range g.msgs {
		l := p.lanes[m.Subject]
		if l == nil {
			stream, once := streamOf(m.Subject)
			if stream == "" {
				return fmt.Errorf("bus: no stream stores the subject %q", m.Subject)
			}
			l = &lane{subject: m.Subject, stream: stream, once: once, last: p.ends[m.Subject]}
			p.lanes[m.Subject] = l
			delete(p.ends, m.Subject)
		}
		if l.queue = append(l.queue, item{m, gr}); len(l.queue) == 1 {
			p.waiting = append(p.waiting, l)
		}
		p.backlog++
	}
	p.advance()
	return nil
}

// publish sends the first message of each waiting lane while there is room.
func (p *pump) publish() error {
	for len(p.waiting) > 0 && p.flying < inFlight {
		l := p.waiting[0]
		p.waiting = p.waiting[1:]
		m := l.queue[0].msg
		nm := nats.NewMsg(m.Subject)
		nm.Data = m.Data
		for k, v := range m.Header {
			nm.Header.Set(k, v)
		}
		if most := p.bus.nc.MaxPayload(); int64(nm.Size()) > most {
			return &DriftError{[]Difference{{Field: "max_payload", Want: fmt.Sprint(nm.Size()), Have: fmt.Sprint(most), Loses: true}}}
		}
		p.flying++
		l.tries++
		// A publish that could not be sent has an unclear fate like any other: the
		// client may keep it for after a reconnect.
		if _, err := p.bus.pub.PublishMsgAsync(nm, jetstream.WithExpectLastSequencePerSubject(l.last)); err != nil {
			p.answers <- answer{subject: l.subject, err: err}
		}
	}
	return nil
}

// settle takes an answer. Only "stored" moves the lane on.
func (p *pump) settle(ctx context.Context, a answer) error {
	l := p.lanes[a.subject]
	switch {
	case a.err != nil:
		if errors.As(a.err, new(*FenceError)) || errors.As(a.err, new(*DriftError)) {
			p.flying--
			return a.err
		}
		if p.bus.srv != nil && l.tries >= storeTries && errors.Is(a.err, jetstream.ErrAsyncPublishTimeout) {
			p.flying--
			return errStore
		}
		// The message keeps its place in the count of publishes in flight while a
		// goroutine of its own reads the subject back.
		first, last, tries := l.queue[0].msg, l.last, l.tries
		level := slog.LevelDebug
		if tries%10 == 5 { // for example a full stream; the record waits in the journal
			level = slog.LevelWarn
		}
		p.bus.o.Log.Log(ctx, level, "publish not confirmed", slog.String("subject", l.subject), slog.Int("try", tries), slog.Any("err", a.err))
		go func() { p.answers <- p.bus.settle(ctx, l.stream, first, last, tries) }()
		return nil
	case a.absent:
		p.flying--
		p.waiting = append(p.waiting, l)
		return nil
	}
	p.flying--
	p.backlog--
	done := l.queue[0]
	l.queue, l.last, l.tries = l.queue[1:], a.seq, 0
	switch done.group.left--; {
	case len(l.queue) > 0:
		p.waiting = append(p.waiting, l)
	default:
		delete(p.lanes, l.subject)
		if !l.once && !done.msg.Final {
			p.ends[l.subject] = l.last
		}
	}
	p.advance()
	return nil
}

// advance moves the stored position over the groups that are wholly stored.
func (p *pump) advance() {
	n := 0
	for n < len(p.groups) && p.groups[n].left == 0 {
		n++
	}
	if n == 0 {
		return
	}
	pos := p.groups[n-1].pos
	p.groups = p.groups[n:]
	p.bus.update(func(s *Status) { s.Stored = pos })
}

// settle finds out what became of a publish that was refused or not answered
// (errors 10071, 10164 and 10077, a timeout, a lost connection): it reads the
// subject's head from the leader until it gets an answer. Equal bytes are
// stored; a head that is still the last known one means absent; anything else
// means that somebody else writes there.
func (b *Bus) settle(ctx context.Context, stream string, want Msg, last uint64, tries int) answer {
	if tries > 1 {
		pause(ctx, min(time.Duration(tries)*50*time.Millisecond, longest))
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, longest) {
		have, seq, err := b.head(ctx, stream, want.Subject)
		switch {
		case ctx.Err() != nil:
			return answer{subject: want.Subject, absent: true}
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return answer{subject: want.Subject, err: &DriftError{[]Difference{absent(stream)}}}
		case err != nil:
			if wait == longest {
				b.o.Log.WarnContext(ctx, "couldn't read a subject back yet", slog.String("subject", want.Subject), slog.Any("err", err))
			}
			pause(ctx, wait)
		case seq == last:
			return answer{subject: want.Subject, absent: true}
		case seq > last && digest(have) == digest(want):
			return answer{subject: want.Subject, seq: seq}
		default:
			return answer{subject: want.Subject, err: &FenceError{Stream: stream, Subject: want.Subject, Seq: seq, Why: OtherBytes}}
		}
	}
}

func (b *Bus) update(f func(*Status)) {
	for {
		old := b.state.Load()
		s := *old
		f(&s)
		if b.state.CompareAndSwap(old, &s) {
			return
		}
	}
}
