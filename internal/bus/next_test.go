package bus

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestNextAsksAgain: a client that forgot to send its request, as nats.go does
// when the last answer came very soon, is called again at once; so messages do not
// wait until beats are missed. With nothing to do, it is left to wait.
func TestNextAsksAgain(t *testing.T) {
	for name, c := range map[string]struct{ forgets, calls int }{
		"asks":         {0, 1},
		"forgot":       {1, 2},
		"forgot_twice": {2, 3},
		"nothing_came": {1000, 4},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := 0
			_, err := next(ctx, func(ctx context.Context) (jetstream.Msg, error) {
				calls++
				if calls > c.forgets {
					return nil, nil
				}
				if _, bounded := ctx.Deadline(); !bounded {
					cancel()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if calls != c.calls || (c.forgets < c.calls) != (err == nil) {
				t.Errorf("called %d times, want %d; %v", calls, c.calls, err)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, context.Canceled)
			}
		})
	}
}
