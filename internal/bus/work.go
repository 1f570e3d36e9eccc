package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	workers = 8 // messages of one Work handled at a time

	// ackWait is how long the messages of a node that died wait for another. A
	// handler that runs longer says so.
	ackWait = 10 * time.Second

	// pullBeat is how often the server says that it still has a request of ours;
	// after two beats that did not come the client sends another.
	pullBeat = time.Second
	// pullFor is how long a request stays with the server, and so how many of those
	// that were taken for lost can be there.
	pullFor = 5 * time.Second
	// askAgain is how soon the client is called a second time; see next.
	askAgain = 20 * time.Millisecond
)

// backoff is the wait before a message whose handler failed comes again; the
// last value repeats. There is no last attempt: a delivery that was accepted
// is never dropped because something else is broken for a while.
var backoff = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, time.Minute}

// Work hands each message of stream to fn, under a durable pull consumer that
// all nodes with the same durable name share. A nil from fn acknowledges the
// message; an error, or a crash, brings it back later, perhaps to another
// node. fn is called from several goroutines, so it must be safe for that, and
// it sees a message more than once, so it must be idempotent. Work returns nil
// when ctx ends, after the running calls of fn have returned.
func (b *Bus) Work(ctx context.Context, stream, durable string, fn func(context.Context, Msg) error) error {
	rctx, cancel := request(ctx)
	defer cancel()
	cons, err := b.js.CreateOrUpdateConsumer(rctx, stream, jetstream.ConsumerConfig{
		Durable: durable, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxDeliver: -1, MaxAckPending: 4 * workers,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("couldn't set up consumer %s of %s: %w", durable, stream, err)
	}
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		_ = b.nc.FlushTimeout(time.Second) // the last answers must leave before Close
	}()
	slots := make(chan struct{}, workers)
	for failures := 0; ctx.Err() == nil; failures++ {
		pause(ctx, min(time.Duration(failures)*100*time.Millisecond, 5*time.Second))
		// One at a time: a message that waits in this client while every worker is
		// busy would run into its acknowledgement time and be handed out twice.
		msgs, err := cons.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
		if err != nil {
			b.o.Log.WarnContext(ctx, "couldn't pull messages", slog.String("consumer", durable), slog.Any("err", err))
			continue
		}
		for {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			jm, err := next(ctx, func(ctx context.Context) (jetstream.Msg, error) { return msgs.Next(jetstream.NextContext(ctx)) })
			if err != nil {
				if errors.Is(err, jetstream.ErrNoHeartbeat) && ctx.Err() == nil {
					<-slots
					continue // the server is slow or away; the client pulls again by itself
				}
				if ctx.Err() == nil {
					<-slots
				}
				break
			}
			failures = 0
			wg.Go(func() {
				defer func() { <-slots }()
				b.handle(ctx, durable, jm, fn)
			})
		}
		msgs.Stop()
	}
	return nil
}

// next waits for a message. The first waits are short, because the answer to a
// request can overtake the client's own note that the request has left: called at
// that moment, the client of nats.go 1.55 sends no other one, and wakes up by beats
// that do not come. Called again, it sends it.
func next(ctx context.Context, call func(context.Context) (jetstream.Msg, error)) (jetstream.Msg, error) {
	for wait := askAgain; wait < pullBeat; wait *= 4 {
		soon, cancel := context.WithTimeout(ctx, wait)
		jm, err := call(soon)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return jm, err
		}
	}
	return call(ctx)
}

func (b *Bus) handle(ctx context.Context, durable string, jm jetstream.Msg, fn func(context.Context, Msg) error) {
	m, at, err := received(jm)
	if err != nil {
		b.o.Log.ErrorContext(ctx, "couldn't read a message's metadata", slog.String("consumer", durable), slog.Any("err", err))
		return
	}
	done := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() { // a long handler must not look like a crashed one
		t := time.NewTicker(ackWait / 3)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = jm.InProgress()
			case <-done:
				return
			}
		}
	})
	err = fn(ctx, m)
	close(done)
	beat.Wait()
	switch {
	case err == nil:
		err = jm.Ack()
	case ctx.Err() != nil:
		err = jm.Nak() // we stop; somebody else may have it at once
	default:
		wait := backoff[min(int(at.NumDelivered), len(backoff))-1]
		b.o.Log.WarnContext(ctx, "message not handled, it comes again", slog.String("consumer", durable),
			slog.Uint64("seq", m.Seq), slog.Uint64("attempt", at.NumDelivered), slog.Duration("wait", wait), slog.Any("err", err))
		err = jm.NakWithDelay(wait)
	}
	if err != nil {
		b.o.Log.WarnContext(ctx, "couldn't answer the server, the message comes again", slog.String("consumer", durable), slog.Any("err", err))
	}
}
