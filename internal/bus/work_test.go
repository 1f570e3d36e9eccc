package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"gatehouse/internal/bus"
	"gatehouse/internal/problem"
)

// worker runs Work until stop is called.
func worker(t *testing.T, b *bus.Bus, fn func(context.Context, bus.Msg) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context60(t))
	done := make(chan error, 1)
	go func() { done <- b.Work(ctx, bus.Events, "gatekeeper", fn) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Work returned %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func TestWorkHandsOutEachMessageOnce(t *testing.T) {
	srv := startServer(t)
	a, b := open(t, bus.Options{Node: "a", URL: srv.url()}), open(t, bus.Options{Node: "b", URL: srv.url()})
	var mu sync.Mutex
	seen := map[string][]string{}
	handler := func(node string) func(context.Context, bus.Msg) error {
		return func(_ context.Context, m bus.Msg) error {
			mu.Lock()
			defer mu.Unlock()
			seen[string(m.Data)] = append(seen[string(m.Data)], node)
			return nil
		}
	}
	worker(t, a, handler("a"))
	worker(t, b, handler("b"))
	// On a busy machine one node may be done with the first ones before the other
	// has begun.
	nodes := map[string]int{}
	for n := 0; len(nodes) < 2 && n < 30_000; {
		for range 300 {
			intrude(t, a, eventSubject(fmt.Sprint(n)), fmt.Sprint(n))
			n++
		}
		until(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == n })
		clear(nodes)
		for m, who := range seen {
			if len(who) != 1 {
				t.Fatalf("message %s was handled by %v", m, who)
			}
			nodes[who[0]]++
		}
	}
	if len(nodes) != 2 {
		t.Fatalf("nodes did not share the work: %v", nodes)
	}
}

func TestWorkBringsAFailedMessageBack(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	intrude(t, b, eventSubject("a"), "a")
	calls := make(chan int, 10)
	n := 0
	worker(t, b, func(context.Context, bus.Msg) error {
		n++
		calls <- n
		if n < 2 {
			return errors.New("not now")
		}
		return nil
	})
	for want := 1; want <= 2; want++ {
		select {
		case got := <-calls:
			if got != want {
				t.Fatalf("call %d, want %d", got, want)
			}
		case <-context60(t).Done():
			t.Fatal("the message did not come back")
		}
	}
}

// TestWorkIsHandedOver: a message whose node stops in the middle goes to another
// at once; one that was acknowledged does not come again.
func TestWorkIsHandedOver(t *testing.T) {
	srv := startServer(t)
	a, b := open(t, bus.Options{Node: "a", URL: srv.url()}), open(t, bus.Options{Node: "b", URL: srv.url()})
	done, started := make(chan string, 10), make(chan struct{}, 10)
	stop := worker(t, a, func(ctx context.Context, m bus.Msg) error {
		if string(m.Data) == "a" {
			done <- "a"
			return nil
		}
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	intrude(t, a, eventSubject("a"), "a")
	if got := <-done; got != "a" {
		t.Fatal(got)
	}
	intrude(t, a, eventSubject("b"), "b")
	<-started
	stop()
	worker(t, b, func(_ context.Context, m bus.Msg) error { done <- string(m.Data); return nil })
	if got := <-done; got != "b" {
		t.Fatalf("got %q again", got)
	}
}

// TestWorkAfterARestart: the embedded server forgets that a message was handed
// back, so it comes when its time is over.
func TestWorkAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the acknowledgement time")
	}
	dir := t.TempDir()
	b := open(t, bus.Options{Dir: dir})
	intrude(t, b, eventSubject("a"), "a")
	started := make(chan struct{}, 10)
	stop := worker(t, b, func(ctx context.Context, _ bus.Msg) error {
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	<-started
	stop()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, bus.Options{Dir: dir})
	done := make(chan string, 10)
	worker(t, b, func(_ context.Context, m bus.Msg) error { done <- string(m.Data); return nil })
	if got := <-done; got != "a" {
		t.Fatal(got)
	}
}

// TestWorkOverARestartOfTheServer keeps handing out messages.
func TestWorkOverARestartOfTheServer(t *testing.T) {
	srv := startServer(t)
	b := open(t, bus.Options{URL: srv.url()})
	done := make(chan string, 10)
	worker(t, b, func(_ context.Context, m bus.Msg) error { done <- string(m.Data); return nil })
	intrude(t, b, eventSubject("a"), "a")
	if got := <-done; got != "a" {
		t.Fatal(got)
	}
	srv.stop()
	srv.start()
	until(t, func() bool { return b.Status().Connected })
	intrude(t, b, eventSubject("b"), "b")
	for {
		select {
		case got := <-done:
			if got == "b" {
				return
			}
		case <-context60(t).Done():
			t.Fatal("no message after the restart")
		}
	}
}

func TestFollow(t *testing.T) {
	srv := startServer(t)
	b := open(t, bus.Options{URL: srv.url()})
	intrude(t, b, sessionSubject(1), "0")
	intrude(t, b, sessionSubject(2), "other")
	ctx, cancel := context.WithCancel(context60(t))
	got := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range b.Follow(ctx, bus.Sessions, sessionSubject(1), 0) {
			if err != nil {
				t.Error(err)
				return
			}
			got <- string(m.Data)
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case m := <-got:
			if m != want {
				t.Fatalf("got %q, want %q", m, want)
			}
		case <-ctx.Done():
			t.Fatalf("no %q", want)
		}
	}
	expect("0")
	intrude(t, b, sessionSubject(1), "1")
	expect("1")
	srv.stop()
	srv.start()
	until(t, func() bool { return b.Status().Connected })
	intrude(t, b, sessionSubject(1), "2")
	expect("2")
	cancel()
	<-done
}

