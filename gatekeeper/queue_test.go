package gatekeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestQueueIsFair(t *testing.T) {
	q := newQueue(2)
	leaveA, err := q.enter(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 3)
	var wg sync.WaitGroup
	var leaves []func()
	var mu sync.Mutex
	wait := func(key string) {
		q.mu.Lock()
		n := len(q.waiting)
		q.mu.Unlock()
		wg.Go(func() {
			leave, err := q.enter(t.Context(), key, 1)
			if err != nil {
				t.Error(err)
				return
			}
			order <- key
			mu.Lock()
			leaves = append(leaves, leave)
			mu.Unlock()
		})
		for { // until it waits or has its place
			q.mu.Lock()
			now, running := len(q.waiting), q.running
			q.mu.Unlock()
			if now > n || running == 2 {
				return
			}
		}
	}
	wait("a") // behind the first a
	wait("b") // has room
	if got := <-order; got != "b" {
		t.Errorf("%s went first", got)
	}
	leaveA()
	if got := <-order; got != "a" {
		t.Errorf("%s went second", got)
	}
	wg.Wait()
	for _, leave := range leaves {
		leave()
	}
	if q.running != 0 || len(q.byKey) != 0 || len(q.waiting) != 0 {
		t.Errorf("queue is not empty: %+v", q)
	}
}

func TestQueueGivesUp(t *testing.T) {
	q := newQueue(1)
	leave, err := q.enter(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := q.enter(ctx, "", 0); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	leave()
	if q.running != 0 || len(q.waiting) != 0 {
		t.Errorf("queue is not empty: %+v", q)
	}
}

// Whatever comes and goes, no limit is passed and nobody waits beside room.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		most := map[string]int{"": limit, "a": rapid.IntRange(1, 3).Draw(t, "a"), "b": rapid.IntRange(1, 3).Draw(t, "b")}
		q := newQueue(limit)
		type waiter struct{ p *place }
		var in []*waiter
		held := func() (n int, byKey map[string]int) {
			byKey = map[string]int{}
			for _, w := range in {
				select {
				case <-w.p.ready:
					n++
					byKey[w.p.key]++
				default:
				}
			}
			return n, byKey
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")
				p := &place{key: key, max: most[key], ready: make(chan struct{})}
				q.mu.Lock()
				q.waiting = append(q.waiting, p)
				q.serve()
				q.mu.Unlock()
				in = append(in, &waiter{p: p})
			},
			"leave": func(t *rapid.T) {
				for i, w := range in {
					select {
					case <-w.p.ready:
						q.mu.Lock()
						q.give(w.p)
						q.mu.Unlock()
						in = append(in[:i], in[i+1:]...)
						return
					default:
					}
				}
				t.Skip("nobody is in")
			},
			"give_up": func(t *rapid.T) {
				for i, w := range in {
					select {
					case <-w.p.ready:
					default:
						q.mu.Lock()
						q.remove(w.p)
						q.mu.Unlock()
						in = append(in[:i], in[i+1:]...)
						return
					}
				}
				t.Skip("nobody waits")
			},
			"": func(t *rapid.T) {
				n, byKey := held()
				if n > limit || n != q.running {
					t.Fatalf("%d in, limit %d, counted %d", n, limit, q.running)
				}
				for _, key := range []string{"a", "b"} {
					if byKey[key] > most[key] {
						t.Fatalf("%d of %s, at most %d", byKey[key], key, most[key])
					}
				}
				if n == limit {
					return
				}
				for _, w := range q.waiting {
					if w.key == "" || byKey[w.key] < w.max {
						t.Fatal(fmt.Sprintf("%q waits beside room", w.key))
					}
				}
			},
		})
	})
}
