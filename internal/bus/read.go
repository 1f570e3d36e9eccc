package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Msg is one stream message. Stream and Seq are set on what was read; what is
// published goes to the stream that stores its subject. Header values are
// evidence, never trusted input.
type Msg struct {
	Subject string
	Data    []byte
	Header  map[string]string
	Stream  string
	Seq     uint64 // stream sequence

	// Final says that nothing may follow on this subject, so that the pump can
	// forget where it ends. Events need not set it.
	Final bool
}

const fetchSize = 512

// Read yields the messages of stream that match filter ("" for all) from the
// stream sequence from on, and stops at the present end. An error ends it.
func (b *Bus) Read(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		next := max(from, 1)
		for failures := 0; ; failures++ {
			more, err := b.readOnce(ctx, stream, filter, &next, func(m Msg) bool {
				failures = 0
				return yield(m, nil)
			})
			if !more {
				return
			}
			// A consumer that went away (a slow caller, a reconnect) is made again
			// where the last one ended.
			if ctx.Err() != nil || failures >= 5 {
				yield(Msg{}, fmt.Errorf("couldn't read stream %s: %w", stream, errors.Join(ctx.Err(), err)))
				return
			}
			pause(ctx, time.Duration(failures)*100*time.Millisecond)
		}
	}
}

// readOnce reads with one ephemeral consumer. more is true when the stream
// may hold more and err says why this consumer could not go on.
func (b *Bus) readOnce(ctx context.Context, stream, filter string, next *uint64, yield func(Msg) bool) (more bool, err error) {
	rctx, cancel := request(ctx)
	cons, err := b.js.CreateConsumer(rctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next,
		FilterSubject: filter, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	cancel()
	if err != nil {
		return true, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.js.DeleteConsumer(ctx, stream, cons.CachedInfo().Name)
	}()
	delivered := uint64(0)
	for empty := 0; ; {
		batch, err := cons.FetchNoWait(fetchSize)
		if err != nil {
			return true, err
		}
		n := 0
		for jm := range batch.Messages() {
			m, at, err := received(jm)
			if err != nil {
				return true, err
			}
			if delivered++; at.Sequence.Consumer != delivered {
				return true, errors.New("a message was lost on the way")
			}
			n++
			*next = m.Seq + 1
			if !yield(m) {
				return false, nil
			}
		}
		if err := batch.Error(); err != nil {
			return true, err
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
		if n > 0 {
			empty = 0
			continue
		}
		// Nothing came: the end, or a server too slow to say so. A damaged store
		// counts messages that it cannot deliver, hence the limit.
		rctx, cancel := request(ctx)
		info, err := cons.Info(rctx)
		cancel()
		if err != nil {
			return true, err
		}
		if empty++; info.NumPending == 0 || empty == 3 {
			return false, nil
		}
	}
}

// Follow yields like Read and then waits for more until ctx ends. It goes on
// over disconnections.
func (b *Bus) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy}
		if filter != "" {
			cfg.FilterSubjects = []string{filter}
		}
		next := max(from, 1)
		for failures := 0; ctx.Err() == nil; failures++ {
			pause(ctx, min(time.Duration(failures)*100*time.Millisecond, 5*time.Second))
			cfg.OptStartSeq = next
			rctx, cancel := request(ctx)
			cons, err := b.js.OrderedConsumer(rctx, stream, cfg)
			cancel()
			if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
				yield(Msg{}, fmt.Errorf("couldn't follow stream %s: %w", stream, err))
				return
			}
			if err != nil {
				continue
			}
			msgs, err := cons.Messages()
			if err != nil {
				continue
			}
			for {
				jm, err := msgs.Next(jetstream.NextContext(ctx))
				if err != nil {
					break
				}
				m, _, err := received(jm)
				if err != nil {
					break
				}
				failures, next = 0, m.Seq+1
				if !yield(m, nil) {
					msgs.Stop()
					return
				}
			}
			msgs.Stop()
		}
	}
}

func received(jm jetstream.Msg) (Msg, *jetstream.MsgMetadata, error) {
	at, err := jm.Metadata()
	if err != nil {
		return Msg{}, nil, err
	}
	return Msg{Subject: jm.Subject(), Data: jm.Data(), Header: flat(jm.Headers()), Stream: at.Stream, Seq: at.Sequence.Stream}, at, nil
}

func flat(h nats.Header) map[string]string {
	if len(h) == 0 {
		return nil
	}
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[k] = v[0]
	}
	return out
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