func TestRead(t *testing.T) {
	b := open(t, bus.Options{Dir: t.TempDir()})
	for i := range 1300 { // more than two fetches
		intrude(t, b, sessionSubject(i%2), fmt.Sprint(i))
	}
	cases := map[string]struct {
		filter      string
		from        uint64
		n           int
		first, last string
	}{
		"all":         {n: 1300, first: "0", last: "1299"},
		"one_subject": {filter: sessionSubject(1), n: 650, first: "1", last: "1299"},
		"from":        {from: 1001, n: 300, first: "1000", last: "1299"},
		"past_end":    {from: 5000},
		"no_subject":  {filter: "gatehouse.v1.sessions.NONE"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var all []string
			for m, err := range b.Read(context60(t), bus.Sessions, c.filter, c.from) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(m.Data))
			}
			if len(all) != c.n || c.n > 0 && (all[0] != c.first || all[c.n-1] != c.last) {
				t.Fatalf("%d messages %v", len(all), all[:min(3, len(all))])
			}
		})
	}
	t.Run("unknown_stream", func(t *testing.T) {
		for _, err := range b.Read(context60(t), "NONE", "", 0) {
			if err == nil {
				t.Fatal("no error")
			}
			return
		}
		t.Fatal("no error")
	})
	t.Run("break", func(t *testing.T) {
		for range b.Read(context60(t), bus.Sessions, "", 0) {
			break
		}
	})
}

func TestKV(t *testing.T) {
	ctx := context60(t)
	b := open(t, bus.Options{Dir: t.TempDir()})
	kv, err := b.KV(ctx, bus.Claims)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(ctx, "k"); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
	rev, err := kv.Create(ctx, "k", []byte("n1 S1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(ctx, "k", []byte("n2 S2")); !errors.Is(err, bus.ErrExists) {
		t.Fatalf("second create: %v", err)
	}
	e, err := kv.Get(ctx, "k")
	if err != nil || string(e.Value) != "n1 S1" || e.Revision != rev || e.Created.IsZero() {
		t.Fatalf("got %+v, %v", e, err)
	}
	next, err := kv.Update(ctx, "k", []byte("n2 S2"), rev)
	if err != nil || next <= rev {
		t.Fatalf("update: %d, %v", next, err)
	}
	if _, err := kv.Update(ctx, "k", []byte("n3 S3"), rev); !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("stale update: %v", err)
	}
	if _, err := kv.Create(ctx, "other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for e, err := range kv.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		all[e.Key] = string(e.Value)
	}
	if len(all) != 2 || all["k"] != "n2 S2" || all["other"] != "x" {
		t.Fatalf("all: %v", all)
	}
	empty, err := b.KV(ctx, bus.Bundles)
	if err != nil {
		t.Fatal(err)
	}
	for e := range empty.All(ctx) {
		t.Fatalf("an empty bucket yields %v", e)
	}
	if _, err := b.KV(ctx, "undeclared"); err == nil {
		t.Fatal("an undeclared bucket opens")
	}
}

// TestClaimRace: of many who claim one event, one wins.
func TestClaimRace(t *testing.T) {
	ctx := context60(t)
	b := open(t, bus.Options{Dir: t.TempDir()})
	kv, err := b.KV(ctx, bus.Claims)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	won := make(chan int, 32)
	for i := range 32 {
		wg.Go(func() {
			_, err := kv.Create(ctx, "event", []byte{byte(i)})
			if err == nil {
				won <- i
			} else if !errors.Is(err, bus.ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d winners", len(won))
	}
	e, err := kv.Get(ctx, "event")
	if err != nil || !bytes.Equal(e.Value, []byte{byte(<-won)}) {
		t.Fatalf("%v, %v", e, err)
	}
}

func TestActions(t *testing.T) {
	ctx := context60(t)
	b := open(t, bus.Options{Dir: t.TempDir()})
	const hash = "R1-_aAxQ0m6JtV3bq9F3O8pWc2yH5nE7uKzT4dSgLi0"
	if _, err := b.GetAction(ctx, hash); !errors.Is(err, bus.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
	for range 2 { // again is fine
		if err := b.PutAction(ctx, hash, []byte(`{"kind":"net.connect"}`)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.GetAction(ctx, hash)
	if err != nil || string(got) != `{"kind":"net.connect"}` {
		t.Fatalf("%q, %v", got, err)
	}
	err = b.PutAction(ctx, hash, []byte("other"))
	if !errors.As(err, new(*bus.FenceError)) || problem.CodeOf(err) != problem.StreamFenced {
		t.Fatalf("other bytes under a taken hash: %v", err)
	}
	for name, bad := range map[string]string{"empty": "", "wildcard": "*", "dotted": "a.b"} {
		if err := b.PutAction(ctx, bad, nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
		if _, err := b.GetAction(ctx, bad); err == nil || errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
