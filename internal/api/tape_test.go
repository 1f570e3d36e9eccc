package api_test

import (
	"context"
	"iter"

	"gatehouse/internal/bus"
)

// tape is what real streams held, played again to each test's own view.
type tape []bus.Msg

// Read plays the messages of a stream.
func (t tape) Read(_ context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return func(yield func(bus.Msg, error) bool) {
		for _, m := range t {
			if m.Stream == stream && m.Seq >= from && (filter == "" || filter == m.Subject) && !yield(m, nil) {
				return
			}
		}
	}
}

// Follow plays and ends.
func (t tape) Follow(ctx context.Context, stream, filter string, from uint64) iter.Seq2[bus.Msg, error] {
	return t.Read(ctx, stream, filter, from)
}
