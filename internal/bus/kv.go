package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Errors of KV and GetAction, compared with errors.Is.
var (
	ErrNotFound = errors.New("bus: not found")
	ErrExists   = errors.New("bus: key exists")
	ErrConflict = errors.New("bus: key changed since it was read")
)

// Entry is one key of a bucket at one revision.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Created  time.Time // when this revision was written, by the server's clock
}

// KV is a bucket with compare-and-set. A key is made of letters, digits and
// - _ = . / ; callers hash what may hold other bytes.
type KV struct{ kv jetstream.KeyValue }

// KV opens a declared bucket.
func (b *Bus) KV(ctx context.Context, bucket string) (KV, error) {
	kv, err := b.js.KeyValue(ctx, bucket)
	if err != nil {
		return KV{}, fmt.Errorf("couldn't open bucket %s: %w", bucket, err)
	}
	return KV{kv}, nil
}

// Get returns the newest revision of key, or ErrNotFound.
func (k KV) Get(ctx context.Context, key string) (Entry, error) {
	e, err := k.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Entry{}, fmt.Errorf("%s/%s: %w", k.kv.Bucket(), key, ErrNotFound)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("couldn't read %s/%s: %w", k.kv.Bucket(), key, err)
	}
	return entry(e), nil
}

// Create writes key if it does not exist, and returns its revision; ErrExists
// if it does. After any other error the key may or may not have been written:
// read it back.
func (k KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := k.kv.Create(ctx, key, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fmt.Errorf("%s/%s: %w", k.kv.Bucket(), key, ErrExists)
	}
	if err != nil {
		return 0, fmt.Errorf("couldn't create %s/%s: %w", k.kv.Bucket(), key, err)
	}
	return rev, nil
}

// Update writes key if rev is still its newest revision, and returns the new
// one; ErrConflict if it is not. Other errors: as for Create.
func (k KV) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	next, err := k.kv.Update(ctx, key, value, rev)
	if wrongSequence(err) || errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fmt.Errorf("%s/%s: %w", k.kv.Bucket(), key, ErrConflict)
	}
	if err != nil {
		return 0, fmt.Errorf("couldn't update %s/%s: %w", k.kv.Bucket(), key, err)
	}
	return next, nil
}

// All yields the newest revision of every key, in no order.
func (k KV) All(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w, err := k.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			yield(Entry{}, fmt.Errorf("couldn't list bucket %s: %w", k.kv.Bucket(), err))
			return
		}
		defer func() { _ = w.Stop() }()
		for {
			select {
			case e, ok := <-w.Updates():
				if !ok || e == nil { // nil marks the end of what exists now
					return
				}
				if !yield(entry(e), nil) {
					return
				}
			case <-ctx.Done():
				yield(Entry{}, ctx.Err())
				return
			}
		}
	}
}

func entry(e jetstream.KeyValueEntry) Entry {
	return Entry{Key: e.Key(), Value: e.Value(), Revision: e.Revision(), Created: e.Created()}
}
