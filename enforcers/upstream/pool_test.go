package upstream

import (
	"context"
	"net"
	"testing"
	"time"

	"gatehouse/internal/authority"
)

// TestPoolLetsGoOfBrokenConnections: a connection may break at the moment it is
// asked for, and then tells so from inside the asking. That must not hold the
// pool, which is every session's.
func TestPoolLetsGoOfBrokenConnections(t *testing.T) {
	to, err := authority.New(authority.HTTP, "a.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{keep: time.Minute}
	key := poolKey{session: "s", to: to, generation: 1}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3000 {
			ours, theirs := net.Pipe()
			c := &Client{}
			k := &conn{Conn: ours, stop: func() bool { return true }}
			cc, err := c.sharedConn(context.Background(), to, k)
			if err != nil {
				t.Error(err)
				return
			}
			p.add(key, k, cc)
			cc.Release()
			go theirs.Close()
			for range 200 {
				if got := p.reuse(key); got != nil {
					got.cc.Release()
				}
			}
			cc.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute): // with -race at a load of 40 it takes 40 s
		t.Fatal("the pool is stuck")
	}
	p.close()
}

// TestPoolSweeps: what nobody uses leaves the pool once its server gave it up, or
// after a time; what somebody uses stays; and an empty pool looks at nothing.
func TestPoolSweeps(t *testing.T) {
	to, err := authority.New(authority.HTTP, "a.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	key := poolKey{session: "s", to: to, generation: 1}
	for name, tc := range map[string]struct {
		keep    time.Duration
		use     bool // it is reserved all the time
		givenUp bool // by its server
		stays   bool
	}{
		"unused":   {keep: 50 * time.Millisecond},
		"given_up": {keep: time.Hour, givenUp: true},
		"kept":     {keep: time.Hour, stays: true},
		"in_use":   {keep: 50 * time.Millisecond, use: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pool{keep: tc.keep}
			defer p.close()
			cc, theirs := pair(t)
			p.add(key, cc.k, cc)
			if !tc.use {
				cc.Release()
			}
			if tc.givenUp {
				_ = theirs.Close()
			}
			left := func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.by) == 0 && p.look == nil
			}
			if tc.stays {
				for range 5 {
					p.sweep()
				}
				if left() || cc.Err() != nil {
					t.Errorf("it is gone: %v", cc.Err())
				}
				return
			}
			for begun := time.Now(); !left(); time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > time.Minute {
					t.Fatal("it is still there, or looked for")
				}
			}
			if cc.Err() == nil {
				t.Error("it was forgotten, not closed")
			}
		})
	}
}

// hesitant is a connection that somebody reserves while it is asked whether it
// is of any more use.
type hesitant struct {
	wire
	before func()
	closed bool
}

func (h *hesitant) leave(bool) bool { h.before(); return true }
func (h *hesitant) Close() error    { h.closed = true; return nil }
func (*hesitant) Reserve() error    { return nil }
func (*hesitant) InFlight() int     { return 0 }
func (*hesitant) Available() int    { return 1 }
func (*hesitant) Err() error        { return nil }
func (*hesitant) changed(func())    {}

// TestPoolSweepLeavesWhatIsTaken: a connection that a request takes while it is
// about to be dropped is that request's.
func TestPoolSweepLeavesWhatIsTaken(t *testing.T) {
	to, err := authority.New(authority.HTTPS, "a.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	key := poolKey{session: "s", to: to, generation: 1}
	for name, taken := range map[string]bool{"taken": true, "unused": false} {
		t.Run(name, func(t *testing.T) {
			p := &pool{keep: time.Hour}
			ours, theirs := net.Pipe()
			defer theirs.Close()
			h := &hesitant{before: func() {}}
			p.add(key, &conn{Conn: ours, stop: func() bool { return true }}, h)
			p.sweep() // it is new
			if taken {
				h.before = func() {
					if p.reuse(key) == nil {
						t.Error("it was not there to take")
					}
				}
			}
			p.sweep()
			p.mu.Lock()
			there := len(p.by) == 1
			p.mu.Unlock()
			if h.closed == taken || there != taken {
				t.Errorf("closed %t, in the pool %t", h.closed, there)
			}
			p.close()
		})
	}
}
